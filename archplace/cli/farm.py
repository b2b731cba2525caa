"""``archplace farm slurm|lsf RUN.yaml --out DIR``: print a script that searches on a cluster."""

import argparse
import re
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, ConfigError
from archplace.arch_configs.units import BYTES, parse_quantity
from archplace.search.farm.scripts import FarmJob, array_script, dask_script
from archplace.search.runfile import load_run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("system", choices=("slurm", "lsf"), help="what runs jobs on the cluster")
    parser.add_argument("run", metavar="RUN.yaml", help="what to search")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results, on a shared file system")
    parser.add_argument(
        "--how",
        choices=("shards", "dask"),
        default="shards",
        help="'shards' prints a shell script: an array job of shards and a job that merges them; 'dask' prints a "
        "Python script: workers as jobs, through dask-jobqueue (default: shards)",
    )
    parser.add_argument("--workers", metavar="N", type=int, default=8, help="jobs at a time (default: 8)")
    parser.add_argument("--memory", metavar="BYTES", default="4 GiB", help="memory of each job (default: 4 GiB)")
    parser.add_argument(
        "--time", metavar="HH:MM", default="12:00", help="time limit of each job, hours and minutes (default: 12:00)"
    )
    parser.add_argument("--queue", metavar="NAME", help="queue (LSF) or partition (Slurm)")
    parser.add_argument("--project", metavar="NAME", help="project (LSF) or account (Slurm) that pays")
    parser.add_argument("--effort", choices=("normal", "quick"), help="as for archplace search")
    parser.epilog = "Nothing is submitted: read the script, change it, and start it. See docs/farm.md."


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    load_run(arguments.run)
    try:
        memory_bytes = int(parse_quantity(arguments.memory, BYTES))
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None
    job = FarmJob(
        system=arguments.system,
        run=arguments.run,
        out=arguments.out,
        cwd=str(Path.cwd()),
        workers=arguments.workers,
        memory_bytes=memory_bytes,
        minutes=_minutes(arguments.time),
        queue=arguments.queue,
        project=arguments.project,
        effort=arguments.effort,
    )
    print(array_script(job) if arguments.how == "shards" else dask_script(job), end="")
    return EXIT_DONE


def _minutes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,5}):([0-5]\d)", text, re.ASCII)
    if match is None:
        raise ConfigError(f"--time: found {text!r}; needs hours and minutes, such as 12:00")
    return 60 * int(match[1]) + int(match[2])
