"""``archplace search RUN.yaml --out DIR``: explore a design space."""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, EXIT_INTERRUPTED, EXIT_USAGE, StoppedError
from archplace.cli._output import add_format, print_rows
from archplace.cli._progress import ProgressLine
from archplace.search.outcome import Fate
from archplace.search.run import RunSearch
from archplace.search.runfile import load_run
from archplace.search.tables import front_rows, gap_text, point_views


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN.yaml", help="what to search: workload, space, cluster, placement options")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for the results (needed unless --dry-run)")
    parser.add_argument("--dry-run", action="store_true", help="print the size of the search and stop")
    parser.add_argument(
        "--effort",
        choices=("normal", "quick"),
        help="'normal' finds the exact front; 'quick' leaves a gap, which it states (default: as the run file says)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes that solve schedules (default: all processors)"
    )
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search; print the front to stdout."""
    started = time.monotonic()
    job = load_run(arguments.run)
    if arguments.effort is not None:
        job = replace(job, effort=arguments.effort)
    if arguments.dry_run:
        print_rows([RunSearch.size(job)], arguments.format)
        return EXIT_DONE
    if arguments.jobs is not None and arguments.jobs < 1:
        print(f"archplace: --jobs: found {arguments.jobs}, needs at least 1", file=sys.stderr)
        return EXIT_USAGE
    if arguments.out is None:
        print("archplace: --out DIR is needed: the folder that holds the results", file=sys.stderr)
        return EXIT_USAGE
    resume = f"archplace search {arguments.run} --out {arguments.out}"
    if job.effort != "normal":
        resume += f" --effort {job.effort}"
    with ProgressLine(job.objectives) as line, RunSearch.start(job, arguments.out) as search:
        line.say(f"{search.describe()} ({time.monotonic() - started:.1f} s)")

        try:
            outcome = search.run(line.show, jobs=arguments.jobs)
        except KeyboardInterrupt:
            line.say(f"interrupted; what is done is stored. Go on with: {resume}")
            return EXIT_INTERRUPTED
        except StoppedError:
            line.say(f"stopped. Go on with: {resume}")
            raise
        line.close()
        search.store.log("wall_s", time.monotonic() - started)
        counts = ", ".join(
            f"{int((outcome.fate == fate).sum()):,} {text}"
            for fate, text in (
                (Fate.FRONT, "on the front"),
                (Fate.DOMINATED, "dominated"),
                (Fate.PRUNED, "pruned by their bound"),
                (Fate.INFEASIBLE, "infeasible"),
            )
        )
        line.say(f"done in {time.monotonic() - started:.1f} s: {counts}")
        if outcome.gap is not None:
            line.say(f"effort {job.effort}: {gap_text(outcome)}")
        line.say(f"next: archplace report {arguments.out}")
        if not outcome.front:
            line.say(f"nothing is feasible; the most frequent reason: {outcome.main_reason()}")
            return EXIT_INFEASIBLE
        result = search.result()
        table = arguments.format == "table"
        print_rows(front_rows(result) if table else [point.row() for point in point_views(result)], arguments.format)
    return EXIT_DONE
