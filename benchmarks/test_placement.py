"""How long the exact placement search takes at the size of PHAZE's largest instances: 5 ms is the target."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from archplace.search.placement import LayerChain, Optimizer, PlacementInstance, place_instance

GIB = 2.0**30


def large_instance(memory_bytes: float, *, recompute: bool) -> PlacementInstance:
    """98 distinct layers, tensor-parallel widths 1, 2, 4 and 8, 1,024 devices, 4,096 microbatches.

    Sizes are those of a 96-layer decoder with an embedding and a head: 1.8e9 parameters a layer in 16 bits. Wider is
    faster, but not in proportion.
    """
    random = np.random.default_rng(98)
    n = 98
    forward_s = random.uniform(0.010, 0.020, n)
    backward_s = 2.0 * random.uniform(0.010, 0.020, n)
    chains = {
        width: LayerChain(
            layer_ids=tuple(range(-1, n - 1)),
            forward_s=forward_s / width**0.9,
            backward_s=backward_s / width**0.9,
            parameter_bytes=np.full(n, 3.6e9 / width),
            activation_bytes=random.uniform(0.9e9, 1.1e9, n) / width,
            tensor_parallel=np.full(n, width > 1),
            edge_sources=np.arange(n - 1),
            edge_targets=np.arange(1, n),
            edge_bytes=np.full(n - 1, 25e6),
        )
        for width in (1, 2, 4, 8)
    }
    return PlacementInstance(
        name="large",
        chains=chains,
        memory_bytes=memory_bytes,
        max_devices=1024,
        bandwidth_bytes_per_s=4.0 * GIB,
        microbatches=4096,
        recompute=recompute,
        optimizer=Optimizer.ADAM,
    )


@pytest.mark.parametrize("memory_gib", [16, 64, 2000])
@pytest.mark.parametrize("recompute", [True, False])
def test_98_layers_4_widths_1024_devices(benchmark: BenchmarkFixture, memory_gib: int, recompute: bool) -> None:
    instance = large_instance(memory_gib * GIB, recompute=recompute)
    result = benchmark(place_instance, instance)
    assert result.feasible
    assert benchmark.stats is not None, "the benchmark has just run"
    milliseconds = 1e3 * benchmark.stats.stats.median
    print(f"\n{memory_gib} GiB, recompute {recompute}: {milliseconds:.2f} ms (target 5 ms)")
