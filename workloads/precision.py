"""Number formats of a training step: in which format products run, and what is kept and exchanged in which."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

FP32_BYTES = 4
MASK_BYTES = 1
"""A dropout mask is kept as one byte per element (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1)."""


class Format(StrEnum):
    """A number format."""

    FP32 = "fp32"
    TF32 = "tf32"
    """fp32 in memory, of which products read 19 bits (NVIDIA A100 white paper, "TF32")."""
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """One byte, E4M3 or E5M2 (Micikevicius et al. 2022, arXiv:2209.05433)."""
    MXFP8 = "mxfp8"
    """fp8 with a scale of one byte for every 32 elements (OCP Microscaling Formats, version 1.0, table 1)."""
    NVFP4 = "nvfp4"
    """Half a byte, with a scale of one byte for every 16 elements (NVIDIA 2025, arXiv:2509.25149, section 2)."""

    @property
    def bytes(self) -> float:
        """Bytes of one number, its share of a block's scale included."""
        return _BYTES[self]

    @property
    def scales_blocks(self) -> bool:
        """Whether a few elements have a scale of their own, which the product's units apply."""
        return self in (Format.MXFP8, Format.NVFP4)

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many numbers, rounded up."""
        return ceil(elements * self.bytes)


_BYTES = {
    Format.FP32: 4.0,
    Format.TF32: 4.0,
    Format.BF16: 2.0,
    Format.FP16: 2.0,
    Format.FP8: 1.0,
    Format.MXFP8: 1 + 1 / 32,
    Format.NVFP4: 1 / 2 + 1 / 16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats of one recipe."""

    activations: Format
    """Of activations and their gradients between operators, and of all products but those of blocks' linear layers."""
    products: Format
    """Of the operands of the products of blocks' linear layers; where it is narrower than the activations', operands
    are cast before, and a linear layer's input is kept as it was cast."""
    weights: Format
    """Of the weights that devices exchange when states are sharded."""
    weight_copies: int = 0
    """Further copies of each weight in the products' format."""
    gradients: Format
    """Of the parameters' gradients, as they are summed over microbatches and exchanged."""
    master: Format | None
    """Of the optimizer's own copy of the weights; ``None`` where the weights are that copy."""
    moments: Format
    """Of each of the optimizer's moments."""
    dispatch: Format
    """In which tokens go to routed experts, and their gradients to those of the experts; all come back as activations.
    """
    block_length: int | None = None
    """Products whose operands have one scale for every so many elements along the summed dimension: the lanes add as
    many partial sums as there are blocks. ``None``: one scale for a whole tensor."""

    @property
    def casts(self) -> bool:
        """Whether linear layers read their operands in a narrower format than the activations'."""
        return self.products.bytes < self.activations.bytes

    @property
    def casts_blocks(self) -> bool:
        """Whether a cast finds a scale for each block, and not one for a whole tensor."""
        return self.block_length is not None or self.products.scales_blocks


class Precision(StrEnum):
    """A recipe of formats, by its name in files."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"
    """fp32 whose products of matrices run in tf32: what PyTorch does where tf32 is allowed."""
    BF16_FP32_GRADIENTS = "bf16-fp32-gradients"
    """bf16 whose gradients are summed and exchanged in fp32: Megatron-Core's default for bf16."""
    FP8 = "fp8"
    """Transformer Engine's: products of linear layers in fp8 with one scale per tensor, weights and activations in bf16
    (Micikevicius et al. 2022, arXiv:2209.05433)."""
    FP8_BLOCKS = "fp8-blocks"
    """DeepSeek-V3's (DeepSeek-AI 2024, arXiv:2412.19437, section 3.3): scales for tiles of 128 elements, partial sums
    added on the lanes, moments in bf16, tokens dispatched in fp8."""
    MXFP8 = "mxfp8"
    """Transformer Engine's on Blackwell: as fp8, with a scale for every 32 elements that the tensor units apply (NVIDIA
    2025, arXiv:2506.08027)."""
    NVFP4 = "nvfp4"
    """As mxfp8, in four bits with a scale for every 16 elements (NVIDIA 2025, arXiv:2509.25149); that a few layers stay
    wider is not counted."""

    @property
    def formats(self) -> Formats:
        """The recipe."""
        return _RECIPES[self]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of an activation."""
        return int(self.formats.activations.bytes)  # those that activations have are whole


def _mixed(storage: Format, gradients: Format) -> Formats:
    """Mixed precision (Micikevicius et al. 2018, arXiv:1710.03740): an fp32 master weight, everything else narrow."""
    return Formats(
        activations=storage,
        products=storage,
        weights=storage,
        gradients=gradients,
        master=Format.FP32,
        moments=Format.FP32,
        dispatch=storage,
    )


def _narrow_products(products: Format) -> Formats:
    """Linear layers that multiply two narrower copies of each weight; bf16 weights and activations."""
    return Formats(
        activations=Format.BF16,
        products=products,
        weights=Format.BF16,
        weight_copies=2,
        gradients=Format.FP32,
        master=Format.FP32,
        moments=Format.FP32,
        dispatch=Format.BF16,
    )


_RECIPES = {
    Precision.BF16: _mixed(Format.BF16, Format.BF16),
    Precision.FP16: _mixed(Format.FP16, Format.FP16),
    Precision.BF16_FP32_GRADIENTS: _mixed(Format.BF16, Format.FP32),
    Precision.FP32: Formats(
        activations=Format.FP32,
        products=Format.FP32,
        weights=Format.FP32,
        gradients=Format.FP32,
        master=None,
        moments=Format.FP32,
        dispatch=Format.FP32,
    ),
    Precision.TF32: Formats(
        activations=Format.TF32,
        products=Format.TF32,
        weights=Format.FP32,
        gradients=Format.FP32,
        master=None,
        moments=Format.FP32,
        dispatch=Format.TF32,
    ),
    # Hopper multiplies fp8 operands only along their rows, so that a weight is kept as it is and transposed
    # (Transformer Engine's guide, "Performance considerations", "Handling transposes").
    Precision.FP8: _narrow_products(Format.FP8),
    # Scales stand along the summed dimension, so that a weight is kept scaled along either of its dimensions.
    Precision.MXFP8: _narrow_products(Format.MXFP8),
    Precision.NVFP4: _narrow_products(Format.NVFP4),
    # Section 3.3.1, figure 6: weights reach the products in fp8, gradients and master weights are fp32. Blocks of
    # 128 × 128 weights have one scale, so that the transposed weight needs no copy. Embedding, norms, router and head,
    # which stay wider, are not counted apart.
    Precision.FP8_BLOCKS: Formats(
        activations=Format.BF16,
        products=Format.FP8,
        weights=Format.FP8,
        gradients=Format.FP32,
        master=Format.FP32,
        moments=Format.BF16,
        dispatch=Format.FP8,
        block_length=128,
    ),
}
