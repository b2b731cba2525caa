"""The time of a pipeline's step in closed form, over arrays of pipelines.

With stages of ``F`` seconds forward, ``B`` for input gradients, ``W`` for weight gradients, ``L = F + B + W``, and
``P`` for an overlapped forward and backward pass, ``m`` microbatches on ``p`` stages with ``v`` chunks each take

    T = pace · max L + pair pace · max P + Σ fill + max tail - saved · min G + skew weight · skew + transfers

where fill and tail are functions of one stage, and ``G = min(F, B, W)``:

=============  ===============  ===========  =========  ==============================  ===============
schedule       pace             pair pace    fill       tail                            skew weight
=============  ===============  ===========  =========  ==============================  ===============
gpipe          m - 1            0            L          0                               m - 1
1f1b           m - 1            0            L          0                               min(m, p) - 1
interleaved    m + (p - 1) / v  0            0          0                               m + (p - 1) / v
zb-h1, m >= p  m - 1            0            F + B - G  W + G                           p - 1
zb-h1, m < p   m - 1            0            F + B      W                               m - 1
dualpipe       p + 1            m - p/2 - 2  0          max(h F, h B - F)               p
                                                        - h (W + min(B, W))
=============  ===============  ===========  =========  ==============================  ===============

with ``h = p/2 - 1``; ``saved`` is ``m - 1`` for zb-h1 with ``m < p`` and otherwise 0. The stages of ``interleaved`` are
devices with all their chunks, which must be alike; ``P`` of a DualPipe device is the mean of its two pairs. The *skew*,
``max F + max B + max W - max L`` (``B`` and ``W`` as one where the backward pass is whole), is 0 where one stage is
slowest at everything, as with stages of more and fewer equal layers.

- For equal stages ``T`` is the exact time.
- For uneven stages it is an upper bound; gpipe is exact there too: ``ΣL + (m - 1) (max F + max (B + W))``.
- Without the skew it is what a search can minimise: one largest load and a sum. Where the skew is 0 the load may then
  also be the sum of all that counts once, ``pace · L + pair pace · P + tail`` of the same stage. With a skew this can
  be below the time: in random cases with recomputation on some stages only, not at all for 1f1b, by at most 5 % for
  zb-h1 and dualpipe, 9 % for interleaved and 13 % for gpipe.

Published bubbles are special cases: ``(p - 1)(F + B + W)`` and ``1/v`` of it (Narayanan et al. 2021, arXiv:2104.04473,
section 2.2), ``(p - 1)(F + B - W)`` (Qi et al. 2023, arXiv:2401.10241, section 2.3) and ``(p/2 - 1)(P + B - 2W)``
(DeepSeek-AI 2024, arXiv:2412.19437, table 2, whose ``B`` includes ``W``) where ``F = B >= W``. Otherwise DualPipe's
slower pass decides. That the form is exact for equal stages and never below the time of uneven ones is tested against
the simulation, also by climbing from random pipelines towards the worst; for gpipe it is plain (all paths through one
phase, then the other), and for interleaved it follows from equal stages, none of which is faster than the slowest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from archplace.search.pipeline.schedules import SPLIT_BACKWARD, PipelineSchedule, ScheduleShape
from archplace.search.pipeline.seconds import FloatArray, StageSeconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineCoefficients:
    """The closed form of one schedule; arrays of one shape, one entry per pipeline.

    Seconds given to the methods broadcast against them: for stages along a last axis, give counts whose last axis is 1.
    """

    schedule: PipelineSchedule
    stages: FloatArray
    virtual: FloatArray
    microbatches: FloatArray
    pace: FloatArray
    """How many times the largest load ``L`` passes."""
    pair_pace: FloatArray
    """How many times the largest overlapped pair ``P`` passes; 0 but for DualPipe."""
    saved: FloatArray
    """How many times the least ``G`` is taken off; 0 but for ZB-H1 with fewer microbatches than stages."""
    skew: FloatArray
    """The weight of the skew."""

    def fill_s(
        self,
        forward_s: ArrayLike,
        backward_input_s: ArrayLike,
        backward_weight_s: ArrayLike,
        longest_s: tuple[FloatArray, FloatArray, FloatArray] | None = None,
    ) -> FloatArray:
        """Return what a stage adds to filling and draining the pipeline; the sum over all stages counts.

        Layers may be given in place of their stages, if for :meth:`tail_s` too: sums of both make the time no less.
        Where passes take between the seconds given and ``longest_s``, the result is the least of all between: longer
        weight gradients fill more of the bubble.
        """
        forward, backward, weight = _arrays(forward_s, backward_input_s, backward_weight_s)
        if self.schedule is PipelineSchedule.ZB_H1:
            if longest_s is None:
                return np.asarray(forward + backward - self._put_off * _least(forward, backward, weight))
            # What fills the bubble is at most the longest, and at most the shorter of the passes that are waited for.
            known = forward + backward - self._put_off * _least(*longest_s)
            return np.maximum(known, forward + backward - self._put_off * np.minimum(forward, backward))
        if self.schedule in (PipelineSchedule.INTERLEAVED, PipelineSchedule.DUALPIPE):
            return np.zeros(np.broadcast_shapes(self.pace.shape, np.shape(forward + backward + weight)))
        return np.asarray(forward + backward + weight + np.zeros_like(self.pace))

    def tail_s(self, forward_s: ArrayLike, backward_input_s: ArrayLike, backward_weight_s: ArrayLike) -> FloatArray:
        """Return what a stage adds at most once; the largest of all stages counts. Negative for some DualPipes."""
        forward, backward, weight = _arrays(forward_s, backward_input_s, backward_weight_s)
        if self.schedule is PipelineSchedule.ZB_H1:
            return np.asarray(weight + self._put_off * _least(forward, backward, weight))
        if self.schedule is PipelineSchedule.DUALPIPE:
            half = self.stages / 2 - 1
            entering = np.maximum(half * forward, half * backward - forward)
            return np.asarray(entering - half * (weight + np.minimum(backward, weight)))
        return np.zeros(np.broadcast_shapes(self.pace.shape, np.shape(forward + backward + weight)))

    @property
    def _put_off(self) -> FloatArray:
        """1 where every stage has weight gradients to put off into the bubble, else 0."""
        return np.asarray(self.microbatches >= self.stages, dtype=np.float64)

    def transfers_s(
        self,
        transfer_s: ArrayLike,
        forward_s: ArrayLike,
        backward_input_s: ArrayLike,
        backward_weight_s: ArrayLike,
    ) -> FloatArray:
        """Return what messages add that travel while their sender computes on.

        ``transfer_s`` is one message's duration over the slowest boundary; the other seconds are the least of any
        virtual stage, because what a schedule has in hand hides messages only up to some duration. Exact for equal
        stages and boundaries as long as a message takes at most ``L / 2`` of a chunk (interleaved), ``W`` is the
        shortest pass (zb-h1), or ``h`` messages are shorter than the shorter pass and ``W <= B`` (dualpipe); otherwise
        an upper bound. Where senders wait for their messages, add those to the passes instead
        (:meth:`~archplace.search.pipeline.seconds.StageSeconds.sending`).
        """
        p, v, m = self.stages, self.virtual, self.microbatches
        c, forward, backward, weight = np.broadcast_arrays(
            *_arrays(transfer_s, forward_s, backward_input_s, backward_weight_s)
        )
        once = 2 * (p - 1)
        # The longest path goes down and up the pipeline once, and for the other microbatches in zigzags: one over s
        # stages crosses s - 1 boundaries each way and gains s microbatches, so that the widest cross most.
        zigzag = once + 2 * (m - 1 - np.ceil((m - 1) / p))
        if self.schedule is PipelineSchedule.GPIPE:
            return np.asarray(once * c)
        if self.schedule is PipelineSchedule.ONE_F_ONE_B:
            return np.asarray(zigzag * c)
        if self.schedule is PipelineSchedule.ZB_H1:
            # While a message is on its way, weight gradients that wait can run.
            hidden = np.minimum(zigzag, 2 * once)
            return np.asarray(hidden * c + (zigzag - hidden) * _beyond(c, _least(forward, backward, weight) / 2))
        if self.schedule is PipelineSchedule.INTERLEAVED:
            # Each neighbour further down has two passes more in hand than the next.
            whole = backward + weight
            first, second, third = 2 * (p * v - 1), (v - 1) * (m - p), m * (p - 1) / p
            most = np.maximum(2 * v * (m + p), first + second + third)
            return np.asarray(
                first * c
                + second * _beyond(c, np.minimum(forward, whole))
                + third * _beyond(c, (forward + whole) / 2)
                + (most - first - second - third) * _beyond(c, np.maximum(forward, whole))
            )
        half = p / 2 - 1
        crossings = m + 3 * half - 2 - np.floor((m / 2 - half - 3) / (half + 1))
        slack = np.minimum(forward + half * np.minimum(forward - backward, 0.0), backward)
        return np.asarray(crossings * c + _beyond(half * c, np.maximum(slack, 0.0)))


def _arrays(*values: ArrayLike) -> tuple[FloatArray, ...]:
    return tuple(np.asarray(each, dtype=np.float64) for each in values)


def _least(forward: FloatArray, backward: FloatArray, weight: FloatArray) -> FloatArray:
    return np.minimum(np.minimum(forward, backward), weight)


def _beyond(transfer_s: FloatArray, slack_s: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(0.0, transfer_s - slack_s))


def coefficients(
    schedule: PipelineSchedule, stages: ArrayLike, virtual: ArrayLike, microbatches: ArrayLike
) -> PipelineCoefficients:
    """Return the closed form's coefficients; the counts broadcast against each other.

    What the schedule refuses (see :func:`~archplace.search.pipeline.schedules.refusal`) gets meaningless coefficients.
    """
    p, v, m = np.broadcast_arrays(*_arrays(stages, virtual, microbatches))
    pace, skew = m - 1, np.minimum(m, p) - 1
    pair_pace, saved = np.zeros_like(m), np.zeros_like(m)
    if schedule is PipelineSchedule.GPIPE:
        skew = m - 1
    elif schedule is PipelineSchedule.INTERLEAVED:
        pace = m + (p - 1) / v
        skew = pace
    elif schedule is PipelineSchedule.ZB_H1:
        saved = np.where(m < p, m - 1, 0.0)
    elif schedule is PipelineSchedule.DUALPIPE:
        pace, pair_pace, skew = p + 1, m - p / 2 - 2, p
    return PipelineCoefficients(
        schedule=schedule,
        stages=p,
        virtual=v,
        microbatches=m,
        pace=np.asarray(pace),
        pair_pace=np.asarray(pair_pace),
        saved=saved,
        skew=np.asarray(skew),
    )


def closed_form_s(shape: ScheduleShape, seconds: StageSeconds, *, overlap_transfers: bool) -> FloatArray:
    """Return the closed form with the skew, shaped as the seconds' leading axes: never below the schedule's time.

    Chunks of an interleaved device may differ here: what exceeds the chunk that takes least is added as if nothing
    overlapped it, or all chunks are taken as slow as the slowest, whichever is less.

    Raises:
        ValueError: The schedule refuses the shape, or the seconds are of another number of virtual stages.
    """
    seconds.must_fit(shape)
    factors = coefficients(shape.schedule, shape.stages, shape.virtual, shape.microbatches)
    exposed = np.zeros(seconds.forward_s.shape[:-1])
    if not overlap_transfers:
        seconds = seconds.sending(ends_too=shape.schedule is PipelineSchedule.INTERLEAVED)
    elif shape.virtual_stages > 1:
        exposed = factors.transfers_s(
            seconds.transfer_s.max(axis=-1),
            seconds.forward_s.min(axis=-1),
            seconds.backward_input_s.min(axis=-1),
            seconds.backward_weight_s.min(axis=-1),
        )
    if shape.schedule is PipelineSchedule.INTERLEAVED:
        return np.asarray(_interleaved_s(shape, seconds) + exposed)
    passes = (seconds.forward_s, seconds.backward_input_s, seconds.backward_weight_s)
    pairs = _pairs_s(seconds)
    return np.asarray(_time_s(factors, *passes, (pairs + pairs[..., ::-1]) / 2) + exposed)


def _pairs_s(seconds: StageSeconds) -> FloatArray:
    """Return DualPipe's pairs, all taken to gain the least share of their shorter pass that any of them gains.

    Devices run different pairs at the same time and wait for the slowest; with one share the mean of a device's two
    pairs decides.
    """
    forward, backward = seconds.forward_s, seconds.backward_s[..., ::-1]
    together, shorter = forward + backward, np.minimum(forward, backward)
    if seconds.overlapped_s is None:
        return together
    gain = np.divide(together - seconds.overlapped_s, shorter, out=np.ones_like(together), where=shorter > 0)
    return np.asarray(together - gain.min(axis=-1, keepdims=True) * shorter)


def _time_s(
    factors: PipelineCoefficients, forward: FloatArray, backward: FloatArray, weight: FloatArray, pair: FloatArray
) -> FloatArray:
    """Return the closed form for stages along the last axis, without transfers."""
    load = forward + backward + weight
    most = load.max(axis=-1)
    if factors.schedule in SPLIT_BACKWARD:
        skew = forward.max(axis=-1) + backward.max(axis=-1) + weight.max(axis=-1) - most
    else:
        skew = forward.max(axis=-1) + (backward + weight).max(axis=-1) - most
    total: FloatArray = factors.pace * most + factors.pair_pace * pair.max(axis=-1) + factors.skew * skew
    total = total + factors.fill_s(forward, backward, weight).sum(axis=-1)
    total = total + factors.tail_s(forward, backward, weight).max(axis=-1)
    return np.asarray(total - factors.saved * _least(forward, backward, weight).min(axis=-1))


def _interleaved_s(shape: ScheduleShape, seconds: StageSeconds) -> FloatArray:
    p, v, m = shape.stages, shape.virtual, shape.microbatches
    forward, backward = (each.reshape(*each.shape[:-1], v, p) for each in (seconds.forward_s, seconds.backward_s))
    least_forward, least_backward = (each.min(axis=-2, keepdims=True) for each in (forward, backward))
    more_forward, more_backward = forward - least_forward, backward - least_backward

    def as_the_slowest(some_forward: FloatArray, some_backward: FloatArray) -> FloatArray:
        # No chunk faster than the slowest makes equal stages.
        return np.asarray((m * v + p - 1) * (some_forward.max(axis=(-2, -1)) + some_backward.max(axis=(-2, -1))))

    in_turn = m * (more_forward + more_backward).sum(axis=(-2, -1))
    # The time is the largest of sums along paths, so that the time of a sum is at most the sum of the times.
    apart = as_the_slowest(least_forward, least_backward) + np.minimum(
        in_turn, as_the_slowest(more_forward, more_backward)
    )
    return np.asarray(np.minimum(apart, as_the_slowest(forward, backward)))
