"""Clusters: the built-in ones, and the part of one that a job gets."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs import (
    Cluster,
    Endpoint,
    Host,
    NetworkDimension,
    Topology,
    accelerator_names,
    cluster_names,
    load_cluster,
)
from archplace.arch_configs.cluster import Software
from archplace.arch_configs.errors import ConfigError


def cluster(*sizes):
    dimensions = tuple(
        NetworkDimension(
            name=f"d{i}", topology=Topology.RING, size=size, bandwidth_bytes_per_s=1e9 / (i + 1), latency_s=1e-6
        )
        for i, size in enumerate(sizes)
    )
    return Cluster(name="c", dimensions=dimensions, sources={})


def sizes(cluster):
    return tuple(dimension.size for dimension in cluster.dimensions)


@pytest.mark.parametrize(
    ("name", "topologies", "shape", "bandwidths"),
    [
        # jax-ml, How to Scale Your Model: 3-D torus of 16 × 16 × 16, 45 GB/s per link and direction, two links each
        ("tpu-v4-pod", ["ring"] * 3, (16, 16, 16), (90e9,) * 3),
        # Google Cloud: 8,960 chips, 600 GB/s per chip and direction over three dimensions
        ("tpu-v5p-pod", ["ring"] * 3, (16, 20, 28), (200e9,) * 3),
        # NVIDIA: NVLink 300 and 450 GB/s per direction; one 200 or 400 Gb/s InfiniBand port per GPU
        ("a100-superpod", ["switch"] * 2, (8, 560), (300e9, 25e9)),
        ("h100-superpod", ["switch"] * 2, (8, 576), (450e9, 50e9)),
        # PHAZE: one flat network of 4 GiB/s
        ("flat-4gib", ["switch"], (16384,), (4 * 2**30,)),
    ],
)
def test_presets(name, topologies, shape, bandwidths):
    found = load_cluster(name)
    assert [dimension.topology for dimension in found.dimensions] == topologies
    assert sizes(found) == shape
    assert tuple(dimension.bandwidth_bytes_per_s for dimension in found.dimensions) == bandwidths
    assert found.sources.keys() >= {
        f"dimensions[{i}].{key}" for i in range(len(shape)) for key in ("size", "bandwidth", "latency")
    }


def test_every_preset_is_fastest_first_and_large_enough():
    for name in cluster_names():
        found = load_cluster(name)
        bandwidths = [dimension.bandwidth_bytes_per_s for dimension in found.dimensions]
        assert bandwidths == sorted(bandwidths, reverse=True)
        assert found.size >= (4096 if found.accelerator is None else 8)


def test_clusters_of_measured_runs_name_an_accelerator_that_exists():
    named = {name: load_cluster(name).accelerator for name in cluster_names()}
    assert named["a100-80gb-selene"] == "a100-80gb"
    assert named["flat-4gib"] is None
    assert {accelerator for accelerator in named.values() if accelerator is not None} <= set(accelerator_names())


def test_every_accelerator_in_use_has_a_cluster():
    with_one = {load_cluster(name).accelerator for name in cluster_names()}
    assert set(accelerator_names()) - with_one == {"tpu-v3", "v100-sxm", "mi210"}


@pytest.mark.parametrize(
    ("name", "n_devices", "shape"),
    [
        ("tpu-v4-pod", 4096, (16, 16, 16)),
        ("tpu-v4-pod", 1024, (16, 16, 4)),
        ("tpu-v4-pod", 64, (16, 4)),
        ("a100-superpod", 1024, (8, 128)),
        ("a100-superpod", 4, (4,)),
        ("a100-superpod", 100, (5, 20)),
        ("a100-superpod", 1, (1,)),
        ("flat-4gib", 1024, (1024,)),
    ],
)
def test_the_fast_dimensions_stay_full(name, n_devices, shape):
    assert sizes(load_cluster(name).sized(n_devices)) == shape


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.data())
def test_sized_gives_exactly_the_number_within_the_sizes_or_says_what_would_do(shape, data):
    whole = cluster(*shape)
    n_devices = data.draw(st.integers(1, whole.size))
    possible = any(prod(parts) == n_devices for parts in _all_parts(shape))
    if possible:
        part = whole.sized(n_devices)
        assert part.size == n_devices
        limits = {dimension.name: dimension.size for dimension in whole.dimensions}
        assert all(dimension.size <= limits[dimension.name] for dimension in part.dimensions)
        first = max(parts for parts in _all_parts(shape) if prod(parts) == n_devices)
        assert sizes(part) == (tuple(size for size in first if size > 1) or (1,))
    else:
        with pytest.raises(ValueError, match="the nearest numbers that do are") as caught:
            whole.sized(n_devices)
        for word in str(caught.value).split(" are ")[-1].split(" and "):
            assert whole.sized(int(word)).size == int(word)


def _all_parts(shape):
    parts = [()]
    for limit in shape:
        parts = [(*part, size) for part in parts for size in range(1, limit + 1)]
    return parts


@pytest.mark.parametrize("n_devices", [0, -4, 4097])
def test_a_number_beyond_the_cluster_is_an_error(n_devices):
    with pytest.raises(ValueError, match=f"found {n_devices} devices; the cluster 'tpu-v4-pod' has 1 to 4,096"):
        load_cluster("tpu-v4-pod").sized(n_devices)


def test_wrong_files(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(
        "cluster:\n"
        "  name: net\n"
        "  dimensions:\n"
        "    - {name: a, topology: rings, size: 4, bandwidth: 1 GB/s, latency: 0 s, source: x}\n"
        "    - {name: b, topology: ring, size: 0, bandwidth: 0 GB/s, latency: -1 us, source: {size: x}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    assert [str(problem).removeprefix(str(path)) for problem in caught.value.problems] == [
        ":4:27: cluster.dimensions[0].topology: found the text 'rings'; did you mean 'ring'? allowed: ring, "
        "fully_connected, switch, torus",
        ":5:39: cluster.dimensions[1].size: found 0; allowed: at least 1",
        ":5:53: cluster.dimensions[1].bandwidth: found '0 GB/s', which is zero; allowed: bandwidth such as '900 GB/s', "
        "'200 Gb/s' (bits) or bytes per second",
        ":5:70: cluster.dimensions[1].latency: found '-1 us', which is negative; allowed: time such as '700 ns', "
        "'2 us' or seconds",
        ":5:77: cluster.dimensions[1].source: says nothing about bandwidth, latency; add each with its source",
    ]


def test_a_torus_is_one_ring_for_each_number_of_its_shape(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(
        "cluster:\n"
        "  name: net\n"
        "  dimensions:\n"
        "    - {name: ici, topology: torus, shape: [16, 8], bandwidth: 90 GB/s, latency: 1 us, source: book}\n"
        "    - {name: row, topology: torus, shape: [4], bandwidth: 9 GB/s, latency: 2 us, source: book}\n"
    )
    found = load_cluster(path)
    assert [(d.name, d.topology, d.size, d.bandwidth_bytes_per_s) for d in found.dimensions] == [
        ("ici0", Topology.RING, 16, 90e9),
        ("ici1", Topology.RING, 8, 90e9),
        ("row", Topology.RING, 4, 9e9),
    ]
    assert found.sources["dimensions[1].size"] == "book"
    assert sizes(found.sized(64)) == (16, 4)
    assert found.host is None


def test_endpoints_hosts_and_fractions_of_a_file():
    found = load_cluster("a100-superpod")
    node, fabric = found.dimensions
    assert found.endpoint == Endpoint(start_s=pytest.approx(13.95e-6), pass_bytes_per_s=543e9)
    assert found.host == Host(bandwidth_bytes_per_s=16e9, memory_bytes=250 * 10**9)
    assert [size for size, _ in node.achievable] == [2**16, 2**19, 2**22, 2**25, 2**28]
    assert fabric.achievable == ()
    assert found.sources.keys() >= {"dimensions[0].achievable", "endpoint.start", "host.memory"}
    assert found.sized(64).host == found.host
    assert load_cluster("tpu-v4-pod").endpoint == Endpoint()


def test_wrong_extents_fractions_and_hosts(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(
        "cluster:\n"
        "  name: net\n"
        "  dimensions:\n"
        "    - {name: a, topology: torus, size: 4, bandwidth: 1 GB/s, latency: 0 s, source: x}\n"
        "    - {name: a, topology: ring, bandwidth: 1 GB/s, latency: 0 s, source: x}\n"
        "    - name: c\n"
        "      topology: switch\n"
        "      size: 2\n"
        "      bandwidth: 1 GB/s\n"
        "      latency: 0 s\n"
        "      achievable: [{message: 1 KiB, fraction: 0.2}, {message: 2 KiB, fraction: 0.5}]\n"
        "      source: x\n"
        "  host: {bandwidth: 16 GB/s, memory: 0 GB, source: {bandwidth: x}}\n"
        "  endpoint: {begin: 1 us, source: x}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    assert [str(problem).removeprefix(str(path)) for problem in caught.value.problems] == [
        ":4:34: cluster.dimensions[0].size: a torus has no size; write 'shape: [16, 16, 16]' instead",
        ":5:7: cluster.dimensions[1].size: the key 'size' is missing in 'cluster.dimensions[1].size'; add 'size: 8'",
        ":5:14: cluster.dimensions[1].name: found 'a', which another dimension is called; give each a name of its own",
        ":11:7: cluster.dimensions[2].achievable: entry 2: found the fraction 0.5 for 2048 bytes, with which they "
        "would arrive sooner than 1024 bytes do; allowed: at most 0.4",
        ":13:38: cluster.host.memory: found '0 GB', which is zero; allowed: capacity such as '16 MiB', '80 GB' or "
        "bytes",
        ":13:44: cluster.host.source: says nothing about memory; add each with its source",
        ":14:14: cluster.endpoint.begin: unknown key 'begin'; allowed: source, start, pass_bandwidth",
    ]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (((1024, 0.0),), "a: found the fraction 0; allowed: more than 0 and at most 1"),
        (((1024, 1.5),), "a: found the fraction 1.5"),
        (((0, 0.5),), "a: found a message of 0 bytes; allowed: at least 1"),
        (((1024, 0.5), (1024, 0.6)), "a: found a message of 1024 bytes after one of 1024; sort the table by size"),
        (((1024, 0.1), (2048, 0.3)), "allowed: at most 0.2"),
    ],
)
def test_fractions_that_cannot_be(table, text):
    with pytest.raises(ValueError, match=text):
        NetworkDimension(
            name="a",
            topology=Topology.SWITCH,
            size=2,
            bandwidth_bytes_per_s=1e9,
            latency_s=0.0,
            achievable=table,
        )


def test_an_empty_list_of_dimensions_is_an_error(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("cluster: {name: net, dimensions: []}\n")
    with pytest.raises(ConfigError, match=r"cluster.dimensions: found 0 entries; allowed: at least 1"):
        load_cluster(path)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'tpu-v4-pod'"):
        load_cluster("tpu-v4-pods")


def test_a_cluster_may_say_what_its_software_adds(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(
        "cluster:\n"
        "  name: net\n"
        "  accelerator: a100-80gb\n"
        "  dimensions:\n"
        "    - {name: a, topology: switch, size: 8, bandwidth: 1 GB/s, latency: 1 us, source: measured}\n"
        "  software: {dispatch: 70 us, vector_traffic: 2.5, source: fitted}\n"
    )
    found = load_cluster(path)
    assert (found.software.dispatch_s, found.software.vector_traffic, found.software.tensor_pieces) == (70e-6, 2.5, 1)
    assert found.accelerator == "a100-80gb"
    assert found.sources["software.dispatch"] == "fitted"
    assert load_cluster("a100-superpod").software == Software()
