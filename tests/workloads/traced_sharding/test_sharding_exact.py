"""The program's optimum is that of trying everything; every way to run an operator computes the same."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tensor_layers import DATA, FORWARD, WEIGHT, LayerBuilder

from archplace.workloads.operators import CollectiveKind
from archplace.workloads.traced.choices import choices_of
from archplace.workloads.traced.flow import Flow, Side
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.sharding_program import solve_sharding
from archplace.workloads.traced.shareable import Shareable
from archplace.workloads.traced.states import PARTIAL, REPLICATED, Cutting, cut
from archplace.workloads.traced.tensor_graph import Symbol, TensorOpKind, TensorRole
from archplace.workloads.traced.views import without_views

DEGREE = 2


def shareable(layer, *, sequence=False):
    return Shareable.of(layer, Cutting.tensor(DEGREE, sequence=sequence))


def exchange_s(size, source, target, cutting, rates):
    """Seconds to bring a tensor of ``size`` bytes from one state to another, infinite where that cannot be."""
    sent = size * (cutting.degree - 1) / cutting.degree / rates.link_bytes_per_s
    if source == PARTIAL and target == REPLICATED:
        return rates.collective_latency_s + 2 * sent
    if source == PARTIAL and target.is_cut:
        return rates.collective_latency_s + sent
    if source.is_cut and target == REPLICATED:
        return rates.collective_latency_s + sent
    if source.is_cut and target.is_cut:
        return rates.collective_latency_s + sent / cutting.degree
    return math.inf


@cache
def least_conversions_s(size, states, made, needed, cutting, rates):
    """The cheapest set of collectives after which a value of so many bytes is in all needed states."""
    best = math.inf
    targets = [state for state in states if state != made]
    for count in range(len(targets) + 1):
        for chosen in itertools.combinations(targets, count):
            there = {made, *chosen}
            if all(state in there or (state.is_cut and REPLICATED in there) for state in needed):
                total = sum(exchange_s(size, made, target, cutting, rates) for target in chosen)
                best = min(best, total)
    return best


def least_seconds(layer, cutting, rates):
    """Try all ways of all operators, and for each tensor all states that it could be stored or kept in."""
    flow = Flow.of(layer)
    places = Shareable.of(layer, cutting)
    options = [choices_of(op, layer.tensors, places, rates) for op in layer.operators]
    states = [places.states(layer, t) for t in range(len(layer.tensors))]
    gradient_of = {layer.tensors[t].gradient_of: t for t in flow.gradients}
    boundary = {
        t: cutting.between(layer.tensors[t])
        for t in (*layer.enters, *layer.leaves, *layer.gradients_enter, *layer.gradients_leave)
    }

    def conversions_s(t, made, needed):
        return least_conversions_s(layer.tensors[t].bytes, states[t], made, frozenset(needed), cutting, rates)

    def assignment_s(ways, made, needed, common):
        """``common``: gradients may be added together in one all-reduce."""
        total = sum(way.seconds for way in ways) + (rates.collective_latency_s if common else 0.0)
        for t, tensor in enumerate(layer.tensors):
            forward, backward = (needed[side].get(t, set()) for side in Side)
            if tensor.role is TensorRole.PARAMETER:
                gradient, by_state = gradient_of.get(t), []
                parts = [state for state in states[t] if state.is_cut]
                for state in parts if parts and len(tensor.dims) > 1 else states[t]:  # matrices in parts
                    deliver = 0.0 if gradient is None else conversions_s(gradient, made[gradient], {state})
                    if gradient is not None and common and state == REPLICATED and made[gradient] == PARTIAL:
                        sent = 2 * tensor.bytes * (cutting.degree - 1) / cutting.degree
                        deliver = min(deliver, sent / rates.link_bytes_per_s)
                    by_state.append(deliver + conversions_s(t, state, forward) + conversions_s(t, state, backward))
                total += min(by_state)
            elif t in flow.kept:
                parts = [state for state in states[t] if state.is_cut]
                total += min(
                    conversions_s(t, made[t], {*forward, state}) + conversions_s(t, state, backward)
                    for state in (parts if parts and cutting.keeps_cut else (*states[t], PARTIAL))
                )
            elif t in made and tensor.role is not TensorRole.GRADIENT:
                total += conversions_s(t, made[t], forward) + conversions_s(t, made[t], backward)
        return total

    best = math.inf
    for ways in itertools.product(*options):
        made, needed = dict(boundary), {side: {} for side in Side}
        for op, way in zip(layer.operators, ways, strict=True):
            for access, state in zip(op.reads, way.reads, strict=True):
                needed[Side.of(op)].setdefault(access.tensor, set()).add(state)
            for access, state in zip(op.writes, way.writes, strict=True):
                made[access.tensor] = state
        for tensors, side in ((layer.leaves, Side.FORWARD), (layer.gradients_leave, Side.BACKWARD)):
            for t in tensors:
                needed[side].setdefault(t, set()).add(boundary[t])
        best = min(best, *(assignment_s(ways, made, needed, common) for common in (False, True)))
    return best


SIZES = {"s": 4, "a": 8, "b": 4, "c": 6, "x": 5}
SYMBOLS = {"s": Symbol.SEQUENCE}


@st.composite
def small_layers(draw):
    """Two forward operators and the gradient of one, with random widths."""
    g = LayerBuilder(SIZES, SYMBOLS)
    g.tensor("x", "s a")
    here, width = "x", "a"
    product = None
    for i in range(2):
        kind = draw(st.sampled_from(["product", "linear_map", "map", "rows", "add"]))
        result = f"t{i}"
        if kind == "product":
            wider = draw(st.sampled_from([letter for letter in "abcx" if letter != width]))
            g.parameter(f"w{i}", f"{width} {wider}")
            g.product(f"product{i}", FORWARD, {here: f"s {width}", f"w{i}": f"{width} {wider}"}, {result: f"s {wider}"})
            product = (i, here, width, wider)
            width = wider
        elif kind == "rows":
            g.op(
                f"rows{i}",
                TensorOpKind.ROWS,
                FORWARD,
                {here: f"s {width}"},
                {result: f"s {width}"},
                whole=width,
                reductions=draw(st.integers(0, 2)),
            )
        elif kind == "add" and here != "x" and width == "a":
            g.map(f"add{i}", FORWARD, {here: f"s {width}", "x": f"s {width}"}, {result: f"s {width}"}, linear=True)
        else:
            g.map(f"map{i}", FORWARD, {here: f"s {width}"}, {result: f"s {width}"}, linear=kind == "linear_map")
        here = result
    assume(product is not None)
    i, source, inner, outer = product
    g.tensor("dy", f"s {width}")
    gradient = "dy"
    if here != f"t{i}" and draw(st.booleans()):
        reads = {"dy": f"s {width}", here: f"s {width}"}
        g.map("map.backward", DATA, reads, {"dt": f"s {width}"})
        gradient = "dt"
    g.gradient("dw", f"{inner} {outer}", f"w{i}")
    g.product("weight", WEIGHT, {gradient: f"s {outer}", source: f"s {inner}"}, {"dw": f"{inner} {outer}"})
    g.product("data", DATA, {gradient: f"s {outer}", f"w{i}": f"{inner} {outer}"}, {"dx": f"s {inner}"})
    return g.layer(enters=["x"], leaves=[here], gradients_enter=["dy"], gradients_leave=["dx"])


@settings(max_examples=40)
@given(
    layer=small_layers(),
    sequence=st.booleans(),
    link=st.sampled_from([1e6, 1e9, 1e12]),
    memory=st.sampled_from([1e6, 1e9]),
    latency=st.sampled_from([1e-9, 1e-6, 1e-4]),
)
def test_the_program_finds_the_least_of_all_assignments(layer, sequence, link, memory, latency):
    rates = Rates(flops_per_s=1e9, hbm_bytes_per_s=memory, link_bytes_per_s=link, collective_latency_s=latency)
    cutting = Cutting.tensor(DEGREE, sequence=sequence)
    found = solve_sharding(layer, cutting, rates)
    assert found.seconds == pytest.approx(least_seconds(layer, cutting, rates), rel=1e-5)


@st.composite
def products(draw):
    letters = draw(st.lists(st.sampled_from("sabc"), min_size=2, max_size=4, unique=True))
    subset = st.lists(st.sampled_from(letters), min_size=1, max_size=3, unique=True)
    first, second = draw(subset), draw(subset)
    result = draw(st.lists(st.sampled_from(sorted({*first, *second})), max_size=3, unique=True))
    return "".join(first), "".join(second), "".join(result)


@settings(max_examples=60)
@given(einsum=products())
def test_every_way_to_share_a_product_computes_the_product(einsum):
    """Devices hold what the states say and multiply; put together as the states say, the result is the whole one."""
    first, second, result = einsum
    g = LayerBuilder(SIZES, SYMBOLS)
    g.tensor("p", " ".join(first))
    g.tensor("q", " ".join(second))
    g.product("product", FORWARD, {"p": " ".join(first), "q": " ".join(second)}, {"r": " ".join(result)})
    layer = g.layer()
    rng = np.random.default_rng(0)
    whole = [rng.integers(-3, 4, [SIZES[letter] for letter in letters]) for letters in (first, second)]
    expected = np.einsum(f"{first},{second}->{result}", *whole)
    ways = choices_of(layer.operators[0], layer.tensors, shareable(layer, sequence=True), Rates())
    assert len(ways) > 1 or all(SIZES[letter] % DEGREE for letter in {*first, *second})
    for way in ways:
        parts = [_shares(array, state, rng) for array, state in zip(whole, way.reads, strict=True)]
        results = [np.einsum(f"{first},{second}->{result}", *operands) for operands in zip(*parts, strict=True)]
        (state,) = way.writes
        if state == REPLICATED:
            together = results[0]
        else:
            together = sum(results) if state == PARTIAL else np.concatenate(results, axis=state.dim)
        assert np.array_equal(together, expected), way


def _shares(array, state, rng):
    """What each device holds of an array."""
    if state == REPLICATED:
        return [array] * DEGREE
    if state == PARTIAL:
        part = rng.integers(-3, 4, array.shape)
        return [part, array - part]
    return np.split(array, DEGREE, axis=state.dim)


def test_a_shared_row_exchanges_its_statistics():
    g = LayerBuilder({"s": 6, "a": 8}, SYMBOLS)
    g.tensor("x", "s a")
    g.op("softmax", TensorOpKind.ROWS, FORWARD, {"x": "s a"}, {"y": "s a"}, whole="a", passes=3, reductions=2)
    layer, rates = g.layer(), Rates()
    ways = choices_of(layer.operators[0], layer.tensors, shareable(layer), rates)
    whole, shared = ways
    assert (shared.reads, shared.writes) == ((cut(1, 0),), (cut(1, 0),))
    statistics = 6 * 4  # one fp32 scalar of each row
    exchanges = 2 * rates.exchange_s(CollectiveKind.ALL_REDUCE, statistics, 2)
    assert shared.seconds == pytest.approx(whole.seconds / 2 + exchanges)
    assert shared.statistics_bytes == statistics


def test_a_lookup_in_a_table_cut_by_rows_gives_partial_sums():
    g = LayerBuilder({"s": 6, "a": 8, "v": 100}, SYMBOLS)
    g.tensor("tokens", "s", TensorRole.CONSTANT, element_bytes=8.0)
    g.parameter("table", "v a")
    g.op("lookup", TensorOpKind.LOOKUP, FORWARD, {"tokens": "s", "table": "v a"}, {"x": "s a"}, linear=False)
    layer = g.layer()
    ways = choices_of(layer.operators[0], layer.tensors, shareable(layer), Rates())
    assert {(way.reads[1], way.writes[0]) for way in ways} == {
        (REPLICATED, REPLICATED),
        (cut(0, 0), PARTIAL),
        (cut(1, 0), cut(1, 0)),
    }
    # of the table only the rows met are read
    assert ways[0].seconds == pytest.approx((6 * 8 + 2 * 6 * 8 * 2) / Rates().hbm_bytes_per_s)


def test_views_are_read_through():
    g = LayerBuilder({"s": 6, "a": 8, "b": 4}, SYMBOLS)
    g.tensor("x", "s ab")
    g.view("transpose", FORWARD, {"x": "s ab"}, {"x.t": "a b s"})
    g.parameter("w", "b")
    g.product("product", FORWARD, {"x.t": "a b s", "w": "b"}, {"y": "a s"})
    g.view("flat", FORWARD, {"y": "a s"}, {"z": "as"})
    layer = without_views(g.layer(enters=["x"], leaves=["z"]))
    assert [op.name for op in layer.operators] == ["product", "flat"]  # what leaves keeps its shape
    read = layer.operators[0].reads[0]
    assert layer.tensors[read.tensor].name == "x"
    a, b, s = (layer.operators[0].loops[i].size for i in range(3))
    assert (a, b, s) == (8, 4, 6)
    assert read.loops == ((2,), (0, 1))


def test_two_writers_are_refused():
    g = LayerBuilder({"s": 6}, SYMBOLS)
    g.tensor("x", "s")
    g.map("first", FORWARD, {"x": "s"}, {"y": "s"})
    g.map("second", FORWARD, {"x": "s"}, {"y": "s"})
    with pytest.raises(ValueError, match="tensor y is written by first and again by second"):
        Flow.of(g.layer(enters=["x"]))
