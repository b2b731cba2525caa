"""Pipeline schedules: what each device runs and holds, how long a step takes, in closed form and by simulation."""

from archplace.search.pipeline.dependencies import makespan_s
from archplace.search.pipeline.orders import Operation, OperationKind, device_order
from archplace.search.pipeline.schedules import (
    PipelineSchedule,
    ScheduleShape,
    messages_sent,
    parameter_copies,
    refusal,
)
from archplace.search.pipeline.seconds import StageSeconds

__all__ = [
    "Operation",
    "OperationKind",
    "PipelineSchedule",
    "ScheduleShape",
    "StageSeconds",
    "device_order",
    "makespan_s",
    "messages_sent",
    "parameter_copies",
    "refusal",
]
