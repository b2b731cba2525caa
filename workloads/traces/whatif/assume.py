"""What nodes follow where the trace does not say: a law for each kind of work, as the user states it."""

import re
from dataclasses import dataclass

from archplace.workloads.traces.meaning import Role, meaning_of
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.whatif._edit import copied, number, put
from archplace.workloads.traces.whatif.job import Job
from archplace.workloads.traces.whatif.laws import SCALING, Law, laws_text, read_law
from archplace.workloads.traces.whatif.sizes import DURATION, NUMBERS, laws_of
from archplace.workloads.traces.whatif.step import Record

_KINDS = ("product", "other", "exchange")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assume:
    """Give numbers without a law that of their node's kind of work; those with a law keep it.

    Products are nodes with ``num_ops``, exchanges communicate, and others are all else. The least that can be said
    about a trace without shapes: attention's products, say, do not follow the width as those of linear layers do. Of
    nodes without numbers the duration follows, but for calls on the host.
    """

    laws: tuple[tuple[str, Law], ...]
    """By kind: ``product``, ``other``, ``exchange``; coefficients are shares of the number at hand."""

    def __post_init__(self) -> None:
        unknown = [kind for kind, _ in self.laws if kind not in _KINDS]
        if unknown:
            raise ValueError(f"kinds of work are {', '.join(_KINDS)}, found {unknown[0]!r:.60}")
        if any(not law.value for _, law in self.laws):
            raise ValueError("a law has one term at least")

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Give the laws."""
        record: Record = {"step": "assume", **{kind: str(law) for kind, law in self.laws}}
        return job.changed(lambda _, trace: trace.map(self._with_law)), record

    def _with_law(self, node: Node) -> Node:
        values = node.values()
        known = dict(laws_of(node, values))
        meaning = meaning_of(node)
        exchange = meaning.role in (Role.COLLECTIVE, Role.POINT_TO_POINT)
        law = dict(self.laws).get("exchange" if exchange else "product" if number(values, "num_ops") else "other")
        found = [(name, number(values, name)) for name in NUMBERS]
        if not any(value for _, value in found) and meaning.role is not Role.HOST:
            found = [(DURATION, meaning.duration_ns)]
        missing = [(name, value) for name, value in found if value and name not in known]
        if law is None or not missing:
            return node
        message = copied(node)
        laws = (*known.items(), *((name, law.times(value / law.value)) for name, value in missing))
        put(message, SCALING, laws_text(laws))
        return Node(message)


def read_assumption(text: str) -> Assume:
    """Return what ``product: hidden^2; other: hidden`` assumes. Raises ValueError for what is no law."""
    laws = []
    for part in filter(str.strip, text.split(";")):
        kind, colon, law = map(str.strip, part.partition(":"))
        if not colon:
            raise ValueError(
                f"expected laws by kind of work ({', '.join(_KINDS)}), as 'product: hidden^2; other: hidden', "
                f"found {part.strip()!r:.60}"
            )
        terms = [term if re.match(r"\s*\d", term) else f"1 {term.strip()}" for term in law.split("+")]
        laws.append((kind, read_law(" + ".join(terms))))
    return Assume(laws=tuple(laws))
