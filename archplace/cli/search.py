"""``archplace search RUN.yaml --out DIR``: explore a design space."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, EXIT_INTERRUPTED, EXIT_USAGE, StoppedError
from archplace.cli._engine import add_engine, engine_of
from archplace.cli._output import add_format, print_rows
from archplace.cli._progress import ProgressLine
from archplace.cli._resume import command_line
from archplace.cli._shard import add_shard, search_shard
from archplace.search.intervals import full_rows
from archplace.search.outcome import Fate
from archplace.search.run import RunSearch
from archplace.search.runfile import Run, load_run
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
    add_engine(parser)
    add_shard(parser)
    add_format(parser)
    parser.set_defaults(parser=parser)


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
    resume = command_line(arguments.parser, arguments)
    with ProgressLine(job.objectives) as line, terminated_as_interrupted():
        try:
            return _search(job, arguments, line, resume, started)
        except KeyboardInterrupt:
            line.say(f"interrupted; what is finished is stored. Go on with: {resume}")
            return EXIT_INTERRUPTED
        except StoppedError:
            line.say(f"stopped; go on with: {resume}")
            raise


def _search(job: Run, arguments: argparse.Namespace, line: ProgressLine, resume: str, started: float) -> int:
    make_engine = engine_of(arguments, line.say)
    if arguments.shard is not None:
        return search_shard(job, arguments, line, resume, make_engine)
    with RunSearch.start(job, arguments.out) as search:
        line.say(f"{search.describe()} ({time.monotonic() - started:.1f} s)")
        search.note_command(resume)
        if search.finished_before:
            line.say(f"the run in {arguments.out} is finished: its front follows, nothing is computed again")
        outcome = search.run(line.show, jobs=arguments.jobs, make_engine=make_engine)
        line.close()
        if not search.finished_before:
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
        print_rows(front_rows(result) if table else full_rows(point_views(result)), arguments.format)
    return EXIT_DONE


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Answer a request to end (SIGTERM, which queues send before they kill) as Ctrl-C is answered."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
