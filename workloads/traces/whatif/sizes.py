"""What if the model or its batch were larger? Every number of a node follows its law."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import chakra_pb2
from archplace.workloads.traces.attributes import Value
from archplace.workloads.traces.meaning import meaning_of
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.whatif._edit import copied, drop, forget_start, number, put, stretch
from archplace.workloads.traces.whatif.job import Job, RankTrace
from archplace.workloads.traces.whatif.laws import SCALING, Laws, Size, laws_text, read_laws
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
        stated = laws_of(node, values)
        laws = {name for name, law in stated if law.terms}
        followed.update(_followed(stated))
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


@lru_cache(maxsize=1 << 12)
def _followed(laws: Laws) -> frozenset[Size]:
    return frozenset(size for _, law in laws for size in Size if law.follows(size))


def laws_of(node: Node, values: dict[str, Value | None]) -> Laws:
    """Return the laws that a node states, whose attributes have ``values``. Raises ConfigError for what is none."""
    text = values.get(SCALING)
    if not isinstance(text, str):
        return ()
    try:
        return read_laws(text)
    except ValueError as error:
        raise ConfigError(f"node {node.id} ({node.name!r:.60}): {SCALING}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """What laws give before and after sizes have changed."""

    before: dict[str, Fraction]
    after: dict[str, Fraction]
    text: str
    """The laws after."""
    changes: bool

    def at(self, name: str, old: int) -> int:
        """Return the new number: the law's own, or in proportion where the old one was not the law's."""
        before, after = self.before[name], self.after[name]
        return round(after if round(before) == old or not before else old * after / before)


@lru_cache(maxsize=1 << 12)
def _growth(laws: Laws, factors: tuple[tuple[Size, Fraction], ...]) -> _Growth:
    after = []
    for name, law in laws:
        for size, factor in factors:
            law = law.scaled(size, factor)
        after.append((name, law))
    return _Growth(
        before={name: law.value for name, law in laws},
        after={name: law.value for name, law in after},
        text=laws_text(tuple(after)),
        changes=tuple(after) != laws,
    )


def scaled(node: Node, factors: tuple[tuple[Size, Fraction], ...]) -> Node:
    """Return a node with its laws' numbers at other sizes. Raises ValueError for numbers beyond what fields hold."""
    values = node.values()
    growth = _growth(laws_of(node, values), factors)
    message = copied(node)
    if not growth.changes:
        forget_start(message)
        return Node(message)
    _put_numbers(message, values, growth)
    put(message, SCALING, growth.text)
    _forget_shapes(message)
    told = next((name for name in WORK if number(values, name)), DURATION)
    if growth.before.get(told):
        stretch(message, growth.after[told] / growth.before[told])
    else:
        forget_start(message)
    return Node(message)


def _put_numbers(message: chakra_pb2.Node, values: dict[str, Value | None], growth: _Growth) -> None:
    for name in NUMBERS:
        old = number(values, name)
        if old is None:
            continue
        if name in growth.after:
            put(message, name, growth.at(name, old))
        elif name not in WORK:
            drop(message, name)
    loops = values.get("loops")
    if isinstance(loops, tuple):
        names = [f"loops[{place}]" for place in range(len(loops))]
        if all(name in growth.after and type(old) is int for name, old in zip(names, loops, strict=True)):
            put(message, "loops", tuple(growth.at(name, int(old)) for name, old in zip(names, loops, strict=True)))
        else:
            drop(message, "loops")


def _forget_shapes(message: chakra_pb2.Node) -> None:
    for operands in (message.inputs, message.outputs):
        operands.ClearField("values")
        operands.ClearField("shapes")
    for name in ("inputs", "outputs"):
        if not getattr(message, name).types:
            message.ClearField(name)
