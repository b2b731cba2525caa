"""Parts that only some transformers have, and the kinds of blocks that a model is a chain of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A feed-forward part of many experts, of which a router chooses ``top_k`` for each token.

    Router: one product in fp32 and a softmax over the experts (Shazeer et al. 2017, arXiv:1701.06538, section 2.1).
    The load is taken as balanced: every expert gets the same number of tokens. Raises ``ValueError`` that names every
    value that is out of range.
    """

    n_experts: int
    """Routed experts of one block."""
    top_k: int
    """Routed experts that a token is sent to."""
    d_ff: int
    """Width inside one routed expert."""
    shared_experts: int = 0
    """Experts that every token passes, beside the routed ones (Dai et al. 2024, arXiv:2401.06066, section 3.2)."""
    shared_d_ff: int = 1
    """Width inside one shared expert."""
    dense_layers: int = 0
    """Blocks at the start whose feed-forward part has no experts."""
    capacity_factor: float | None = None
    """Tokens that an expert takes, as a multiple of its balanced load; it computes as many whether they come or not
    (Fedus, Zoph and Shazeer 2021, arXiv:2101.03961, equation 3). ``None``: as many as come (dropless)."""

    def __post_init__(self) -> None:
        problems = [
            f"experts.{field} is {getattr(self, field)}, must be at least {least}"
            for field, least in (
                ("n_experts", 1),
                ("top_k", 1),
                ("d_ff", 1),
                ("shared_experts", 0),
                ("shared_d_ff", 1),
                ("dense_layers", 0),
            )
            if getattr(self, field) < least
        ]
        if self.top_k > self.n_experts:
            problems.append(f"experts.top_k {self.top_k} is more than experts.n_experts {self.n_experts}")
        if self.capacity_factor is not None and not 0 < self.capacity_factor < float("inf"):
            problems.append(f"experts.capacity_factor is {self.capacity_factor}, must be more than 0 and finite")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def shared_width(self) -> int:
        """Width of all shared experts together, which compute as one; 0 where there is none."""
        return self.shared_experts * self.shared_d_ff


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1).

    Keys and values are projected up from one narrow latent per token, queries from another, each behind an RMS norm. A
    query or key head has a part without positions and a part with rotary ones; the latter is one for all key heads.
    This is the form that training executes, with the upward projections as products of their own. Raises
    ``ValueError`` that names every width that is out of range.
    """

    q_lora_rank: int = 0
    """Width of the queries' latent; 0 where queries are projected at once."""
    kv_lora_rank: int
    """Width of the latent of keys and values."""
    qk_nope_head_dim: int
    """Elements of a query or key head without positions."""
    qk_rope_head_dim: int
    """Elements of a query or key head with rotary positions."""
    v_head_dim: int
    """Elements of a value head."""

    def __post_init__(self) -> None:
        problems = [
            f"latent_attention.{field} is {getattr(self, field)}, must be at least {least}"
            for field, least in (
                ("q_lora_rank", 0),
                ("kv_lora_rank", 1),
                ("qk_nope_head_dim", 1),
                ("qk_rope_head_dim", 2),
                ("v_head_dim", 1),
            )
            if getattr(self, field) < least
        ]
        if self.qk_rope_head_dim % 2:
            problems.append(
                f"latent_attention.qk_rope_head_dim {self.qk_rope_head_dim} is odd: rotary positions turn pairs of "
                "elements"
            )
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def qk_head_dim(self) -> int:
        """Elements of a query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """An image as a sequence: square patches, each a linear map of its pixels, behind one class token.

    Dosovitskiy et al. 2021 (arXiv:2010.11929, section 3.1). Raises ``ValueError`` that names every value that is out
    of range.
    """

    image_size: int
    """Pixels along one side."""
    patch_size: int
    """Pixels along one side of a patch."""
    channels: int = 3

    def __post_init__(self) -> None:
        problems = [
            f"patches.{field} is {getattr(self, field)}, must be at least 1"
            for field in ("image_size", "patch_size", "channels")
            if getattr(self, field) < 1
        ]
        if not problems and self.image_size % self.patch_size:
            problems.append(
                f"patches.patch_size {self.patch_size} does not divide patches.image_size {self.image_size}"
            )
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def count(self) -> int:
        """Patches of one image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens(self) -> int:
        """Tokens of one image: its patches and the class token."""
        return self.count + 1

    @property
    def pixels(self) -> int:
        """Numbers that one patch consists of."""
        return self.patch_size * self.patch_size * self.channels


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One kind of block of a model, and how many of it follow each other."""

    name: str
    count: int
    causal: bool
    """A token sees those before it only."""
    has_experts: bool = False
    """The feed-forward part is the model's experts."""
    cross_attention: bool = False
    """A second attention, whose keys and values come from the encoder's output (Vaswani et al. 2017,
    arXiv:1706.03762, section 3.2.3). Such a block runs on the target sequence."""
    prediction: bool = False
    """A module that predicts one more token (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2): two norms and a product
    join the activation before it and the embedding of the next token; a block follows."""
