"""What a group of devices can do with one operator: run all of it everywhere, or share one of its loops.

A loop that is shared needs each operand that it indexes in parts along it, and all others whole. A result that it
indexes comes in parts, any other as partial sums. Operators that are linear pass partial sums on. Passes over rows may
share the row itself: each of their reductions then ends in an all-reduce of one fp32 scalar per row, as a softmax over
a shared vocabulary does (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from archplace.workloads.operators import CollectiveKind
from archplace.workloads.precision import FP32_BYTES
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.shareable import Shareable
from archplace.workloads.traced.states import PARTIAL, REPLICATED, State, cut
from archplace.workloads.traced.tensor_graph import (
    Access,
    LoopKind,
    Tensor,
    TensorOp,
    TensorOpKind,
    TensorRole,
)
from archplace.workloads.traced.traffic import moved_bytes, product_macs


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to run an operator on the devices of a group."""

    reads: tuple[State, ...]
    """In which state it takes each of its reads."""
    writes: tuple[State, ...]
    """In which state it leaves each of its writes."""
    loop: int | None = None
    """The loop that is shared."""
    statistics_bytes: int = 0
    """Bytes of the scalars of all rows that each reduction exchanges; 0 where none does."""
    seconds: float
    """Of one device, exchanges of statistics included."""


def choices_of(op: TensorOp, tensors: Sequence[Tensor], shareable: Shareable, rates: Rates) -> tuple[Choice, ...]:
    """Return the ways to run ``op``, whole first; of ways with the same states the fastest."""
    found = [_whole(op, tensors, rates)]
    found += [
        choice
        for loop in range(len(op.loops))
        if (choice := _shared_loop(op, loop, tensors, shareable, rates)) is not None
    ]
    found += _partial(op, tensors, rates)
    best: dict[tuple[tuple[State, ...], tuple[State, ...]], Choice] = {}
    for choice in found:
        known = best.setdefault((choice.reads, choice.writes), choice)
        if choice.seconds < known.seconds:
            best[choice.reads, choice.writes] = choice
    return tuple(best.values())


def _whole(op: TensorOp, tensors: Sequence[Tensor], rates: Rates) -> Choice:
    reads, writes = (REPLICATED,) * len(op.reads), (REPLICATED,) * len(op.writes)
    return Choice(reads=reads, writes=writes, seconds=_seconds(op, reads, writes, None, tensors, 1, rates))


def _shared_loop(
    op: TensorOp, loop: int, tensors: Sequence[Tensor], shareable: Shareable, rates: Rates
) -> Choice | None:
    """Return the way that shares a loop, or None where that cannot be."""
    cut_loop, degree = op.loops[loop], shareable.cutting.degree
    if not shareable.cutting.divides(cut_loop.size, cut_loop.symbol):
        return None
    exchanges = cut_loop.kind is LoopKind.WHOLE
    if exchanges and not (op.kind is TensorOpKind.ROWS and op.reductions):
        return None
    reads = tuple(_state_along(access, loop, shareable) for access in op.reads)
    writes = tuple(_state_along(access, loop, shareable) for access in op.writes)
    if None in reads or None in writes:
        return None
    taken = tuple(state for state in reads if state is not None)
    missed = REPLICATED if exchanges else PARTIAL
    given = tuple(missed if state == REPLICATED else state for state in writes if state is not None)
    statistics = statistics_rows(op) * FP32_BYTES if exchanges else 0
    seconds = _seconds(op, taken, given, loop, tensors, degree, rates)
    seconds += (op.reductions if exchanges else 0) * rates.exchange_s(CollectiveKind.ALL_REDUCE, statistics, degree)
    return Choice(reads=taken, writes=given, loop=loop, statistics_bytes=statistics, seconds=seconds)


def statistics_rows(op: TensorOp) -> int:
    """Return the rows over which a passes-over-rows operator reduces."""
    return prod(one.size for one in op.loops if one.kind is not LoopKind.WHOLE)


def _state_along(access: Access, loop: int, shareable: Shareable) -> State | None:
    """Return the state of an operand when a loop is shared: cut, or replicated where the loop does not index it.

    None where the operand cannot be cut there.
    """
    places = [(d, a) for d, dim in enumerate(access.loops) for a, index in enumerate(dim) if index == loop]
    if not places:
        return REPLICATED
    if len(places) > 1:
        return None
    d, a = places[0]
    return cut(d, a) if (access.tensor, d, a) in shareable.places else None


def _partial(op: TensorOp, tensors: Sequence[Tensor], rates: Rates) -> list[Choice]:
    """Return the ways that pass partial sums on."""
    carried = (TensorRole.ACTIVATION, TensorRole.GRADIENT)
    activations = [i for i, access in enumerate(op.reads) if tensors[access.tensor].role in carried]
    sets = [activations] if op.linear and activations else []
    if op.kind is TensorOpKind.PRODUCT and len(op.reads) == 2:  # linear in either factor
        sets += [[i] for i in activations if [i] not in sets]
    found = []
    for members in sets:
        reads = tuple(PARTIAL if i in members else REPLICATED for i in range(len(op.reads)))
        writes = (PARTIAL,) * len(op.writes)
        seconds = _seconds(op, reads, writes, None, tensors, 1, rates)
        found.append(Choice(reads=reads, writes=writes, seconds=seconds))
    return found


def _seconds(
    op: TensorOp,
    reads: Sequence[State],
    writes: Sequence[State],
    loop: int | None,
    tensors: Sequence[Tensor],
    degree: int,
    rates: Rates,
) -> float:
    share = degree if loop is not None else 1
    return rates.compute_s(product_macs(op) / share, moved_bytes(op, tensors, reads, writes, degree))
