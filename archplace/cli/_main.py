"""Parse the command line, call the command, turn errors into one line and an exit code."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from archplace import __version__
from archplace.arch_configs.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ArchplaceError,
)

COMMANDS: dict[str, str] = {
    "search": "explore a design space and store its Pareto front",
    "status": "say how far a run is, while it runs or after it was interrupted",
    "report": "write the report of a run as HTML, CSV and JSON",
    "show": "print one design point of a run, or list them",
    "certify": "check a finished run again from its inputs: bounds, points, dominance, counts",
    "merge": "put the shards of a run together to one run",
    "farm": "print scripts that search on a cluster with Slurm or LSF",
    "validate": "check YAML files and say everything that is wrong with them",
    "schedule": "schedule operator graphs on tensor and vector units, to proven optimality",
    "plan": "search the placement of a training job on one accelerator: degrees, schedule, memory policies",
    "evaluate": "price one placement of a training job: step time and its stack, MFU, memory by stage",
    "place": "place layer chains on pipeline stages, to proven optimality",
    "workload": "execution traces: collect, import, look at, convert, and change them; write any workload as one",
    "export": "write a placement, or design points of a run, for other tools: astra-sim, chakra, yaml, timeloop",
    "simulate": "run exported cases with the simulator ASTRA-sim, and keep what it finds",
    "compare": "print what was predicted beside what was simulated, with what the difference is made of",
    "accuracy": "price published training steps, and say how far off the prices are",
    "calibrate": "fit what the programs of clusters sustain to measured training steps",
    "doctor": "say what this installation can do",
}
"""Command name to one line of help; the module ``archplace.cli.<name>`` implements it."""


MOST_LINES = 40
"""Problems that are listed; more say nothing new."""


class Command(Protocol):
    """What a command's module provides."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; return the exit code. Data goes to stdout, progress to stderr."""


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="archplace",
        description="Search an AI-training accelerator and the placement of the job on it together.",
        epilog="Data goes to stdout, progress to stderr. Exit codes: 0 done, 1 internal error, 2 usage or "
        "configuration, 3 nothing feasible, 4 stopped early with partial results, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"archplace {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    subparsers = {}
    for name, text in COMMANDS.items():
        subparsers[name] = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        subparsers[name].add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser, subparsers


def _command(name: str) -> Command:
    return cast(Command, importlib.import_module(f"archplace.cli.{name}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for what a user did."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        print("archplace: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    parser, subparsers = _parser()
    # Only the called command's module is imported, so that `archplace --help` stays instant.
    called = next((word for word in argv if word in subparsers), None)
    try:
        if called is not None:
            _command(called).configure(subparsers[called])
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed its message or the help
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    try:
        code = _command(arguments.command).run(arguments)
        sys.stdout.flush()
        return code
    except ArchplaceError as error:
        if arguments.debug:
            raise
        lines = str(error).splitlines()
        for line in lines[:MOST_LINES]:
            print(f"archplace: {line}", file=sys.stderr)
        if len(lines) > MOST_LINES:
            print(f"archplace: and {len(lines) - MOST_LINES} more problems", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout has gone (`archplace show … | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        print(
            f"archplace: internal error: {type(error).__name__}: {error} (a defect of archplace: run again with "
            "--debug and report the traceback)",
            file=sys.stderr,
        )
        return EXIT_INTERNAL
