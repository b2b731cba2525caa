"""``archplace export``: a placement, or design points of a run, for other tools."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import EXIT_DONE, EXIT_PARTIAL, ConfigError
from archplace.cli._output import add_format, print_rows

if TYPE_CHECKING:
    from archplace.search.export.candidates import Candidate

ASTRA_SIM, CHAKRA, YAML, TIMELOOP = "astra-sim", "chakra", "yaml", "timeloop"
TARGETS = (ASTRA_SIM, CHAKRA, YAML, TIMELOOP)
FILES = {YAML: ".yaml", TIMELOOP: ".timeloop.yaml"}
"""Targets that are one file, with how its name ends where several are written."""
GRANULARITIES = ("auto", "operator", "layer", "stage")

Row = dict[str, object]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "source", metavar="RUN.yaml|DIR", type=Path, help="run file of one placement, or folder of a run"
    )
    parser.add_argument("ids", metavar="ID", nargs="*", help="design points of the run, as archplace show names them")
    parser.add_argument(
        "--to",
        choices=TARGETS,
        required=True,
        help="astra-sim: a case for the simulator; chakra: traces with durations, for others; yaml: a run file that "
        "says everything that was decided; timeloop: the accelerator as mappers of operators describe it",
    )
    parser.add_argument(
        "--out",
        metavar="PATH",
        type=Path,
        required=True,
        help="folder to write, or for yaml and timeloop a file; of several points a folder with one each in it",
    )
    parser.add_argument(
        "--granularity",
        choices=GRANULARITIES,
        default="auto",
        help="what a node of computing is: an operator, what a layer computes between exchanges, or what a stage "
        "computes of a microbatch (default: auto, the finest within --nodes)",
    )
    parser.add_argument(
        "--nodes", metavar="N", type=int, help="most nodes of all traces together for auto (default: 1,000,000)"
    )
    parser.add_argument("--workload", metavar="FILE", help="for yaml: what the run file names, where it is no built-in")
    parser.add_argument("--cluster", metavar="FILE", help="for yaml: the same of the cluster")
    parser.add_argument("--force", action="store_true", help="replace what an earlier export wrote")
    add_format(parser)
    parser.epilog = (
        "A case is a folder with one trace for each device, process groups, system, network and memory files, run.sh, "
        "and manifest.json. It is replayed by the simulator's rules before it is written. Next: archplace simulate "
        "PATH --binary BINARY, then archplace compare PATH."
    )


def run(arguments: argparse.Namespace) -> int:
    """Export; print what was written to stdout."""
    if arguments.nodes is not None and arguments.nodes < 1:
        raise ConfigError(f"--nodes: found {arguments.nodes}; needs at least 1")
    _refuse_options(arguments)
    if not arguments.source.is_dir() or len(arguments.ids) == 1:
        # Before anything is priced; of several points each is asked about by itself.
        _refuse(arguments.out, arguments)
    candidates, partial = _candidates(arguments)
    several = len(candidates) > 1
    targets = [
        arguments.out / _name(each, candidates, arguments.to) if several else arguments.out for each in candidates
    ]
    for target in targets:
        _refuse(target, arguments)
    rows = [_export(each, target, arguments) for each, target in zip(candidates, targets, strict=True)]
    print_rows(rows, arguments.format)
    return EXIT_PARTIAL if partial else EXIT_DONE


def _refuse_options(arguments: argparse.Namespace) -> None:
    """Refuse options that another target has."""
    traces = {"--granularity": arguments.granularity != "auto", "--nodes": arguments.nodes is not None}
    names = {"--workload": arguments.workload is not None, "--cluster": arguments.cluster is not None}
    wrong = [option for option, given in traces.items() if given and arguments.to in FILES]
    wrong += [option for option, given in names.items() if given and arguments.to != YAML]
    if wrong:
        raise ConfigError(f"{', '.join(wrong)}: means nothing with --to {arguments.to}; remove it")


def _refuse(target: Path, arguments: argparse.Namespace) -> None:
    """Refuse to write over what is there."""
    from archplace.search.export.folders import refuse_existing, refuse_occupied
    from archplace.search.export.manifest import is_export

    if arguments.to in FILES:
        refuse_existing(target, force=arguments.force)
    else:
        refuse_occupied(target, force=arguments.force, is_ours=is_export)


def _candidates(arguments: argparse.Namespace) -> "tuple[Sequence[Candidate], bool]":
    """Return what is to be exported, and whether it comes from a run that is not finished."""
    source, ids = arguments.source, arguments.ids
    if not source.is_dir():
        from archplace.search.export.candidates import of_plan
        from archplace.search.planfile import load_plan

        if ids:
            raise ConfigError(f"ID: found {' '.join(ids)} beside a run file; IDs name points of a run's folder")
        return [of_plan(load_plan(source))], False
    from archplace.cli._partial import warn_partial
    from archplace.cli._points import baseline_of, design
    from archplace.search.export.run_points import of_points, without_point
    from archplace.search.points import BASELINE, view
    from archplace.search.run import open_result

    if not ids:
        raise ConfigError(f"ID: none given; list the points with: archplace show {source}")
    if len(set(ids)) < len(ids):
        raise ConfigError(f"ID: found {' '.join(ids)}; give each once")
    result = open_result(source)
    points = []
    for text in ids:
        if text == BASELINE:
            points.append(baseline_of(result))
            continue
        architecture, number = design(result, text)
        point = result.outcome.point(architecture, number)
        if point is None:
            raise ConfigError(f"ID: {without_point(result, architecture)}")
        points.append(view(result, point))
    if result.partial:
        warn_partial(result, source)
    return of_points(points, source), result.partial


def _name(candidate: "Candidate", among: "Sequence[Candidate]", target: str) -> str:
    """Return what one of several candidates is called."""
    point = candidate.origin.point
    alike = [each for each in among if each.origin.point == point]
    name = f"design-{point}" if len(alike) == 1 else f"design-{point}-{candidate.workload.name}"
    return name + FILES.get(target, "")


def _export(candidate: "Candidate", target: Path, arguments: argparse.Namespace) -> Row:
    if arguments.to in FILES:
        return _export_text(candidate, target, arguments)
    return _export_traces(candidate, target, arguments)


def _export_text(candidate: "Candidate", target: Path, arguments: argparse.Namespace) -> Row:
    from archplace.search.export.folders import write_whole

    if arguments.to == YAML:
        from archplace.search.export.run_file import Named, run_file_text

        text = run_file_text(candidate, Named(workload=arguments.workload, cluster=arguments.cluster))
    else:
        from archplace.search.export.timeloop import timeloop_text

        text = timeloop_text(candidate)
    write_whole(target, text)
    return {"file": str(target), "of": candidate.title, "bytes": len(text.encode())}


def _export_traces(candidate: "Candidate", target: Path, arguments: argparse.Namespace) -> Row:
    from archplace.cli._patience import patience
    from archplace.search.export.expand import NODES, expand
    from archplace.search.export.passes import Granularity
    from archplace.search.export.write import write_case, write_plain

    nodes = arguments.nodes or NODES
    granularity = None if arguments.granularity == "auto" else Granularity(arguments.granularity)
    with patience(f"exporting {candidate.title}"):
        try:
            found = expand(candidate, granularity, nodes)
        except ValueError as error:
            raise ConfigError(f"{candidate.title}: {error}") from None
        write = write_case if arguments.to == ASTRA_SIM else write_plain
        written = write(candidate, found, target)
    case = found.case
    if granularity is None and case.n_nodes > nodes:
        print(
            f"archplace: {target}: {case.n_nodes:,} nodes even at granularity {case.granularity}, more than --nodes "
            f"{nodes:,}",
            file=sys.stderr,
        )
    return {
        "case": str(target),
        "npus": case.n_npus,
        "granularity": str(case.granularity),
        "nodes": case.n_nodes,
        "trace_files": written.files,
        "bytes": written.bytes,
        "step_s": candidate.predicted.step_s,
        "simulator_step_s": found.predicted.step_s,
        "replayed_step_s": found.replayed.step_ns / 1e9,
    }
