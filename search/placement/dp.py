"""Cut a chain of layers into pipeline stages and choose all degrees, exactly.

The time of a batch is ``bottleneck · (ceil(M / d) + s - 1) + synchronisation(d, first stage)`` for ``s`` stages and
``d`` replicas. For every ``s`` the least bottleneck of each suffix of the chain is tabulated; what remains is the
choice of ``s``, ``d``, the devices of a pipeline and the end of the first stage.

Two things are left out because they cannot win. Replica numbers: those with the same ``ceil(M / d)`` differ only in
their synchronisation, which grows with ``d``. Stage numbers: the best time found leaves ``s`` stages a largest
bottleneck, and where layers, taken as a whole, do not fit into so few stages below it, ``s`` is out; the search ends
when no further ``s`` is in.

Ties (equal in float64) go to the placement with the fewest devices, then the fewest stages, then the smallest
tensor-parallel width, then the shortest first stage. The stages after the first have the least bottleneck among
themselves, and of equals again the shortest stage first: early stages hold the most microbatches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.placement._floors import StageFloors
from archplace.search.placement._reasons import reason
from archplace.search.placement._suffixes import Suffixes
from archplace.search.placement.prices import FloatArray, IntArray, StagePrices

_ROUNDING = 1.0 - 1e-12
"""Factor on bounds that are computed in another order than the times: rounding must not prune an optimum or a tie."""


_FIRST_CHECK = 8
"""The number of stages from which on, at powers of two, a width asks whether more can be of use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: the layers ``first_layer <= layer < end_layer``."""

    first_layer: int
    end_layer: int
    load_s: float
    """Seconds per microbatch, forward, backward and transfers."""
    memory_bytes: float
    """Bytes that each device of the stage needs."""
    devices: int
    """Devices of the stage in one replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """The best placement, or why there is none."""

    feasible: bool
    reason: str | None = None
    """Why nothing fits, with numbers; ``None`` when feasible."""
    time_per_batch_s: float = float("inf")
    tensor_parallel: int = 0
    data_parallel: int = 0
    stages: tuple[Stage, ...] = ()
    """From the first stage to the last; empty when infeasible."""
    synchronisation_s: float = 0.0
    """The part of the time that the replicas' gradient exchange takes."""

    @property
    def pipeline_parallel(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def devices(self) -> int:
        """Devices that are used, over all replicas."""
        return self.data_parallel * sum(stage.devices for stage in self.stages)

    @property
    def bottleneck(self) -> int | None:
        """Index of the stage with the largest load, the first of several; ``None`` when infeasible."""
        return max(range(len(self.stages)), key=lambda i: self.stages[i].load_s, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A placement but for the cuts after the first, which follow from it."""

    time_s: float
    synchronisation_s: float
    replicas: int
    stages: int
    extra: int
    first_end: int
    devices: int
    tensor_parallel: int

    @property
    def rank(self) -> tuple[float, int, int, int]:
        return self.time_s, self.devices, self.stages, self.tensor_parallel


def _replica_options(microbatches: int, most: int, *, all_of_them: bool) -> tuple[IntArray, FloatArray]:
    """Return the replica numbers worth trying, ascending, and the microbatches of each replica."""
    replicas = np.arange(1, min(microbatches, most) + 1)
    rounds = -(-microbatches // replicas)
    if not all_of_them:
        keep = np.concatenate(([True], rounds[1:] < rounds[:-1]))
        replicas, rounds = replicas[keep], rounds[keep]
    return replicas, rounds.astype(np.float64)


class _Width:
    """The search at one tensor-parallel width."""

    def __init__(self, prices: StagePrices, *, max_devices: int, microbatches: int, memory_bytes: float) -> None:
        self.prices = prices
        self.max_devices = max_devices
        self.suffixes = Suffixes(prices, max_devices=max_devices, memory_bytes=memory_bytes)
        narrowest = self.suffixes.fewest_devices
        self.most_stages = min(prices.n_layers, max_devices // narrowest)
        self._last_stages = self.most_stages
        if not self.most_stages:
            return
        self.replicas, self.rounds = _replica_options(
            microbatches, max_devices // narrowest, all_of_them=not prices.synchronisation_grows
        )
        self._waits: FloatArray | None = None
        """``(n_replicas, n_layers)``, by the end of the first stage from 1 on; None where devices matter."""
        # By the replicas' power of two: as many of them as allowed pass fastest, as few as possible wait least.
        power = 1 << np.arange(int(self.replicas[-1]).bit_length())
        self._waits_by_power = np.zeros((len(power), 1))
        """``(n_powers, n_layers)``, as above, or ``(n_powers, 1)``."""
        if not prices.synchronisation_by_devices:
            waits = self._waits = prices.synchronisation_s(self.replicas, 0, np.arange(1, prices.n_layers + 1))
            if not prices.synchronisation_grows:
                waits = np.minimum.accumulate(waits[::-1])[::-1]
            self._waits_by_power = waits[self.replicas.searchsorted(power)]
        stages = np.arange(1.0, self.most_stages + 1.0)
        most = (max_devices // (stages * narrowest))[:, None]
        self._powers = power.searchsorted(most.ravel(), side="right").tolist()
        """How many powers of two the devices allow, by the number of stages."""
        self._fill_by_power = np.ceil(microbatches / np.minimum(2.0 * power - 1.0, most)) + (stages - 1.0)[:, None]
        """``(most_stages, n_powers)``."""
        self._wait_by_power = np.where(power > most, np.inf, self._waits_by_power.min(axis=1))
        # The least of any number of stages from s on.
        self._fill_from_s = np.minimum.accumulate(self._fill_by_power.min(axis=1)[::-1])[::-1].tolist()
        self._floors = StageFloors(prices, self.suffixes, self.most_stages)

    def can_reach(self, time_s: float, stages: int) -> bool:
        """Say whether ``stages`` or more stages may take no longer than ``time_s``."""
        is_check = stages >= _FIRST_CHECK and stages & (stages - 1) == 0
        if is_check and stages <= self._last_stages and time_s < float("inf"):
            some = np.s_[stages - 1 : self._last_stages]
            limits_s = (time_s - self._wait_by_power[some]) / (_ROUNDING * self._fill_by_power[some])
            self._last_stages = self._floors.most_stages(limits_s.max(axis=1), stages)
        return stages <= self._last_stages

    def add_stage(self, time_s: float, stages: int) -> bool:
        """Add the stage ``stages``; return whether any suffix may be part of a placement as fast as ``time_s``."""
        return self.suffixes.add_stage(time_s / (_ROUNDING * self._fill_from_s[stages - 1]))

    def promises(self, stages: int) -> list[tuple[float, int]]:
        """Return, for the stages just added, a lower bound of the time and the extra devices it is for."""
        powers = self._powers[stages - 1]
        fill, waits = self._fill_by_power[stages - 1, :powers, None], self._waits_by_power[:powers]
        promised = []
        for extra, bottleneck_s in enumerate(self.suffixes.whole_chain_s().tolist()):
            if bottleneck_s < float("inf"):
                loads = bottleneck_s if self._waits is None else self.suffixes.whole_chain_by_end_s(extra)
                promised.append((float((fill * loads + waits).min()), extra))
        return promised

    def _fill(self, stages: int, extra: int) -> FloatArray:
        """Return how many times the bottleneck passes, for each replica number that the devices allow."""
        most = self.max_devices // self.suffixes.devices(stages, extra)
        return self.rounds[: int(self.replicas.searchsorted(most, side="right"))] + (stages - 1)

    def _wait_s(self, first: int, end: int, devices: int, first_ends: IntArray) -> FloatArray:
        """Return the synchronisation of the replica numbers from index ``first`` up to ``end``."""
        if self._waits is None:
            return self.prices.synchronisation_s(self.replicas[first:end], devices, first_ends)
        return self._waits[first:end, first_ends - 1]

    def choose(self, stages: int, extra: int, best: _Choice | None) -> _Choice | None:
        """Try all replica numbers and first cuts of ``stages`` stages on one number of devices.

        Returns the best of them if it ranks before ``best``, else ``best``.
        """
        devices = self.suffixes.devices(stages, extra)
        fill = self._fill(stages, extra)
        busy, most = 0, len(fill)
        by_end = self.suffixes.by_end(0, stages, extra)
        first_ends = np.flatnonzero(by_end < np.inf)
        loads = by_end[first_ends]
        if len(loads) > 1:
            if best is None:
                # The placement with the least bottleneck is a good one: what cannot reach its time needs no matrix.
                cut = int(loads.argmin())
                limit_s = float((loads[cut] * fill + self._wait_s(0, most, devices, first_ends[[cut]])[:, 0]).min())
            else:
                limit_s = best.time_s
            busy = int((loads.min() * fill > limit_s).sum())  # too many microbatches per replica, whatever the cut
            if busy == most:
                return best
            reachable_s = loads * fill[-1]
            if self._waits is not None and self.prices.synchronisation_grows:
                reachable_s += self._waits[busy, first_ends - 1]
            able = reachable_s <= limit_s
            if not able.any():
                return best
            first_ends, loads = first_ends[able], loads[able]
            fill = fill[busy:]
        synchronisation = self._wait_s(busy, most, devices, first_ends)
        times = fill[:, None] * loads + synchronisation
        row, column = divmod(int(times.argmin()), len(loads))
        replicas = int(self.replicas[busy + row])
        choice = _Choice(
            time_s=float(times[row, column]),
            synchronisation_s=float(synchronisation[row, column]),
            replicas=replicas,
            stages=stages,
            extra=extra,
            first_end=int(first_ends[column]),
            devices=devices * replicas,
            tensor_parallel=self.prices.tensor_parallel,
        )
        return choice if best is None or choice.rank < best.rank else best

    def result(self, choice: _Choice) -> PlacementResult:
        """Return ``choice`` with its cuts."""
        starts = self.suffixes.starts(choice.stages, choice.extra, choice.first_end)
        ends = [*starts[1:], self.prices.n_layers]
        stages = []
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            position = choice.stages - index
            stage = Stage(
                first_layer=start,
                end_layer=end,
                load_s=float(self.prices.load_at(position)[start, end]),
                memory_bytes=self.prices.stage_memory_bytes(start, end, position),
                devices=int(self.prices.devices[start, end]),
            )
            stages.append(stage)
        return PlacementResult(
            feasible=True,
            time_per_batch_s=choice.time_s,
            tensor_parallel=choice.tensor_parallel,
            data_parallel=choice.replicas,
            stages=tuple(stages),
            synchronisation_s=choice.synchronisation_s,
        )


def place(
    prices: Sequence[StagePrices], *, max_devices: int, microbatches: int, memory_bytes: float
) -> PlacementResult:
    """Return the placement with the least time per batch over all widths, stage numbers, cuts and replica numbers.

    ``prices`` has one entry per tensor-parallel width; ``microbatches`` is the number of microbatches of one batch
    over all replicas; ``memory_bytes`` the capacity of each of ``max_devices`` devices. Infeasible is a result with a
    reason. Ties: see the module. Raises ``ValueError`` when there is no width, no layer, no device or no microbatch.
    """
    if not prices:
        raise ValueError("prices: no tensor-parallel width given; give at least one")
    if any(width.n_layers == 0 for width in prices):
        raise ValueError("prices: a chain without layers; give at least one layer")
    if max_devices < 1 or microbatches < 1:
        raise ValueError(f"max_devices and microbatches must be at least 1, not {max_devices} and {microbatches}")
    widths = [
        _Width(each, max_devices=max_devices, microbatches=microbatches, memory_bytes=memory_bytes) for each in prices
    ]
    best, winner = _search(widths)
    if best is None:
        return PlacementResult(feasible=False, reason=reason(prices, max_devices, memory_bytes))
    return widths[winner].result(best)


def _search(widths: Sequence[_Width]) -> tuple[_Choice | None, int]:
    """Return the best choice over all widths, and which width's it is.

    All widths get their next stage in turn, so that the time which the best one reaches ends the others early. Replica
    numbers and first cuts are tried at once where they promise a better time; the others wait until the best is known,
    for they may tie with it.
    """
    best: _Choice | None = None
    winner = -1
    limit_s = float("inf")
    waiting: list[tuple[float, int, int, int]] = []
    going = list(range(len(widths)))
    stages = 0
    while going:
        stages += 1
        going = [i for i in going if widths[i].can_reach(limit_s, stages) and widths[i].add_stage(limit_s, stages)]
        promised = [(floor_s, i, stages, extra) for i in going for floor_s, extra in widths[i].promises(stages)]
        for floor_s, i, count, extra in sorted(promised):
            if floor_s < limit_s:
                best, winner = _better(best, winner, widths[i].choose(count, extra, best), i)
                limit_s = limit_s if best is None else best.time_s
            else:
                waiting.append((floor_s, i, count, extra))
    for floor_s, i, count, extra in sorted(waiting):
        if best is not None and floor_s > best.time_s:
            break
        best, winner = _better(best, winner, widths[i].choose(count, extra, best), i)
    return best, winner


def _better(best: _Choice | None, winner: int, choice: _Choice | None, i: int) -> tuple[_Choice | None, int]:
    """Return the new choice of width ``i`` where there is one, else the old."""
    return (best, winner) if choice is best else (choice, i)
