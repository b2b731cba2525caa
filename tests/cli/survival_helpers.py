"""A small search, children that die in the middle of it, and what their stores hold afterwards."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

from archplace.cli import main
from archplace.search.engine import LocalEngine
from archplace.search.store import FILE, Store

SPACE = """\
space:
  name: few
  description: Architectures on which some schedules stay open.
  technology: 7nm
  clock: [1 GHz]
  source: a test
  tensor_units:
    count: {counts}
    rows: [128]
    cols: [64, 128, 256]
    macs_per_element_per_cycle: {{bf16: 1, fp16: 1}}
    local_buffer: {{per_element: 64 B, at_least: 64 KiB}}
    local_bandwidth: {{per_cycle_and_edge_element: 4 B}}
    source: a test
  vector_units:
    count: [1, 2]
    lanes: 512
    local_buffer: {{per_lane: 256 B}}
    source: a test
  global_buffer:
    capacity: [16 MiB, 64 MiB]
    bandwidth: {{per_cycle: 4 KiB}}
    source: a test
  hbm:
    stacks: [2, 4]
    capacity_per_stack: 32 GB
    bandwidth_per_stack: 400 GB/s
    source: a test
  budget:
    area: 900 mm2
    source: a test
"""

SMALL = """\
run:
  workload: bert-large
  space: few.yaml
  cluster: a100-superpod
  accelerators: 8
  global_batch: 16
  placement: {tensor_parallel: [1, 2], microbatch: [2], recompute: [false]}
  budgets: {area: 700 mm2}
"""

MANY = SMALL.replace("[1, 2]", "[1, 2, 4]").replace(
    "microbatch: [2], recompute: [false]", "microbatch: [1, 2], recompute: [false, true]"
)
"""With so many schedules to solve that several processes do."""

PORTFOLIO = """\
run:
  workloads: [bert-large, opt-350m]
  space: few.yaml
  cluster: a100-superpod
  accelerators: 8
  global_batch: 16
  placement: {tensor_parallel: [1, 2], microbatch: [2], recompute: [false]}
  objectives: [throughput, worst_case, area]
  budgets: {area: 700 mm2}
"""

TABLES = ("bounds", "records", "schedules", "outcome", "texts")
"""What makes a result."""

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["archplace.cli.search", "archplace.cli.report"])


def write_run(folder, run, *, counts="[1, 2, 4, 8]"):
    """Write a run file and its space; return the run file's path."""
    (folder / "few.yaml").write_text(SPACE.format(counts=counts))
    (folder / "run.yaml").write_text(run)
    return folder / "run.yaml"


def rows(folder, *, with_rowid=False):
    """Return what a store holds, table by table, in an order that does not depend on when it was written."""
    connection = sqlite3.connect(folder / FILE)
    columns = "rowid, *" if with_rowid else "*"
    try:
        return {table: sorted(connection.execute(f"select {columns} from {table}").fetchall()) for table in TABLES}
    finally:
        connection.close()


def count(folder, table, where="1 = 1"):
    """Return how many rows a table has."""
    connection = sqlite3.connect(folder / FILE)
    try:
        return connection.execute(f"select count(*) from {table} where {where}").fetchone()[0]
    finally:
        connection.close()


def n_steps(folder):
    """Return how many steps of a run are stored; 0 where there is no store yet."""
    if not (folder / FILE).exists() or not count(folder, "sqlite_master", "name = 'meta'"):
        return 0
    return count(folder, "bounds") + count(folder, "records")


def living(group, *, called=""):
    """Return the processes of a process group that have not ended, and whose command holds ``called``."""
    found = []
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, number = (path / "stat").read_text().rpartition(")")[2].split()[:3]
                command = (path / "cmdline").read_bytes().decode(errors="replace")
                if int(number) == group and state != "Z" and called in command:
                    found.append(int(path.name))
        return found
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat=,command="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for line in lines:
        number, own_group, state, command = line.split(None, 3)
        if int(own_group) == group and "Z" not in state and called in command:
            found.append(int(number))
    return found


def in_child(function, *arguments):
    """Run ``function`` in a process of its own; return its exit code, negative where a signal ended it."""
    child = CONTEXT.Process(target=_quietly, args=(function, arguments))
    child.start()
    child.join(120)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def _quietly(function, arguments):
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        sys.exit(function(*arguments))


def search(run, out):
    """Search in this process."""
    return main(["search", str(run), "--out", str(out), "--jobs", "1"])


def search_and_die(run, out, number, moment, log):
    """Search, and be killed at the transaction ``number`` from the start of the process, at the ``moment`` of it.

    The file ``log`` hears of everything that is computed.
    """
    writing, evaluate, bounds = Store._writing, LocalEngine.evaluate, LocalEngine.bounds
    transactions = Counter()

    def die_at(now):
        if transactions["begun"] == number and moment == now:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def mortal(self):
        transactions["begun"] += 1
        die_at("before")
        with writing(self) as connection:
            yield connection
            die_at("inside")
        die_at("after")

    def note(what):
        with Path(log).open("a") as file:
            file.write(json.dumps(what) + "\n")

    def evaluate_and_note(self, indices, options, *, solve, keep):
        workloads = [workload.name for workload in self._evaluator.workloads]
        for architecture in indices.tolist():
            note([workloads, architecture, int(solve)])
        evaluate(self, indices, options, solve=solve, keep=keep)

    def bounds_and_note(self, blocks, kind):
        for block in bounds(self, blocks, kind):
            note("bounds")
            yield block

    Store._writing, LocalEngine.evaluate, LocalEngine.bounds = mortal, evaluate_and_note, bounds_and_note
    return search(run, out)


def search_with_little_room(run, out, n_bytes):
    """Search where no file may grow beyond ``n_bytes``."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    return search(run, out)


def search_while_the_clock_jumps(run, out):
    """Search while somebody sets the time of day forth and back by years."""
    times = iter(range(10**9))
    true_time = time.time
    time.time = lambda: true_time() + (-1) ** next(times) * 1e8
    return search(run, out)
