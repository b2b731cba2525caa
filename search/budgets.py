"""How much of each budget a design point leaves: the slack of the constraints."""

from collections.abc import Callable
from dataclasses import dataclass

from archplace.search.metrics import Metrics
from archplace.search.runfile import Run

Value = Callable[[Metrics], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One limit that every design of a run keeps."""

    name: str
    """As in the run file: ``area``, ``power``, ``step_time``, ``samples_per_s`` and so on."""
    limit: float
    unit: str
    least: bool
    """Whether the limit is the least value allowed instead of the most."""
    value: Value
    """What is limited; of several workloads that of the one closest to the limit."""

    def left(self, metrics: Metrics) -> float | None:
        """Return the part of the budget that is left, as a fraction of it: 0 at the limit; None if not known."""
        value = self.value(metrics)
        if value is None:
            return None
        # Of a rate that must be reached the time is what is limited.
        return 1 - (self.limit / value if self.least else value / self.limit)


def budgets_of(run: Run) -> tuple[Budget, ...]:
    """Return the budgets of a run and the area that its space allows."""
    choices = run.choices
    areas = [limit for limit in (choices.max_area_mm2, run.space.area_max_mm2) if limit is not None]
    found: list[Budget] = []

    def add(name: str, limit: float | None, unit: str, value: Value, *, least: bool = False) -> None:
        if limit is not None:
            found.append(Budget(name=name, limit=limit, unit=unit, least=least, value=value))

    batches = [workload.global_batch for workload in run.workloads]
    add("area", min(areas, default=None), "mm²", lambda m: m.area_mm2)
    add("power", choices.most_power_w, "W", lambda m: m.peak_power_w)
    add(
        "step_time",
        choices.max_step_s,
        "s",
        lambda m: max(one.seconds_per_sample * batch for one, batch in zip(m.workloads, batches, strict=True)),
    )
    add(
        "samples_per_s",
        choices.min_samples_per_s,
        "samples/s",
        lambda m: 1 / max(one.seconds_per_sample for one in m.workloads),
        least=True,
    )
    add(
        "joules_per_sample",
        choices.max_joules_per_sample,
        "J/sample",
        lambda m: _largest([one.joules_per_sample for one in m.workloads]),
    )
    add(
        "usd_per_sample",
        choices.max_usd_per_sample,
        "USD/sample",
        lambda m: _largest([one.usd_per_sample for one in m.workloads]),
    )
    if choices.training is not None:
        run_s, run_usd = choices.training.max_s, choices.training.max_usd
        add("run_time", run_s, "s", lambda m: _largest([one.run_s for one in m.workloads]))
        add("usd_per_run", run_usd, "USD", lambda m: _largest([one.run_usd for one in m.workloads]))
    return tuple(found)


def tightest(budgets: tuple[Budget, ...], metrics: Metrics) -> tuple[str, float] | None:
    """Return the name of the budget of which the least is left, and how much; None without budgets."""
    left = [(share, budget.name) for budget in budgets if (share := budget.left(metrics)) is not None]
    if not left:
        return None
    share, name = min(left)
    return name, share


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
