"""Fitting a network dimension: back to known parameters, and to measured NCCL all-reduces."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from archplace.arch_configs import Cluster, Endpoint, NetworkDimension, Topology, load_cluster
from archplace.costmodel import Group, NetworkPricer
from archplace.costmodel.network.fit import Measured, fit_dimension, relative_errors
from archplace.workloads import CollectiveKind

SIZES = tuple(2**i for i in (16, 19, 22, 25, 28))


def measured(source, *members):
    path = Path(__file__).parent / "data" / "nccl_all_reduce_a100.csv"
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    rows = [row for row in rows if row["source"] == source]
    return [
        Measured(
            kind=CollectiveKind.ALL_REDUCE,
            members=n,
            payload_bytes=np.array([float(row["bytes"]) for row in rows if int(row["n_gpus"]) == n]),
            seconds=np.array([float(row["time_us"]) * 1e-6 for row in rows if int(row["n_gpus"]) == n]),
        )
        for n in members
    ]


VTRAIN, LLMCOMPASS = measured("vtrain", *range(2, 9)), measured("llmcompass", 4)
NODE = load_cluster("a100-superpod").sized(8)


def median(errors):
    return float(np.median(np.abs(errors)))


def test_an_a100_node_is_priced_within_a_tenth():
    assert sum(len(series.seconds) for series in measured("vtrain", 2, 4, 8)) == 189
    assert median(relative_errors(NODE, measured("vtrain", 2, 4, 8))) <= 0.04
    for n in range(2, 9):
        assert median(relative_errors(NODE, measured("vtrain", n))) <= 0.10
    assert median(relative_errors(NODE, LLMCOMPASS)) <= 0.10


def test_large_all_reduces_are_priced_within_a_tenth_each():
    for series in VTRAIN:
        large = series.payload_bytes >= 2**27
        assert np.abs(relative_errors(NODE, [series]))[large].max() <= 0.10


def test_the_built_in_node_is_what_the_fit_finds():
    (node,) = NODE.dimensions
    found = fit_dimension(replace(node, achievable=()), [*VTRAIN, *LLMCOMPASS], message_sizes=SIZES)
    assert found.endpoint.start_s == pytest.approx(NODE.endpoint.start_s, rel=2e-3)
    assert found.endpoint.pass_bytes_per_s == pytest.approx(NODE.endpoint.pass_bytes_per_s, rel=2e-3)
    assert [size for size, _ in found.dimension.achievable] == list(SIZES)
    assert [f for _, f in found.dimension.achievable] == pytest.approx([f for _, f in node.achievable], rel=2e-3)
    assert found.median_error == pytest.approx(median(found.relative_errors))


def test_what_was_not_fitted_is_predicted_within_a_fifth():
    (node,) = NODE.dimensions
    some = [*measured("vtrain", 2, 4, 8), *LLMCOMPASS]
    found = fit_dimension(replace(node, achievable=()), some, message_sizes=SIZES)
    fitted = Cluster(name="fitted", dimensions=(found.dimension,), sources={}, endpoint=found.endpoint)
    assert median(relative_errors(fitted, measured("vtrain", 3, 5, 6, 7))) <= 0.2


def test_known_parameters_are_found_again():
    truth = NetworkDimension(
        name="known",
        topology=Topology.SWITCH,
        size=8,
        bandwidth_bytes_per_s=200e9,
        latency_s=1e-6,
        achievable=((2**18, 0.2), (2**24, 0.7)),
    )
    endpoint = Endpoint(start_s=2e-5, pass_bytes_per_s=4e11)
    pricer = NetworkPricer(Cluster(name="known", dimensions=(truth,), sources={}, endpoint=endpoint))
    payload = 2.0 ** np.arange(10, 31)
    series = [
        Measured(
            kind=kind,
            members=n,
            payload_bytes=payload,
            seconds=pricer.seconds(kind, payload, Group.neighbours(n)),
        )
        for n in (2, 4, 8)
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER)
    ]
    found = fit_dimension(replace(truth, achievable=()), series, message_sizes=(2**18, 2**24))
    assert found.endpoint.start_s == pytest.approx(2e-5, rel=1e-3)
    assert found.endpoint.pass_bytes_per_s == pytest.approx(4e11, rel=1e-3)
    assert [f for _, f in found.dimension.achievable] == pytest.approx([0.2, 0.7], rel=1e-3)
    assert np.abs(found.relative_errors).max() < 1e-3


def test_too_few_measurements_are_refused():
    (node,) = NODE.dimensions
    few = Measured(kind=CollectiveKind.ALL_REDUCE, members=2, payload_bytes=np.array([1e6]), seconds=np.array([1e-4]))
    with pytest.raises(ValueError, match="found 1 measurements for 7 parameters; measure more, or fit fewer sizes"):
        fit_dimension(node, [few], message_sizes=SIZES)
