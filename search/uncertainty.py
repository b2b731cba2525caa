"""Between which bounds measured figures are expected, and which predictions are too close to call.

*Step time.* Four cases, from sure to unsure; each interval is the central 80 % of measured over predicted seconds:

* calibrated: the accelerator that the cluster's software was fitted on; the cluster's file states the interval;
* transferred: another accelerator, one of a design space say, under software that was fitted elsewhere. Between the
  five sets of values of the built-in clusters measured steps of one took 0.8 to 1.45 times the seconds that another's
  values predict (every pair of set and cluster weighs the same);
* ideal programs: nothing says what software adds. The same steps took 1.2 to 1.95 times the seconds of ideal programs
  on calibrated kernels;
* data sheet: kernels as fast as data sheets allow, too: 1.25 to 2.4 times.

In the last two cases what is predicted lies below its own interval: predictions are of the best that software can do.

*Energy.* Where the rate is known, watts of jobs are within :data:`POWER_ERROR` of measured ones in four of five cases
(docs/chips.md has the cases). Of the joules of a sample a share follows the seconds, static power and hosts; both
errors are taken as independent. Prices of hardware and energy are inputs, not predictions: they have no error here.

*Comparisons.* Designs of one run have the errors of tables, software and formulas in common, so that their ratios are
surer than their values. Each value gets a second, narrow interval, so wide that two of them overlap if and only if the
ratio is within the error that ratios of measured steps show (intervals for comparison: Goldstein and Healy 1995, JRSS A
158(1), section 2). Joules of counted operations and areas are taken to err alike in all designs of a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from archplace.arch_configs import NOMINAL, Calibration, Cluster
from archplace.arch_configs.calibration import CENTRAL_SHARE
from archplace.arch_configs.cluster import IDEAL_SOFTWARE, Software
from archplace.search.wording import percent

COMPARED = 0.075
"""Error of the ratio of two predictions for one model on as many devices of one cluster, in four of five pairs of
published steps (each of 57 groups weighs the same). Of the 395 pairs that are predicted to differ by more than a tenth
one is ordered wrongly, of the 56 that differ by less eight."""

POWER_ERROR = 0.13
"""Error of the watts of training jobs whose rate is known, in four of five of nine published cases."""


class Basis(StrEnum):
    """What an interval is drawn from."""

    CALIBRATED = "calibrated"
    """Steps measured on this accelerator in this cluster."""
    TRANSFERRED = "transferred"
    """Steps measured elsewhere than where the software was fitted."""
    IDEAL_PROGRAMS = "ideal programs"
    """Measured steps over those of ideal programs."""
    DATA_SHEET = "data sheet"
    """Measured steps over those of ideal programs at data-sheet rates."""


PRIORS = {Basis.TRANSFERRED: (0.8, 1.45), Basis.IDEAL_PROGRAMS: (1.2, 1.95), Basis.DATA_SHEET: (1.25, 2.4)}
"""Intervals of measured over predicted seconds where no calibration states one."""

_WORDS = {
    Basis.CALIBRATED: "{steps} published steps on this accelerator and cluster",
    Basis.TRANSFERRED: "published steps predicted with what was fitted on other accelerators and clusters",
    Basis.IDEAL_PROGRAMS: "published steps over what ideal programs would take, since the cluster says nothing of its "
    "software",
    Basis.DATA_SHEET: "published steps over what ideal programs at data-sheet rates would take, since neither "
    "accelerator nor cluster is calibrated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bounds as factors of what is predicted, between which :data:`CENTRAL_SHARE` of measured figures are expected."""

    low: float
    high: float

    def of(self, value: float) -> tuple[float, float]:
        """Return the bounds of a predicted value."""
        return value * self.low, value * self.high

    def inverse(self) -> "Interval":
        """Return the interval of the reciprocal: of a rate where this one is of a time."""
        return Interval(low=1 / self.high, high=1 / self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUncertainty:
    """How sure predicted step times are, by themselves and compared."""

    interval: Interval
    """Of measured over predicted seconds."""
    compared: float
    """Relative error of the ratio of two predictions, in four of five pairs."""
    basis: Basis
    steps: int | None = None
    """Measured steps that the interval is drawn from, where a calibration states it."""

    @property
    def words(self) -> str:
        """What the interval says and where it comes from, as a sentence."""
        low, high = self.interval.low, self.interval.high
        return (
            f"Measured steps are expected to take {low:.3g} to {high:.3g} times the predicted seconds, with a "
            f"probability of {CENTRAL_SHARE * 100:.0f} %: the spread of {_WORDS[self.basis].format(steps=self.steps)}."
        )

    @property
    def comparison_words(self) -> str:
        """What comparisons are worth, as a sentence."""
        return (
            f"Ratios of two predictions for one job are within {percent(self.compared)} of measured ones in four of "
            "five cases: what differs by less is a tie."
        )

    def figure(self, time_share: float, power_share: float = 0.0) -> Interval:
        """Return the interval of a figure of which ``time_share`` follows the seconds and ``power_share`` the watts.

        Both shares are fractions of the figure: of the joules of a sample all follow the error of the watts.
        """
        low, high = (1 + time_share * (factor - 1) for factor in (self.interval.low, self.interval.high))
        middle, half = np.sqrt(low * high), np.log(high / low) / 2
        width = np.hypot(half, np.log1p(power_share * POWER_ERROR))
        return Interval(low=float(middle * np.exp(-width)), high=float(middle * np.exp(width)))

    def columns(self, times: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, object]:
        """Return the bounds of seconds and of rates as columns ``…_low`` and ``…_high``, and what they are."""
        found: dict[str, object] = {}
        for figures, interval in ((times, self.interval), (rates, self.interval.inverse())):
            for name, value in figures.items():
                found[f"{name}_low"], found[f"{name}_high"] = interval.of(value)
        return found | {"interval_probability": CENTRAL_SHARE, "interval_basis": str(self.basis)}

    def comparison(self, time_share: float) -> float:
        """Return the half width of the interval for comparison of a figure's logarithm.

        Two figures are a tie where their logarithms differ by no more than the sum of their half widths.
        """
        return float(np.log1p(time_share * self.compared) / 2)


def step_uncertainty(cluster: Cluster, accelerator: str | None, calibration: Calibration) -> StepUncertainty:
    """Return how sure the step times of an accelerator in a cluster are.

    ``accelerator`` is its name, None for architectures of a design space; ``calibration`` says what its kernels reach.
    """
    stated = cluster.uncertainty
    compared = COMPARED if stated is None or stated.compared is None else stated.compared
    if stated is not None and accelerator is not None and accelerator == cluster.accelerator:
        interval = Interval(low=stated.low, high=stated.high)
        return StepUncertainty(interval=interval, compared=compared, basis=Basis.CALIBRATED, steps=stated.steps)
    if _slowed(cluster.software):
        basis = Basis.TRANSFERRED
    else:
        basis = Basis.DATA_SHEET if calibration == NOMINAL else Basis.IDEAL_PROGRAMS
    low, high = PRIORS[basis]
    return StepUncertainty(interval=Interval(low=low, high=high), compared=compared, basis=basis)


def _slowed(software: Software) -> bool:
    """Return whether something is known of what the software costs, rather than of what it does."""
    costs = ("dispatch_s", "tensor_rate", "vector_traffic", "attention_time", "link_rate", "fabric_rate")
    return any(getattr(software, name) != getattr(IDEAL_SOFTWARE, name) for name in costs)
