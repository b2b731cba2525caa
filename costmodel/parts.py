"""What the seconds of one operator consist of, and what it does meanwhile."""

from typing import NamedTuple

import numpy as np

from archplace.arch_configs.architectures import FloatArray


class Parts(NamedTuple):
    """Where an operator's seconds go, shape ``(n_archs,)`` each.

    Array and local port overlap and are followed by filling and draining; lanes, global port and HBM run beside
    them; launch and load of the first tile precede everything. Where lanes and arrays take turns, the lanes' seconds
    come on top of the arrays' as well.
    """

    array_s: FloatArray
    lanes_s: FloatArray
    local_port_s: FloatArray
    global_port_s: FloatArray
    hbm_s: FloatArray
    fill_s: FloatArray
    """Filling and draining of the array, and its wait for results to leave where it does not compute meanwhile."""
    first_load_s: FloatArray
    """Load of one unit's first tile from HBM; the other units' tiles come while the first computes."""
    turns_s: FloatArray = np.zeros(1)
    """Lane work that the arrays wait for."""
    launch_s: float = 0.0
    """From the end of the operator before to the start of this one."""

    @property
    def total_s(self) -> FloatArray:
        """Seconds of the operator."""
        array = np.maximum(self.array_s, self.local_port_s) + self.fill_s + self.turns_s
        beside = np.maximum(np.maximum(self.lanes_s, self.global_port_s), self.hbm_s)
        total: FloatArray = np.maximum(array, beside) + self.first_load_s
        return total + self.launch_s if self.launch_s else total


class Activity(NamedTuple):
    """What one execution of an operator does on one device when all units work on it, per architecture.

    Shapes ``(n_archs,)`` or ``(1,)`` where all architectures do the same; plain numbers do not depend on them at all.
    """

    macs: float
    """Multiply-accumulates, without padding."""
    lane_operations: float
    local_bytes: FloatArray
    """Into and out of the tensor units' local buffers, all units together."""
    global_bytes: FloatArray
    """Between the global buffer and the units; what several units need at once is read once."""
    hbm_bytes: FloatArray
    network_bytes: float
    """Sent to other devices."""
