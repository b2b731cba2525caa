"""Random scheduling problems, their optimum by enumeration, and operator graphs like those of a transformer layer."""

import gzip
import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from archplace.search.schedule import Kind, ScheduleGraph, ScheduleProblem
from archplace.search.schedule.instance_file import CORE_TYPES

# 80 random operator graphs with the optimal makespans that PHAZE's own integer program (Gurobi) gives them; PHAZE is
# the system of "Integrated Hardware Architecture and Device Placement Search", ICML 2024.
PHAZE = Path(__file__).parent / "data" / "phaze_schedule.json.gz"


def phaze_problems() -> list[tuple[float, ScheduleProblem]]:
    """Expected makespan and problem of all 80, read by code of the test's own."""
    problems = []
    for listed in json.loads(gzip.decompress(PHAZE.read_bytes())):
        nodes = listed["nodes"]
        index = {node["id"]: i for i, node in enumerate(nodes)}
        graph = ScheduleGraph.build(
            kinds=[CORE_TYPES[node["core_type"]] for node in nodes],
            edges=[(index[source], index[target]) for source, target in listed["edges"]],
        )
        problem = graph.problem(
            one_s=[node["latency"] for node in nodes],
            all_s=[node["intra_op_latency"] for node in nodes],
            tensor_units=listed["num_tc"],
            vector_units=listed["num_vc"],
        )
        problems.append((listed["makespan"], problem))
    return problems


@st.composite
def graphs(draw: st.DrawFn, *, max_ops: int, kinds: tuple[Kind, ...] = tuple(Kind)) -> ScheduleGraph:
    """Small graphs with every kind of operator; edges run from lower to higher index, or all the other way round."""
    count = draw(st.integers(1, max_ops))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    edges = [pair for pair in pairs if draw(st.integers(0, 9)) < 3]
    if draw(st.booleans()):
        edges = [(count - 1 - i, count - 1 - j) for i, j in edges]
    return ScheduleGraph.build(kinds=chosen, edges=edges)


@st.composite
def problems(draw: st.DrawFn, *, max_ops: int, kinds: tuple[Kind, ...] = tuple(Kind)) -> ScheduleProblem:
    """Small problems: zero durations, unavailable modes, fractions, and up to three units of a kind."""
    graph = draw(graphs(max_ops=max_ops, kinds=kinds))
    scale = draw(st.sampled_from([1.0, 1 / 3, 1e-7]))
    duration = st.integers(0, 12)
    one, every = [], []
    for _ in range(graph.n_ops):
        first, second = float(draw(duration)), float(draw(duration))
        missing = draw(st.integers(0, 9))
        one.append(np.inf if missing == 0 else scale * first)
        every.append(np.inf if missing == 1 else scale * second)
    return graph.problem(
        one_s=one, all_s=every, tensor_units=draw(st.integers(1, 3)), vector_units=draw(st.integers(1, 3))
    )


def optimum_s(problem: ScheduleProblem) -> float:
    """The best makespan, by trying every order, mode and unit; exponential, for up to five or six operators.

    Appending operators in the order of their start times, each as early as what stands before it allows, reaches an
    optimal schedule, since delaying never helps the makespan.
    """
    kinds = problem.kinds.tolist()
    count = len(kinds)
    before = [[i for i, j in problem.edges.tolist() if j == k] for k in range(count)]
    best = float("inf")

    def place(end: dict[int, float], tensor: list[float], vector: list[float], network: float) -> None:
        nonlocal best
        makespan = max(end.values(), default=0.0)
        if makespan >= best:
            return
        if len(end) == count:
            best = makespan
            return
        for i in range(count):
            if i in end or any(j not in end for j in before[i]):
                continue
            ready = max((end[j] for j in before[i]), default=0.0)
            one, every = float(problem.one_s[i]), float(problem.all_s[i])
            if kinds[i] == Kind.NETWORK:
                length = min(one, every)
                finish = max(ready, network) + length if length else ready
                place({**end, i: finish}, tensor, vector, finish if length else network)
                continue
            if min(one, every) == 0:
                place({**end, i: ready}, tensor, vector, network)
                continue
            if every < float("inf"):
                finish = max(ready, *tensor, *vector) + every
                place({**end, i: finish}, [finish] * len(tensor), [finish] * len(vector), network)
            if one == float("inf"):
                continue
            uses = (kinds[i] in (Kind.TENSOR, Kind.FUSED), kinds[i] in (Kind.VECTOR, Kind.FUSED))
            limit = min(len(units) for units, use in zip((tensor, vector), uses, strict=True) if use)
            for unit in range(limit):
                free = [units[unit] for units, use in zip((tensor, vector), uses, strict=True) if use]
                finish = max(ready, *free) + one
                sides = [
                    [*units[:unit], finish, *units[unit + 1 :]] if use else units
                    for units, use in zip((tensor, vector), uses, strict=True)
                ]
                place({**end, i: finish}, sides[0], sides[1], network)

    place({}, [0.0] * problem.tensor_units, [0.0] * problem.vector_units, 0.0)
    return best


