"""Groups of devices: which ones an axis joins, and how many of them each network dimension does."""

from itertools import permutations, product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from archplace.arch_configs import Cluster, NetworkDimension, Topology, load_cluster
from archplace.costmodel import DeviceOrder, Group, distinct_orders, order_refusal
from archplace.costmodel.network import lay
from archplace.workloads import Axis

TENSOR, CONTEXT, DATA, PIPELINE = Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE
MEGATRON = DeviceOrder(((TENSOR, 8), (CONTEXT, 2), (DATA, 16), (PIPELINE, 4)), expert=8, expert_tensor=2)


def network(*sizes, topology=Topology.SWITCH):
    return Cluster(
        name="net",
        dimensions=tuple(
            NetworkDimension(
                name=f"d{i}", topology=topology, size=size, bandwidth_bytes_per_s=1e9 / (i + 1), latency_s=1e-6
            )
            for i, size in enumerate(sizes)
        ),
        sources={},
    )


def test_strides_follow_from_the_order():
    assert MEGATRON.group(TENSOR).levels == ((8, 1),)
    assert MEGATRON.group(CONTEXT).levels == ((2, 8),)
    assert MEGATRON.group(DATA).levels == ((16, 16),)
    assert MEGATRON.group(PIPELINE).levels == ((4, 256),)
    assert MEGATRON.gradient_group.levels == ((32, 8),)
    assert MEGATRON.union(TENSOR, DATA).levels == ((8, 1), (16, 16))
    assert MEGATRON.size == 1024


def test_expert_groups_take_the_first_devices_of_a_stage():
    # expert-tensor pairs inside the tensor group; 4 of them and both context halves are the 8 experts' devices; the 16
    # data-parallel replicas remain for the gradients.
    assert MEGATRON.group(Axis.EXPERT_TENSOR).levels == ((2, 1),)
    assert MEGATRON.group(Axis.EXPERT).levels == ((8, 2),)
    assert MEGATRON.expert_gradient_group.levels == ((16, 16),)


@given(
    st.permutations([TENSOR, CONTEXT, DATA, PIPELINE]), st.lists(st.sampled_from([1, 2, 3, 4]), min_size=4, max_size=4)
)
def test_groups_of_an_axis_are_the_devices_that_differ_in_it_alone(axes, degrees):
    order = DeviceOrder(tuple(zip(axes, degrees, strict=True)))
    places = {sum(x * prod(degrees[:i]) for i, x in enumerate(place)): place for place in product(*map(range, degrees))}
    for index, axis in enumerate(axes):
        first = sorted(d for d, place in places.items() if not any(x for i, x in enumerate(place) if i != index))
        assert sorted(order.group(axis).members()) == first


@given(
    st.permutations([TENSOR, CONTEXT, DATA, PIPELINE]),
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=4, max_size=4),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
def test_expert_groups_split_a_stage_into_equal_parts(axes, degrees, expert, expert_tensor):
    wide = dict(zip(axes, degrees, strict=True))
    assume(wide[TENSOR] * wide[CONTEXT] * wide[DATA] >= expert * expert_tensor)
    order = DeviceOrder(tuple(wide.items()), expert=expert, expert_tensor=expert_tensor)
    parts = [order.group(Axis.EXPERT_TENSOR), order.group(Axis.EXPERT), order.expert_gradient_group]
    assert [part.size for part in parts[:2]] == [expert_tensor, expert]
    together = {sum(parts) for parts in product(*(part.members() for part in parts))}
    assert together == set(order.union(TENSOR, CONTEXT, DATA).members())
    held = {a + b for a in parts[0].members() for b in parts[1].members()}
    assert held == set(sorted(together)[: expert * expert_tensor])


@pytest.mark.parametrize(
    ("degrees", "more", "text"),
    [
        (((TENSOR, 0),), {}, "the tensor parallel degree is 0, must be at least 1"),
        (((Axis.EXPERT, 2),), {}, "axis expert: devices are numbered along tensor, context, data, pipeline"),
        (((TENSOR, 2), (TENSOR, 2)), {}, "axis tensor stands 2 times in the order"),
        (
            ((TENSOR, 2), (DATA, 2)),
            {"expert": 8},
            r"expert 8 x expert_tensor 1 .* = 2 x 1 x 2 devices, which has fewer",
        ),
        (((TENSOR, 6), (DATA, 4)), {"expert": 4}, "has axes that 4 does not divide, such as one of 6"),
    ],
)
def test_orders_that_cannot_be(degrees, more, text):
    with pytest.raises(ValueError, match=text):
        DeviceOrder(degrees, **more)


def test_levels_that_number_a_device_twice_are_refused():
    with pytest.raises(ValueError, match=r"beyond the 8 of the levels before it"):
        Group(levels=((8, 1), (2, 4)))


def test_a_group_beyond_the_network_is_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"a group of 16 devices \(16 at stride 8\) spans 128 devices; net has 64"):
        lay(network(8, 8), Group.neighbours(16, stride=8))


def coordinates(device, cluster):
    found = []
    for dimension in cluster.dimensions:
        found.append(device % dimension.size)
        device //= dimension.size
    return tuple(found)


