"""Measured kernels of A100, as operators with their seconds."""

import csv
from dataclasses import dataclass
from pathlib import Path

from archplace.costmodel.kernel_fit import MeasuredKernel
from archplace.workloads import _vector
from archplace.workloads.model import Activation, Norm
from archplace.workloads.operators import FusedAttention, Gemm, Operator, Phase, Unit, VectorWork

DATA = Path(__file__).parent / "data"
CALL_S = {"gemm": 21e-6, "softmax": 12e-6, "layer_norm": 45e-6, "gelu": 45e-6}
"""What LLMCompass's authors measured for a call on one element, by kind: PrincetonUniversity/LLMCompass
hardware_model/compute_module.py @b95c6c9, ``overhead_dict["A100"]``."""
SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measurement, and what it is of."""

    source: str
    kind: str
    shape: tuple[int, ...]
    kernel: MeasuredKernel


def _records(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def operator(unit: Unit, **content: object) -> Operator:
    return Operator(name="kernel", unit=unit, phase=Phase.FORWARD, **content)  # type: ignore[arg-type]  # per unit


def _operator_of(kind: str, batch: int, m: int, n: int, k: int, *, accumulate: bool) -> Operator:
    if kind == "softmax":
        return operator(Unit.VECTOR, vector=_vector.softmax(m, n, SIZE, dropout=False))
    if kind == "layer_norm":
        return operator(Unit.VECTOR, vector=_vector.norm(Norm.LAYER_NORM, m, n, SIZE))
    if kind == "gelu":
        operations = _vector.activation_operations(Activation.GELU)
        work = _vector.elementwise(m, n, operations, read_bytes_per_element=SIZE, write_bytes_per_element=SIZE)
        return operator(Unit.VECTOR, vector=work)
    gemm = Gemm(batch=batch, m=m, n=n, k=k)
    if not accumulate:
        return operator(Unit.TENSOR, gemm=gemm)
    fp32 = 4 * batch * m * n
    added = VectorWork(rows=batch * m, row_length=n, operations_per_element=1, read_bytes=fp32, write_bytes=fp32)
    return operator(Unit.FUSED, gemm=gemm, vector=added)


def kernels() -> list[Row]:
    """Products, softmax, layer norm and GELU."""
    found = []
    for record in _records("kernels_a100.csv"):
        batch, m, n, k = (int(record[name] or 0) for name in ("batch", "m", "n", "k"))
        found.append(
            Row(
                source=record["source"],
                kind=record["kind"],
                shape=(batch, m, n, k),
                kernel=MeasuredKernel(
                    operator=_operator_of(record["kind"], batch, m, n, k, accumulate=record["accumulate"] == "1"),
                    seconds=float(record["seconds"]),
                    call_s=CALL_S[record["kind"]] if record["source"] == "llmcompass" else 0.0,
                ),
            )
        )
    return found


def attentions() -> list[Row]:
    """Fused attention and its gradients, causal; the bytes are those that algorithms 1 and 2 of FlashAttention move."""
    found = []
    for record in _records("attention_a100.csv"):
        gradients, s, heads, key_heads, d, v = (int(value) for value in list(record.values())[:-1])
        attention = FusedAttention(
            batch=key_heads,
            rows=s * heads // key_heads,
            keys=s,
            met_keys=s // 2,
            head_dim=d,
            value_dim=v,
            gradients=bool(gradients),
        )
        operands = SIZE * s * (heads * d + key_heads * (d + v))
        context = SIZE * s * heads * v
        rows = attention.batch * attention.rows
        if gradients:
            work = _vector.online_softmax_gradient(
                rows, s // 2, v, dropout=False, read_bytes=operands + 2 * context, write_bytes=operands
            )
        else:
            work = _vector.online_softmax(rows, s // 2, dropout=False, read_bytes=operands, write_bytes=context)
        found.append(
            Row(
                source="simumax",
                kind="attention gradients" if gradients else "attention",
                shape=(heads, key_heads, d, v),
                kernel=MeasuredKernel(
                    operator=operator(Unit.FUSED, attention=attention, vector=work), seconds=float(record["seconds"])
                ),
            )
        )
    return found
