"""A dask scheduler and workers as real processes on loopback, and a run that they finish in seconds."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

RUN = """\
run:
  workload: bert-large
  space: few.yaml
  cluster: a100-superpod
  accelerators: 8
  global_batch: 16
  placement: {tensor_parallel: [1, 2], microbatch: [2], recompute: [false]}
"""

SPACE = """\
space:
  name: few
  description: Some dozens of architectures.
  technology: 7nm
  clock: [1 GHz]
  source: a test
  tensor_units:
    count: [2, 3, 4]
    rows: [128]
    cols: [64, 128]
    macs_per_element_per_cycle: {bf16: 1, fp16: 1}
    local_buffer: {per_element: 64 B, at_least: 64 KiB}
    local_bandwidth: {per_cycle_and_edge_element: 4 B}
    source: a test
  vector_units:
    count: [2, 3]
    lanes: 1024
    local_buffer: {per_lane: 256 B}
    source: a test
  global_buffer:
    capacity: [16 MiB, 32 MiB]
    bandwidth: {per_cycle: 4 KiB}
    source: a test
  hbm:
    stacks: [2, 4]
    capacity_per_stack: 16 GB
    bandwidth_per_stack: 400 GB/s
    source: a test
  budget:
    area: 900 mm2
    source: a test
"""


ONCE = """
def honest_one(module):
    # dask may run a preloaded file twice.
    module.honest = getattr(module, "honest", module.answer)
    return module.honest
"""


def write_run(folder: Path, *, run: str = RUN, space: str = SPACE) -> Path:
    """Write the run file and its space; 48 architectures."""
    (folder / "few.yaml").write_text(space)
    path = folder / "run.yaml"
    path.write_text(run)
    return path


def wait_until(holds, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class Cluster:
    """Processes that are ended with the test, whatever becomes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        self.address = ""

    def start_scheduler(self) -> subprocess.Popen:
        file = self.folder / "scheduler.json"
        command = ["dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
        # Where the test itself is killed, its processes end by themselves.
        command += ["--idle-timeout", "120"]
        process = self._start("scheduler", [*command, "--scheduler-file", str(file)])
        wait_until(lambda: file.is_file() and file.read_text().rstrip().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        return process

    def start_workers(self, **preloads: str) -> list[subprocess.Popen]:
        """Start workers by name, each with Python code that it runs first, and wait until they are there."""
        processes = [self._start_worker(name, preload) for name, preload in preloads.items()]
        wait_until(lambda: all("Registered to" in self.log(name) for name in preloads))
        return processes

    def _start_worker(self, name: str, preload: str) -> subprocess.Popen:
        command = ["dask_worker", self.address, "--host", "127.0.0.1", "--name", name, "--nthreads", "1"]
        command += ["--no-nanny", "--no-dashboard", "--memory-limit", "0", "--local-directory", str(self.folder)]
        command += ["--death-timeout", "20"]
        if preload:
            path = self.folder / f"preload_{name}.py"
            path.write_text(ONCE + preload)
            command += ["--preload", str(path)]
        return self._start(name, command)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _start(self, name: str, command: list[str]) -> subprocess.Popen:
        environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False", "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self.processes):
            process.kill()
        for process in self.processes:
            process.wait(timeout=30)


@contextmanager
def cluster(folder: Path):
    """A scheduler, without workers."""
    made = Cluster(folder)
    try:
        made.start_scheduler()
        yield made
    finally:
        made.end()
