"""The graph of operators that a schedule orders: kinds and precedence, without durations."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.operators import Operator, Unit

if TYPE_CHECKING:
    from archplace.search.schedule.problem import ScheduleProblem


class Kind(IntEnum):
    """The unit an operator needs; the values are the codes in :attr:`ScheduleGraph.kinds`."""

    TENSOR = 0
    VECTOR = 1
    FUSED = 2
    """Tensor unit c and vector unit c together."""
    NETWORK = 3
    """The one network resource; overlaps any operator that is unrelated to it."""


_KIND_OF_UNIT = {
    Unit.TENSOR: Kind.TENSOR,
    Unit.VECTOR: Kind.VECTOR,
    Unit.FUSED: Kind.FUSED,
    Unit.NETWORK: Kind.NETWORK,
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScheduleGraph:
    """Operators and their precedence, built once per operator graph and shared by all architectures.

    Raises ``ConfigError`` naming every edge that leaves the graph, every unknown kind, and a cycle if there is one.
    """

    kinds: NDArray[np.int8]
    """(n_ops,) codes of :class:`Kind`."""
    edges: NDArray[np.int64]
    """(n_edges, 2) pairs of operator indices: the first ends before the second starts. Duplicates are dropped."""
    names: tuple[str, ...]
    """(n_ops,) for messages and pictures; ``op0``, ``op1`` … when not given."""
    order: NDArray[np.int64] = field(init=False)
    """(n_ops,) a topological order; among several possible, the one closest to the given order."""
    before: NDArray[np.bool_] = field(init=False)
    """(n_ops, n_ops) transitive closure: ``before[i, j]`` if i ends before j starts in every schedule."""
    reduced_edges: NDArray[np.int64] = field(init=False)
    """(n_reduced, 2) the transitive reduction, sorted: what remains when edges that others imply are dropped."""
    unrelated: NDArray[np.bool_] = field(init=False)
    """(n_ops, n_ops) pairs that no precedence orders; the diagonal is False."""
    uses_tensor: NDArray[np.bool_] = field(init=False)
    """(n_ops,) operators that need a tensor unit (alone or fused)."""
    uses_vector: NDArray[np.bool_] = field(init=False)
    """(n_ops,) operators that need a vector unit (alone or fused)."""
    is_network: NDArray[np.bool_] = field(init=False)
    """(n_ops,) collectives."""
    overlapped: NDArray[np.bool_] = field(init=False)
    """(n_ops,) operators that some compute operator may overlap."""

    def __post_init__(self) -> None:
        count = len(self.kinds)
        problems = [
            Problem(
                place=self.names[i], key="kind", message=f"found {kind}, allowed are the codes {[int(k) for k in Kind]}"
            )
            for i, kind in enumerate(self.kinds.tolist())
            if not 0 <= kind < len(Kind)
        ]
        problems += [
            Problem(place=f"edge {i}", key="", message=f"found {pair}, but operators are numbered 0 to {count - 1}")
            for i, pair in enumerate(self.edges.tolist())
            if not (0 <= pair[0] < count and 0 <= pair[1] < count)
        ]
        if problems:
            raise ConfigError(problems)
        after = self._successors()
        order = _sorted(after)
        if len(order) < count:
            text = self._cycle()
            raise ConfigError(
                [Problem(place="edges", key="", message=f"found the cycle {text}; precedence must be acyclic")]
            )
        before = np.zeros((count, count), dtype=np.bool_)
        for i in reversed(order):
            for j in after[i]:
                before[i] |= before[j]
                before[i, j] = True
        edges = self.edges
        if len(edges):
            edges = np.unique(edges, axis=0)
        network = self.kinds == Kind.NETWORK
        unrelated = ~(before | before.T | np.eye(count, dtype=np.bool_))
        through = (before.astype(np.float32) @ before.astype(np.float32)) > 0
        # Solving asks for these over and over: what only depends on the graph is kept with it.
        derived = {
            "edges": edges,
            "order": np.array(order, dtype=np.int64),
            "before": before,
            "reduced_edges": np.argwhere(before & ~through),
            "unrelated": unrelated,
            "uses_tensor": (self.kinds == Kind.TENSOR) | (self.kinds == Kind.FUSED),
            "uses_vector": (self.kinds == Kind.VECTOR) | (self.kinds == Kind.FUSED),
            "is_network": network,
            "overlapped": unrelated[:, ~network].any(axis=1),
        }
        for name, array in derived.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self.kinds.setflags(write=False)

    def _successors(self) -> list[list[int]]:
        """Return the operators that each one directly precedes, each once."""
        after: list[dict[int, None]] = [{} for _ in self.kinds]
        for i, j in self.edges.tolist():
            after[i][j] = None
        return [list(successors) for successors in after]

    def _cycle(self) -> str:
        """Return a cycle of the precedence, which has one, by its names."""
        # Imported where a mistake needs it: it takes longer than most programs that schedule need to start.
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph(self.edges.tolist())
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        return " -> ".join(self.names[i] for i in [*cycle, cycle[0]])

    @classmethod
    def build(
        cls, *, kinds: ArrayLike, edges: ArrayLike | Sequence[tuple[int, int]] = (), names: Sequence[str] = ()
    ) -> "ScheduleGraph":
        """Take anything array-like for ``kinds`` (n_ops,) and ``edges`` (n_edges, 2)."""
        codes = np.array(kinds, dtype=np.int8).reshape(-1)
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
        labels = tuple(names) or tuple(f"op{i}" for i in range(len(codes)))
        if len(labels) != len(codes):
            raise ConfigError(f"found {len(labels)} names for {len(codes)} operators; give one per operator or none")
        return cls(kinds=codes, edges=pairs, names=labels)

    @classmethod
    def of_operators(cls, operators: Sequence[Operator]) -> "ScheduleGraph":
        """The graph of an operator list; its order is kept. Inputs outside the list are taken as already there."""
        index = {operator.name: i for i, operator in enumerate(operators)}
        return cls.build(
            kinds=[_KIND_OF_UNIT[operator.unit] for operator in operators],
            edges=[
                (index[name], i) for i, operator in enumerate(operators) for name in operator.inputs if name in index
            ],
            names=[operator.name for operator in operators],
        )

    @property
    def n_ops(self) -> int:
        """Number of operators."""
        return len(self.kinds)

    def part(self, members: NDArray[np.int64]) -> "ScheduleGraph":
        """The graph of ``members`` alone (indices, in the order wanted), with the precedence it inherits."""
        inside = self.before[np.ix_(members, members)]
        return ScheduleGraph.build(
            kinds=self.kinds[members], edges=np.argwhere(inside), names=[self.names[i] for i in members]
        )

    def problem(self, *, one_s: ArrayLike, all_s: ArrayLike, tensor_units: int, vector_units: int) -> "ScheduleProblem":
        """This graph with one architecture's durations and unit counts."""
        from archplace.search.schedule.problem import ScheduleProblem

        return ScheduleProblem(
            graph=self,
            one_s=np.array(one_s, dtype=np.float64).reshape(-1),
            all_s=np.array(all_s, dtype=np.float64).reshape(-1),
            tensor_units=int(tensor_units),
            vector_units=int(vector_units),
        )


