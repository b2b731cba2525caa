"""What runs behind what: passes over layers with exchanges behind them, and what those leave exposed."""

from dataclasses import dataclass

import numpy as np

from archplace.search.pipeline import SPLIT_BACKWARD, PipelineCoefficients
from archplace.search.strategy.chain import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerPasses:
    """Seconds of the passes over one layer of each segment, ``(R, P, S)`` each."""

    forward_s: FloatArray
    inputs_s: FloatArray
    """Input gradients, with what recomputation repeats; with the weight gradients where those are not apart."""
    weights_s: FloatArray
    pair_s: FloatArray
    """A forward and a backward pass together."""
    forward_waits_s: FloatArray
    """What of the forward pass is waiting for exchanges between replicas or with the host."""
    backward_waits_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hidden:
    """What an exchange behind a stage's layers leaves exposed, as :class:`ChainTimes` has it."""

    base_s: FloatArray
    slope_s: FloatArray
    floor_s: FloatArray
    whole_s: FloatArray


def behind(compute_s: FloatArray, exchange_s: FloatArray, host_s: FloatArray, hide: BoolArray) -> FloatArray:
    """Return the seconds of computing with exchanges behind it where ``hide``, else after it; the host is behind."""
    together = np.where(hide[:, None, None], np.maximum(compute_s, exchange_s), compute_s + exchange_s)
    return np.maximum(together, host_s)


def hidden(exchange_s: FloatArray, beside_s: FloatArray, longest_s: FloatArray, hide: BoolArray) -> Hidden:
    """Return what is exposed of ``exchange_s``, ``(R, S)``, once per step behind passes of ``beside_s``, ``(R, S)``.

    The first layer of the model has nothing to hide behind, and one layer's pass has nothing to run behind it yet. An
    exchange that does not take place hides nothing and costs nothing. Where the passes take between ``beside_s`` and
    ``longest_s``, no less is exposed.
    """
    any_ = hide & exchange_s.any(axis=1)
    longest = beside_s[:, 1:-1].max(axis=1, initial=0.0)
    return Hidden(
        base_s=np.where(any_, longest, 0.0),
        slope_s=np.where(any_[:, None], exchange_s - longest_s, 0.0),
        floor_s=np.where(any_, exchange_s[:, 0], 0.0),
        whole_s=np.where(any_[:, None], exchange_s, 0.0),
    )


def paced(terms: PipelineCoefficients, passes: LayerPasses) -> tuple[FloatArray, FloatArray]:
    """Return how often the largest load passes, ``(R,)``, and the load of a layer per passage, ``(R, P, S)``.

    Where a schedule has more than one term of the largest stage, they are taken as one of the same stage; what such a
    stage does once counts as one passage more.
    """
    forward, inputs, weights = passes.forward_s, passes.inputs_s, passes.weights_s
    once = forward + inputs + weights
    total = terms.pace * once + terms.pair_pace * passes.pair_s + terms.tail_s(forward, inputs, weights)
    pace = terms.pace + terms.pair_pace + (terms.schedule in SPLIT_BACKWARD)
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(pace > 0, total / pace, once)
    return pace[:, 0, 0], load