def backward_graph() -> ScheduleGraph:
    """The backward pass of a gated transformer layer: 28 operators, 7 weight gradients, 2 collectives."""
    kinds: dict[str, Kind] = {}
    edges: list[tuple[str, str]] = []

    def add(name: str, kind: Kind, *inputs: str) -> None:
        kinds[name] = kind
        edges.extend((source, name) for source in inputs)

    add("d_down", Kind.TENSOR)
    add("w_down", Kind.TENSOR)
    add("gate", Kind.VECTOR, "d_down")
    for name in ("d_gate", "w_gate", "d_up", "w_up"):
        add(name, Kind.TENSOR, "gate")
    add("add_mlp", Kind.VECTOR, "d_gate", "d_up")
    add("reduce_mlp", Kind.NETWORK, "add_mlp")
    add("norm_mlp", Kind.VECTOR, "reduce_mlp")
    add("d_out", Kind.TENSOR, "norm_mlp")
    add("w_out", Kind.TENSOR, "norm_mlp")
    add("d_value", Kind.TENSOR, "d_out")
    add("d_score", Kind.TENSOR, "d_out")
    add("softmax", Kind.VECTOR, "d_score")
    for name in ("query", "key"):
        add(f"d_{name}", Kind.TENSOR, "softmax")
        add(f"rotate_{name}", Kind.VECTOR, f"d_{name}")
        add(f"d_{name}_in", Kind.TENSOR, f"rotate_{name}")
        add(f"w_{name}", Kind.TENSOR, f"rotate_{name}")
    add("d_value_in", Kind.TENSOR, "d_value")
    add("w_value", Kind.TENSOR, "d_value")
    add("add_attention", Kind.VECTOR, "d_query_in", "d_key_in", "d_value_in")
    add("reduce_attention", Kind.NETWORK, "add_attention")
    add("norm_attention", Kind.VECTOR, "reduce_attention")
    names = list(kinds)
    return ScheduleGraph.build(
        kinds=list(kinds.values()), edges=[(names.index(i), names.index(j)) for i, j in edges], names=names
    )


def chain_graph() -> ScheduleGraph:
    """A backward pass as a plain chain: 14 operators, alternately tensor and vector, 7 weight gradients, 2
    collectives.
    """
    kinds: list[Kind] = []
    edges: list[tuple[int, int]] = []
    last = -1
    for position in range(14):
        kind = Kind.TENSOR if position % 2 == 0 else Kind.VECTOR
        inputs = [last] if last >= 0 else []
        edges += [(i, len(kinds)) for i in inputs]
        last = len(kinds)
        kinds.append(kind)
        if kind == Kind.TENSOR:
            edges += [(i, len(kinds)) for i in inputs]
            kinds.append(Kind.TENSOR)
        if position in (6, 13):
            edges.append((last, len(kinds)))
            last = len(kinds)
            kinds.append(Kind.NETWORK)
    return ScheduleGraph.build(kinds=kinds, edges=edges)


def realistic_durations(graph: ScheduleGraph, n_archs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """one_s, all_s (n_archs, n_ops), tensor units and vector units (n_archs,) of made-up but plausible architectures.

    Tensor operators gain a little less than the number of units from running on all of them; vector operators bound by
    memory gain more (one unit gets one share of the bandwidth), those bound by lanes as much as there are vector
    units.
    """
    random = np.random.default_rng(1)
    tensor_units = random.choice([1, 2, 8, 64, 1024], n_archs)
    vector_units = random.choice([1, 2, 8, 512], n_archs)
    shape = (n_archs, graph.n_ops)
    work = np.exp(random.uniform(0, 1.5, graph.n_ops))
    speed = np.exp(
        np.select(
            [graph.kinds == Kind.TENSOR, graph.kinds == Kind.VECTOR],
            [random.uniform(-1, 1, (n_archs, 1)), random.uniform(-3, 0, (n_archs, 1))],
            random.uniform(-1, 2, (n_archs, 1)),
        )
    )
    all_s = work * speed * np.exp(random.normal(0, 0.1, shape))
    units = (tensor_units + vector_units)[:, None]
    memory_bound = random.random(graph.n_ops) < 0.6
    gain = np.select(
        [graph.kinds == Kind.TENSOR, graph.kinds == Kind.VECTOR],
        [tensor_units[:, None] * random.uniform(0.8, 1.0, shape), np.where(memory_bound, units, vector_units[:, None])],
        1.0,
    )
    return all_s * gain, all_s, tensor_units, vector_units


def few_units(graph: ScheduleGraph, count: int) -> list[ScheduleProblem]:
    """Made-up architectures of one to eight units of a kind: where side by side or one by one is a close call.

    Tensor operators come in three sizes, as the weights of a layer do, and gain nearly the number of units from running
    on all; half the vector operators gain nothing.
    """
    random = np.random.default_rng(2)
    problems = []
    for _ in range(count):
        tensor_units, vector_units = int(random.choice([1, 2, 4, 8])), int(random.choice([1, 1, 2, 4]))
        sizes = np.exp(random.uniform(0, 1.5, 3))
        work = np.where(
            graph.kinds == Kind.TENSOR,
            sizes[np.arange(graph.n_ops) % 3],
            np.exp(random.uniform(-2, 1.5, graph.n_ops)),
        )
        gain = np.where(graph.kinds == Kind.TENSOR, tensor_units * random.uniform(0.85, 1.0), vector_units)
        gain = np.where((graph.kinds == Kind.VECTOR) & (random.random(graph.n_ops) < 0.5), 1.0, gain)
        problems.append(
            graph.problem(
                one_s=work * np.where(graph.kinds == Kind.TENSOR, tensor_units, 1.0),
                all_s=work * np.where(graph.kinds == Kind.TENSOR, tensor_units, 1.0) / gain,
                tensor_units=tensor_units,
                vector_units=vector_units,
            )
        )
    return problems
