"""The least largest load of a pipeline's stages that memory allows, of many strategies at once.

For a load that no stage may exceed, each stage takes as many layers as load and memory allow under the policy that
allows most; what matters is whether all stages together take all layers. The least load is enclosed by trials. A chain
of a first layer, equal layers and a last one needs no order: each stage's capacity for equal layers is a number. Other
chains are filled from the last stage to the first: how many layers a stage can hold depends on where it ends only
through those layers, so that filling each as far as possible is best (an exchange argument: ending a stage earlier in
the chain never leaves less room). There stages may stay empty, which only lowers the bound.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from archplace.search.strategy.bounds import ROUNDING, SLACK, balanced_loads_s, least_sums_s
from archplace.search.strategy.chain import BoolArray, ChainRows, FloatArray, IntArray, of_layers

_TOLERANCE = 1e-4
"""Relative width to which the load is known; exact cuts take it from there."""

_TOGETHER = 64
"""Trials that cost hardly more together than one: of few rows several steps ahead are tried at a time."""

_MOST_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedLoads:
    """Where the least largest load lies, ``(R,)`` each; infinite where the layers do not fit, or only too slowly."""

    least_s: FloatArray
    """No cut has a smaller largest load."""
    reached_s: FloatArray
    """With this load the layers fit, at least where stages may stay empty."""

    def take(self, rows: IntArray) -> "PackedLoads":
        """Return those of some rows."""
        return PackedLoads(least_s=self.least_s[rows], reached_s=self.reached_s[rows])

    def bounds_s(self, rows: ChainRows) -> FloatArray:
        """Return a lower bound of each row's time, ``(R,)``; infinite where nothing fits."""
        fits = np.isfinite(self.least_s)
        total: FloatArray = rows.pace * np.where(fits, self.least_s, 0.0) + least_sums_s(rows) + rows.constant_s
        return np.where(fits, total * ROUNDING, np.inf)


def packed_loads(rows: ChainRows, better_than_s: FloatArray | float = np.inf) -> PackedLoads:
    """Return the packed loads of ``rows``; infinite also where no cut takes less than ``better_than_s``."""
    limit_s = np.broadcast_to(np.asarray(better_than_s, dtype=np.float64), (rows.n_rows,))
    with np.errstate(divide="ignore", invalid="ignore"):
        most_s = (limit_s - rows.constant_s - least_sums_s(rows)) / (rows.pace * ROUNDING)
    whole_s = of_layers(rows.load_s.max(axis=1), rows.counts) + 2 * rows.boundary_s
    high = np.where(rows.pace > 0, np.minimum(most_s, whole_s), whole_s) * (1 + SLACK)
    packer = _packer(rows)
    every = np.arange(rows.n_rows)
    able = every[high >= 0]
    able = able[packer.fits(able, high[able])]
    low = balanced_loads_s(rows) * ROUNDING
    # The answer is mostly close above the balance: steps up from there that double, then halves.
    step = np.maximum(low * 1e-3, (high - low) * 1e-9)
    going = able[(high - low > _TOLERANCE * high)[able]]
    while len(going):
        trials = _steps_ahead(low[going, None], high[going, None], step[going, None])
        widths = [level.shape[1] for level in trials]
        loads = np.concatenate(trials, axis=1)
        fits = packer.fits(np.repeat(going, loads.shape[1]), loads.ravel()).reshape(loads.shape)
        at = np.zeros(len(going), dtype=np.int64)
        every_step = np.arange(len(going))
        for trial, fit in zip(trials, np.split(fits, np.cumsum(widths)[:-1], axis=1), strict=True):
            here = every_step[(high - low > _TOLERANCE * high)[going]]
            load, good, rows_here = trial[here, at[here]], fit[here, at[here]], going[here]
            high[rows_here] = np.where(good, load, high[rows_here])
            low[rows_here] = np.where(good, low[rows_here], load)
            step[rows_here] = np.where(good, step[rows_here], 2 * step[rows_here])
            at[here] = 2 * at[here] + ~good
        going = going[high[going] - low[going] > _TOLERANCE * high[going]]
    found = PackedLoads(least_s=np.full(rows.n_rows, np.inf), reached_s=np.full(rows.n_rows, np.inf))
    found.least_s[able], found.reached_s[able] = np.minimum(low, high)[able], high[able]
    return found


def _steps_ahead(low: FloatArray, high: FloatArray, step: FloatArray) -> list[FloatArray]:
    """Return the loads to try next between ``low`` and ``high``, ``(R, 1)``, whatever the trials before them show.

    One array for each step, ``(R, 1)``, ``(R, 2)``, ``(R, 4)``, …: behind a load stand that which follows if it is
    enough, and that which follows if not. Several steps with few rows; where they lead does not depend on how many.
    """
    trials: list[FloatArray] = []
    while not trials or (len(trials) < _MOST_STEPS and len(low) * 2 ** (len(trials) + 1) <= _TOGETHER):
        trial = np.minimum(low + step, (low + high) / 2)
        trials.append(trial)
        # The even ones follow loads that are enough.
        low, high, step = (
            np.stack(both, axis=2).reshape(len(trial), -1) for both in ((low, trial), (trial, high), (step, 2 * step))
        )
    return trials


def pack(rows: ChainRows, load_s: FloatArray) -> BoolArray:
    """Return which rows fit all layers on their stages when no stage's load exceeds ``load_s``, ``(R,)``."""
    return _packer(rows).fits(np.arange(rows.n_rows), load_s)