@given(st.data())
def test_members_of_each_dimension_by_counting(data):
    shape = data.draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3))
    cluster = network(*shape, topology=data.draw(st.sampled_from([Topology.RING, Topology.SWITCH])))
    size = data.draw(st.sampled_from([n for n in range(1, cluster.size + 1) if cluster.size % n == 0]))
    stride = data.draw(
        st.sampled_from([s for s in range(1, cluster.size // size + 1) if cluster.size // size % s == 0])
    )
    shares = lay(cluster, Group.neighbours(size, stride=stride))
    groups = [
        [coordinates(base + outer + i * stride, cluster) for i in range(size)]
        for outer in range(0, cluster.size, size * stride)
        for base in range(stride)
    ]
    counts = {tuple(len({place[i] for place in group}) for i in range(len(shape))) for group in groups}
    grid = all(len(set(group)) == prod(len({p[i] for p in group}) for i in range(len(shape))) for group in groups)
    if all(share.even for share in shares):
        # All groups lie alike: a grid with the same number of members along each dimension.
        assert grid
        assert len(counts) == 1
        members = dict.fromkeys((d.name for d in cluster.dimensions), 1)
        for share in shares:
            members[share.dimension.name] *= share.members
        assert tuple(members.values()) == counts.pop()
        assert prod(members.values()) == size
    else:
        assert not grid or len(counts) > 1


@given(st.data())
def test_a_group_over_two_axes_by_counting(data):
    shape = data.draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3))
    cluster = network(*shape)
    inner = data.draw(st.sampled_from([1, 2, 4]))
    between = data.draw(st.sampled_from([1, 2, 4]))
    outer = data.draw(st.sampled_from([1, 2, 4]))
    assume(inner * between * outer <= cluster.size)
    group = Group.of([(inner, 1), (outer, inner * between)])
    places = [coordinates(device, cluster) for device in group.members()]
    shares = lay(cluster, group)
    assert [share.dimension.name for share in shares] == [
        f"d{i}" for i in range(len(shape)) if len({place[i] for place in places}) > 1
    ]
    assert [share.members for share in shares] == [
        len({place[i] for place in places}) for i in range(len(shape)) if len({place[i] for place in places}) > 1
    ]
    assert prod(share.members for share in shares) == group.size


def test_a_ring_closes_only_when_the_group_goes_all_the_way_round():
    torus = network(16, 16, topology=Topology.RING)
    (line,) = lay(torus, Group.neighbours(4))
    (comb,) = lay(torus, Group.neighbours(4, stride=4))
    (whole,) = lay(torus, Group.neighbours(16, stride=16))
    assert (line.distance, line.closed) == (1, False)
    assert (comb.distance, comb.closed) == (4, True)
    assert (whole.distance, whole.closed) == (1, True)


def lie(cluster, order):
    return {axis: lay(cluster, order.group(axis)) for axis in Axis}


@given(st.sampled_from([(8, 8), (4, 4, 4), (2, 32)]), st.data())
def test_every_order_lies_like_one_of_the_distinct_ones(shape, data):
    cluster = network(*shape, topology=data.draw(st.sampled_from([Topology.RING, Topology.SWITCH])))
    degrees, left = {}, 64
    for axis in (TENSOR, CONTEXT, PIPELINE):
        degrees[axis] = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if left % n == 0]))
        left //= degrees[axis]
    degrees[DATA] = left
    orders = distinct_orders(cluster, degrees)
    found = [lie(cluster, order) for order in orders]
    assert all(found.count(each) == 1 for each in found)
    for axes in permutations(degrees):
        assert lie(cluster, DeviceOrder(tuple((axis, degrees[axis]) for axis in axes))) in found
    assert orders[0].degrees == tuple((a, degrees[a]) for a in (TENSOR, CONTEXT, DATA, PIPELINE) if degrees[a] > 1)


def test_few_orders_are_left_on_two_levels():
    # What fills a node is the choice: the tensor axis, half of the data axis, or the pipeline.
    orders = distinct_orders(load_cluster("a100-superpod").sized(1024), {TENSOR: 8, DATA: 16, PIPELINE: 8})
    assert [order.degrees[0] for order in orders] == [(TENSOR, 8), (DATA, 16), (PIPELINE, 8)]
    assert len(distinct_orders(load_cluster("flat-4gib"), {TENSOR: 8, DATA: 16, PIPELINE: 8})) == 1
    assert distinct_orders(network(8), {TENSOR: 1}) == (DeviceOrder(()),)


def test_strides_that_do_not_divide_a_node_never_count_as_inside_it():
    # Devices 0 and 6 share a node of eight, but 2 and 8 do not.
    (share,) = lay(network(8, 8), Group.neighbours(2, stride=6))
    assert (share.members, share.dimension.name) == (2, "d1")
    # The middle level is moved out, the slowest stays: 16 of the 32 members within 96 devices' reach.
    shares = lay(network(8, 12, 4), Group.neighbours(32, stride=6))
    assert [(share.members, share.dimension.name) for share in shares] == [(16, "d1"), (2, "d2")]


def test_degrees_without_an_order_are_refused():
    assert order_refusal(network(16), {TENSOR: 8, DATA: 2}) is None
    assert order_refusal(network(16), {TENSOR: 8, DATA: 4}) == "tensor 8 x data 4 = 32 devices; net has 16"
    with pytest.raises(ValueError, match="tensor 8 x data 4 = 32 devices; net has 16"):
        distinct_orders(network(16), {TENSOR: 8, DATA: 4})
    with pytest.raises(ValueError, match="which has fewer"):
        distinct_orders(network(16), {TENSOR: 8, PIPELINE: 2}, expert=16)
    with pytest.raises(ValueError, match="devices are numbered along tensor, context, data, pipeline"):
        distinct_orders(network(16), {Axis.EXPERT: 8})
