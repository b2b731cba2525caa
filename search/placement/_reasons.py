"""Say in words and numbers why a chain fits nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from archplace.search.placement._suffixes import Suffixes
from archplace.search.placement.prices import FloatArray, StagePrices

_SCALES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shortfall:
    """What one tensor-parallel width lacks."""

    text: str
    of_memory: bool
    lacking: float
    """Bytes or devices that are needed beyond those available."""


def _pair(needed: float, available: float) -> tuple[str, str]:
    """Return two byte counts in one unit, with as many digits as it takes to tell them apart."""
    scale, unit = next(((s, u) for s, u in _SCALES if max(needed, available) >= s), (1.0, "B"))
    for digits in (1, 3, 6, 9):
        texts = f"{needed / scale:.{digits}f}", f"{available / scale:.{digits}f}"
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} {unit}", f"{texts[1]} {unit}"


class _MemoryByPosition(Sequence[FloatArray]):
    """The memory of all stages by position, made when asked for: as many matrices as layers may fill any memory."""

    def __init__(self, prices: StagePrices) -> None:
        self._prices = prices

    def __len__(self) -> int:
        return self._prices.n_layers

    @overload
    def __getitem__(self, index: int) -> FloatArray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FloatArray]: ...
    def __getitem__(self, index: int | slice) -> FloatArray | Sequence[FloatArray]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        return self._prices.memory_at(range(len(self))[index] + 1)


def _least_memory(prices: StagePrices) -> tuple[float, int]:
    """Return the least memory of the fullest device over all cuts on any number of devices, and the stages of it."""
    n = prices.n_layers
    # The same dynamic programme, with memory in the place of time.
    in_place_of_time = replace(
        prices,
        load_s=_MemoryByPosition(prices),
        devices=np.broadcast_to(np.int64(1), prices.devices.shape),
    )
    suffixes = Suffixes(in_place_of_time, max_devices=n, memory_bytes=np.inf)
    least, stages = np.inf, 0
    for count in range(1, n + 1):
        if not suffixes.add_stage(least):
            break
        memory = float(suffixes.whole_chain_s()[0])
        if memory < least:
            least, stages = memory, count
    return least, stages


def _fewest_devices(prices: StagePrices, memory_bytes: float) -> tuple[int, int] | None:
    """Return the fewest devices that suffice and the stages they form, or ``None`` where no number does."""
    n = prices.n_layers
    suffixes = Suffixes(prices, max_devices=n * int(prices.devices[:-1, 1:].max()), memory_bytes=memory_bytes)
    needed: list[tuple[int, int]] = []
    for stages in range(1, n + 1):
        if not suffixes.add_stage():
            break
        extras = np.flatnonzero(np.isfinite(suffixes.whole_chain_s()))
        if len(extras):
            needed.append((suffixes.devices(stages, int(extras[0])), stages))
    return min(needed, default=None)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shortfall(prices: StagePrices, max_devices: int, memory_bytes: float) -> _Shortfall:
    width = f"tensor-parallel width {prices.tensor_parallel}"
    devices = _fewest_devices(prices, memory_bytes)
    if devices is not None:
        count, stages = devices
        text = (
            f"needs at least {_plural(count, 'device')} ({_plural(stages, 'stage')} at {width}) to fit into memory, "
            f"{max_devices} available; give more devices or more memory per device"
        )
        return _Shortfall(text=text, of_memory=False, lacking=count - max_devices)
    alone = np.diagonal(prices.base_bytes, 1)
    fullest = int(alone.argmax())
    if alone[fullest] > memory_bytes:
        needed, available = _pair(float(alone[fullest]), memory_bytes)
        text = (
            f"no stage can hold layer {fullest}: it needs {needed} of {available} per device even alone as the last "
            f"stage, at {width}"
        )
        return _Shortfall(text=text, of_memory=True, lacking=float(alone[fullest]) - memory_bytes)
    least, stages = _least_memory(prices)
    if least <= memory_bytes:
        text = f"every cut has a stage that the prices forbid (an infinite load), at {width}"
        return _Shortfall(text=text, of_memory=True, lacking=np.inf)
    needed, available = _pair(least, memory_bytes)
    text = (
        f"no cut fits into memory: the best one, {_plural(stages, 'stage')} at {width}, needs {needed} of {available} "
        "on its fullest device"
    )
    return _Shortfall(text=text, of_memory=True, lacking=least - memory_bytes)


def reason(prices: Sequence[StagePrices], max_devices: int, memory_bytes: float) -> str:
    """Return why no placement exists at any width, told for the width that comes closest.

    A width that lacks devices is closer than one that lacks memory; then the smaller shortfall is. Layers are counted
    from 0 in pipeline order.
    """
    shortfalls = [_shortfall(each, max_devices, memory_bytes) for each in prices]
    return min(shortfalls, key=lambda each: (each.of_memory, each.lacking)).text
