"""How many microbatches' activations each device of a pipeline holds at its fullest.

Activations live from the start of their forward pass to the end of the pass that gives the input gradients. Where the
weight gradients follow later, part of them (what weight gradients need) waits on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from archplace.search.pipeline.schedules import PipelineSchedule
from archplace.search.pipeline.seconds import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InFlight:
    """What devices hold at once when they hold most, in microbatches; arrays of one shape.

    The fullest moment is the same whatever share of the activations weight gradients need.
    """

    activations: FloatArray
    """Of all layers of the device's own stage (interleaved: of all its chunks, so that one chunk counts ``1/v``)."""
    mirrored: FloatArray
    """Of the layers of the stage that DualPipe puts on the device for the other direction; otherwise 0."""
    weight_inputs: FloatArray
    """Microbatches of the own stage of which only what the weight gradients need is still held."""


def in_flight(
    schedule: PipelineSchedule, stages: ArrayLike, virtual: ArrayLike, microbatches: ArrayLike, device: ArrayLike
) -> InFlight:
    """Return what each device holds; the counts broadcast against ``device``, which is 0 for the first stage.

    1F1B: ``min(m, p - device)`` (arXiv:2104.04473, section 2.2.1). Interleaved: one chunk more than the warm-up of
    ``2 (p - 1 - device) + (v - 1) p`` passes, in all ``1 + (p - 1) / (p v)`` times as much on the first device
    (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3). ZB-H1: as 1F1B, and up to ``device`` weight gradients
    wait (arXiv:2401.10241, section 2.1). DualPipe: ``p + 1`` together (arXiv:2412.19437, table 2).
    """
    p, v, m, j = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (stages, virtual, microbatches, device))
    )
    none = np.zeros_like(m)
    activations, mirrored, waiting = np.minimum(m, p - j), none, none
    if schedule is PipelineSchedule.GPIPE:
        activations = m.copy()
    elif schedule is PipelineSchedule.INTERLEAVED:
        activations = np.minimum(m * v, 2 * (p - 1 - j) + (v - 1) * p + 1) / v
    elif schedule is PipelineSchedule.ZB_H1:
        waiting = np.clip(m - (p - j), 0.0, j)
    elif schedule is PipelineSchedule.DUALPIPE:
        activations, mirrored = p - j, j + 1
    return InFlight(activations=activations, mirrored=mirrored, weight_inputs=waiting)
