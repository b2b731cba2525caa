"""What is computed once per graph part: precedence, widths, how to sum over relatives, candidates for longest paths."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Durations, Floats
from archplace.search.schedule._independent import is_small
from archplace.search.schedule._sums import SubsetSums
from archplace.search.schedule.graph import ScheduleGraph, segments

_BLOCK = 28_672
"""Elements of an array of (operators, architectures)."""
_GRAPHS = 256
"""Graphs whose parts are remembered; those of one workload at all degrees of parallelism are fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Operators that run before or after all others of the graph; they are numbered in a topological order."""

    members: NDArray[np.int64]
    """(k,) indices in the whole graph."""
    graph: ScheduleGraph
    """The part alone; its operator 0 … k-1 are ``members``."""
    small: bool
    """Whether enumeration solves it exactly."""
    pairs: list[tuple[int, int]]
    """Direct precedence, sorted by the later operator."""
    pairs_backwards: list[tuple[int, int]]
    """The same, sorted by the earlier operator, the last one first."""
    compute: NDArray[np.bool_]
    """(k,)"""
    network: list[int]
    """Collectives."""
    unrelated: NDArray[np.float32]
    """(k, k) 1 for pairs that no precedence orders."""
    ancestors: SubsetSums
    """Sums over all that must run before each operator."""
    descendants: SubsetSums
    """Sums over all that must run after each operator."""
    between: "list[Between]"
    """What must run after a collective and before another operator, per collective."""
    between_after: "list[Between]"
    """What must run before a collective and after another operator, per collective."""
    tensor_width: int
    """The most operators on tensor units that can run at once if each takes one unit."""
    vector_width: int
    compute_before: list[tuple[int, list[int]]]
    """Every compute operator and those compute operators before it that none lies between, in order."""
    longest_path: Floats
    """(k, 1) 1 for the compute operators on the path of most operators."""

    @property
    def block_size(self) -> int:
        """How many architectures to work on at a time, so that their arrays stay in the processor's cache."""
        return max(64, _BLOCK // self.graph.n_ops)

    def longest(self, duration_s: Floats) -> tuple[Floats, Floats]:
        """(k, n) the longest path before each operator, and after it, under (k, n) durations."""
        ahead = np.zeros_like(duration_s)
        after = np.zeros_like(duration_s)
        self.lengthen(ahead, after, duration_s)
        return ahead, after

    def lengthen(self, ahead: Floats, after: Floats, duration_s: Floats) -> None:
        """Raise (k, n) least times before and after each operator, in place, by those of its relatives."""
        # Lists of rows, since indexing takes half as long as the arithmetic on few architectures.
        lasts, befores, afters = list(duration_s), list(ahead), list(after)
        for i, j in self.pairs:
            np.maximum(befores[j], befores[i] + lasts[i], out=befores[j])
        for i, j in self.pairs_backwards:
            np.maximum(afters[i], afters[j] + lasts[j], out=afters[i])


@dataclass(frozen=True, kw_only=True, slots=True)
class Between:
    """What lies between one collective and other operators."""

    collective: int
    rows: NDArray[np.int64]
    """(m,) the operators with something between them and the collective."""
    sums: SubsetSums
    """Over what lies between, by position in ``rows``."""

    @classmethod
    def of(cls, collective: int, lies_between: NDArray[np.bool_]) -> "Between":
        """``lies_between`` (k, k): ``[v, i]`` if operator i lies between ``collective`` and v."""
        rows = np.flatnonzero(lies_between.any(axis=1))
        return cls(collective=collective, rows=rows, sums=SubsetSums.of(lies_between[rows]))

    def lengthen(self, reach: Floats, share_s: Floats, fastest_s: Floats) -> None:
        """Raise (k, n) least times up to each operator, in place, by those up to the collective and what follows."""
        if len(self.rows):
            least = self.sums(share_s, np.empty((len(self.rows), share_s.shape[1])))
            least += reach[self.collective] + fastest_s[self.collective]
            reach[self.rows] = np.maximum(reach[self.rows], least)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts of a graph."""

    running: tuple[Part, ...]
    """All, in running order."""
    alone: NDArray[np.int64]
    """Operators of the graph that are a part by themselves."""
    others: tuple[Part, ...]
    """The parts of several operators."""


def parts_of(graph: ScheduleGraph) -> Parts:
    """The parts of ``graph``; computed once for all graphs of equal kinds and precedence."""
    return _parts(graph.kinds.tobytes(), graph.before.tobytes())


@lru_cache(maxsize=_GRAPHS)
def _parts(kinds: bytes, before: bytes) -> Parts:
    codes = np.frombuffer(kinds, dtype=np.int8)
    closure = np.frombuffer(before, dtype=np.bool_).reshape(len(codes), len(codes))
    graph = ScheduleGraph.build(kinds=codes, edges=np.argwhere(closure))
    running = tuple(_part(graph, members) for members in segments(graph))
    return Parts(
        running=running,
        alone=np.array([part.members[0] for part in running if part.graph.n_ops == 1], dtype=np.int64),
        others=tuple(part for part in running if part.graph.n_ops > 1),
    )


def _part(graph: ScheduleGraph, members: NDArray[np.int64]) -> Part:
    part = graph.part(members)
    before = part.before
    network = np.flatnonzero(part.is_network).tolist()
    compute_before = _compute_before(part)
    pairs = [(i, j) for i, j in part.reduced_edges.tolist()]
    return Part(
        members=members,
        graph=part,
        small=is_small(part),
        pairs=sorted(pairs, key=lambda pair: pair[1]),
        pairs_backwards=sorted(pairs, reverse=True),
        compute=~part.is_network,
        network=network,
        unrelated=part.unrelated.astype(np.float32),
        ancestors=SubsetSums.of(before.T),
        descendants=SubsetSums.of(before),
        between=[Between.of(u, before[u][None, :] & before.T) for u in network],
        between_after=[Between.of(u, before & before[:, u][None, :]) for u in network],
        tensor_width=antichain_width(before, np.flatnonzero(part.uses_tensor)),
        vector_width=antichain_width(before, np.flatnonzero(part.uses_vector)),
        compute_before=compute_before,
        longest_path=_heaviest_path(compute_before, np.ones((part.n_ops, 1))),
    )


def antichain_width(before: NDArray[np.bool_], members: NDArray[np.int64]) -> int:
    """The most operators of ``members`` that no precedence keeps from running at once.

    Dilworth's theorem: the operators less a maximum matching between each and one that it precedes, which augmenting
    paths find (Berge).
    """
    after = [np.flatnonzero(row).tolist() for row in before[np.ix_(members, members)]]
    first: dict[int, int] = {}
    """Of each matched pair the first, by the second."""
    second: dict[int, int] = {}
    return len(members) - sum(_augment(start, after, first, second) for start in range(len(members)))


def _augment(start: int, after: list[list[int]], first: dict[int, int], second: dict[int, int]) -> bool:
    """Match ``start`` too, with other pairs changed as needed; return whether that is possible."""
    reached: dict[int, int] = {}
    """Operator to the one from which the path came to it."""
    ends = [start]
    for i in ends:
        for j in after[i]:
            if j in reached:
                continue
            reached[j] = i
            if j in first:
                ends.append(first[j])
                continue
            while True:
                before_j = reached[j]
                left = second.get(before_j)
                first[j], second[before_j] = before_j, j
                if left is None:
                    return True
                j = left
    return False


def paths_of(part: Part, data: Durations) -> list[Floats]:
    """Candidates for the longest path of compute operators: each architecture's own, and the one of most operators.

    Each (k, n) or (k, 1): 1 for the compute operators on it. Just one where the two are the same for all.
    """
    own = _heaviest_path(part.compute_before, data.fastest_s)
    return [own] if (own == part.longest_path).all() else [own, part.longest_path]


def _compute_before(part: ScheduleGraph) -> list[tuple[int, list[int]]]:
    compute = ~part.is_network
    closure = part.before & compute[:, None] & compute
    through = (closure.astype(np.float32) @ closure.astype(np.float32)) > 0
    direct = closure & ~through
    return [(i, np.flatnonzero(direct[:, i]).tolist()) for i in np.flatnonzero(compute).tolist()]


def _heaviest_path(compute_before: list[tuple[int, list[int]]], weight: Floats) -> Floats:
    """(k, n) 1 for the compute operators of the heaviest chain of compute operators, per column of (k, n) weights."""
    path = np.zeros_like(weight)
    if not compute_before:
        return path
    longest = weight.copy()
    columns = np.arange(weight.shape[1])
    # From which operator the heaviest chain up to each comes; itself where it starts there.
    come_from = np.empty(weight.shape, dtype=np.int64)
    for i, earlier in compute_before:
        if len(earlier) == 1:
            come_from[i] = earlier[0]
            longest[i] += longest[earlier[0]]
        elif earlier:
            best = longest[earlier].argmax(axis=0)
            come_from[i] = np.array(earlier)[best]
            longest[i] += longest[come_from[i], columns]
        else:
            come_from[i] = i
    operators = [i for i, _ in compute_before]
    last = np.array(operators)[longest[operators].argmax(axis=0)]
    while True:
        path[last, columns] = 1.0
        previous = come_from[last, columns]
        if (previous == last).all():
            return path
        last = previous
