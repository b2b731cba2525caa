"""Pipeline schedules: what each device runs, holds and sends, and how long a step takes.

Three ways to the time: :func:`coefficients` and :func:`closed_form_s` for searching, :func:`makespan_s` for the exact
time of many pipelines of one shape, and :func:`archplace.search.pipeline.simulation.simulate` for the timeline of one,
by events (apart, so that the simulator is imported where it is used).
"""

from archplace.search.pipeline.closed_form import PipelineCoefficients, closed_form_s, coefficients
from archplace.search.pipeline.dependencies import makespan_s
from archplace.search.pipeline.memory import InFlight, in_flight
from archplace.search.pipeline.orders import Operation, OperationKind, Slot, device_order
from archplace.search.pipeline.schedules import (
    SPLIT_BACKWARD,
    PipelineSchedule,
    ScheduleShape,
    messages_sent,
    parameter_copies,
    refusal,
)
from archplace.search.pipeline.seconds import StageSeconds
from archplace.search.pipeline.timeline import Held, Span, Timeline

__all__ = [
    "SPLIT_BACKWARD",
    "Held",
    "InFlight",
    "Operation",
    "OperationKind",
    "PipelineCoefficients",
    "PipelineSchedule",
    "ScheduleShape",
    "Slot",
    "Span",
    "StageSeconds",
    "Timeline",
    "closed_form_s",
    "coefficients",
    "device_order",
    "in_flight",
    "makespan_s",
    "messages_sent",
    "parameter_copies",
    "refusal",
]
