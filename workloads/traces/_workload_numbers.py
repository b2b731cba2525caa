"""The numbers of a built-in workload's operators as traces have them, and what they follow.

What a number follows is found by building the same layers with other sizes: all numbers are polynomials of low degree
in the sizes, so that a few sizes give them exactly. A number that is none, because something is rounded up, gets no
law.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import lcm

import numpy as np
import numpy.typing as npt

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.model import Model
from archplace.workloads.operators import CollectiveKind, Operator
from archplace.workloads.precision import Format
from archplace.workloads.traces.whatif.laws import Law, Laws, Size
from archplace.workloads.training_job import TrainingJob
from archplace.workloads.training_step import Layer
from archplace.workloads.workload import Workload

Numbers = dict[str, int]
"""By name: ``num_ops``, ``tensor_size``, ``comm_size``, ``vector_ops``, ``loops[0]`` …"""

_PROBES = {Size.BATCH: (1, 2), Size.SEQUENCE: (1, 2, 4), Size.HIDDEN: (1, 2, 4), Size.EXPERTS: (1, 2, 4)}
"""Sizes at which layers are built: as many as there are powers that the numbers may have in it."""
_LEAST_POWER = {Size.EXPERTS: -1}
"""The tokens of one expert become fewer with more experts; powers of other sizes begin at 0."""
_CHECK = {Size.BATCH: 3, Size.SEQUENCE: 6, Size.HIDDEN: 6, Size.EXPERTS: 4}
"""One more place, at which what was found must hold."""


def operator_numbers(operator: Operator) -> Numbers:
    """Return what a trace says of an operator.

    ``num_ops`` are the FLOPs of matrix products, two for a multiplication and its addition. ``tensor_size`` are the
    bytes of all operands and results, each once. ``vector_ops`` are the lanes' operations. ``comm_size`` are the bytes
    that go in: of an all-gather one device's part. ``loops`` are batch, m, n and k of a product, rows and their length
    of vector work.
    """
    found: Numbers = {}
    work, gemm = operator.vector, operator.gemm
    if operator.collective is not None:
        exchange = operator.collective
        parts = exchange.group_size if exchange.kind is CollectiveKind.ALL_GATHER else 1
        found["comm_size"] = -(-exchange.payload_bytes // parts)
        return found
    touched = work.read_bytes + work.write_bytes if work is not None else 0
    loops: tuple[int, ...] = (work.rows, work.row_length) if work is not None else ()
    if gemm is not None:
        a, b = (1 if shared else gemm.batch for shared in (gemm.a_shared, gemm.b_shared))
        elements = a * gemm.m * gemm.k + b * gemm.k * gemm.n
        # The epilogue writes the product's result where there is one.
        elements += gemm.batch * gemm.m * gemm.n if work is None else 0
        touched += Format(operator.precision).bytes_of(elements)
        loops = (gemm.batch, gemm.m, gemm.n, gemm.k)
    if operator.macs:
        found["num_ops"] = 2 * operator.macs
    if work is not None:
        found["vector_ops"] = round(work.elements * work.operations_per_element)
    found["tensor_size"] = touched
    if operator.attention is None:
        found |= {f"loops[{place}]": size for place, size in enumerate(loops)}
    return found


def step_numbers(workload: TrainingJob, layer: Layer) -> Numbers:
    """Return what a layer leaves to do at the end of a step: its optimizer's work, and gradients to reduce."""
    work = workload.optimizer_work(layer.parameters)
    bytes_each = workload.parameter_bytes.gradient
    dense = layer.parameters - layer.expert_parameters
    return {
        "tensor_size": work.read_bytes + work.write_bytes,
        "vector_ops": round(work.elements * work.operations_per_element),
        "comm_size": round(dense * bytes_each),
        "expert comm_size": round(layer.expert_parameters * bytes_each),
    }


Place = tuple[int, str, str]
"""Place of the layer among distinct ones, pass (``forward``, ``backward``, ``step``) and operator."""


def number_laws(workload: TrainingJob, sharding: LayerSharding) -> dict[Place, Laws]:
    """Return the laws of all numbers of ``workload`` under ``sharding``; none where sizes cannot be compared."""
    sizes = tuple(size for size in Size if _grown(workload, sharding, {size: 2}) is not None)
    grid = {size: _PROBES[size] if size in sizes else (1,) for size in Size}
    samples: list[dict[Place, Numbers]] = []
    for factors in product(*grid.values()):
        numbers = _numbers_at(workload, sharding, dict(zip(Size, factors, strict=True)))
        # More of two sizes at once may not go together, and a traced layer may be shared otherwise when it is larger.
        if numbers is None or (samples and numbers.keys() != samples[0].keys()):
            return {}
        samples.append(numbers)
    checks = {size: _CHECK[size] for size in sizes}
    check = _numbers_at(workload, sharding, checks)
    if check is None or check.keys() != samples[0].keys():
        return {}
    names = [(place, name) for place, here in samples[0].items() for name in here]
    fitted = _fitted([[sample[place].get(name, 0) for sample in samples] for place, name in names], grid)
    found: dict[Place, Laws] = dict.fromkeys(samples[0], ())
    for (place, name), law in zip(names, fitted, strict=True):
        if law is None:
            continue
        expected = law
        for size, factor in checks.items():
            expected = expected.scaled(size, Fraction(factor))
        if expected.value == check[place].get(name, 0):
            found[place] += ((name, law),)
    return found


