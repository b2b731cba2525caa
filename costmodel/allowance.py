"""What a device needs besides the tensors of its layers: gaps, buffers between stages, and what frameworks reserve."""

from dataclasses import dataclass

import numpy as np

from archplace.arch_configs.architectures import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a device needs besides the tensors of its layers.

    Raises ``ValueError`` for a negative value.
    """

    fragmentation: float = 0.05
    """Share added to everything that is allocated and freed within a step; what lives for the whole run is allocated
    once and leaves no gaps. The default is an assumption: an allocator that can extend its segments loses a few
    percent; one that cannot loses 15 % on average and up to 33 % (Guo et al. 2024, GMLake, arXiv:2401.08156)."""
    reserved_bytes: float = 2.0**30
    """Driver context, kernels and communication buffers of the frameworks. The default is an assumption."""
    outputs_kept: bool = False
    """Whether a stage keeps its output for as long as the microbatch is in flight, although the next stage has it;
    not when it is freed once sent (``deallocate_pipeline_outputs`` of Megatron-Core)."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value}, must not be negative"
            for name, value in (("fragmentation", self.fragmentation), ("reserved_bytes", self.reserved_bytes))
            if not value >= 0
        ]
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def growth(self) -> float:
        """Bytes taken for each byte that comes and goes."""
        return 1.0 + self.fragmentation

    def constant_bytes(self, entering_bytes: FloatArray | float, leaving_bytes: FloatArray | float) -> FloatArray:
        """Return what a stage needs whatever layers it holds.

        ``entering_bytes`` and ``leaving_bytes`` are the activations that cross its boundaries, 0 where the pipeline
        ends. On either side one is sent while another is received: the activation one way, its gradient the other.
        """
        crossing = np.asarray(entering_bytes, dtype=np.float64) + np.asarray(leaving_bytes, dtype=np.float64)
        return np.asarray(self.growth * 2.0 * crossing + self.reserved_bytes)

    def kept_output_bytes(self, leaving_bytes: FloatArray | float) -> FloatArray:
        """Return the bytes per microbatch in flight of outputs that have been sent."""
        kept = self.growth if self.outputs_kept else 0.0
        return np.asarray(kept * np.asarray(leaving_bytes, dtype=np.float64))
