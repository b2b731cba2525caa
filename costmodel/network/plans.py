"""How a collective is carried out: one algorithm in one dimension, a sequence of such, or the best of several."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.costmodel.network.curve import Curve, least, total
from archplace.workloads.operators import CollectiveKind


class Algorithm(StrEnum):
    """How a collective runs in one dimension."""

    RING = "ring"
    """Every step sends to the next member of a ring; a broadcast is passed on in segments."""
    HALVING_DOUBLING = "halving_doubling"
    """Exchanges at distances 1, 2, 4, …: of halves, quarters, … in a reduce-scatter, doubling in an all-gather."""
    RECURSIVE_DOUBLING = "recursive_doubling"
    """The same exchanges of the whole payload each time: fewest steps, for small ones."""
    BRUCK = "bruck"
    """As few steps as doubling for any number of members; in an all-to-all each carries half of the payload."""
    DOUBLE_TREE = "double_tree"
    """Two binary trees, each for half of the payload, in segments."""
    TREE = "tree"
    """Binomial tree, the whole payload at once."""
    SCATTER_GATHER = "scatter_gather"
    """Scatter, then all-gather."""
    DIRECT = "direct"
    """Each member sends each other one its part."""
    TORUS = "torus"
    """Rings of all dimensions of a torus at the same time, each part of the payload in another order of them."""
    NEIGHBOUR = "neighbour"
    """One step to the next member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a collective as it is carried out for one payload."""

    kind: CollectiveKind
    dimension: str
    """Name of the dimension; of several that work at the same time joined by ``+``."""
    algorithm: Algorithm
    payload_bytes: float
    """What the phase works on: the full buffer of the members that the dimension joins."""
    seconds: float


class Plan(ABC):
    """A price per payload that knows what it consists of."""

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """Seconds by payload."""

    @abstractmethod
    def sent_bytes(self, payload: FloatArray) -> FloatArray:
        """Return the bytes that one device sends, shape of ``payload``."""

    @abstractmethod
    def phases(self, payload: float) -> tuple[Phase, ...]:
        """Return what is carried out for one payload, in order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run(Plan):
    """One algorithm in one dimension, or in several at the same time."""

    kind: CollectiveKind
    dimension: str
    algorithm: Algorithm
    curve: Curve
    sent_per_byte: float

    def sent_bytes(self, payload: FloatArray) -> FloatArray:
        """Return the bytes that one device sends."""
        return self.sent_per_byte * payload

    def phases(self, payload: float) -> tuple[Phase, ...]:
        """Return the one phase."""
        seconds = float(self.curve.at(np.array(payload)))
        phase = Phase(
            kind=self.kind,
            dimension=self.dimension,
            algorithm=self.algorithm,
            payload_bytes=payload,
            seconds=seconds,
        )
        return (phase,)


class InTurn(Plan):
    """Plans one after another, each on its part of the payload; free when there are none."""

    def __init__(self, parts: Sequence[tuple[float, Plan]]) -> None:
        self._parts = tuple(parts)

    @cached_property
    def curve(self) -> Curve:
        """Seconds by payload."""
        return total([plan.curve.times(1.0, of=part) for part, plan in self._parts])

    def sent_bytes(self, payload: FloatArray) -> FloatArray:
        """Return the bytes that one device sends."""
        sent = np.zeros_like(payload)
        for part, plan in self._parts:
            sent += plan.sent_bytes(payload * part)
        return sent

    def phases(self, payload: float) -> tuple[Phase, ...]:
        """Return the phases of all plans."""
        return tuple(phase for part, plan in self._parts for phase in plan.phases(payload * part))


class Best(Plan):
    """The fastest of several plans for each payload, of equal ones the first."""

    def __init__(self, options: Sequence[Plan]) -> None:
        self._options = tuple(options)

    @cached_property
    def curve(self) -> Curve:
        """Seconds by payload."""
        return least([option.curve for option in self._options])

    def _choice(self, payload: FloatArray) -> NDArray[np.intp]:
        seconds = np.array([option.curve.at(payload) for option in self._options])
        # Equal but for rounding, the first.
        first: NDArray[np.intp] = np.argmax(seconds <= seconds.min(axis=0) * (1 + 1e-12), axis=0)
        return first

    def sent_bytes(self, payload: FloatArray) -> FloatArray:
        """Return the bytes that one device sends."""
        sent, choice = np.zeros_like(payload), self._choice(payload)
        for index, option in enumerate(self._options):
            chosen = choice == index
            if chosen.any():
                sent[chosen] = option.sent_bytes(payload[chosen])
        return sent

    def phases(self, payload: float) -> tuple[Phase, ...]:
        """Return the phases of the fastest."""
        return self._options[int(self._choice(np.array([payload]))[0])].phases(payload)
