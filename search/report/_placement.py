"""The card of placement and schedule: stages on devices, and the block's operators on units, for a selected pick."""

from archplace.search.choices import WorkloadResult
from archplace.search.explain import Explanation
from archplace.search.report._card import card, empty, figure
from archplace.search.report._html import Html, element, table
from archplace.search.report.contents import Contents
from archplace.search.report.schedule_plot import draw_schedule, prepare_schedule
from archplace.search.report.why_plot import labelled_points
from archplace.search.wording import count, number, percent, seconds


def placement_card(contents: Contents) -> Html:
    """Return one panel per picked design and workload, and the selector between them."""
    title = "Placement and schedule"
    how = (
        "The table shows which layers each pipeline stage holds and how far its load is from the slowest stage's; the "
        "chart shows one block's operators on the units of one accelerator, coloured by what each waits for."
    )
    points = labelled_points(contents.picks, contents.baseline)
    if not points:
        return card("placement", title, how, empty("There is no feasible design to place."))
    run = contents.result.run
    options: list[Html] = []
    panels: list[Html] = []
    for label, point in points:
        for workload, found, why in zip(run.workloads, point.point.results, point.explanations, strict=True):
            identifier = f"panel-{len(panels)}"
            name = f"{label}, {workload.name}" if len(run.workloads) > 1 else label
            options.append(element("option", name, value=identifier))
            panels.append(_panel(identifier, name, found, why, run.choices.accelerators))
    selector = element(
        "div",
        element("label", "Design", for_="placement-select"),
        element("select", options, id="placement-select"),
        class_="controls",
    )
    return card("placement", title, how, selector, *panels)


def _panel(identifier: str, name: str, found: WorkloadResult, why: Explanation, accelerators: int) -> Html:
    drawing = draw_schedule(prepare_schedule(why))
    total = {
        direction: max((b.start_s + b.duration_s for b in bars), default=0.0) for direction, bars in why.bars.items()
    }
    summary = (
        f"Operators of one block, one microbatch, on one accelerator: "
        f"{', '.join(f'{direction} {seconds(value)}' for direction, value in total.items())}."
    )
    return element(
        "div",
        element("h3", name),
        element("p", balance(found, why, accelerators)),
        _stages(name, found, why),
        figure(f"schedule-plot-{identifier}", drawing, summary),
        element("details", element("summary", "The operators as a table"), _operators(name, why)),
        data_panel=identifier,
    )


def balance(found: WorkloadResult, why: Explanation, accelerators: int) -> str:
    """Return devices and load imbalance in words."""
    strategy = found.placement.strategy
    text = (
        f"{strategy.devices:,} of {count(accelerators, 'accelerator')} work: "
        f"{count(strategy.stages, 'pipeline stage')} of {count(strategy.sharding.stage_devices, 'device')} "
        f"({strategy}), {count(strategy.data, 'replica')}, microbatches of "
        f"{count(strategy.sharding.microbatch, 'sequence')}; recomputation: {found.placement.recompute_words}. "
    )
    loads = [stage.load_s for stage in why.stages]
    if len(loads) == 1:
        return text + "With one stage there is no load to balance."
    slowest = max(range(len(loads)), key=lambda i: loads[i])
    mean = sum(loads) / len(loads)
    bubble = why.parts_s["pipeline bubble"] / sum(why.parts_s.values())
    return text + (
        f"The slowest stage is number {slowest + 1} with {seconds(loads[slowest])} per microbatch; on average a stage "
        f"is loaded {percent(mean / loads[slowest])} of that, so that imbalance leaves "
        f"{percent(1 - mean / loads[slowest])} of the devices' time unused, and filling "
        f"and draining the pipeline another {percent(bubble)}."
    )


def _stages(name: str, found: WorkloadResult, why: Explanation) -> Html:
    slowest = max(stage.load_s for stage in why.stages)
    capacity = found.option.hbm_bytes
    devices = found.placement.strategy.devices // found.placement.strategy.stages
    rows = []
    for position, stage in enumerate(why.stages, start=1):
        memory = stage.memory
        rows.append(
            (
                str(position),
                stage.layers,
                str(found.placement.policies[position - 1]),
                f"{devices:,}",
                number(stage.load_s * 1e3),
                percent(stage.load_s / slowest),
                *(
                    number(value / 1e9)
                    for value in (
                        memory.weights_bytes,
                        memory.gradients_bytes,
                        memory.optimizer_bytes,
                        memory.activations_bytes,
                        memory.total_bytes,
                    )
                ),
                percent(memory.total_bytes / capacity),
            )
        )
    return table(
        f"Pipeline stages of {name}: load per microbatch, GB per device (activations with buffers and reserve)",
        (
            "stage",
            "layers",
            "recompute",
            "devices",
            "load (ms)",
            "of the slowest",
            "weights",
            "gradients",
            "optimizer",
            "activations",
            "total",
            "of HBM",
        ),
        rows,
        numeric=range(3, 12),
    )


def _operators(name: str, why: Explanation) -> Html:
    rows = [
        (
            bar.name,
            direction,
            bar.phase.replace("_", " "),
            f"{bar.unit}, all" if bar.all_units else bar.unit,
            bar.bound_by,
            number(bar.start_s * 1e3),
            number(bar.duration_s * 1e3),
        )
        for direction, bars in why.bars.items()
        for bar in sorted(bars, key=lambda bar: (bar.start_s, bar.name))
    ]
    return table(
        f"Operators of one block of {name}",
        ("operator", "pass", "phase", "units", "waits for", "start (ms)", "duration (ms)"),
        rows,
        numeric=(5, 6),
    )