class _Packer(Protocol):
    """Says which rows fit."""

    def fits(self, rows: IntArray, load_s: FloatArray) -> BoolArray:
        """Return which of ``rows`` fit with a load of at most ``load_s``, one for each of them."""


def _packer(rows: ChainRows) -> _Packer:
    return _EqualLayers(rows) if rows.is_plain else _AnyLayers(rows)


class _EqualLayers:
    """Chains of a first layer, equal layers and a last one."""

    def __init__(self, rows: ChainRows) -> None:
        self._n_layers = float(rows.counts[1])
        self._least = np.zeros(rows.n_stages)
        self._least[1:-1] = 1.0
        """Equal layers that a stage holds at least: ends hold theirs."""
        neighbours = rows.neighbours()
        ends = np.zeros((rows.n_stages, 3))
        ends[0, 0] = ends[-1, 2] = 1.0
        load = rows.load_s[:, :, None, :]
        self._load_s = rows.load_s[:, :, None, 1]
        """``(R, P, 1)``: of an equal layer."""
        self._ends_s = of_layers(load, ends) + (rows.boundary_s[:, None] * neighbours)[:, None, :]
        """``(R, P, J)``: of what else a stage holds."""
        flight = rows.in_flight[:, None, :]
        held = rows.state_bytes[:, None, None, :] + flight[..., None] * rows.flight_bytes[:, :, None, :]
        working = rows.working_bytes[:, :, None, :]
        capacity = (rows.capacity_bytes * (1 + SLACK))[:, None, None]
        fixed = of_layers(held, ends)
        alone = np.where(ends > 0, working, 0.0).max(axis=3)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = capacity - fixed - np.maximum(alone, working[..., 1])
            most = np.where(held[..., 1] > 0, np.floor(room / held[..., 1]), np.where(room >= 0, np.inf, 0.0))
        most = np.maximum(most, 0.0)
        # A stage that does not even hold its end holds nothing.
        self._most = np.where(fixed + alone <= capacity, most, -1.0)

    def fits(self, rows: IntArray, load_s: FloatArray) -> BoolArray:
        """Return which of ``rows`` fit with a load of at most ``load_s``, one for each of them."""
        room = (load_s * (1 + SLACK))[:, None, None] - self._ends_s[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            by_load = np.where(self._load_s[rows] > 0, np.floor(room / self._load_s[rows]), np.inf)
        by_load = np.where(room < 0, -1.0, by_load)
        held = np.minimum(np.minimum(by_load, self._most[rows]).max(axis=1), self._n_layers)
        fits: BoolArray = (held.sum(axis=1) >= self._n_layers) & (held >= self._least).all(axis=1)
        return fits


class _AnyLayers:
    """Chains of any segments."""

    def __init__(self, rows: ChainRows) -> None:
        self._rows = rows

    def fits(self, rows: IntArray, load_s: FloatArray) -> BoolArray:
        """Return which of ``rows`` fit with a load of at most ``load_s``, one for each of them."""
        some = self._rows.take(rows)
        left = np.broadcast_to(np.array(some.counts, dtype=np.float64), (some.n_rows, len(some.counts))).copy()
        neighbours = some.neighbours()
        for stage in range(some.n_stages - 1, -1, -1):
            budget = (load_s - some.boundary_s * neighbours[stage]) * (1 + SLACK)
            left -= _most_layers(some, left, budget, some.in_flight[:, stage])
            if not left.any():
                break
        done: BoolArray = left.sum(axis=1) == 0
        return done


def _most_layers(rows: ChainRows, left: FloatArray, budget_s: FloatArray, in_flight: FloatArray) -> FloatArray:
    """Return the layers that one stage takes from the end of what is ``left``, ``(R, S)``, as many as it can."""
    n_policies, n_segments = rows.load_s.shape[1:]
    shape = (rows.n_rows, n_policies)
    seconds = np.broadcast_to(budget_s[:, None], shape)
    memory = np.broadcast_to((rows.capacity_bytes * (1 + SLACK))[:, None], shape)
    working = np.zeros(shape)
    taking: BoolArray = np.ones(shape, dtype=np.bool_)
    taken = np.zeros((*shape, n_segments))
    for segment in range(n_segments - 1, -1, -1):
        here = left[:, None, segment]
        load = rows.load_s[:, :, segment]
        held = rows.state_bytes[:, None, segment] + in_flight[:, None] * rows.flight_bytes[:, :, segment]
        more = np.maximum(working, rows.working_bytes[:, :, segment])
        with np.errstate(divide="ignore", invalid="ignore"):
            by_load = np.where(load > 0, np.floor(seconds / load), np.inf)
            by_memory = np.where(held > 0, np.floor((memory - more) / held), np.where(memory >= more, np.inf, 0.0))
        some = np.where(taking, np.clip(np.minimum(by_load, by_memory), 0.0, here), 0.0)
        taken[:, :, segment] = some
        with np.errstate(invalid="ignore"):
            seconds = seconds - np.where(some > 0, some * load, 0.0)
        memory = memory - some * held
        working = np.where(some > 0, more, working)
        np.logical_and(taking, some == here, out=taking)
        if not taking.any():
            break
    best = taken.sum(axis=2).argmax(axis=1)
    chosen: FloatArray = taken[np.arange(rows.n_rows), best]
    return chosen