def _numbers_at(
    workload: TrainingJob, sharding: LayerSharding, factors: Mapping[Size, int]
) -> dict[Place, Numbers] | None:
    grown = _grown(workload, sharding, factors)
    if grown is None:
        return None
    found: dict[Place, Numbers] = {}
    for number, (layer, _) in enumerate(grown[0].step(grown[1]).layers):
        for which, operators in (("forward", layer.forward), ("backward", layer.backward)):
            for operator in operators:
                found[number, which, operator.name] = operator_numbers(operator)
        found[number, "step", ""] = step_numbers(grown[0], layer)
    return found


def _grown(
    workload: TrainingJob, sharding: LayerSharding, factors: Mapping[Size, int]
) -> tuple[TrainingJob, LayerSharding] | None:
    """Return the workload with more of some sizes, or None where there is no such model or it cannot be cut."""
    batch, longer, wider, more = (factors.get(size, 1) for size in Size)
    if isinstance(workload, Workload):
        model = workload.model
        if (longer > 1 and model.patches is not None) or (more > 1 and model.experts is None):
            return None
        model = grown_model(model, hidden=wider, experts=more, sequence=longer)
        target = None if workload.target_length is None else workload.target_length * longer
        length = workload.sequence_length * longer
        workload = replace(workload, model=model, sequence_length=length, target_length=target)
    elif wider > 1 or more > 1:
        return None
    elif longer > 1:
        try:
            workload = workload.resized(sequence_length=workload.sequence_length * longer)
        except ValueError:
            return None
    grown = workload.resized(global_batch=workload.global_batch * batch)
    sharding = replace(sharding, microbatch=sharding.microbatch * batch)
    return (grown, sharding) if grown.refusal(sharding) is None else None


def grown_model(model: Model, *, hidden: int = 1, experts: int = 1, sequence: int = 1) -> Model:
    """Return the model with all widths ``hidden`` times as large, and so many times the experts and positions.

    Heads keep their number and become wider. The vocabulary, patches and classes stay.
    """
    routed, latent = model.experts, model.latent_attention
    if routed is not None:
        routed = replace(
            routed,
            n_experts=routed.n_experts * experts,
            d_ff=routed.d_ff * hidden,
            shared_d_ff=routed.shared_d_ff * hidden,
        )
    if latent is not None:
        latent = replace(
            latent,
            **{name: getattr(latent, name) * hidden for name in _LATENT_WIDTHS},
        )
    return replace(
        model,
        d_model=model.d_model * hidden,
        head_dim=model.head_dim * hidden,
        d_ff=model.d_ff * hidden,
        embedding_width=model.embedding_width * hidden,
        max_positions=model.max_positions * sequence,
        experts=routed,
        latent_attention=latent,
    )


_LATENT_WIDTHS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _fitted(values: list[list[int]], grid: Mapping[Size, tuple[int, ...]]) -> list[Law | None]:
    """Return for each row the polynomial through its values, which lie on the grid in its product's order.

    None where a coefficient would be negative: no sum of works is.
    """
    # Whole numbers of any length, because FLOPs times the inverse's numerators have more than 63 bits.
    coefficients = np.array(values, dtype=object).reshape(len(values), *map(len, grid.values()))
    powers, denominator = [], 1
    for axis, (size, points) in enumerate(grid.items(), 1):
        # A size's least power is taken out first, so that what is left begins at power 0.
        least = _LEAST_POWER.get(size, 0) if len(points) > 1 else 0
        weights, divided = _inverse(points)
        weights = weights * np.array([at**-least for at in points], dtype=object)
        coefficients = np.moveaxis(np.tensordot(coefficients, weights, axes=([axis], [1])), -1, axis)
        denominator *= divided
        powers.append(range(least, least + len(points)))
    laws: list[Law | None] = []
    for row in coefficients.reshape(len(values), -1):
        terms = {power: Fraction(one, denominator) for power, one in zip(product(*powers), row, strict=True) if one}
        laws.append(Law.of(terms) if all(one > 0 for one in terms.values()) else None)
    return laws


def _inverse(points: tuple[int, ...]) -> tuple[npt.NDArray[np.object_], int]:
    """Return by power the weights of the values at ``points``, whole numbers, and what their sums are divided by.

    The columns are the coefficients of Lagrange's polynomials.
    """
    columns = []
    for point in points:
        polynomial = [Fraction(1)]
        for other in points:
            if other != point:
                raised, kept = [Fraction(0), *polynomial], [*polynomial, Fraction(0)]
                polynomial = [(up - other * stays) / (point - other) for up, stays in zip(raised, kept, strict=True)]
        columns.append(polynomial)
    divided = lcm(*(one.denominator for column in columns for one in column))
    weights = [[int(column[power] * divided) for column in columns] for power in range(len(points))]
    return np.array(weights, dtype=object), divided
