"""What is computed once per graph part: longest paths, candidate paths, widths, matrices for sums over relatives."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from archplace.search.schedule._durations import Durations, Floats
from archplace.search.schedule._independent import is_small
from archplace.search.schedule.graph import ScheduleGraph, segments


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
    compute: NDArray[np.bool_]
    """(k,)"""
    network: list[int]
    """Collectives."""
    before: Floats
    """(k, k) the closure as 0 and 1."""
    between: list[Floats]
    """Per collective u, (k, k): ``[v, i]`` is 1 if operator i must run after u and before v."""
    between_after: list[Floats]
    """Per collective u, (k, k): ``[v, i]`` is 1 if operator i must run after v and before u."""
    tensor_width: int
    """The most operators on tensor units that can run at once if each takes one unit."""
    vector_width: int
    paths: list[Floats]
    """(k, 1) 1 for the compute operators on one path: candidates for the longest."""

    def longest(self, duration_s: Floats) -> tuple[Floats, Floats]:
        """(k, n) the longest path before each operator, and after it, under (k, n) durations."""
        ahead = np.zeros_like(duration_s)
        after = np.zeros_like(duration_s)
        self.lengthen(ahead, after, duration_s)
        return ahead, after

    def lengthen(self, ahead: Floats, after: Floats, duration_s: Floats) -> None:
        """Raise (k, n) least times before and after each operator, in place, by those of its relatives."""
        for i, j in self.pairs:
            np.maximum(ahead[j], ahead[i] + duration_s[i], out=ahead[j])
        for i, j in sorted(self.pairs, reverse=True):
            np.maximum(after[i], after[j] + duration_s[j], out=after[i])


def parts_of(graph: ScheduleGraph, data: Durations) -> list[Part]:
    """The parts of ``graph`` in running order; ``data`` only suggests which paths are worth bounding by."""
    return [_part(graph, members, data) for members in segments(graph)]


def block_size(parts: list[Part]) -> int:
    """How many architectures to work on at a time, so that their arrays stay in the processor's cache.

    Large parts get smaller blocks: beyond about a million multiplications BLAS shares a product between threads, which
    on a busy machine made the bounds eight times slower.
    """
    most = max((part.graph.n_ops for part in parts), default=1)
    return max(64, min(1024, 800_000 // most**2))


def _part(graph: ScheduleGraph, members: NDArray[np.int64], data: Durations) -> Part:
    part = graph.part(members)
    small = is_small(part)
    sample = data.archs(np.arange(0, data.n_archs, max(1, data.n_archs // 64))).ops(members)
    paths: list[Floats] = []
    if not small:
        weights = [np.ones(part.n_ops)]
        if data.n_archs:
            weights.insert(0, np.median(sample.fastest_s, axis=1))
        for weight in weights:
            path = _heaviest_path(part, weight)
            if not any((path == other).all() for other in paths):
                paths.append(path)
    before = part.before
    network = np.flatnonzero(part.is_network).tolist()
    return Part(
        members=members,
        graph=part,
        small=small,
        pairs=sorted(((i, j) for i, j in part.reduced_edges.tolist()), key=lambda pair: pair[1]),
        compute=~part.is_network,
        network=network,
        before=before.astype(np.float64),
        between=[(before[u][None, :] & before.T).astype(np.float64) for u in network],
        between_after=[(before & before[:, u][None, :]).astype(np.float64) for u in network],
        tensor_width=antichain_width(before, np.flatnonzero(part.uses_tensor)),
        vector_width=antichain_width(before, np.flatnonzero(part.uses_vector)),
        paths=paths,
    )


def antichain_width(before: NDArray[np.bool_], members: NDArray[np.int64]) -> int:
    """The most operators of ``members`` that no precedence keeps from running at once.

    Dilworth's theorem: the operators less a maximum matching between each and one that it precedes.
    """
    if len(members) < 2:
        return len(members)
    top = [("from", i) for i in members.tolist()]
    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    graph.add_nodes_from(top)
    graph.add_nodes_from(("to", i) for i in members.tolist())
    graph.add_edges_from((("from", i), ("to", j)) for i in members.tolist() for j in members.tolist() if before[i, j])
    return len(members) - len(nx.bipartite.hopcroft_karp_matching(graph, top)) // 2


def _heaviest_path(part: ScheduleGraph, weight: Floats) -> Floats:
    """(k, 1) 1 for the compute operators of the heaviest chain of compute operators."""
    compute = ~part.is_network
    longest = np.where(compute, weight, 0.0)
    come_from = np.full(part.n_ops, -1)
    for i in range(part.n_ops):
        earlier = np.flatnonzero(part.before[:, i] & compute)
        if compute[i] and len(earlier):
            come_from[i] = earlier[np.argmax(longest[earlier])]
            longest[i] += longest[come_from[i]]
    path = np.zeros((part.n_ops, 1))
    i = int(np.argmax(np.where(compute, longest, -1.0)))
    while i >= 0 and compute[i]:
        path[i] = 1.0
        i = int(come_from[i])
    return path
