"""How fast operators are priced: operator × architecture estimates per second, on all of PHAZE's space."""

import numpy as np
import pytest

from archplace.arch_configs import load_cluster, load_space
from archplace.costmodel import Pricer
from archplace.workloads import LayerSharding, load_workload


@pytest.fixture(scope="module")
def machine():
    return load_space("phaze").enumerate(), load_cluster("tpu-v4-pod").sized(1024)


@pytest.fixture(scope="module")
def operators():
    step = load_workload("llama2-7b").step(LayerSharding(tensor=1, microbatch=4))
    return [operator for layer, _ in step.layers for operator in (*layer.forward, *layer.backward)]


def report(benchmark, estimates):
    seconds = benchmark.stats.stats.median
    benchmark.extra_info["estimates_per_s"] = estimates / seconds
    print(f"\n{estimates:,} estimates in {seconds:.3f} s: {estimates / seconds:,.0f} per second")


def test_first_pricing(benchmark, machine, operators):
    """Everything new: tiling of each distinct tensor-unit configuration included."""
    architectures, cluster = machine
    benchmark.pedantic(lambda: Pricer(architectures, cluster).price(operators), rounds=3)
    report(benchmark, 2 * len(architectures) * len(operators))


def test_second_pricing(benchmark, machine, operators):
    """Distinct products already known to the pricer."""
    architectures, cluster = machine
    pricer = Pricer(architectures, cluster)
    pricer.price(operators)
    benchmark.pedantic(lambda: pricer.price(operators), rounds=3)
    report(benchmark, 2 * len(architectures) * len(operators))


def test_products_on_distinct_configurations(benchmark, machine, operators):
    """Only architectures that share no tensor-unit configuration: what one estimate costs without sharing."""
    architectures, cluster = machine
    columns = (architectures.tensor_count, architectures.tensor_rows, architectures.tensor_cols)
    _, first = np.unique(np.column_stack(columns), axis=0, return_index=True)
    distinct = architectures.take(np.sort(first))
    products = [operator for operator in operators if operator.gemm is not None]
    benchmark.pedantic(lambda: Pricer(distinct, cluster).price(products), rounds=3)
    report(benchmark, 2 * len(distinct) * len(products))
