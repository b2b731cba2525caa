"""``archplace merge DIR``: put the shards of a run together."""

import argparse
import sys
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE
from archplace.cli._output import add_format, print_rows
from archplace.cli._resume import command_line
from archplace.search.intervals import full_rows
from archplace.search.merge import merge
from archplace.search.outcome import Fate
from archplace.search.run import open_result
from archplace.search.tables import front_rows, point_views


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder that the shards were searched into")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where to write the run (default: DIR)")
    add_format(parser)
    parser.set_defaults(parser=parser)
    parser.epilog = (
        "All shards must be finished; where some are not, the commands that finish them are printed (exit code 2). "
        "Prints the front, as archplace search does. The shards are not needed afterwards."
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge; print the front to stdout."""
    out = arguments.folder if arguments.out is None else arguments.out
    outcome = merge(arguments.folder, out, command=command_line(arguments.parser, arguments))
    counts = ", ".join(
        f"{int((outcome.fate == fate).sum()):,} {fate.name.lower()}" for fate in Fate if fate is not Fate.OPEN
    )
    print(f"merged: {counts}", file=sys.stderr)
    print(f"next: archplace report {out}", file=sys.stderr)
    if not outcome.front:
        print(f"nothing is feasible; the most frequent reason: {outcome.main_reason()}", file=sys.stderr)
        return EXIT_INFEASIBLE
    result = open_result(out)
    table = arguments.format == "table"
    print_rows(front_rows(result) if table else full_rows(point_views(result)), arguments.format)
    return EXIT_DONE
