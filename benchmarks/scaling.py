"""How the time of a search grows with the number of architectures: one certified search for each size, and a plot.

The spaces have the parameters of ``modern-fine`` with fewer values of each, between the same ends. Run from the root of
the repository, with the extra ``plots``::

    python benchmarks/scaling.py --out docs/scaling
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
SIZES = (
    (2, 6, 3, 2, 3, 4, 1),
    (2, 8, 4, 2, 3, 5, 2),
    (2, 9, 4, 2, 4, 6, 2),
    (3, 10, 4, 3, 4, 6, 2),
    (3, 11, 5, 3, 4, 7, 2),
    (3, 13, 5, 3, 5, 9, 3),
)
"""Values of clock, tensor units, columns, vector units, lanes, buffer capacity and buffer bandwidth."""

RUN = """\
run:
  workload: llama2-7b
  space: space.yaml
  cluster: tpu-v5p-pod
  accelerators: 1024
  placement:
    tensor_parallel: [1, 2, 4, 8]
    microbatch: [1, 2, 4, 8]
    recompute: [false, true]
"""


def thinned(values: list[object], count: int) -> list[object]:
    """Return ``count`` of the values, evenly spread, the last among them."""
    at = np.linspace(0, len(values) - 1, count) if count > 1 else np.array([len(values) - 1])
    return [values[i] for i in sorted({round(float(x)) for x in at})]


def space(counts: tuple[int, ...]) -> dict[str, object]:
    """Return the space with so many values of each parameter."""
    document = yaml.safe_load((ROOT / "arch_configs" / "spaces" / "modern-fine.yaml").read_text())
    of = document["space"]
    lists = (
        (of, "clock"),
        (of["tensor_units"], "count"),
        (of["tensor_units"], "cols"),
        (of["vector_units"], "count"),
        (of["vector_units"], "lanes"),
        (of["global_buffer"], "capacity"),
        (of["global_buffer"]["bandwidth"], "per_cycle"),
    )
    for (section, key), count in zip(lists, counts, strict=True):
        section[key] = thinned(section[key], count)
    return document


def measure(counts: tuple[int, ...]) -> dict[str, object]:
    """Search one space in a process of its own; return its size, wall time, peak memory and counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "space.yaml").write_text(yaml.safe_dump(space(counts), sort_keys=False))
        (folder / "run.yaml").write_text(RUN)
        command = [sys.executable, "-m", "archplace", "search", "run.yaml", "--out", "out", "--format", "csv"]
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        if status:
            raise SystemExit(said)
    done = next(line for line in said.splitlines() if line.startswith("done in"))
    numbers = [int(word.replace(",", "")) for word in done.split(": ", 1)[1].split() if word[0].isdigit()]
    return {
        "architectures": sum(numbers),
        "seconds": round(seconds, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
        "front": numbers[0],
        "evaluated": numbers[0] + numbers[1],
    }


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """Draw time over architectures, both logarithmic, beside proportional growth."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "archplace"
    from matplotlib import pyplot as plt

    x = np.array([row["architectures"] for row in rows], dtype=float)
    y = np.array([row["seconds"] for row in rows], dtype=float)
    figure, axes = plt.subplots(figsize=(6.4, 4))
    axes.loglog(x, y, "o-", color="#0072B2", label="measured")
    axes.loglog(x, y[0] * x / x[0], "--", color="#999999", label="in proportion to architectures")
    axes.set_xlabel("architectures")
    axes.set_ylabel("seconds, start to certified front")
    axes.legend()
    axes.grid(which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, print, and write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="path without ending for .csv and .svg")
    arguments = parser.parse_args()
    rows = []
    for counts in SIZES:
        rows.append(measure(counts))
        print(rows[-1], flush=True)
    with arguments.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, arguments.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
