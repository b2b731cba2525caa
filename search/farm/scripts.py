"""Scripts that search on a cluster: an array job of shards with its merge, or a dask farm, for Slurm and for LSF.

They are printed for a person to read and to change. Everything that varies is quoted for the language it stands in.
"""

import re
import shlex
import sys
from dataclasses import dataclass
from typing import Literal

from archplace.arch_configs.errors import ConfigError
from archplace.search.shards import MOST_SHARDS

System = Literal["slurm", "lsf"]

LEAST_MEMORY_BYTES = 1 << 30
"""Of a process that searches: the interpreter with its libraries takes a third of it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+@-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmJob:
    """What is to be run where."""

    system: System
    run: str
    """The run file, and"""
    out: str
    """the folder for the results, as seen from ``cwd``."""
    cwd: str
    workers: int
    memory_bytes: int
    """Per worker."""
    minutes: int
    """Time limit of a job."""
    queue: str | None = None
    project: str | None = None
    effort: str | None = None
    python: str = sys.executable
    """The interpreter that has archplace, on all machines."""

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MOST_SHARDS:
            raise ConfigError(f"--workers: found {self.workers}, needs 1 to {MOST_SHARDS}")
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise ConfigError(f"--memory: found {self.memory_bytes} bytes, a worker needs at least 1 GiB")
        if not 1 <= self.minutes <= 60 * 24 * 365:
            raise ConfigError(f"--time: found {self.minutes} minutes, needs 1 minute to 365 days")
        for option, name in (("--queue", self.queue), ("--project", self.project)):
            if name is not None and not _NAME.fullmatch(name):
                raise ConfigError(f"{option}: found {name!r}; needs letters, digits and any of _ . : / + @ -")
        for option, text in (("RUN.yaml", self.run), ("--out", self.out), ("folder", self.cwd)):
            if any(ord(character) < 32 for character in text):
                raise ConfigError(f"{option}: found {text!r}; names with line breaks cannot stand in a script")

    @property
    def name(self) -> str:
        """What the jobs are called."""
        stem = self.run.rsplit("/", 1)[-1].removesuffix(".yaml").removesuffix(".yml")
        return "archplace-" + (re.sub(r"[^A-Za-z0-9_.-]+", "-", stem, flags=re.ASCII).strip("-.") or "run")

    @property
    def memory_mib(self) -> int:
        """Whole MiB per worker."""
        return -(-self.memory_bytes // (1 << 20))

    @property
    def search(self) -> list[str]:
        """The words of the command that searches."""
        words = [self.python, "-m", "archplace", "search", self.run, "--out", self.out]
        return words + (["--effort", self.effort] if self.effort is not None else [])


def array_script(job: FarmJob) -> str:
    """Return a shell script that submits an array job of shards, and a job that merges them when all are done."""
    return _slurm_array(job) if job.system == "slurm" else _lsf_array(job)


def dask_script(job: FarmJob) -> str:
    """Return a Python script that starts a dask scheduler, has workers started as jobs, and searches with them."""
    hours, minutes = divmod(job.minutes, 60)
    resources: list[tuple[str, object]]
    if job.system == "slurm":
        cluster, account = "SLURMCluster", "account"
        resources = [("walltime", f"{hours:02d}:{minutes:02d}:00")]
    else:
        cluster, account = "LSFCluster", "project"
        resources = [("walltime", f"{hours:02d}:{minutes:02d}"), ("ncpus", 1), ("mem", job.memory_mib << 20)]
    options: list[tuple[str, object]] = [
        ("job_name", job.name),
        # An evaluation holds the interpreter's lock: more threads in a process would wait for each other.
        ("cores", 1),
        ("processes", 1),
        ("memory", f"{job.memory_mib} MiB"),
        *resources,
        *([("queue", job.queue)] if job.queue is not None else []),
        *([(account, job.project)] if job.project is not None else []),
        ("python", job.python),
    ]
    arguments = "".join(f"    {name}={value!r},\n" for name, value in options)
    search = "".join(f"    {word!r},\n" for word in [*job.search, "--engine", "dask", "--wait", "3600", "--scheduler"])
    return f'''\
#!/usr/bin/env python3
"""Search {_docstring(job.run)} with dask workers that {job.system.upper()} starts as jobs.

