"""What-ifs: changes of the traces of a job, from its traces to those of another job, with a record of what was done."""

from archplace.workloads.traces.whatif.assume import Assume, read_assumption
from archplace.workloads.traces.whatif.job import Groups, Job, RankTrace, disagreements, job_of, open_job, read_groups
from archplace.workloads.traces.whatif.laws import SCALING, Law, Size, laws_text, read_laws
from archplace.workloads.traces.whatif.layers import Layers
from archplace.workloads.traces.whatif.layout import Renumber, read_layout
from archplace.workloads.traces.whatif.ranks import Axis, Ranks
from archplace.workloads.traces.whatif.record import WHAT_IF, Changed, change, write_job, write_rank
from archplace.workloads.traces.whatif.sizes import Scale
from archplace.workloads.traces.whatif.step import Record, WhatIf
from archplace.workloads.traces.whatif.straggler import SlowRank

__all__ = [
    "SCALING",
    "WHAT_IF",
    "Assume",
    "Axis",
    "Changed",
    "Groups",
    "Job",
    "Law",
    "Layers",
    "RankTrace",
    "Ranks",
    "Record",
    "Renumber",
    "Scale",
    "Size",
    "SlowRank",
    "WhatIf",
    "change",
    "disagreements",
    "job_of",
    "laws_text",
    "open_job",
    "read_assumption",
    "read_groups",
    "read_laws",
    "read_layout",
    "write_job",
    "write_rank",
]
