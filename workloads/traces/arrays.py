"""The graph of a trace as arrays: what takes part in it, without names, operands and attributes."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.workloads.traces.node import Node

Ids = NDArray[np.uint64]
Places = NDArray[np.int64]

MOST_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArrays:
    """Nodes by their place in the file, and edges from parents, of either kind, to children.

    8 bytes for a node and 16 for an edge: a hundred million nodes fit into the memory of one machine.
    """

    ids: Ids
    """(n_nodes,)"""
    parents: Places
    """(n_edges,): places of the nodes that edges leave, sorted by child; an edge of both kinds stands once."""
    children: Places
    """(n_edges,): places of the nodes that edges enter, ascending."""

    @classmethod
    def collect(cls, nodes: Iterable[Node], *, control: bool = True) -> "TraceArrays":
        """Take the graph out of ``nodes``; ``control`` says whether control parents are dependencies.

        Raises ValueError for doubled ids and parents that do not exist.
        """
        collector = _Collector(control)
        for _ in collector.through(nodes):
            pass
        return collector.arrays()

    def order(self) -> list[int]:
        """Return the places so that parents come first, and otherwise in the file's order as far as they were ready.

        Raises ValueError that names the nodes of a cycle.
        """
        count = len(self.ids)
        missing = np.bincount(self.children, minlength=count).tolist()
        by_parent = np.argsort(self.parents, kind="stable")
        begins = np.searchsorted(self.parents[by_parent], np.arange(count + 1)).tolist()
        followers = self.children[by_parent].tolist()
        order = [place for place in range(count) if not missing[place]]
        for place in order:
            for follower in followers[begins[place] : begins[place + 1]]:
                missing[follower] -= 1
                if not missing[follower]:
                    order.append(follower)
        if len(order) < count:
            raise ValueError(self._cycle(np.asarray(missing) > 0))
        return order

    def longest(self, weights: Sequence[int], order: Sequence[int] | None = None) -> int:
        """Return the weight of the heaviest chain, with a weight for each node; 0 for no nodes.

        ``order`` is :meth:`order`'s, where it is at hand. Raises ValueError that names the nodes of a cycle.
        """
        begins = np.searchsorted(self.children, np.arange(len(self.ids) + 1)).tolist()
        parents = self.parents.tolist()
        ends = [0] * len(weights)
        for place in self.order() if order is None else order:
            before = [ends[parent] for parent in parents[begins[place] : begins[place + 1]]]
            ends[place] = max(before, default=0) + weights[place]
        return max(ends, default=0)

    def _cycle(self, stuck: NDArray[np.bool_]) -> str:
        # Whoever is left has a parent that is left: going from parent to parent ends in a circle.
        before = {}
        for parent, child in zip(self.parents.tolist(), self.children.tolist(), strict=True):
            if stuck[parent] and stuck[child]:
                before[child] = parent
        place = int(np.flatnonzero(stuck)[0])
        seen: dict[int, int] = {}
        while place not in seen:
            seen[place] = len(seen)
            place = before[place]
        names = [int(self.ids[found]) for found, at in seen.items() if at >= seen[place]]
        shown = " <- ".join(map(str, names[:MOST_NAMED])) + (" <- …" if len(names) > MOST_NAMED else "")
        return f"{len(names)} nodes wait for each other: {shown} <- {names[0]}; cut one of the dependencies"


class _Collector:
    def __init__(self, control: bool) -> None:
        self._control = control
        self._ids, self._parents, self._counts = array("Q"), array("Q"), array("Q")

    def through(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Pass ``nodes`` on, and note their graph."""
        for node in nodes:
            message = node.message
            self._ids.append(message.id)
            control, data = message.ctrl_deps if self._control else (), message.data_deps
            self._counts.append(len(control) + len(data))
            self._parents.extend(control)
            self._parents.extend(data)
            yield node

    def arrays(self) -> TraceArrays:
        ids = np.array(self._ids, dtype=np.uint64)
        by_id = np.argsort(ids, kind="stable")
        ordered = ids[by_id]
        double = ordered[1:] == ordered[:-1]
        if double.any():
            raise ValueError(f"node id {ordered[1:][double][0]} stands twice")
        wanted = np.array(self._parents, dtype=np.uint64)
        children = np.repeat(np.arange(len(ids)), np.array(self._counts, dtype=np.int64))
        at = np.searchsorted(ordered, wanted)
        known = at < len(ids)
        known[known] = ordered[at[known]] == wanted[known]
        if not known.all():
            lost = int(np.flatnonzero(~known)[0])
            raise ValueError(f"node {ids[children[lost]]} has the parent {wanted[lost]}, which does not exist")
        edges = np.unique(np.stack([children, by_id[at]]), axis=1) if len(wanted) else np.zeros((2, 0), dtype=np.int64)
        return TraceArrays(
            ids=ids,
            parents=edges[1],
            children=edges[0],
        )


def collecting(nodes: Iterable[Node], *, control: bool = True) -> tuple[Iterator[Node], "_Collector"]:
    """Return ``nodes`` to pass on, and what knows their arrays when they have passed."""
    collector = _Collector(control)
    return collector.through(nodes), collector
