"""``archplace validate``: check YAML files and say everything that is wrong with them."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from archplace.arch_configs import (
    load_accelerator,
    load_cluster,
    load_space,
    load_technology,
    price_accelerator_area,
    unknown_name,
)
from archplace.arch_configs.errors import EXIT_DONE, EXIT_USAGE, ArchplaceError, ConfigError, Problem
from archplace.arch_configs.files import YamlValue, read_lenient
from archplace.arch_configs.units import AREA, BYTES_PER_SECOND, format_bytes, format_quantity


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a YAML file of any kind")
    parser.epilog = (
        "The key at the top of a file says what it is: "
        + ", ".join(f"{key}:" for key in _KINDS)
        + ". Prints one line per good file on stdout and every problem of the others on stderr; exit code 2 if there "
        "are any."
    )


def _accelerator(path: Path) -> str:
    accelerator = load_accelerator(path)
    tensor = accelerator.tensor_units
    precision, rate = max(tensor.macs_per_element_per_cycle.items(), key=lambda item: item[1])
    peak = 2 * tensor.count * tensor.rows * tensor.cols * rate * accelerator.clock_hz
    text = f"accelerator, {peak / 1e12:.4g} TFLOP/s {precision}, HBM {format_bytes(accelerator.hbm.capacity_bytes)}"
    if accelerator.technology is not None:
        area = price_accelerator_area(accelerator, load_technology(accelerator.technology))
        text += f", {format_quantity(area, AREA)} by {accelerator.technology}"
    return text


def _cluster(path: Path) -> str:
    cluster = load_cluster(path)
    dimensions = ", then ".join(
        f"{dimension.topology.value.replace('_', ' ')} of {dimension.size} at "
        + format_quantity(dimension.bandwidth_bytes_per_s, BYTES_PER_SECOND)
        for dimension in cluster.dimensions
    )
    return f"cluster, {cluster.size:,} devices: {dimensions}"


def _space(path: Path) -> str:
    space = load_space(path)
    return f"design space, {space.n_raw:,} raw combinations, {len(space.enumerate()):,} architectures"


def _technology(path: Path) -> str:
    technology = load_technology(path)
    area = price_accelerator_area(load_accelerator("tpu-v4"), technology)
    return f"technology table, prices a TPU v4 at {format_quantity(area, AREA)}"


def _model(path: Path) -> str:
    from archplace.workloads import load_model

    return f"model {load_model(path).name!r}"


def _workload(path: Path) -> str:
    from archplace.workloads import load_job

    workload = load_job(path)
    return f"workload, {workload.model_name} with {workload.tokens_per_step:,} tokens per step"


def _run(path: Path) -> str:
    document = read_lenient(path).data
    if isinstance(document, dict) and _plans(document.get("run")):
        return _plan(path)
    from archplace.search.runfile import load_run

    run = load_run(path)
    names = ", ".join(workload.name for workload in run.workloads)
    return f"run of {names} on {run.cluster.size:,} accelerators out of {run.space.n_raw:,} raw combinations"


def _plans(run: YamlValue) -> bool:
    """Return whether a run is one of ``plan`` and ``evaluate``: they take one accelerator in place of a space."""
    return isinstance(run, dict) and "accelerator" in run and "space" not in run


def _plan(path: Path) -> str:
    from archplace.search.planfile import load_plan

    problem = load_plan(path).problem
    return f"run of {problem.workload.name} on {problem.accelerators:,} {problem.accelerator.name}"


_KINDS: dict[str, Callable[[Path], str]] = {
    "accelerator": _accelerator,
    "cluster": _cluster,
    "space": _space,
    "technology": _technology,
    "model": _model,
    "workload": _workload,
    "run": _run,
}
"""Top-level key to what loads the file and describes it in a line."""


def _describe(path: Path) -> str:
    """Return what the file is; raises :class:`ArchplaceError` with everything that is wrong with it."""
    document = read_lenient(path)
    if not isinstance(document.data, dict) or not document.data:
        found = "an empty file" if not document.data else "no mapping"
        message = f"found {found}; allowed: a mapping with one of the keys {', '.join(_KINDS)}"
        raise ConfigError([*document.problems, document.problem((), message)])
    # A workload may carry its model: the last kind in this order that is present decides.
    kind = next((kind for kind in reversed(_KINDS) if kind in document.data), None)
    if kind is None:
        first = next(iter(document.data))
        message = unknown_name(first, _KINDS, what="kind of file")
        raise ConfigError([*document.problems, document.problem((first,), message, at_key=True)])
    return _KINDS[kind](path)


def run(arguments: argparse.Namespace) -> int:
    """Check each file; return 2 if anything is wrong with any."""
    code = EXIT_DONE
    for path in arguments.files:
        try:
            print(f"{path}: ok ({_describe(path)})")
        except ConfigError as error:
            problems = [problem if problem.place else _at(path, problem) for problem in error.problems]
            code = _report(problems)
        except ArchplaceError as error:
            code = _report([Problem(place=str(path), key="", message=str(error))])
    return code


def _at(path: Path, problem: Problem) -> Problem:
    return Problem(place=str(path), key=problem.key, message=problem.message)


def _report(problems: list[Problem]) -> int:
    sys.stdout.flush()
    for problem in problems:
        print(f"archplace: {problem}", file=sys.stderr)
    return EXIT_USAGE
