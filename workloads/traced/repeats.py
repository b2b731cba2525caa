"""Where a forward pass repeats itself, and where it is narrow: the places to cut it into layers.

Two operators are alike if they do the same work on tensors that come from equally far before, or are the same tensor. A
block that stands N times in a row shows as a long run of operators each of which is like the one a block's length
behind. The longest such run is cut first, then what is before it and behind it. A run may be cut at any place of its
block; it is cut where the least crosses.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.workloads.traced.tensor_graph import Tensor, TensorOp, TensorOpKind, TensorRole

_PIECES = 16
"""Into at most about how many layers a model is cut that does not repeat itself."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators in a row that are one layer, by their places."""

    begin: int
    end: int
    run: int
    """Number of the run of equal blocks that it belongs to; -1 for none."""


def cut_forward(operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> tuple[Piece, ...]:
    """Return the layers of a forward pass, in order; they cover all operators."""
    likeness = _Likeness(operators, tensors)
    crossing = crossing_bytes(operators, tensors)
    works = _have_weights(operators, tensors)
    pieces: list[Piece] = []
    segments = [(0, len(operators))]
    runs = 0
    while segments:
        begin, end = segments.pop()
        found = _longest_run(likeness, works, crossing, begin, end)
        if found is None:
            pieces.append(Piece(begin, end, -1))
            continue
        start, period, count = found
        pieces += [Piece(start + at * period, start + (at + 1) * period, runs) for at in range(count)]
        runs += 1
        segments += [one for one in ((begin, start), (start + count * period, end)) if one[0] < one[1]]
    if not runs and operators:
        pieces = _narrow_pieces(operators, tensors)
    return tuple(sorted(pieces, key=lambda piece: piece.begin))


def crossing_bytes(operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> NDArray[np.float64]:
    """Return for each place how many bytes of activations cross it, read behind and written before."""
    change = np.zeros(len(operators) + 1)
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, op in enumerate(operators):
        for access in op.reads:
            last[access.tensor] = place
        for access in op.writes:
            made[access.tensor] = place
    for tensor, place in made.items():
        if tensors[tensor].role is TensorRole.ACTIVATION and last.get(tensor, place) > place:
            change[place + 1] += tensors[tensor].bytes
            change[last[tensor] + 1] -= tensors[tensor].bytes
    return np.cumsum(change)


class _Likeness:
    """Which operators are alike, as numbers that can be compared all at once."""

    def __init__(self, operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> None:
        codes: dict[object, int] = {}
        made: dict[int, int] = {}
        width = max((len(op.reads) for op in operators), default=0)
        self.code = np.zeros(len(operators), dtype=np.int64)
        self.distance = np.full((len(operators), width), -1, dtype=np.int64)
        self.tensor = np.full((len(operators), width), -1, dtype=np.int64)
        for place, op in enumerate(operators):
            self.code[place] = codes.setdefault(_work(op, tensors), len(codes))
            for at, access in enumerate(op.reads):
                self.tensor[place, at] = access.tensor
                if tensors[access.tensor].role is TensorRole.ACTIVATION:
                    self.distance[place, at] = place - made.get(access.tensor, -1)
            for access in op.writes:
                made[access.tensor] = place

    def like(self, period: int, begin: int, end: int) -> NDArray[np.bool_]:
        """Return for each place from ``begin`` whether it is like the one ``period`` behind, both before ``end``."""
        one, other = slice(begin, end - period), slice(begin + period, end)
        same = (self.distance[one] == self.distance[other]) | (self.tensor[one] == self.tensor[other])
        like: NDArray[np.bool_] = (self.code[one] == self.code[other]) & same.all(axis=1)
        return like


def _work(op: TensorOp, tensors: Mapping[int, Tensor]) -> object:
    accesses = tuple(
        (access.loops, tensors[access.tensor].dims, tensors[access.tensor].role, tensors[access.tensor].element_bytes)
        for access in (*op.reads, *op.writes)
    )
    return op.name, op.kind, op.loops, len(op.reads), accesses


def _have_weights(operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> NDArray[np.bool_]:
    """Return which operators are products with parameters, or with copies of them in another number format."""
    weights = {number for number, tensor in tensors.items() if tensor.role is TensorRole.PARAMETER}
    found = np.zeros(len(operators), dtype=np.bool_)
    for place, op in enumerate(operators):
        reads = [access.tensor for access in op.reads]
        found[place] = op.kind is TensorOpKind.PRODUCT and not weights.isdisjoint(reads)
        if op.kind in (TensorOpKind.MOVE, TensorOpKind.VIEW) and reads and weights.issuperset(reads):
            weights.update(access.tensor for access in op.writes)
    return found


def _longest_run(
    likeness: _Likeness, works: NDArray[np.bool_], crossing: NDArray[np.float64], begin: int, end: int
) -> tuple[int, int, int] | None:
    """Return where the run begins whose equal blocks cover most operators, a block's length, and how many they are."""
    best: tuple[int, int, int] | None = None
    covered = 0
    for period in _periods(likeness, works, begin, end):
        if 2 * period > end - begin:
            break
        like = likeness.like(period, begin, end)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], like.view(np.int8), [0]))))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            length = int(stop - start)
            count = length // period + 1
            if length < period or count * period <= covered:
                continue
            first = begin + int(start)
            if not works[first : first + period].any():
                continue
            covered = count * period
            best = _placed(first, period, length + period, crossing)
    return best


def _periods(likeness: _Likeness, works: NDArray[np.bool_], begin: int, end: int) -> list[int]:
    """Return the lengths that a block can have: distances between equal products with weights."""
    places: dict[int, list[int]] = {}
    for place in np.flatnonzero(works[begin:end]):
        places.setdefault(int(likeness.code[begin + place]), []).append(int(place))
    found: set[int] = set()
    for same in places.values():
        # A block holds a few equal products; what lies further apart is several blocks.
        for ahead in range(1, min(len(same), _MOST_EQUAL + 1)):
            found.update(other - one for one, other in zip(same, same[ahead:], strict=False))
    return sorted(found)


_MOST_EQUAL = 64
"""How many equal products a block may hold to be found."""


def _placed(first: int, period: int, length: int, crossing: NDArray[np.float64]) -> tuple[int, int, int]:
    """Return where to cut a run: where the least crosses, then into most blocks, then first."""
    places = [
        (float(crossing[start]), -((first + length - start) // period), start)
        for start in range(first, first + period)
        if (first + length - start) // period > 1
    ]
    _, count, start = min(places)
    return start, period, -count


def _narrow_pieces(operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> list[Piece]:
    """Return pieces of at least a share of the work each, cut where one activation crosses."""
    counts = _crossing_counts(operators, tensors)
    work = np.array([op.macs for op in operators], dtype=float)
    least = work.sum() / _PIECES
    places = [0]
    done = 0.0
    for place in range(1, len(operators)):
        done += work[place - 1]
        rest = work[place:].sum()
        if counts[place] == 1 and done >= least and done and rest >= least:
            places.append(place)
            done = 0.0
    places.append(len(operators))
    return [Piece(begin, end, -1) for begin, end in itertools.pairwise(places)]


def _crossing_counts(operators: Sequence[TensorOp], tensors: Mapping[int, Tensor]) -> NDArray[np.float64]:
    return crossing_bytes(
        operators, {number: _ONE if one.role is TensorRole.ACTIVATION else one for number, one in tensors.items()}
    )


_ONE = Tensor(name="", dims=(), element_bytes=1.0, role=TensorRole.ACTIVATION)
