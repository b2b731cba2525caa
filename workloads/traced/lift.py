"""From an execution trace to the model that it ran: layers of operators with loops, whole, as on one device.

1. The calls that do the work are found and told apart by pass (:mod:`~archplace.workloads.traced.calls`).
2. Memory becomes values (:mod:`~archplace.workloads.traced.versions`).
3. Each call becomes a nest of loops (:mod:`~archplace.workloads.traced.loops_of`).
4. Dimensions become atoms (:mod:`~archplace.workloads.traced.atoms`), and views disappear
   (:mod:`~archplace.workloads.traced.whole_graph`).
5. The graph is cut into layers, and equal ones in a row are counted (:mod:`~archplace.workloads.traced.layers`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traced.calls import Pass, calls_of
from archplace.workloads.traced.coverage import Coverage, coverage_of
from archplace.workloads.traced.layers import layers_of, model_flops
from archplace.workloads.traced.loops_of import base_name, is_followed_no_further, nests_of, whole_nest
from archplace.workloads.traced.nests import Nest, Operation
from archplace.workloads.traced.roles import Roles, find_roles, is_real
from archplace.workloads.traced.symbols import mark_symbols
from archplace.workloads.traced.tensor_graph import TensorOpKind, TracedModel
from archplace.workloads.traced.versions import Step, Value, follow
from archplace.workloads.traced.whole_graph import Dimensions, build_graph
from archplace.workloads.traces.host_trace import HostTrace, load_host_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """A model out of a trace, and what is known of how complete it is."""

    model: TracedModel
    coverage: Coverage
    optimizer: str
    """Name of the optimizer's class; empty where the trace has no step of one."""
    notes: tuple[str, ...]
    """What could not be found, in words."""


def lift(
    trace: HostTrace | str | Path,
    *,
    batch: int | None = None,
    sequence_length: int | None = None,
    callers: Mapping[int, int] | None = None,
) -> Lifted:
    """Return the model that a trace of one training step ran.

    ``trace`` is an execution trace of PyTorch's observer, or its file. ``batch`` and ``sequence_length`` are those of
    the traced step: where they are left out, they are read from the shape of the batch. ``callers`` says who called
    whom where something better is known than the trace's own word.

    Raises :class:`ConfigError` for a trace without a forward pass, for one that recomputes activations in its backward
    pass, and where no dimension has the sizes that are given.
    """
    host = trace if isinstance(trace, HostTrace) else load_host_trace(trace)
    try:
        calls, optimizer = calls_of(host.nodes, is_followed_no_further, callers)
    except ValueError as error:
        raise ConfigError([Problem(place=str(host.path), key="", message=str(error))]) from None
    values, steps = follow(calls)
    nests, known = _nests(values, steps)
    roles = find_roles(values, steps, nests)
    dimensions = Dimensions(values, nests)
    try:
        sizes = mark_symbols(values, steps, nests, roles, dimensions, batch=batch, sequence_length=sequence_length)
    except ValueError as error:
        raise ConfigError([Problem(place=str(host.path), key="", message=str(error))]) from None
    graph = build_graph(values, steps, nests, roles, dimensions)
    seqs = {step.call.seq: place for place, step in enumerate(steps) if step.call.part is Pass.FORWARD}
    seqs.pop(-1, None)
    layers = layers_of(graph, seqs)
    if not layers:
        problem = "no forward pass with operators that make tensors: trace a whole training step"
        raise ConfigError([Problem(place=str(host.path), key="", message=problem)])
    model = TracedModel(
        name=host.path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".et"),
        layers=layers,
        batch=sizes.batch,
        sequence_length=sizes.sequence_length,
        model_flops=model_flops(layers),
    )
    return Lifted(
        model=model,
        coverage=coverage_of(values, steps, known),
        optimizer=optimizer,
        notes=(*sizes.notes, *_notes(values, steps, roles)),
    )


_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros", "zero"))


def _nests(values: Sequence[Value], steps: Sequence[Step]) -> tuple[dict[int, list[Nest]], dict[int, bool]]:
    nests: dict[int, list[Nest]] = {}
    known: dict[int, bool] = {}
    zeros: set[int] = set()
    for place, step in enumerate(steps):
        if base_name(step.name) in _ZEROS or (step.is_synthetic and zeros.issuperset(step.arguments[0])):
            zeros.update(step.results)
        if step.call.part in (Pass.FORWARD, Pass.BACKWARD):
            operation = Operation(step, values, zeros)
            found, is_known = nests_of(operation)
            forward = step.call.part is Pass.FORWARD
            if forward == step.name.endswith("_backward") and any(one.kind is TensorOpKind.ATTENTION for one in found):
                # Attention in the wrong pass, as in a trace that contradicts itself, has not the sizes of its pass.
                found, is_known = [whole_nest(operation)], False
            if step.results:
                nests[place] = found
                if not step.is_synthetic:
                    known[place] = is_known
    return nests, known


def _notes(values: Sequence[Value], steps: Sequence[Step], roles: Roles) -> list[str]:
    notes = []
    if not any(step.call.part is Pass.BACKWARD for step in steps):
        notes.append("the trace has no backward pass: only the forward pass is known")
    if not any(step.call.part is Pass.OPTIMIZER for step in steps):
        notes.append("the trace has no optimizer step: parameters are known by their gradients' shapes, or by name")
    unpaired = sum(parameter is None for parameter in roles.gradients.values())
    if unpaired:
        notes.append(f"of {unpaired} gradients it is not known which parameter's they are")
    if not any(is_real(values[number]) for number in roles.parameters):
        notes.append("no parameters were found")
    return notes
