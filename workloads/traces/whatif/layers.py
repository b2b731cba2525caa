"""What if the model were deeper, or shallower? Repeated layers are repeated more or less often.

Nodes say which layer they belong to: its kind (``layer``) and which it is in the model (``layer_index``). The layers of
one kind that follow each other are alike, and each depends on its neighbours only: forward passes on the layer ahead,
backward passes on the layer behind. A layer more is a copy of one in the middle, which depends on its own neighbours
in the same way; layers fewer are taken out of the middle. Nodes outside that read the first or the last layer read the
first or the last one of the new model, and those that read all layers read all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces.meaning import whole
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.whatif._edit import copied, forget_start, put
from archplace.workloads.traces.whatif.job import Job, RankTrace
from archplace.workloads.traces.whatif.step import Record

_Spot = tuple[int, int]
"""Layer of the kind, from 0, and place of a node among those of its layer."""
_MOST_LAYERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Another number of layers of one kind, on every rank. One rank's trace at a time is held in memory."""

    count: int
    kind: str | None = None
    """Name of the kind; None for the one that repeats most."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST_LAYERS:
            raise ValueError(f"a model has 1 to {_MOST_LAYERS:,} layers of a kind, found {self.count:,}")

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Repeat the layers.

        Raises ConfigError for traces that do not name layers, kinds that there are not, layers that differ, and layers
        that do not form a chain.
        """
        first = next(iter(job.traces.values()))
        kind = self._kind(first)
        before: set[int] = set()
        for trace in job.traces.values():
            count, nodes = self._repeated(trace, kind)
            before.add(count)
            for _ in nodes:  # what is wrong comes out now, not when files are half written
                pass
        record: Record = {"step": "layers", "kind": kind, "from": max(before), "to": self.count}
        if before == {self.count}:
            return job, record
        return job.changed(lambda _, trace: replace(trace, nodes=lambda: self._repeated(trace, kind)[1])), record

    def _kind(self, trace: RankTrace) -> str:
        layers: dict[str, set[int]] = {}
        for node in trace.nodes():
            values = node.values()
            kind, index = values.get("layer"), whole(values, "layer_index")
            if isinstance(kind, str) and index is not None:
                layers.setdefault(kind, set()).add(index)
        if not layers:
            raise trace.error("--layers: no node says which layer it belongs to (attributes layer and layer_index)")
        kind = self.kind or max(layers, key=lambda name: len(layers[name]))
        if kind not in layers:
            known = ", ".join(f"{name} ({len(indices)})" for name, indices in layers.items())
            raise trace.error(f"--layers: no layer is a {kind!r:.60}; there are: {known}")
        return kind

    def _repeated(self, trace: RankTrace, kind: str) -> tuple[int, Iterator[Node]]:
        """Return how many layers there were, and the nodes with as many as there are to be."""
        nodes = tuple(trace.nodes())
        chain = _Chain.find(nodes, kind, trace)
        if chain.count == self.count:
            return chain.count, iter(nodes)
        if chain.count == 1:
            raise trace.error(
                f"--layers: there is one layer {kind!r:.60}, which does not show how such layers follow each other: "
                "give a trace with two at least"
            )
        return chain.count, _rebuilt(nodes, chain, self.count, trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The layers of one kind in a trace."""

    first_index: int
    layers: tuple[tuple[int, ...], ...]
    """Places of the nodes of each layer, in the file's order."""
    spots: dict[int, _Spot]
    """By the place of a node of one of them."""

    @property
    def count(self) -> int:
        return len(self.layers)

    @classmethod
    def find(cls, nodes: Sequence[Node], kind: str, trace: RankTrace) -> "_Chain":
        places: dict[int, list[int]] = {}
        for place, node in enumerate(nodes):
            values = node.values()
            if values.get("layer") == kind:
                places.setdefault(whole(values, "layer_index") or 0, []).append(place)
        indices = sorted(places)
        if not indices:
            raise trace.error(f"--layers: this rank has no layer {kind!r:.60}, which others have")
        if indices != list(range(indices[0], indices[0] + len(indices))):
            raise trace.error(f"--layers: layers {kind!r:.60} are not next to each other: {indices[:12]}")
        layers = tuple(tuple(places[index]) for index in indices)
        for number, layer in enumerate(layers):
            _compare(nodes, layers[0], layer, indices[0] + number, trace)
        spots = {place: (i, p) for i, layer in enumerate(layers) for p, place in enumerate(layer)}
        return cls(first_index=indices[0], layers=layers, spots=spots)


def _compare(nodes: Sequence[Node], one: Sequence[int], other: Sequence[int], index: int, trace: RankTrace) -> None:
    if len(one) != len(other):
        raise trace.error(f"--layers: layer {index} has {len(other)} nodes, and the first of its kind {len(one)}")
    for a, b in zip(one, other, strict=True):
        left, right = nodes[a], nodes[b]
        if (left.name, left.kind) != (right.name, right.kind):
            raise trace.error(
                f"--layers: node {right.id} of layer {index} is {right.name!r:.60}, and its counterpart {left.id} "
                f"{left.name!r:.60}: the layers are not alike"
            )


def _rebuilt(nodes: Sequence[Node], chain: _Chain, count: int, trace: RankTrace) -> Iterator[Node]:
    """Give the nodes with ``count`` layers, numbered anew in the file's order."""
    by_id = {node.id: place for place, node in enumerate(nodes)}
    parents = [
        tuple(tuple(by_id[one] for one in ids) for ids in (node.data_parents, node.control_parents)) for node in nodes
    ]
    reach = _neighbours(chain, [(*data, *control) for data, control in parents], nodes, trace)
    old = chain.count
    order = tuple(_order(nodes, chain, count))
    made = {found: number for number, found in enumerate(order)}
    assert len(made) == len(order)
    for slot, place in order:
        if slot is None:
            source, message = place, copied(nodes[place])
            links = [_outside(chain, source, group, count, nodes, trace) for group in parents[source]]
            shift = count - old if _index(nodes[place]) >= chain.first_index + old else 0
            number = _index(nodes[place]) + shift
        else:
            position = chain.spots[place][1]
            layer = _template(slot, reach.get(position, 0), old, count)
            source = chain.layers[layer][position]
            message = copied(nodes[source])
            links = [_inside(chain, group, slot, layer) for group in parents[source]]
            number = chain.first_index + slot
        message.id = made[slot, place]
        for field, wanted in zip((message.data_deps, message.ctrl_deps), links, strict=True):
            del field[:]
            field.extend(dict.fromkeys(made[_canonical(chain, one, count)] for one in wanted))
        if number >= 0:
            put(message, "layer_index", number)
        forget_start(message)
        yield Node(message)


_Link = tuple[int | None, int]
"""New layer and place in it; or None and the place in the file of a node outside."""


def _index(node: Node) -> int:
    found = whole(node.values(), "layer_index")
    return -1 if found is None else found


def _canonical(chain: _Chain, link: _Link, count: int) -> tuple[int | None, int]:
    """Return how :func:`_order` names a node."""
    slot, place = link
    if slot is None:
        return None, place
    return slot, chain.layers[_shown(slot, chain.count, count)][place]


def _shown(slot: int, old: int, new: int) -> int:
    """Return the layer at whose place in the file a new layer stands."""
    if slot == new - 1:
        return old - 1 if new > 1 else 0
    if new <= old:
        return slot
    middle = max(0, old // 2 - (old == 2))
    return slot if slot <= middle else max(middle, slot - (new - old))


def _order(nodes: Sequence[Node], chain: _Chain, count: int) -> Iterator[tuple[int | None, int]]:
    """Give the new nodes in the file's order: copies of a stretch of a layer's nodes stand next to it."""
    slots: dict[int, list[int]] = {}
    for slot in range(count):
        slots.setdefault(_shown(slot, chain.count, count), []).append(slot)
    place = 0
    while place < len(nodes):
        spot = chain.spots.get(place)
        if spot is None:
            yield None, place
            place += 1
            continue
        layer, position = spot
        end = place
        while end < len(nodes) and end in chain.spots and chain.spots[end][0] == layer:
            end += 1
        falling = chain.layers[0][position] > chain.layers[-1][position]
        copies = slots.get(layer, [])
        for slot in reversed(copies) if falling else copies:
            yield from ((slot, at) for at in range(place, end))
        place = end


def _neighbours(
    chain: _Chain, parents: Sequence[Sequence[int]], nodes: Sequence[Node], trace: RankTrace
) -> dict[int, int]:
    """Return by place in a layer on which side the neighbour is that a node waits for: -1 ahead, 1 behind."""
    found: dict[int, int] = {}
    for place, (layer, position) in chain.spots.items():
        for parent in parents[place]:
            if parent not in chain.spots:
                continue
            distance = chain.spots[parent][0] - layer
            if abs(distance) > 1:
                raise trace.error(
                    f"--layers: node {nodes[place].id} waits for node {nodes[parent].id}, {abs(distance)} layers away: "
                    "only layers that depend on their neighbours can be repeated"
                )
            if distance:
                found[position] = distance
    return found


def _template(slot: int, side: int, old: int, new: int) -> int:
    """Return the layer whose node a new layer's node is a copy of: one that has the neighbours that the copy has."""
    first, last = slot == 0, slot == new - 1
    if side <= 0 and first:
        return 0
    if side >= 0 and last:
        return old - 1
    if first:  # the layer behind counts
        return 0
    if last:
        return old - 1
    shown = _shown(slot, old, new)
    return max(1, shown) if side < 0 else min(old - 2, shown) if side > 0 else shown


def _inside(chain: _Chain, parents: Sequence[int], slot: int, layer: int) -> list[_Link]:
    links: list[_Link] = []
    for parent in parents:
        spot = chain.spots.get(parent)
        links.append((None, parent) if spot is None else (slot + spot[0] - layer, spot[1]))
    return links


def _outside(
    chain: _Chain, place: int, parents: Sequence[int], count: int, nodes: Sequence[Node], trace: RankTrace
) -> list[_Link]:
    """Return what a node outside the layers waits for in the new model."""
    read: dict[int, set[int]] = {}
    for parent in parents:
        if parent in chain.spots:
            layer, position = chain.spots[parent]
            read.setdefault(position, set()).add(layer)
    links: list[_Link] = [(None, parent) for parent in parents if parent not in chain.spots]
    last = chain.count - 1
    for position, layers in read.items():
        if len(layers) == chain.count:
            links += [(slot, position) for slot in range(count)]
        elif layers <= {0, last}:
            links += [(0 if layer == 0 else count - 1, position) for layer in sorted(layers)]
        else:
            raise trace.error(
                f"--layers: node {nodes[place].id} ({nodes[place].name!r:.60}) waits for layers in the middle "
                f"({sorted(layers)[:8]} of {chain.count}): it cannot be said for which of others it would"
            )
    return links


__all__ = ["ConfigError", "Layers"]
