"""What if ranks are numbered in another order? Which groups then share the fast links is for the network to say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces.meaning import meaning_of
from archplace.workloads.traces.node import Node, NodeKind
from archplace.workloads.traces.whatif._edit import copied
from archplace.workloads.traces.whatif._membership import Membership, communicates, with_members, with_peers
from archplace.workloads.traces.whatif.job import Job, RankTrace
from archplace.workloads.traces.whatif.step import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumber:
    """Ranks in another order of the parallel axes.

    Rank numbers count along ``axes``, the first fastest; they are to count along the same axes in the order ``to``. The
    trace of each rank stays what it is, and becomes that of another number: neighbours in one group become distant
    and others close, as when tensor-parallel groups are spread over nodes. Groups keep their names and the order of
    their members, and sends and receives their partners.
    """

    axes: tuple[tuple[str, int], ...]
    """Name and degree."""
    to: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if len(set(names)) < len(names) or sorted(names) != sorted(self.to):
            raise ValueError(
                f"axes {', '.join(names)} are to stand as {', '.join(self.to)}: each stands once, before and after"
            )
        if any(degree < 1 for _, degree in self.axes):
            raise ValueError(f"degrees are at least 1, found {', '.join(f'{name}{n}' for name, n in self.axes)}")

    def permutation(self) -> tuple[int, ...]:
        """Return the new number of each rank."""
        strides, stride = {}, 1
        degrees = dict(self.axes)
        for name in self.to:
            strides[name], stride = stride, stride * degrees[name]
        return tuple(self._digits(rank, strides) for rank in range(prod(degrees.values())))

    def _digits(self, rank: int, strides: dict[str, int]) -> int:
        found = 0
        for name, degree in self.axes:
            rank, digit = divmod(rank, degree)
            found += digit * strides[name]
        return found

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Renumber the ranks. Raises ConfigError where the degrees do not multiply to their number."""
        count = prod(degree for _, degree in self.axes)
        text = " x ".join(f"{name} {degree}" for name, degree in self.axes)
        if count != job.n_ranks:
            raise ConfigError(f"--layout: {text} are {count} ranks, and the job has {job.n_ranks}")
        record: Record = {"step": "layout", "axes": dict(self.axes), "to": list(self.to)}
        return renumbered(job, self.permutation()), record


def renumbered(job: Job, new: Sequence[int]) -> Job:
    """Return the job whose rank ``r`` is called ``new[r]``, a permutation of the ranks."""
    assert sorted(new) == list(range(job.n_ranks))
    groups = {name: tuple(new[rank] for rank in ranks) for name, ranks in job.groups.items()}
    traces = {new[rank]: _with_ranks(trace, job, new) for rank, trace in job.traces.items()}
    return replace(job, groups=groups, traces=dict(sorted(traces.items())))


def _with_ranks(trace: RankTrace, job: Job, new: Sequence[int]) -> RankTrace:
    before = trace.nodes
    known: dict[str, Membership] = {}

    def number(rank: int) -> int:
        if not 0 <= rank < len(new):
            raise trace.error(f"a message goes to or comes from rank {rank}; the job has {len(new)} ranks")
        return new[rank]

    def nodes() -> Iterator[Node]:
        for node in before():
            if not communicates(node):
                yield node
            elif node.kind is NodeKind.COLLECTIVE:
                group = meaning_of(node).group
                if group is None:
                    yield node
                else:
                    if group not in known:
                        known[group] = Membership.of(group, tuple(new[rank] for rank in job.members(group)))
                    message = copied(node)
                    with_members(message, known[group])
                    yield Node(message)
            else:
                yield with_peers(node, number)

    return replace(trace, nodes=nodes)


def read_layout(text: str) -> Renumber:
    """Return the layout that ``tensor8,data4=data,tensor`` states. Raises ValueError for what is none."""
    before, equals, after = text.partition("=")
    axes = []
    for word in before.split(","):
        name = word.strip().rstrip("0123456789")
        degree = word.strip()[len(name) :]
        if not name or not degree or len(degree) > 7:
            raise ValueError(f"expected axes with their degrees as in tensor8,data4=data,tensor, found {text!r:.60}")
        axes.append((name, int(degree)))
    if not equals:
        raise ValueError(f"expected the new order behind '=', as in tensor8,data4=data,tensor, found {text!r:.60}")
    return Renumber(axes=tuple(axes), to=tuple(word.strip() for word in after.split(",")))
