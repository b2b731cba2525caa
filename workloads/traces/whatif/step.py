"""A what-if: one change of a job's traces, with a record of what it did."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from archplace.workloads.traces.whatif.job import Job

RecordValue = int | float | str | Sequence[int] | Sequence[str] | Mapping[str, object]
Record = dict[str, RecordValue]
"""What was done, as JSON holds it: the step's name as ``step``, its parameters, and what it found out by itself."""


class WhatIf(Protocol):
    """One change of a job's traces."""

    def apply(self, job: Job) -> tuple[Job, Record]:
        """Return the changed job, whose nodes are made when they are read, and the record.

        Raises :class:`~archplace.arch_configs.errors.ConfigError` with the reason where it cannot be done.
        """
