"""What the operations of a pipeline's stages take."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.search.pipeline.schedules import ScheduleShape, refusal

FloatArray = NDArray[np.float64]

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageSeconds:
    """Seconds per microbatch of every virtual stage, in model order along the last axis.

    All arrays may have the same leading axes, for many pipelines of one shape. A recomputed forward pass belongs to
    ``backward_input_s``.
    """

    forward_s: FloatArray
    """``(..., virtual_stages)``."""
    backward_input_s: FloatArray
    """``(..., virtual_stages)``: gradients of the activations."""
    backward_weight_s: FloatArray
    """``(..., virtual_stages)``: gradients of the weights."""
    transfer_s: FloatArray
    """``(..., virtual_stages - 1)``: from each virtual stage to the next, and the gradient back."""
    overlapped_s: FloatArray | None = None
    """``(..., stages)``, DualPipe only: a forward pass of stage ``i`` together with the backward pass of the stage
    ``stages - 1 - i`` on the same device. ``None``: the sum of the two, nothing gained."""

    @classmethod
    def of(
        cls,
        forward_s: FloatArray,
        backward_input_s: FloatArray,
        backward_weight_s: FloatArray,
        transfer_s: FloatArray | float = 0.0,
        overlapped_s: FloatArray | None = None,
    ) -> "StageSeconds":
        """Return the seconds of these arrays, all checked; ``transfer_s`` may be one number for all boundaries."""
        forward = np.asarray(forward_s, dtype=np.float64)
        shape = forward.shape
        transfer = np.asarray(transfer_s, dtype=np.float64)
        seconds = cls(
            forward_s=forward,
            backward_input_s=np.asarray(backward_input_s, dtype=np.float64),
            backward_weight_s=np.asarray(backward_weight_s, dtype=np.float64),
            transfer_s=np.broadcast_to(transfer, (*shape[:-1], shape[-1] - 1)),
            overlapped_s=None if overlapped_s is None else np.asarray(overlapped_s, dtype=np.float64),
        )
        named = {
            "forward_s": seconds.forward_s,
            "backward_input_s": seconds.backward_input_s,
            "backward_weight_s": seconds.backward_weight_s,
        }
        if seconds.overlapped_s is not None:
            named["overlapped_s"] = seconds.overlapped_s
        for name, values in named.items():
            if values.shape != shape:
                raise ValueError(f"{name}: found shape {values.shape}, forward_s has {shape}; give one per stage")
        for name, values in {**named, "transfer_s": seconds.transfer_s}.items():
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError(f"{name}: found {values.min()}; seconds must be finite and not negative")
        if seconds.overlapped_s is not None:
            _check_pairs(seconds.overlapped_s, forward, seconds.backward_s[..., ::-1])
        return seconds

    def must_fit(self, shape: ScheduleShape) -> None:
        """Raise a ``ValueError`` where the schedule refuses ``shape`` or these are seconds of other virtual stages."""
        reason = refusal(shape)
        if reason is not None:
            raise ValueError(f"schedule: {reason}")
        if self.forward_s.shape[-1:] != (shape.virtual_stages,):
            raise ValueError(
                f"forward_s: found shape {self.forward_s.shape}, the last axis needs {shape.virtual_stages}: "
                f"{shape.stages} stages x {shape.virtual} virtual stages"
            )

    @property
    def backward_s(self) -> FloatArray:
        """Return input and weight gradients together, ``(..., virtual_stages)``."""
        total: FloatArray = self.backward_input_s + self.backward_weight_s
        return total

    @property
    def load_s(self) -> FloatArray:
        """Return forward and backward together, ``(..., virtual_stages)``."""
        total: FloatArray = self.forward_s + self.backward_s
        return total

    def sending(self, *, ends_too: bool = False) -> "StageSeconds":
        """Return stages that are busy while they send, so that messages take no time of their own.

        A forward pass grows by the transfer to the next virtual stage, the gradients of the input by the one to the
        stage before, an overlapped pair by both. ``ends_too``: as if the two ends sent as well, as far as the farthest
        neighbours.
        """
        end = np.zeros((*self.transfer_s.shape[:-1], 1))
        if ends_too and self.transfer_s.shape[-1]:
            end = self.transfer_s.max(axis=-1, keepdims=True)
        forward = np.concatenate([self.transfer_s, end], axis=-1)
        backward = np.concatenate([end, self.transfer_s], axis=-1)
        overlapped = self.overlapped_s
        return StageSeconds(
            forward_s=self.forward_s + forward,
            backward_input_s=self.backward_input_s + backward,
            backward_weight_s=self.backward_weight_s,
            transfer_s=np.zeros_like(self.transfer_s),
            overlapped_s=None if overlapped is None else overlapped + forward + backward[..., ::-1],
        )


def _check_pairs(overlapped_s: FloatArray, forward_s: FloatArray, backward_s: FloatArray) -> None:
    """Refuse pairs that are shorter than the longer of their passes, or longer than both one after the other."""
    least, most = np.maximum(forward_s, backward_s), forward_s + backward_s
    wrong = (overlapped_s < least * (1 - _ROUNDING)) | (overlapped_s > most * (1 + _ROUNDING))
    if wrong.any():
        first = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise ValueError(
            f"overlapped_s: found {overlapped_s[first]}; a pair takes at least its longer pass, {least[first]} s, and "
            f"at most both, {most[first]} s"
        )
