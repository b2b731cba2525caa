"""``archplace schedule``: schedule operator graphs on tensor and vector units, to proven optimality."""

import argparse
import math
import time
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE
from archplace.cli._output import Row, add_format, print_rows
from archplace.search.schedule import ENGINES, read_schedule_instances, solve


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"found {text}; needs a finite number of seconds above 0")
    return seconds


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="schedule instances as JSON, plain or gzipped: {name, num_tc, num_vc, nodes, edges} or a list of these",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: bounds and list schedules, where they do not meet an exact search, then CP-SAT; exact: the same "
        "without CP-SAT; cpsat, milp: always that solver; list: bounds and list schedules only (default: auto)",
    )
    parser.add_argument(
        "--solver", default="HiGHS", metavar="NAME", help="MILP solver as PuLP names it, for --engine milp (HiGHS)"
    )
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="per instance part; of deterministic time for the exact search and CP-SAT, of wall-clock time for the "
        "MILP (default: 60)",
    )
    add_format(parser)
    parser.epilog = (
        "Prints per instance: name, makespan and lower bound in the unit of the file's latencies, status (optimal: "
        "proven; gap: valid, and the best lies between the two numbers), seconds taken."
    )


def run(arguments: argparse.Namespace) -> int:
    """Solve every instance of the file and print one row each."""
    rows: list[Row] = []
    for instance in read_schedule_instances(arguments.file):
        started = time.perf_counter()
        schedule = solve(
            instance.problem,
            engine=arguments.engine,
            time_limit_s=arguments.time_limit,
            solver=arguments.solver,
        )
        row: Row = {
            "name": instance.name,
            "makespan": schedule.makespan_s,
            "lower_bound": schedule.lower_bound_s,
            "status": schedule.status.value,
            "seconds": time.perf_counter() - started,
        }
        rows.append(row)
    print_rows(rows, arguments.format)
    return EXIT_DONE
