"""Number formats of a training step."""

from enum import StrEnum


class Precision(StrEnum):
    """The format of weights, activations and gradients; master weights and optimizer moments are always fp32."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Precision.FP32 else 2


FP32_BYTES = 4
MASK_BYTES = 1
"""A dropout mask is kept as one byte per element (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1)."""
