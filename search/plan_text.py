"""What ``plan`` found, as text for a terminal."""

from collections.abc import Sequence
from textwrap import wrap

from archplace.search.plan_tables import PlanRow, PlanView, RefusalKind, runs_text
from archplace.search.remedies import Remedy
from archplace.search.software_note import software_note
from archplace.search.strategy.strategy import DEFAULT_ORDER, Strategy
from archplace.search.wording import LINE, aligned, count, gigabytes, number, percent, seconds

MOST_REFUSALS = 10
"""Kinds of refusals that are listed."""


def plan_text(view: PlanView) -> str:
    """Return the answer, the best strategies, and what became of the others."""
    problem, workload = view.problem, view.problem.workload
    lines = [
        f"{workload.name} on {problem.accelerators:,} × {problem.accelerator.name} in {problem.cluster.name}: "
        f"batch {workload.global_batch:,}, sequences of {workload.sequence_length:,}",
        "",
        *([_answer(view)] if view.rows else _no_answer(view)),
    ]
    note = software_note(problem.cluster, problem.accelerator.name)
    if view.rows and note is not None:
        lines.append(note)
    if view.rows:
        lines += ["", *_table(view.rows), "", *wrap(_ties(view), LINE)]
    lines += ["", "Of all strategies", *_others(view)]
    if view.kinds:
        lines += ["", *_refused(view.kinds)]
    return "\n".join(lines)


def _answer(view: PlanView) -> str:
    best = view.rows[0]
    fits = f"It fits: {gigabytes(best.memory_bytes)} of {gigabytes(view.hbm_bytes)} on the fullest device."
    return (
        f"{fits} The best strategy, {best.planned.strategy}, takes {seconds(best.planned.step_s)} a step: "
        f"{number(best.samples_per_s)} samples/s, MFU {percent(best.mfu)}."
    )


def _ties(view: PlanView) -> str:
    """Return how sure the times are, and which strategies are too close to the best to call."""
    tied = sum(row.ties_with_best for row in view.rows) - 1
    if tied == 0:
        found = "No other strategy of the list is one with the best."
    else:
        found = (
            f"The first {tied + 1} strategies are tied."
            if tied + 1 < len(view.rows)
            else "All that are listed are tied."
        )
    return f"{view.uncertainty.words} {view.uncertainty.comparison_words} {found}"


def _no_answer(view: PlanView) -> list[str]:
    if not view.plan.n_strategies:
        return ["Nothing is possible: every combination is refused."]
    lines = [
        f"It does not fit: none of {count(view.plan.n_strategies, 'strategy', 'strategies')} keeps every stage within "
        f"{gigabytes(view.hbm_bytes)}."
    ]
    closest, needed = view.plan.closest, view.hbm_needed_bytes
    if closest is not None and needed is not None:
        lines.append(
            f"Closest is {closest.strategy}: with layers dealt out evenly its fullest device lacks "
            f"{gigabytes(closest.short_bytes)}. It fits with hbm: {_upwards(needed)}."
        )
    lines += remedy_lines(view.remedies)
    if not view.remedies:
        lines.append("More accelerators, or higher tensor or pipeline-parallel degrees, leave less on each of them.")
    return lines


def remedy_lines(remedies: Sequence[Remedy]) -> list[str]:
    """Return what would help, a line each."""
    return [f"It fits with {remedy.change}: {remedy.strategy}, {seconds(remedy.step_s)} a step." for remedy in remedies]


def _upwards(capacity_bytes: float) -> str:
    """Return a capacity in GB, rounded up to one digit behind the point, as a run file takes it."""
    return f"{-(-capacity_bytes // 1e8) / 10:.1f} GB"


def _table(rows: Sequence[PlanRow]) -> list[str]:
    """Return a row for each strategy; columns in which no strategy says anything are left out."""
    table = [_cells(row) for row in rows]
    names = [name for name in table[0] if any(cells[name] not in _PLAIN for cells in table)]
    left = {i for i, name in enumerate(names) if name in _LEFT}
    return aligned([names, *([cells[name] for name in names] for cells in table)], left=left)


_LEFT = frozenset({"schedule", "shared", "recompute", "also"})
_PLAIN = frozenset({"", "–"})


def _cells(row: PlanRow) -> dict[str, str]:
    strategy, plain = row.planned.strategy, "–"
    sharding, states = strategy.sharding, strategy.states

    def degree(number: int) -> str:
        return str(number) if number > 1 else plain

    shared = str(states.states) if states.shares_optimizer else plain
    return {
        "#": str(row.rank),
        "step": seconds(row.planned.step_s),
        "samples/s": number(row.samples_per_s),
        "tokens/s each": number(row.tokens_per_s_per_accelerator),
        "MFU": percent(row.mfu),
        "memory": f"{row.memory_bytes / 1e9:.1f} GB",
        "tp": str(sharding.tensor) + ("+sp" if sharding.sequence else ""),
        "cp": degree(sharding.context),
        "ep": degree(sharding.expert),
        "etp": degree(sharding.expert_tensor),
        "pp": str(strategy.stages),
        "v": degree(strategy.virtual),
        "dp": str(strategy.data),
        "mbs": str(sharding.microbatch),
        "schedule": str(strategy.schedule) if strategy.stages > 1 else plain,
        "shared": f"{shared} by {states.group}" if states.group else shared,
        "recompute": runs_text(row.recompute),
        "also": " ".join(_further(strategy)),
    }


def _further(strategy: Strategy) -> list[str]:
    """Return what the columns do not say, where it is unusual."""
    sharding = strategy.sharding
    words = [str(sharding.context_kind)] * (sharding.context > 1)
    words += [f"tp-overlap{sharding.overlap_pieces}"] * (sharding.overlap_pieces > 1)
    words += [f"offload-{name}" for name in ("activations", "optimizer") if getattr(strategy.offload, name)]
    words += [f"no-{name}-overlap" for name in ("data", "pipeline") if not getattr(strategy.overlap, name)]
    usual = [axis for axis in DEFAULT_ORDER if axis in strategy.order]
    if list(strategy.order) != usual:
        words.append("order:" + "<".join(strategy.order))
    return words


def _others(view: PlanView) -> list[str]:
    plan = view.plan
    lines = aligned(
        [
            (f"{plan.n_strategies:,}", "are possible, not counting cuts and recomputation"),
            (f"{plan.n_bounded:,}", "of them are no faster, as a bound of their time shows"),
            (f"{plan.n_evaluated:,}", "were cut in the best way"),
            (f"{plan.n_memory:,}", "do not fit into memory, of those whose memory was asked for"),
            (f"{sum(plan.refused.values()):,}", "further combinations are refused"),
        ],
        left={1},
    )
    if view.no_other_below_s is not None:
        lines.append(f"  No strategy that is not listed takes less than {seconds(view.no_other_below_s)}.")
    return lines


def _refused(kinds: Sequence[RefusalKind]) -> list[str]:
    shown, hidden = kinds[:MOST_REFUSALS], kinds[MOST_REFUSALS:]
    lines = [
        (f"{kind.combinations:,}", kind.example + (f" (and {kind.reasons - 1:,} like it)" if kind.reasons > 1 else ""))
        for kind in shown
    ]
    text = ["Refused, by kind of reason", *aligned(lines, left={1})]
    if hidden:
        rest = sum(kind.combinations for kind in hidden)
        text.append(f"  and {rest:,} for {count(len(hidden), 'other kind')} of reason (all with --format json)")
    return text
