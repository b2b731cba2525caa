"""How a group of devices shares a layer: the answer of the integer program."""

from dataclasses import dataclass

from archplace.workloads.traced.choices import Choice
from archplace.workloads.traced.flow import Value
from archplace.workloads.traced.resharding import Conversion
from archplace.workloads.traced.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """How much a layer may take of one device."""

    limit_bytes: float
    """Of the states of parameters and of the activations kept from one forward pass."""
    states_per_weight: float = 1.0
    """Bytes of all states of a parameter (weight, gradient, optimizer's) for each byte of the traced weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """How a group shares a layer."""

    ways: tuple[Choice, ...]
    """Of each operator."""
    stored: dict[int, State]
    """Of each parameter."""
    given: dict[int, State]
    """Of all else that comes from outside."""
    kept: dict[int, State]
    """Of each activation that waits for the backward pass."""
    conversions: dict[Value, tuple[Conversion, ...]]
    """Collectives, by the value they convert."""
    summed: tuple[int, ...]
    """Gradients that one common all-reduce adds over the group."""
    unsummed: tuple[int, ...]
    """Gradients left as partial sums, for the exchange of replicas."""
    seconds: float
    """Of all operators and collectives on one device."""
