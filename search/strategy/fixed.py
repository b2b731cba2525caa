"""Strategies whose layers are dealt out beforehand: what is left to choose is each stage's recomputation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.pipeline import PipelineSchedule, in_flight
from archplace.search.strategy.chain import CAPACITY_SLACK, BoolArray, ChainRows, FloatArray, IntArray, of_layers
from archplace.search.strategy.cuts import Cut


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deal:
    """Layers of each segment on each device of a pipeline, ``(J, S)``."""

    own: FloatArray
    mirrored: FloatArray
    """Further layers that a device keeps for a second direction, in which half of the microbatches come."""
    mirrored_in_flight: FloatArray
    """``(J,)``: microbatches of those in flight."""

    @classmethod
    def of(cls, held: Sequence[Sequence[int]]) -> "Deal":
        """Return a deal in one direction."""
        layers = np.array(held, dtype=np.float64)
        return cls(own=layers, mirrored=np.zeros_like(layers), mirrored_in_flight=np.zeros(len(layers)))

    @property
    def held(self) -> FloatArray:
        """Layers whose states a device keeps."""
        return self.own + self.mirrored

    @property
    def worked(self) -> FloatArray:
        """Layers that a device works on for each microbatch, on average."""
        return self.held / 2 if self.mirrored.any() else self.own


def even_parts(counts: Sequence[int], parts: int) -> FloatArray:
    """Return the layers of each segment in each of ``parts`` even parts of the model, in model order, ``(parts, S)``.

    The first and the last segment lie in the first and the last part; what is between is dealt out so that parts differ
    by at most one layer. The larger ones are in the middle, because the ends hold more besides.
    """
    kinds = np.repeat(np.arange(len(counts)), counts)
    inner = kinds[counts[0] : len(kinds) - counts[-1]]
    assert len(inner) >= parts, (counts, parts)
    sizes = np.full(parts, len(inner) // parts)
    from_middle = np.argsort(np.abs(2 * np.arange(parts) - (parts - 1)), kind="stable")
    sizes[from_middle[: len(inner) % parts]] += 1
    held = np.array(
        [np.bincount(layers, minlength=len(counts)) for layers in np.split(inner, sizes.cumsum()[:-1])],
        dtype=np.float64,
    )
    held[0, 0] += counts[0]
    held[-1, -1] += counts[-1]
    return held


def even_deal(counts: Sequence[int], schedule: PipelineSchedule, stages: int, virtual: int) -> Deal:
    """Return even parts of the repeated layers, in model order, with the first and last segment on the ends.

    ``counts`` are the layers of each segment, cut as :func:`even_parts` does. Part ``c · stages + j`` lies on device
    ``j``; under DualPipe device ``j`` also holds part ``stages - 1 - j``.
    """
    held = even_parts(counts, stages * virtual).reshape(virtual, stages, len(counts)).sum(axis=0)
    if schedule is PipelineSchedule.DUALPIPE:
        device = np.arange(stages)
        flight = in_flight(schedule, stages, virtual, 2 * stages, device).mirrored
        return Deal(own=held, mirrored=held[::-1].copy(), mirrored_in_flight=flight)
    return Deal(own=held, mirrored=np.zeros_like(held), mirrored_in_flight=np.zeros(stages))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """The best recomputation of dealt layers; one entry per row."""

    time_s: FloatArray
    """``(R,)``: infinite where memory is short."""
    policies: IntArray
    """``(R, J)``: the first that fits, -1 where none does."""
    loads_s: FloatArray
    """``(R, J)``."""
    tail_s: FloatArray
    """``(R,)``."""
    short_bytes: FloatArray
    """``(R,)``: what the stage that lacks most lacks under the policy that keeps least; not positive where all fit."""
    deal: Deal

    def at(self, row: int) -> Cut | None:
        """Return one row's stages, or None where memory is short."""
        return self.cut(row) if np.isfinite(self.time_s[row]) else None

    def cut(self, row: int) -> Cut:
        """Return one row's stages."""
        loads = tuple(self.loads_s[row].tolist())
        return Cut(
            time_s=float(self.time_s[row]),
            load_s=max(loads),
            held=tuple(tuple(int(n) for n in layers) for layers in self.deal.held),
            policies=tuple(self.policies[row].tolist()),
            loads_s=loads,
            tail_s=float(self.tail_s[row]),
        )


def price_deal(rows: ChainRows, deal: Deal, policies_allowed: BoolArray | None = None) -> Dealt:
    """Return what rows take with layers dealt out so, each stage recomputing as little as fits.

    ``policies_allowed``, ``(P, J)``, says which policies each stage may choose from; all of them without it.
    """
    shape = (rows.n_rows, rows.n_stages)
    policies = np.full(shape, -1, dtype=np.int64)
    loads_s, fills_s = np.full(shape, np.inf), np.full(shape, np.inf)
    states = of_layers(rows.state_bytes[:, None], deal.held)
    ends_s = rows.boundary_s[:, None] * rows.neighbours()
    capacity = rows.capacity_bytes[:, None]
    short = np.full(shape, np.inf)
    for number in range(rows.load_s.shape[1]):
        flight = rows.in_flight * of_layers(rows.flight_bytes[:, number][:, None], deal.own)
        flight += deal.mirrored_in_flight * of_layers(rows.flight_bytes[:, number][:, None], deal.mirrored)
        working = np.where(deal.held > 0, rows.working_bytes[:, number][:, None, :], 0.0).max(axis=2)
        memory = states + flight + working
        allowed = np.ones(rows.n_stages, dtype=np.bool_) if policies_allowed is None else policies_allowed[number]
        short = np.where(allowed, np.minimum(short, memory - capacity), short)
        fits = allowed & (memory <= capacity * (1 + CAPACITY_SLACK)) & (policies < 0)
        load = of_layers(rows.load_s[:, number][:, None], deal.worked) + ends_s
        fill = of_layers(rows.fill_s[:, number][:, None], deal.worked)
        policies[fits], loads_s[fits], fills_s[fits] = number, load[fits], fill[fits]
    tail_s = rows.tails_s(deal.held[0])
    fitting = (policies >= 0).all(axis=1)
    with np.errstate(invalid="ignore"):
        time_s = rows.pace * loads_s.max(axis=1) + fills_s.sum(axis=1) + tail_s + rows.constant_s
    return Dealt(
        time_s=np.where(fitting, time_s, np.inf),
        policies=policies,
        loads_s=loads_s,
        tail_s=tail_s,
        short_bytes=short.max(axis=1),
        deal=deal,
    )
