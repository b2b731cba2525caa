"""``archplace search … --shard i/n``: one share of a run."""

import argparse
import shlex
import time

from archplace.arch_configs.errors import EXIT_DONE
from archplace.cli._progress import ProgressLine
from archplace.search.run import MakeEngine
from archplace.search.runfile import Run
from archplace.search.shards import Shard, run_shard, start_shard


def add_shard(parser: argparse.ArgumentParser) -> None:
    """Add ``--shard``."""
    parser.add_argument(
        "--shard",
        metavar="i/n",
        help="search only the i-th of n shares of the space, beside other processes that search the others into the "
        "same DIR; put them together with: archplace merge DIR",
    )


def search_shard(
    job: Run,
    arguments: argparse.Namespace,
    line: ProgressLine,
    resume: str,
    make_engine: MakeEngine | None,
) -> int:
    """Search one shard. Nothing goes to stdout, and that nothing is feasible in a share is no failure."""
    started = time.monotonic()
    shard = Shard.parse(arguments.shard)
    with start_shard(job, arguments.out, shard) as search:
        line.say(f"{shard}: {search.describe()}")
        search.note_command(resume)
        outcome = run_shard(
            search, arguments.out, shard, line.show, say=line.say, jobs=arguments.jobs, make_engine=make_engine
        )
        line.close()
        members = int(shard.members(len(outcome.fate)).sum())
        line.say(
            f"{shard}: {members:,} architectures decided in {time.monotonic() - started:.1f} s, "
            f"{len(outcome.records):,} of them evaluated"
        )
        line.say(f"when all shards are done: archplace merge {shlex.quote(str(arguments.out))}")
    return EXIT_DONE
