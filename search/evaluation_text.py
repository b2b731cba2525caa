"""An evaluated placement as text for a terminal."""

from collections.abc import Sequence
from textwrap import wrap

from archplace.search.evaluation_tables import DEFINITIONS, EvaluationView
from archplace.search.pipeline import Timeline
from archplace.search.plan_text import remedy_lines
from archplace.search.software_note import software_note
from archplace.search.strategy.evaluate import StageView
from archplace.search.wording import LINE, aligned, bars, between, gigabytes, number, pairs, percent, seconds


def evaluation_text(view: EvaluationView) -> str:
    """Return the answer, the figures, the stack of a step, exposed communication, and memory by stage."""
    problem, found = view.problem, view.evaluation
    note = software_note(problem.cluster, problem.accelerator.name)
    lines = [
        f"{problem.workload.name} on {problem.accelerators:,} × {problem.accelerator.name} in {problem.cluster.name}: "
        f"batch {problem.workload.global_batch:,}, sequences of {problem.workload.sequence_length:,}",
        str(found.strategy),
        "",
        *_answer(view),
        *([] if note is None else [note]),
        "",
        *pairs(_figures(view)),
        "",
        *wrap(view.uncertainty.words, LINE),
        "",
        f"Time of a step: {seconds(found.step_s)}",
        *bars(found.parts_s, None),
        "",
        *_exposed(view),
        "",
        f"Memory per device by stage (GB), HBM {gigabytes(view.hbm_bytes)}",
        *_memory(found.stages, view.hbm_bytes),
    ]
    if any(stage.memory.host_total_bytes for stage in found.stages):
        lines.append(_in_the_host(view))
    if view.timeline is not None:
        lines += ["", *_simulation(view.timeline)]
    lines += ["", *(f"{name.upper()}: {text}." for name, text in DEFINITIONS.items())]
    return "\n".join(lines)


def _answer(view: EvaluationView) -> list[str]:
    stages, fullest = view.evaluation.stages, view.fullest
    total = stages[fullest].memory.total_bytes
    if view.evaluation.feasible:
        return [
            f"It fits: the fullest devices, of stage {fullest}, need {gigabytes(total)} of {gigabytes(view.hbm_bytes)}."
        ]
    short = [index for index, each in enumerate(stages) if not each.fits]
    lines = []
    for index in short[:3]:
        needed = stages[index].memory.total_bytes
        lines.append(
            f"It does not fit: stage {index} needs {gigabytes(needed)} of {gigabytes(view.hbm_bytes)}, "
            f"{gigabytes(needed - view.hbm_bytes)} too much."
        )
    if len(short) > 3:
        lines.append(f"Of {len(stages)} stages {len(short)} do not fit; the fullest is stage {fullest}.")
    lines += remedy_lines(view.remedies)
    return [*lines, "What follows is what it would take if it did."]


def _figures(view: EvaluationView) -> list[tuple[str, str]]:
    found = view.evaluation
    return [
        ("step", seconds(found.step_s)),
        ("expected when measured", between(*view.uncertainty.interval.of(found.step_s))),
        ("with the pipeline's exact time", seconds(found.simulated_step_s)),
        ("samples/s", number(found.samples_per_s)),
        ("tokens/s", number(found.tokens_per_s)),
        ("tokens/s per device", number(view.tokens_per_s_per_accelerator)),
        ("MFU", percent(found.mfu)),
        ("HFU", percent(found.hfu)),
        ("microbatches", f"{found.microbatches:,}"),
    ]


def _exposed(view: EvaluationView) -> list[str]:
    kinds = {kind: value for kind, value in view.exposed_s().items() if value > 0}
    total, step_s = sum(kinds.values()), view.evaluation.step_s
    lines = [f"Communication that nothing hides: {seconds(total)}, {percent(total / step_s)} of the step"]
    if kinds:
        lines += aligned([(kind, seconds(s), percent(s / step_s)) for kind, s in kinds.items()], left={0})
    return lines


def _in_the_host(view: EvaluationView) -> str:
    """Say what lies in the hosts, and whether it is more than these have: nothing else is held to that."""
    most, host = max(stage.memory.host_total_bytes for stage in view.evaluation.stages), view.problem.cluster.host
    line = f"  and up to {gigabytes(most)} for each device in its host"
    if host is None:
        return line
    return f"{line}, which has {gigabytes(host.memory_bytes)}" + (": too little" if most > host.memory_bytes else "")


def _memory(stages: Sequence[StageView], hbm_bytes: float) -> list[str]:
    """Return a row for each stage; items that no stage has are left out."""
    items = [dict(stage.memory.parts) for stage in stages]
    names = [name for name in items[0] if any(item[name] for item in items)]
    rows = [("stage", "layers", "recompute", "load", *names, "total", "of HBM")]
    for index, (stage, item) in enumerate(zip(stages, items, strict=True)):
        rows.append(
            (
                str(index),
                " + ".join(f"{count} {kind}" for kind, count in stage.layers),
                str(stage.recompute),
                seconds(stage.load_s),
                *(f"{item[name] / 1e9:.2f}" for name in names),
                f"{stage.memory.total_bytes / 1e9:.2f}",
                percent(stage.memory.total_bytes / hbm_bytes),
            )
        )
    return aligned(rows, left={1, 2})


def _simulation(timeline: Timeline) -> list[str]:
    rows = [("stage", "computing", "sending", "waiting", "messages", "microbatches held")]
    for device, held in enumerate(timeline.held):
        busy_s, sending_s = timeline.busy_s[device], timeline.sending_s[device]
        rows.append(
            (
                str(device),
                seconds(busy_s),
                seconds(sending_s),
                seconds(timeline.makespan_s - busy_s - sending_s),
                f"{timeline.messages[device]:,}",
                str(held.activations),
            )
        )
    return [
        f"Pipeline by event simulation: {seconds(timeline.makespan_s)}, {percent(timeline.bubble_share)} of it waiting",
        *aligned(rows, left=set()),
    ]
