"""PyTorch's traces as a Chakra trace: operators, kernels and communications with what they really wait for.

``data_deps`` are who wrote what a node reads, and who launched a kernel. ``ctrl_deps`` are what else must come before:
who read what a node overwrites, the kernel ahead on a stream or on one that is waited for, what the host waited for,
and the communication before in the same process group. That a thread calls one operator after another is no
dependency: ``tid`` and the ascending ids say it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces._imported_nodes import Draft, build_nodes
from archplace.workloads.traces.attributes import Attribute
from archplace.workloads.traces.call_tree import Operator, outermost_operators
from archplace.workloads.traces.communication import Communication, communication_of, process_groups
from archplace.workloads.traces.dependencies import find_dependencies
from archplace.workloads.traces.host_trace import HostTrace, load_host_trace
from archplace.workloads.traces.kernels import Kernels, find_kernels
from archplace.workloads.traces.kineto import load_kineto_trace
from archplace.workloads.traces.matching import Match, match
from archplace.workloads.traces.trace import Metadata, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A Chakra trace made of PyTorch's, and what it was made of."""

    trace: Trace
    n_calls: int
    """Calls in the execution trace."""
    n_operators: int
    n_kernels: int
    n_communications: int
    n_timed: int
    """Operators whose duration a profile gave."""
    n_steps: int
    """Steps that durations are the median of."""
    external_storages: int
    """Storages that are read and not written by operators of the trace: parameters, batches, scalars."""


def import_pytorch(host: str | Path, profiles: Sequence[str | Path] = ()) -> Imported:
    """Return the trace of one rank.

    ``host`` is an execution trace. ``profiles`` are Chrome traces of the profiler: of the same run, for kernels and the
    true nesting of calls, or of further steps of the same script, for durations that the observer has not distorted;
    these are believed where there are both. Raises :class:`ConfigError` for files that are damaged or do not belong
    together.
    """
    trace = load_host_trace(host)
    matches = [match(trace, load_kineto_trace(profile)) for profile in profiles]
    # Durations of a run without the observer come first; structure only one of the same run has.
    matches.sort(key=lambda found: found.same_run)
    callers = next((found.callers for found in matches if found.callers is not None), None)
    operators = outermost_operators(trace.nodes, callers)
    if not operators:
        problem = "no operators: a step must run while the observer is on"
        raise ConfigError([Problem(place=str(host), key="", message=problem)])
    dependencies = find_dependencies(operators)
    communications = [communication_of(operator) for operator in operators]
    with_kernels = next((found for found in matches if found.profile.device), None)
    kernels = find_kernels(operators, with_kernels) if with_kernels else Kernels(kernels=(), awaited={})
    draft = Draft(
        operators=operators,
        dependencies=dependencies,
        communications=communications,
        spans=_communication_spans(trace, operators, communications),
        matches=matches,
        kernels=kernels,
        on_device=with_kernels is not None,
    )
    try:
        nodes = build_nodes(draft)
    except ValueError as error:
        problem = f"numbers that no trace can hold: {error}"
        raise ConfigError([Problem(place=str(host), key="", message=problem)]) from None
    timed = sum(any(found.events.get(operator.node.id) for found in matches) for operator in operators)
    steps = next((found.n_steps for found in matches), 0)
    return Imported(
        trace=Trace(metadata=_metadata(trace, matches), nodes=nodes),
        n_calls=len(trace.nodes),
        n_operators=len(operators),
        n_kernels=len(kernels.kernels),
        n_communications=sum(found is not None for found in communications),
        n_timed=timed,
        n_steps=steps,
        external_storages=dependencies.external_storages,
    )


def _communication_spans(
    trace: HostTrace, operators: Sequence[Operator], communications: Sequence[Communication | None]
) -> dict[int, int]:
    """Return by operator the call of gloo that carries a communication out: the first before the next communication."""
    numbers = [node.id for node in trace.nodes if node.name.startswith("gloo:")]
    places = [place for place, found in enumerate(communications) if found is not None]
    spans: dict[int, int] = {}
    for at, place in enumerate(places):
        begin = operators[place].node.id
        end = operators[places[at + 1]].node.id if at + 1 < len(places) else float("inf")
        carried = next((number for number in numbers if begin < number < end), None)
        if carried is not None:
            spans[place] = carried
    return spans


def _metadata(trace: HostTrace, matches: Sequence[Match]) -> Metadata:
    attributes = [
        Attribute.of("source", trace.path.name),
        Attribute.of("pytorch_schema", trace.schema),
        Attribute.of("pid", trace.pid),
    ]
    groups: dict[str, list[int]] = {}
    for name, group in process_groups(trace.nodes).items():
        ranks = group.get("ranks")
        groups[name] = [rank for rank in ranks if isinstance(rank, int)] if isinstance(ranks, list) else []
    for found in matches:
        groups.update({name: list(ranks) for name, ranks in found.profile.groups.items()})
        kind = "same_run" if found.same_run else "other_steps"
        attributes.append(Attribute.of(f"profile_{kind}", found.profile.path.name))
        attributes.append(Attribute.of(f"profile_{kind}_steps", found.n_steps))
    rank = next((found.profile.rank for found in matches if found.profile.rank is not None), None)
    world = next((found.profile.world_size for found in matches if found.profile.world_size is not None), None)
    for key, value in (("rank", rank), ("world_size", world)):
        if value is not None:
            attributes.append(Attribute.of(key, value))
    if groups:
        # An empty list is the whole world.
        attributes.append(Attribute.of("process_groups", json.dumps(groups, sort_keys=True)))
    return Metadata(attributes=tuple(attributes))
