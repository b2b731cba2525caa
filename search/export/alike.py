"""What all devices that run one program have in common: what their messages and collectives take.

Where each of them takes the same for all devices, these do the same at the same moments, and one of them tells what all
of them do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archplace.search.export.case import Case
from archplace.search.export.nodes import Step
from archplace.search.export.wires import Wires
from archplace.workloads.traces import NodeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """What is the same for all devices that run one program."""

    message_ns: dict[tuple[int, int], tuple[int, int]]
    """Of a program and the end of a message in it: nanoseconds, and the program of the other end."""
    collective_ns: dict[tuple[int, int], int]


def alike_of(case: Case, wires: Wires) -> Alike | None:
    """Return what devices of each program have in common, or None where they differ."""
    messages: dict[tuple[int, int], tuple[int, int]] = {}
    collectives: dict[tuple[int, int], int] = {}
    known: dict[object, object] = {}
    for role, program in enumerate(case.programs):
        devices = np.flatnonzero(case.role == role).tolist()
        for place, step in enumerate(program):
            if step.kind is NodeKind.COMPUTE:
                continue
            key = (role, step.kind, step.collective, step.team, step.peer, step.size_bytes)
            if key not in known:
                known[key] = (
                    _meeting_ns(case, wires, role, devices, step)
                    if step.team is not None
                    else _passing(case, wires, devices, step)
                )
            match known[key]:
                case int(ns):
                    collectives[role, place] = ns
                case (int(ns), int(partner)):
                    messages[role, place] = ns, partner
                case _:
                    return None
    return Alike(message_ns=messages, collective_ns=collectives)


def _meeting_ns(case: Case, wires: Wires, role: int, devices: Sequence[int], step: Step) -> int | None:
    """Return the nanoseconds of a collective where they are the same for all devices of a program."""
    assert step.team is not None
    assert step.collective is not None
    groups = {group.number: group.members for group in (case.group(npu, step.team) for npu in devices)}
    found: set[int] = set()
    for members in groups.values():
        if not (case.role[list(members)] == role).all():
            return None
        found.update(wires.collective_ns(step.collective, step.size_bytes, members, (0,) * len(members)))
    return found.pop() if len(found) == 1 else None


def _passing(case: Case, wires: Wires, devices: Sequence[int], step: Step) -> tuple[int, int] | None:
    """Return the nanoseconds of a message, and the other end's program, where they are the same for all devices."""
    assert step.peer is not None
    pairs = [(npu, case.peer(npu, step.peer)) for npu in devices]
    ends = pairs if step.kind is NodeKind.SEND else [(other, npu) for npu, other in pairs]
    found = {wires.message_ns(source, target, step.size_bytes) for source, target in ends}
    partners = {int(case.role[other]) for _, other in pairs}
    return (found.pop(), partners.pop()) if len(found) == len(partners) == 1 else None