def segments(graph: ScheduleGraph) -> list[NDArray[np.int64]]:
    """Split the graph where every schedule must pass: the parts run strictly one after the other.

    The operators of one part all end before any operator of the next one starts (every pair across is ordered), so
    makespans and bounds of the parts add up. Each part lists its operators in topological order; parts are in running
    order. A chain splits into single operators; collectives count like any other operator. Empty for an empty graph.
    """
    # A part is a connected component of "unrelated": across components every pair is ordered, and components of an
    # incomparability graph are themselves linearly ordered.
    unrelated = graph.unrelated
    parts: list[NDArray[np.int64]] = []
    seen = np.zeros(graph.n_ops, dtype=np.bool_)
    position = np.empty(graph.n_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.n_ops)
    for first in graph.order:
        if seen[first]:
            continue
        component = np.zeros(graph.n_ops, dtype=np.bool_)
        component[first] = True
        while True:
            grown = component | unrelated[component].any(axis=0)
            if (grown == component).all():
                break
            component = grown
        seen |= component
        members = np.flatnonzero(component)
        parts.append(members[np.argsort(position[members])])
    return parts


def _sorted(after: Sequence[Sequence[int]]) -> list[int]:
    """Return operators after all that precede them, of several that could come next the one with the least number.

    Those on cycles and behind them are missing.
    """
    missing = [0] * len(after)
    for successors in after:
        for j in successors:
            missing[j] += 1
    ready = [i for i, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, j)
    return order
