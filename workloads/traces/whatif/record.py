"""What was done to a trace, in its metadata; and a changed job, written."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.workloads.traces.attributes import Attribute, AttributeKind
from archplace.workloads.traces.files import open_writer
from archplace.workloads.traces.rank_files import groups_text, make_folder, split_name, write_groups
from archplace.workloads.traces.trace import Metadata
from archplace.workloads.traces.whatif.job import Job
from archplace.workloads.traces.whatif.step import Record, WhatIf

WHAT_IF = "what_if"
"""Name of the metadata's attribute: a list of texts, each a step as JSON, the first one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A job after all steps, not yet written."""

    job: Job
    original: Job
    records: tuple[Record, ...]

    def metadata(self, rank: int) -> Metadata:
        """Return what stands before a rank's nodes: as before, with the steps and the hash of what they were done to.

        Rank, number of ranks and groups are those of the changed job, where they stood before or have changed.
        """
        trace = self.job.traces[rank]
        steps = [json.dumps({**record, "input": f"sha256:{trace.survey.sha256}"}) for record in self.records]
        new = {attribute.name: attribute for attribute in trace.metadata.attributes}
        earlier = new[WHAT_IF].value if WHAT_IF in new else ()
        if not isinstance(earlier, tuple):
            raise trace.error(f"metadata: {WHAT_IF} is a list of texts, found {earlier!r:.60}")
        source = next(one for one, found in self.original.traces.items() if found.survey is trace.survey)
        facts: dict[str, int | str] = {}
        if rank != source or "rank" in new:
            facts["rank"] = rank
        if self.job.n_ranks != self.original.n_ranks:
            facts["world_size"] = self.job.n_ranks
        if self.job.groups != self.original.groups:
            facts["process_groups"] = groups_text(self.job.groups)
        for name, value in facts.items():
            as_before = name in new and type(new[name].value) is type(value)
            new[name] = Attribute.of(name, value, new[name].kind if as_before else None)
        new[WHAT_IF] = Attribute.of(WHAT_IF, (*earlier, *steps), AttributeKind.STRINGS)
        return replace(trace.metadata, attributes=tuple(new.values()))


def change(job: Job, steps: Sequence[WhatIf]) -> Changed:
    """Apply ``steps``, one after the other; nothing is read but what they need to know beforehand."""
    changed, records = job, []
    for step in steps:
        try:
            changed, record = step.apply(changed)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        changed = changed.changed(lambda _, trace: trace.checked())
        records.append(record)
    return Changed(job=changed, original=job, records=tuple(records))


def write_rank(changed: Changed, rank: int, path: str | Path) -> int:
    """Write one rank's trace and return how many nodes it has. Raises ConfigError, and then leaves no file."""
    trace = changed.job.traces[rank]
    for source in changed.original.traces.values():
        if Path(source.name).resolve() == Path(path).resolve():
            raise ConfigError(
                [Problem(place=str(path), key="", message="is a trace that is read: write to another file or folder")]
            )
    with open_writer(path, changed.metadata(rank)) as writer:
        return writer.write(trace.nodes())


def write_job(changed: Changed, folder: str | Path, *, said: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the traces of all ranks that have one into ``folder``, as ``NAME.RANK.et``, and the process groups.

    ``NAME`` and the format are those of the first input; the groups are in ``groups.json`` where there are any. Files
    appear one by one; ``said`` hears of each.

    Raises ConfigError where a file cannot be written, or is one that is read.
    """
    base = make_folder(folder)
    stem, _, suffix = split_name(next(iter(changed.original.traces.values())).name)
    written = []
    for rank in changed.job.traces:
        path = base / f"{stem}.{rank}{suffix or '.et'}"
        said(f"{path}: {write_rank(changed, rank, path):,} nodes")
        written.append(path)
    if changed.job.groups:
        written.append(write_groups(changed.job.groups, base))
    return written
