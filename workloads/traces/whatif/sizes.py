"""What if the model or its batch were larger? Every number of a node follows its law."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.attributes import Value
from archplace.workloads.traces.meaning import meaning_of
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.whatif._edit import copied, drop, forget_start, number, put, stretch
from archplace.workloads.traces.whatif.job import Job, RankTrace
from archplace.workloads.traces.whatif.laws import SCALING, Law, Laws, Size, laws_text, read_laws
from archplace.workloads.traces.whatif.step import Record

WORK = ("num_ops", "comm_size", "tensor_size")
"""What must have a law where it is not 0; the first that a node has tells how its duration grows."""
NUMBERS = (*WORK, "vector_ops")
"""What may have a law; and each of ``loops``."""
DURATION = "duration"
"""The law of nodes with a duration and none of these numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes that grow or shrink by factors.

    FLOPs, bytes and payloads become what their laws give. Durations grow as the FLOPs of a product, as the bytes of
    other computing and of memory operations, and as the payload of a communication: what is faster or slower on larger
    operands is not known here. What has none of these, as a host's call, lasts as long as before, unless its duration
    has a law. Shapes and values of operands, which hold no more, are taken out, and so are starts.
    """

    factors: tuple[tuple[Size, Fraction], ...]

    def __post_init__(self) -> None:
        if any(factor <= 0 for _, factor in self.factors):
            raise ValueError("factors are above 0")

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Scale all ranks.

        Raises ConfigError for nodes whose numbers have no law, and for sizes that nothing follows.
        """
        record: Record = {"step": "scale", **{str(size): str(factor) for size, factor in self.factors}}
        wanted = tuple((size, factor) for size, factor in self.factors if factor != 1)
        if not wanted:
            return job, record
        followed: Counter[Size] = Counter()
        kept = sum(_survey(trace, followed) for trace in job.traces.values())
        if kept:
            record["kept_durations"] = kept
        lost = [size for size, _ in wanted if not followed[size]]
        if lost:
            can = ", ".join(size for size in Size if followed[size]) or "none"
            raise ConfigError(f"--{lost[0]}: nothing in these traces follows the size {lost[0]}; there are: {can}")
        return job.changed(lambda _, trace: trace.map(lambda node: scaled(node, wanted))), record


def _survey(trace: RankTrace, followed: Counter[Size]) -> int:
    """Count what laws follow; return how many nodes have a duration and nothing that tells how it grows."""
    lost = total = kept = 0
    example = ""
    for node in trace.nodes():
        values = node.values()
        laws = dict(laws_of(node, values))
        followed.update({size for law in laws.values() for size in Size if law.follows(size)})
        work = [name for name in WORK if number(values, name)]
        kept += not work and DURATION not in laws and bool(meaning_of(node).duration_ns)
        total += bool(work)
        if any(name not in laws for name in work):
            lost += 1
            example = example or f"node {node.id} ({node.name!r:.60}) has {', '.join(work)} and no law"
    if lost:
        raise trace.error(
            f"{lost:,} of {total:,} working nodes do not say what their work follows: {example}. State "
            "laws by kind of work, as --assume 'product: hidden^2; other: hidden; exchange: hidden'"
        )
    return kept


def laws_of(node: Node, values: dict[str, Value | None]) -> Laws:
    """Return the laws that a node states, whose attributes have ``values``. Raises ConfigError for what is none."""
    text = values.get(SCALING)
    if not isinstance(text, str):
        return ()
    try:
        return read_laws(text)
    except ValueError as error:
        raise ConfigError(f"node {node.id} ({node.name!r:.60}): {SCALING}: {error}") from None


def scaled(node: Node, factors: tuple[tuple[Size, Fraction], ...]) -> Node:
    """Return a node with its laws' numbers at other sizes. Raises ValueError for numbers beyond what fields hold."""
    values = node.values()
    before = laws_of(node, values)
    after = tuple((name, _grown(law, factors)) for name, law in before)
    if before == after:
        return _without_start(node)
    message = copied(node)
    _put_numbers(message, values, dict(before), dict(after))
    put(message, SCALING, laws_text(after))
    _forget_shapes(message)
    told = next((name for name in WORK if number(values, name)), DURATION)
    if told in dict(before):
        stretch(message, dict(after)[told].value / dict(before)[told].value)
    else:
        forget_start(message)
    return Node(message)


def _grown(law: Law, factors: tuple[tuple[Size, Fraction], ...]) -> Law:
    for size, factor in factors:
        law = law.scaled(size, factor)
    return law


def _put_numbers(
    message: chakra_pb2.Node, values: dict[str, Value | None], before: dict[str, Law], after: dict[str, Law]
) -> None:
    for name in NUMBERS:
        old = number(values, name)
        if old is None:
            continue
        if name in after:
            put(message, name, _at(old, before[name], after[name]))
        elif name not in WORK:
            drop(message, name)
    loops = values.get("loops")
    if isinstance(loops, tuple):
        names = [f"loops[{place}]" for place in range(len(loops))]
        if all(name in after for name in names):
            sizes = zip(names, loops, strict=True)
            put(message, "loops", tuple(_at(int(old), before[name], after[name]) for name, old in sizes))
        else:
            drop(message, "loops")


def _at(old: int, before: Law, after: Law) -> int:
    """Return the new number: the law's own, or in proportion where the number was not the law's."""
    if round(before.value) == old or not before.value:
        return round(after.value)
    return round(old * after.value / before.value)


def _forget_shapes(message: chakra_pb2.Node) -> None:
    for operands in (message.inputs, message.outputs):
        operands.ClearField("values")
        operands.ClearField("shapes")
    for name in ("inputs", "outputs"):
        if not getattr(message, name).types:
            message.ClearField(name)


def _without_start(node: Node) -> Node:
    message = copied(node)
    forget_start(message)
    return Node(message)
