"""What if one rank is slow?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.meaning import Role, meaning_of, whole
from archplace.workloads.traces.node import Node, NodeKind
from archplace.workloads.traces.whatif._edit import copied, forget_start, put, stretch
from archplace.workloads.traces.whatif.job import Job, RankTrace
from archplace.workloads.traces.whatif.step import Record

DELAY_NAME = "delay"
_SLOWED = (Role.HOST, Role.COMPUTE, Role.MEMORY)
_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """One rank computes slower, begins later, or both.

    Durations of computations, memory operations and host calls are multiplied by ``factor``; communication is as fast
    as before, and waits. In a trace without durations, whose work a simulator prices, ``num_ops`` and ``tensor_size``
    are multiplied instead, which any roofline turns into the same factor. A delay is one more computation, ahead of all
    nodes that wait for nothing.
    """

    rank: int
    factor: Fraction = Fraction(1)
    delay_s: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.factor <= 0 or self.delay_s < 0:
            raise ValueError(f"a rank is slower by a factor above 0 and a delay from 0 s, found {self}")

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Slow the rank. Raises ConfigError for a rank whose trace is not at hand."""
        trace = job.traces.get(self.rank)
        if trace is None:
            there = ", ".join(map(str, list(job.traces)[:12])) + (", …" if len(job.traces) > 12 else "")
            raise ConfigError(f"--slow: rank {self.rank} has no trace here; there are those of {there}")
        timed = any(node.duration_micros or whole(node.values(), "duration_ns") for node in trace.nodes())
        changed = trace
        if self.factor != 1:
            changed = changed.map(self._slower if timed else self._more_work)
        if self.delay_s:
            changed = self._delayed(changed)
        record: Record = {"step": "slow", "rank": self.rank}
        if self.factor != 1:
            record |= {"factor": str(self.factor), "changed": "durations" if timed else "work"}
        if self.delay_s:
            record["delay_s"] = float(self.delay_s)
        return replace(job, traces={**job.traces, self.rank: changed}), record

    def _slower(self, node: Node) -> Node:
        message = copied(node)
        if meaning_of(node).role in _SLOWED:
            stretch(message, self.factor)
        forget_start(message)
        return Node(message)

    def _more_work(self, node: Node) -> Node:
        if meaning_of(node).role not in _SLOWED:
            return node
        message, values = copied(node), node.values()
        for name in ("num_ops", "tensor_size"):
            before = whole(values, name)
            if before:
                put(message, name, round(before * self.factor))
        return Node(message)

    def _delayed(self, trace: RankTrace) -> RankTrace:
        before = trace.nodes
        nanoseconds = round(self.delay_s * _NS)
        callers = trace.metadata.control_is_caller

        def nodes() -> Iterator[Node]:
            number = max((node.id for node in before()), default=-1) + 1
            if number >= 2**64:
                raise trace.error("the largest id there is, is taken: a delay needs one more node")
            yield Node.build(
                id=number,
                kind=NodeKind.COMPUTE,
                name=DELAY_NAME,
                duration_micros=round(Fraction(nanoseconds, 1000)),
                attributes=[
                    Attribute.of("is_cpu_op", False),
                    Attribute.of("duration_ns", nanoseconds, AttributeKind.INT64),
                ],
            )
            for node in before():
                message = copied(node)
                forget_start(message)
                if not node.data_parents and (callers or not node.control_parents):
                    message.data_deps.append(number)
                yield Node(message)

        return replace(trace, nodes=nodes)
