"""``archplace report DIR``: write the report of a run."""

import argparse
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, EXIT_PARTIAL
from archplace.cli._partial import warn_partial
from archplace.search.report import write_report
from archplace.search.run import open_result


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of a run")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where to write the files (default: DIR)")
    parser.epilog = (
        "Writes report.html (one file, needs no network), front.csv and front.json and prints their paths. Of a run "
        "that is not finished the report shows what was evaluated so far. Exit code 3 if nothing is feasible: the "
        "report then says why; exit code 4 if the run is not finished."
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files; print their paths."""
    result = open_result(arguments.folder)
    out = arguments.folder if arguments.out is None else arguments.out
    for path in write_report(result, out, beside_run=out.resolve() == arguments.folder.resolve()):
        print(path)
    if result.partial:
        warn_partial(result, arguments.folder)
        return EXIT_PARTIAL
    return EXIT_DONE if result.outcome.front else EXIT_INFEASIBLE
