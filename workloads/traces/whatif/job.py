"""The traces of a job's ranks, as transformations take and give them: opened when they are read, node by node."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces.audit import Auditor
from archplace.workloads.traces.files import audit_file, open_reader
from archplace.workloads.traces.meaning import whole
from archplace.workloads.traces.node import Node
from archplace.workloads.traces.rank_files import split_name
from archplace.workloads.traces.trace import Metadata, Trace
from archplace.workloads.traces.whatif.survey import Survey, surveying

MOST_RANKS = 1 << 20
_MOST_MEMBERS = 1 << 24
"""Of all groups that nodes describe in three numbers: what does not cost the file anything costs memory."""

Groups = Mapping[str, tuple[int, ...]]
"""Ranks by the name of their process group, in the group's order. The group of all ranks needs no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One rank's trace."""

    name: str
    """What errors call it: the file's path."""
    metadata: Metadata
    nodes: Callable[[], Iterator[Node]]
    """Gives the nodes from the beginning, each time it is called."""
    survey: Survey
    """What the input was like; transformations leave it as it is."""

    def map(self, change: Callable[[Node], Node]) -> "RankTrace":
        """Return the trace with every node changed."""
        before = self.nodes
        return replace(self, nodes=lambda: map(change, before()))

    def checked(self) -> "RankTrace":
        """Return the trace whose nodes, when they cannot be made, are an error of the user's that names the trace."""
        before = self.nodes

        def nodes() -> Iterator[Node]:
            try:
                yield from before()
            except ValueError as error:
                raise self.error(str(error)) from None

        return replace(self, nodes=nodes)

    def error(self, message: str) -> ConfigError:
        """Return the error for what is wrong with this trace."""
        return ConfigError([Problem(place=self.name, key="", message=message)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All ranks of a job, those at hand with their traces."""

    n_ranks: int
    groups: Groups
    traces: Mapping[int, RankTrace]
    """By rank; not empty, and not necessarily all."""

    def members(self, group: str | None) -> tuple[int, ...]:
        """Return the ranks of a group; None is all. Raises ConfigError for a group that nobody knows."""
        if group is None:
            return tuple(range(self.n_ranks))
        if group not in self.groups:
            known = ", ".join(sorted(self.groups)[:12]) or "none"
            raise ConfigError(
                f"process group {group!r:.60} has collectives, and nothing says which ranks are in it (known: "
                f"{known}): give the groups as --groups FILE.json, {{name: [ranks]}}"
            )
        return self.groups[group]

    def changed(self, change: Callable[[int, RankTrace], RankTrace]) -> "Job":
        """Return the job with every rank's trace changed."""
        return replace(self, traces={rank: change(rank, trace) for rank, trace in self.traces.items()})


def open_job(paths: Sequence[str | Path], *, groups: Groups | None = None, n_ranks: int | None = None) -> Job:
    """Return the job whose ranks' traces lie at ``paths``; each is read once, and checked.

    A file's rank is the number in its name (``step.3.et``), or else what its metadata say; one file alone without
    either is rank 0. Process groups are those of the metadata (``process_groups``), of the nodes (``pg_first_rank`` …),
    or ``groups``. The number of ranks is the largest that files, groups, peers and metadata know, or ``n_ranks``.

    Raises :class:`ConfigError` for whatever is wrong with a file, two files of one rank, and ranks beyond ``n_ranks``.
    """
    traces: dict[int, RankTrace] = {}
    for path in map(str, paths):
        trace = _rank_trace(path)
        rank = _rank_of(trace, alone=len(paths) == 1)
        if rank in traces:
            raise trace.error(f"rank {rank} is also that of {traces[rank].name}: name the files NAME.RANK.et")
        traces[rank] = trace
    return _job(traces, groups, n_ranks)


def job_of(traces: Mapping[int, Trace], *, groups: Groups | None = None, n_ranks: int | None = None) -> Job:
    """Return the job of traces in memory, by rank; all else as :func:`open_job`."""
    found = {}
    for rank, trace in traces.items():
        survey = Survey()
        for _ in surveying(trace.metadata, trace.nodes, survey):
            pass
        nodes = partial(iter, trace.nodes)
        found[rank] = RankTrace(name=f"rank.{rank}.et", metadata=trace.metadata, nodes=nodes, survey=survey)
    return _job(found, groups, n_ranks)


def _job(traces: dict[int, RankTrace], groups: Groups | None, n_ranks: int | None) -> Job:
    if not traces:
        raise ConfigError("a job has one trace at least")
    traces = dict(sorted(traces.items()))
    first = next(iter(traces.values()))
    known = dict(groups) if groups is not None else _groups_of(traces)
    seen = _ranks_seen(traces, known)
    count = seen if n_ranks is None else n_ranks
    if not 1 <= seen <= count <= MOST_RANKS:
        raise first.error(
            f"{seen:,} ranks are known of, by files, groups, peers or metadata, and {count:,} are said to be all"
            + (f"; at most {MOST_RANKS:,} are treated" if max(seen, count) > MOST_RANKS else "")
        )
    full = {name: ranks or tuple(range(count)) for name, ranks in known.items()}  # an empty list is the whole world
    return Job(n_ranks=count, groups=full, traces=traces)


def _rank_trace(path: str) -> RankTrace:
    survey = Survey()
    with open_reader(path) as reader:
        auditor = Auditor(reader)
        for _ in surveying(reader.metadata, auditor, survey):
            pass
        metadata = reader.metadata
    if auditor.found.n_forward:
        audit_file(path)
    return RankTrace(name=path, metadata=metadata, nodes=lambda: _read(path), survey=survey)


def _read(path: str) -> Iterator[Node]:
    with open_reader(path) as reader:
        yield from reader


def _rank_of(trace: RankTrace, *, alone: bool) -> int:
    _, named, _ = split_name(trace.name)
    told = trace.metadata.value("rank")
    stated = told if isinstance(told, int) and 0 <= told < MOST_RANKS else None
    if named is not None and stated is not None and named != stated:
        raise trace.error(f"the name says rank {named}, and the metadata say rank {stated}: rename the file")
    if named is not None:
        return named
    if stated is None and not alone:
        raise trace.error("which rank is this? Give files names with the rank before the suffix, as step.3.et")
    return stated or 0


def _groups_of(traces: Mapping[int, RankTrace]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for trace in traces.values():
        for name, use in trace.survey.groups.items():
            if name and use.members:
                if use.members[-1] >= MOST_RANKS or sum(map(len, found.values())) > _MOST_MEMBERS:
                    raise trace.error(f"group {name!r:.60} has rank {use.members[-1]:,}: too many ranks to be treated")
                found[name] = tuple(use.members)
    for trace in traces.values():
        found |= stated_groups(trace)
    return found


def stated_groups(trace: RankTrace) -> dict[str, tuple[int, ...]]:
    """Return what the metadata say of process groups; nothing where they say nothing, or no JSON."""
    text = trace.metadata.value("process_groups")
    if not isinstance(text, str):
        return {}
    try:
        return read_groups(text)
    except ValueError as error:
        raise trace.error(f"metadata: process_groups: {error}") from None


def read_groups(text: str) -> dict[str, tuple[int, ...]]:
    """Return process groups from JSON, ``{name: [ranks]}``; names 0 and none, which stand for all ranks, left out.

    Raises ValueError for what is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected {{name: [ranks]}}, found {text!r:.60}")
    groups = {}
    for name, ranks in found.items():
        whole_numbers = isinstance(ranks, list) and all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks)
        if not whole_numbers or len(set(ranks)) < len(ranks):
            raise ValueError(f"group {name!r:.60}: expected a list of different ranks from 0, found {ranks!r:.60}")
        if name not in ("", "0"):
            groups[name] = tuple(ranks)
    return groups


def _ranks_seen(traces: Mapping[int, RankTrace], groups: Groups) -> int:
    last = [max(traces), *(max(ranks) for ranks in groups.values() if ranks)]
    count = len(traces)
    for trace in traces.values():
        last += list(trace.survey.peers)
        stated = whole({"n": _number(trace.metadata.value("world_size"))}, "n")
        world = trace.survey.groups.get(None)
        count = max(count, stated or 0, (world.size or 0) if world else 0)
    return max(count, 1 + max(last))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def disagreements(job: Job) -> list[str]:
    """Return, in words, the groups whose members do not call the same collectives in the same order: they would hang.

    Of the input, before transformations; empty for one rank.
    """
    found = []
    by_group: dict[str | None, dict[int, tuple[int, bytes]]] = {}
    for rank, trace in job.traces.items():
        for name, use in trace.survey.groups.items():
            by_group.setdefault(name, {})[rank] = (use.count, use.order)
    for name, uses in by_group.items():
        members = set(job.groups.get(name, ()) if name else range(job.n_ranks)) & job.traces.keys()
        counts = {rank: uses.get(rank, (0, b"")) for rank in sorted(members | uses.keys())}
        first = next(iter(counts))
        other = next((rank for rank in counts if counts[rank] != counts[first]), None)
        if other is not None:
            found.append(
                f"group {name or 'of all ranks'}: rank {first} calls {counts[first][0]:,} collectives and rank {other} "
                f"{counts[other][0]:,}, of other kinds, sizes or order"
            )
    return found
