"""What is on a chip's die beside the units that run: spare ones, and circuits that no workload of ours uses.

A published die is larger than its working units need: units are left out to raise the yield, a cache takes more than
the bits that it holds, and double-precision units or media engines take their share. An architecture of a design space
has none of that. All this matters for the area only; nothing is timed by it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """What one accelerator's silicon carries; ``None`` where there are no spares of a kind."""

    tensor_units: int | None = None
    """Tensor units on the die, those that are switched off included."""
    vector_units: int | None = None
    """Vector units on the die, those that are switched off included."""
    global_buffer_bytes: int | None = None
    """Global buffer on the die."""
    cached: bool = False
    """Whether the global buffer is a cache, with tags and coherence, rather than a memory that software manages."""
    hbm_interfaces: int | None = None
    """Interfaces to HBM stacks on the die."""
    fp64_macs_per_cycle: float = 0.0
    """Double-precision multiply-accumulates per cycle of all units on the die together."""
    fixed_function_mm2: float = 0.0
    """Circuits that nothing here describes: media engines, sparse cores, scalar cores."""
