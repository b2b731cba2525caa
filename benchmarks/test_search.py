"""Whole searches, as a user starts them: wall time and peak memory of the process, beside what is aimed at."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONS = """\
  placement:
    tensor_parallel: [1, 2, 4, 8]
    microbatch: [1, 2, 4, 8]
    recompute: [false, true]
"""
HBM = "    hbm: [32 GB, 64 GB, 80 GB]\n"
PHAZE = "run:\n  workload: {}\n  space: phaze\n  cluster: tpu-v4-pod\n  accelerators: 1024\n" + OPTIONS + HBM
FIVE = "[bert-large, gpt2-xl, opt-1.3b, llama2-7b, gpt3-175b]"

RUNS = {
    "GPT-3 175B on PHAZE's space": (PHAZE.format("gpt3-175b"), 60, 2.0),
    "Llama 2 7B on PHAZE's space": (PHAZE.format("llama2-7b"), 30, 2.0),
    "Llama 2 7B on PHAZE's space, throughput, energy and area": (
        PHAZE.format("llama2-7b") + "  objectives: [throughput, energy, area]\n",
        None,
        2.0,
    ),
    "five models on PHAZE's space, geometric mean": (
        PHAZE.replace("workload: {}", f"workloads: {FIVE}"),
        240,
        2.0,
    ),
    "five models on PHAZE's space, geometric mean and worst case": (
        PHAZE.replace("workload: {}", f"workloads: {FIVE}") + "  objectives: [throughput, worst_case, area]\n",
        240,
        2.0,
    ),
    "Llama 2 7B on a million architectures": (
        "run:\n  workload: llama2-7b\n  space: modern-fine\n  cluster: tpu-v5p-pod\n  accelerators: 1024\n" + OPTIONS,
        600,
        2.0,
    ),
}


@pytest.mark.parametrize("effort", ["normal", "quick"])
@pytest.mark.parametrize("name", RUNS)
def test_search(benchmark, tmp_path: Path, name: str, effort: str) -> None:
    text, seconds, gib = RUNS[name]
    (tmp_path / "run.yaml").write_text(text)
    command = [sys.executable, "-m", "archplace", "search", "run.yaml", "--out", "out"]
    command += ["--effort", effort]

    def search() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    done = benchmark.pedantic(search, rounds=1)
    # Of the largest child so far: runs of this file grow, so that it is this one's but for a smaller one after it.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    aim = f"aim {seconds} s, {gib:g} GiB" if seconds and effort == "normal" else "no aim"
    summary = [line for line in done.stderr.splitlines() if line.startswith(("done in", "effort"))]
    print(f"\n{name} ({effort}): {benchmark.stats.stats.median:.1f} s, at most {peak:.2f} GiB ({aim}); {summary}")