Start it where jobs can be submitted and where it may run for as long as the search takes:
    {_docstring(shlex.quote(job.python))} this-script.py
Needs: pip install 'archplace[farm]'
"""

import os
import subprocess
import sys

from dask_jobqueue import {cluster}

os.chdir({job.cwd!r})
cluster = {cluster}(
{arguments})
print(cluster.job_script(), file=sys.stderr)
# Workers that are lost or reach their time limit are replaced.
cluster.adapt(minimum_jobs={job.workers}, maximum_jobs={job.workers})
search = [
{search}]
with cluster:
    sys.exit(subprocess.call([*search, cluster.scheduler_address]))
'''


def _docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _head(job: FarmJob) -> str:
    return f"""\
#!/bin/bash
# Search {job.run} in {job.workers} shards with {job.system.upper()}, and merge them when all are done.
# Start it where jobs can be submitted: bash this-script.sh
# Start it again when some shards failed or reached their time limit: what is finished is kept.
set -euo pipefail
cd {shlex.quote(job.cwd)}
"""


def _shard(job: FarmJob, index: str) -> str:
    """Return the command that searches one shard, on one processor."""
    return f'exec {shlex.join(job.search)} --jobs 1 --shard "${{{index}}}/{job.workers}"'


def _merge(job: FarmJob) -> str:
    return f"exec {shlex.join([job.python, '-m', 'archplace', 'merge', job.out])}"


def _slurm_array(job: FarmJob) -> str:
    hours, minutes = divmod(job.minutes, 60)
    options = [
        "--ntasks=1",
        "--cpus-per-task=1",
        f"--mem={job.memory_mib}M",
        f"--time={hours:02d}:{minutes:02d}:00",
        *([f"--partition={job.queue}"] if job.queue is not None else []),
        *([f"--account={job.project}"] if job.project is not None else []),
    ]
    directives = "".join(f"#SBATCH {option}\n" for option in options)
    return f"""\
{_head(job)}
array=$(sbatch --parsable <<'JOB'
#!/bin/bash
#SBATCH --job-name={job.name}
#SBATCH --array=1-{job.workers}
#SBATCH --output={job.name}-%A-%a.log
#SBATCH --requeue
{directives}{_shard(job, "SLURM_ARRAY_TASK_ID")}
JOB
)
# With several clusters sbatch adds the name of the one that it chose.
array=${{array%%;*}}

sbatch --dependency="afterok:$array" --kill-on-invalid-dep=yes <<'JOB'
#!/bin/bash
#SBATCH --job-name={job.name}-merge
#SBATCH --output={job.name}-merge-%j.log
{directives}{_merge(job)}
JOB
"""


def _lsf_array(job: FarmJob) -> str:
    hours, minutes = divmod(job.minutes, 60)
    options = [
        "-n 1",
        # In KB, unless LSF_UNIT_FOR_LIMITS of the cluster says otherwise.
        f"-M {job.memory_mib * 1024}",
        f"-W {hours:02d}:{minutes:02d}",
        *([f"-q {job.queue}"] if job.queue is not None else []),
        *([f"-P {job.project}"] if job.project is not None else []),
    ]
    directives = "".join(f"#BSUB {option}\n" for option in options)
    return f"""\
{_head(job)}# Memory limits are in KB: where LSF_UNIT_FOR_LIMITS names another unit, change the lines with -M.

array=$(bsub <<'JOB' | sed -n 's/^Job <\\([0-9][0-9]*\\)>.*/\\1/p'
#!/bin/bash
#BSUB -J "{job.name}[1-{job.workers}]"
#BSUB -o {job.name}-%J-%I.log
#BSUB -r
{directives}{_shard(job, "LSB_JOBINDEX")}
JOB
)

bsub -w "done($array)" <<'JOB'
#!/bin/bash
#BSUB -J {job.name}-merge
#BSUB -o {job.name}-merge-%J.log
{directives}{_merge(job)}
JOB
"""
