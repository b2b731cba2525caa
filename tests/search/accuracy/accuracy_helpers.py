"""Rows for tests of accuracy."""

from archplace.search.accuracy import MeasuredStep
from archplace.workloads import Precision, Recompute

BLOOM_LIKE = {"gated_mlp": False, "d_ff": 8192, "n_kv_heads": 16}
LLAMA_LIKE = {"gated_mlp": True, "d_ff": 5504, "n_kv_heads": 8}

_PLAIN = MeasuredStep(
    place="steps.csv:2",
    id="a",
    source="source",
    hardware="a100-80gb-selene",
    n_devices=8,
    n_layers=24,
    d_model=2048,
    n_heads=16,
    n_kv_heads=16,
    head_dim=128,
    d_ff=8192,
    gated_mlp=False,
    n_experts=0,
    top_k=0,
    moe_d_ff=0,
    vocab=51200,
    seq_len=2048,
    tp=1,
    pp=1,
    vpp=1,
    cp=1,
    ep=1,
    dp=8,
    zero_stage=0,
    sequence_parallel=False,
    fused_attention=True,
    micro_batch=1,
    global_batch=64,
    precision=Precision.BF16,
    recompute=Recompute.NONE,
    step_s=1.0,
    note="",
)


def step(**values: object) -> MeasuredStep:
    """Return a row of a small model on a node, with other values where given."""
    known = {name: getattr(_PLAIN, name) for name in _PLAIN.__dataclass_fields__}
    return MeasuredStep(**(known | values))
