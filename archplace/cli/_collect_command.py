"""``archplace workload collect``: traces of a training script's steps."""

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import EXIT_DONE, ConfigError
from archplace.cli._output import add_format, print_document

if TYPE_CHECKING:
    from archplace.workloads.traces.collect import Collected

_ENDINGS = (".et", ".json", ".et.gz", ".json.gz")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("script", metavar="SCRIPT.py", help="a training script that uses an optimizer of PyTorch")
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module's name, as for python -m")
    parser.add_argument(
        "--out",
        metavar="DIR|FILE",
        required=True,
        help="a folder for all traces: calls.RANK.json.gz, profile.RANK.json.gz, steps.RANK.json.gz and step.RANK.et; "
        f"or a file ({', '.join(_ENDINGS)}) for nothing but the Chakra trace made of them",
    )
    parser.add_argument(
        "--skip", metavar="N", type=int, default=2, help="steps that pass before one is traced (default: 2, at least 1)"
    )
    parser.add_argument(
        "--timed",
        metavar="N",
        type=int,
        default=3,
        help="further steps whose durations are taken, without the observer (default: 3)",
    )
    parser.add_argument(
        "--args", metavar="…", nargs=argparse.REMAINDER, default=[], help="all that stands behind goes to the script"
    )
    add_format(parser)


def collect(arguments: argparse.Namespace) -> int:
    """Run the script, write its traces, print where they are."""
    from archplace.workloads.traces import save_trace
    from archplace.workloads.traces.collect import Script
    from archplace.workloads.traces.collect import collect as collect_steps
    from archplace.workloads.traces.pytorch_import import import_pytorch

    script = Script(name=arguments.script, arguments=tuple(arguments.args), is_module=arguments.is_module)
    out = Path(arguments.out)
    is_file = arguments.out.endswith(_ENDINGS) and not out.is_dir()
    if is_file and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"--out: found the file {arguments.out}, and several processes collect: give a folder")
    if is_file and not out.parent.is_dir():
        raise ConfigError(f"--out: found {arguments.out}, and there is no folder {out.parent}")

    def write(folder: Path, trace: Path | None) -> dict[str, object]:
        found = collect_steps(script, folder, skip=arguments.skip, timed=arguments.timed)
        target = folder / f"step.{found.rank}.et" if trace is None else trace
        imported = import_pytorch(found.calls, [path for path in (found.profile, found.steps) if path is not None])
        save_trace(imported.trace, target)
        return {
            "trace": str(target),
            **({} if trace else _files(found)),
            "calls": imported.n_calls,
            "operators": imported.n_operators,
            "kernels": imported.n_kernels,
            "communications": imported.n_communications,
            "steps timed": found.n_timed,
        }

    if not is_file:
        print_document(write(out, None), arguments.format)
        return EXIT_DONE
    with tempfile.TemporaryDirectory() as folder:
        print_document(write(Path(folder), out), arguments.format)
    return EXIT_DONE


def _files(found: "Collected") -> dict[str, object]:
    return {
        "observer's trace": str(found.calls),
        "profile of the same step": str(found.profile),
        "profile of further steps": None if found.steps is None else str(found.steps),
    }
