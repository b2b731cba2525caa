"""``archplace certify DIR``: check a finished run again from its inputs."""

import argparse
import sys
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INTERNAL
from archplace.cli._output import add_format, print_rows
from archplace.search.certify import certify


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of a finished run")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes that solve schedules (default: all processors)"
    )
    add_format(parser)
    parser.epilog = (
        "One row counts architectures by fate, one architectures × placement options. Exit code 0 when every fate "
        "follows from the inputs, 1 when something does not."
    )


def run(arguments: argparse.Namespace) -> int:
    """Check; print the counts, and on stderr what does not hold."""
    certificate = certify(arguments.folder, jobs=arguments.jobs)
    row: dict[str, object] = {"certified": certificate.holds, "points_evaluated_anew": certificate.points}
    if certificate.gap is not None:
        row["gap"] = max(certificate.gap)
    rows = [
        {"what": "architectures", **certificate.counts, **row},
        {"what": "placement options", **certificate.option_counts},
    ]
    print_rows(rows, arguments.format)
    for failure in certificate.failures:
        print(f"archplace: not certified: {failure}", file=sys.stderr)
    return EXIT_DONE if certificate.holds else EXIT_INTERNAL
