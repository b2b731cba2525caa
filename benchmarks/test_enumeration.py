"""How fast design spaces enumerate, and how fast all architectures of one are bounded."""

import pytest

from archplace.arch_configs import load_cluster, load_space
from archplace.search.choices import Choices
from archplace.search.explore import BLOCK, Exploration
from archplace.search.outcome import Bound
from archplace.search.runfile import SEARCH_AXES
from archplace.workloads import load_workload


@pytest.mark.parametrize("name", ["phaze", "modern", "modern-fine"])
def test_enumeration(benchmark, name):
    space = load_space(name)
    architectures = benchmark(space.enumerate)
    benchmark.extra_info["raw_per_s"] = space.n_raw / benchmark.stats.stats.median
    print(f"\n{name}: {space.n_raw:,} raw, {len(architectures):,} kept, {benchmark.stats.stats.median:.3f} s")


@pytest.mark.parametrize("kind", [Bound.WORK, Bound.SCHEDULE])
def test_bounds_of_all_architectures(benchmark, kind):
    """Lower bounds on Llama 2 7B for all of PHAZE's space and 47 placement options."""
    hbm_bytes = (32 * 10**9, 64 * 10**9, 80 * 10**9)
    choices = Choices(accelerators=1024, axes=SEARCH_AXES, hbm_bytes=hbm_bytes)
    architectures = load_space("phaze").enumerate()
    cluster = load_cluster("tpu-v4-pod").sized(1024)
    evaluator = Exploration.of(architectures, [load_workload("llama2-7b")], cluster, choices).evaluator

    def bound():
        for start in range(0, len(architectures), BLOCK):
            evaluator.bounds(slice(start, start + BLOCK), kind)

    benchmark.pedantic(bound, rounds=1)
    count = len(architectures) * len(evaluator.searches[0].spaces)
    print(f"\n{kind.name}: {count:,} architecture × option bounds in {benchmark.stats.stats.median:.1f} s")
