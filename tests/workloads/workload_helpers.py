"""What the tests of this room share: random models, and sums over layers."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from archplace.workloads import (
    Activation,
    ContextKind,
    Layer,
    LayerSharding,
    Model,
    ModelKind,
    Norm,
    Operator,
    OptimizerKind,
    Positions,
    Precision,
    TrainingStep,
    Workload,
)

ZOO = (
    "bert-large",
    "gpt2-xl",
    "gpt3-175b",
    "llama2-70b",
    "llama2-7b",
    "llama3-405b",
    "llama3-70b",
    "llama3-8b",
    "megatron-gpt-1t",
    "megatron-gpt-22b",
    "megatron-gpt-530b",
    "megatron-gpt-8.3b",
    "opt-1.3b",
    "opt-350m",
)

TODAY = ("deepseek-v3", "mixtral-8x22b", "mixtral-8x7b", "t5-11b", "vit-huge")
"""Models with more than one kind of part or block, and what each device executes of them."""

CUTS = [(name, width) for name in ZOO for width in (1, 2, 4, 8) if width == 1 or name != "gpt2-xl"]
"""Models and the tensor-parallel widths that divide them; the 25 heads of GPT-2 XL divide by none."""


@st.composite
def models(draw: st.DrawFn, *, width: int = 1) -> Model:
    """A small model of any kind that ``width`` tensor-parallel devices can share."""
    kv_heads = width * draw(st.integers(1, 3))
    positions = draw(st.sampled_from([Positions.LEARNED, Positions.ROPE, Positions.NONE]))
    heads = kv_heads * draw(st.integers(1, 3))
    d_model = 8 * draw(st.integers(1, 6))
    vocabulary = draw(st.integers(9, 200))
    kind = draw(st.sampled_from([ModelKind.DECODER, ModelKind.ENCODER]))
    return Model(
        name="random",
        kind=kind,
        n_layers=draw(st.integers(1, 4)),
        d_model=d_model,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 8)),
        d_ff=width * draw(st.integers(1, 40)),
        gated_mlp=draw(st.booleans()),
        activation=draw(st.sampled_from(Activation)),
        norm=draw(st.sampled_from(Norm)),
        norm_first=draw(st.booleans()),
        final_norm=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        positions=positions,
        max_positions=64,
        position_offset=draw(st.integers(0, 2)) if positions is Positions.LEARNED else 0,
        token_types=draw(st.integers(0, 2)),
        vocabulary=vocabulary,
        padded_vocabulary=-(-vocabulary // 8) * 8,
        embedding_width=draw(st.sampled_from([d_model, 16])),
        tied_head=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        bias=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        fused_qkv=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.1])),
        embedding_dropout=draw(st.sampled_from([0.0, 0.1])),
        attention_dropout=draw(st.sampled_from([0.0, 0.1])),
        next_sentence=kind is ModelKind.ENCODER and draw(st.booleans()),
    )


def workload_of(model: Model, *, sequence_length: int, global_batch: int = 2, fused: bool = False) -> Workload:
    """A workload in bf16 with Adam."""
    return Workload(
        name="w",
        model=model,
        sequence_length=sequence_length,
        global_batch=global_batch,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
        fused_attention=fused,
    )


@st.composite
def sharded_jobs(draw: st.DrawFn) -> tuple[Workload, LayerSharding]:
    """A small model under any sharding of dense layers, on 16 tokens of a sequence for each context-parallel device."""
    tensor, context = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3]))
    model = draw(models(width=tensor))
    if context > 1:
        model = replace(model, next_sentence=False)
    fused = draw(st.booleans())
    sharding = LayerSharding(
        microbatch=draw(st.integers(1, 2)),
        tensor=tensor,
        sequence=tensor > 1 and draw(st.booleans()),
        context=context,
        context_kind=draw(st.sampled_from(ContextKind)) if fused else ContextKind.ALL_GATHER,
        overlap_pieces=draw(st.sampled_from([1, 2])) if tensor > 1 else 1,
    )
    return workload_of(model, sequence_length=16 * context, fused=fused), sharding


def sharded_steps() -> st.SearchStrategy[TrainingStep]:
    """The steps of such jobs."""
    return sharded_jobs().map(lambda job: job[0].step(job[1]))


def layer(step: TrainingStep, name: str) -> Layer:
    """The layer of this name."""
    return next(found for found, _ in step.layers if found.name == name)


def operator(operators: Iterable[Operator], name: str) -> Operator:
    """The operator of this name."""
    return next(found for found in operators if found.name == name)


def macs(operators: Iterable[Operator]) -> int:
    """Multiply-accumulates of all matrix products."""
    return sum(found.macs for found in operators)


def step_macs(step: TrainingStep) -> int:
    """Multiply-accumulates of a microbatch on one device, over all layers."""
    return sum(count * (macs(found.forward) + macs(found.backward)) for found, count in step.layers)
