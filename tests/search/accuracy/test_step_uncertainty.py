"""Stated intervals against published steps that no fit has seen (data/README.md says where they come from)."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from archplace.arch_configs import NOMINAL, load_accelerator, load_cluster
from archplace.arch_configs.cluster import Software
from archplace.search.accuracy import predict, read_steps
from archplace.search.accuracy.calibrate import PARAMETERS
from archplace.search.accuracy.jobs import hardware_of
from archplace.search.accuracy.residuals import central_interval
from archplace.search.uncertainty import PRIORS, Basis, StepUncertainty, step_uncertainty

FITS = (
    ("a100-80gb-selene", "a100-node-vtrain"),
    ("h100-sxm-dgx",),
    ("a100-40gb-mosaic", "a100-80gb-mosaic"),
    ("b200-sxm-node",),
    ("tpu-v5p",),
)
"""Clusters that were fitted together."""


@pytest.fixture(scope="module")
def steps():
    return read_steps(Path(__file__).parent / "data" / "held_out_steps.csv")


@pytest.fixture(scope="module")
def ratios(steps):
    """Measured over predicted seconds by cluster."""
    found = {}
    for each in predict(steps):
        assert each.reason is None
        found.setdefault(each.step.hardware, []).append(each.step.step_s / each.predicted_s)
    return found


def stated(name):
    accelerator, cluster = hardware_of(name)
    return step_uncertainty(cluster, accelerator.name, accelerator.calibration)


def test_stated_intervals_cover_about_four_of_five_steps(ratios):
    inside = []
    for name, values in ratios.items():
        found = stated(name)
        assert found.basis is Basis.CALIBRATED
        inside += [found.interval.low <= value <= found.interval.high for value in values]
    assert len(inside) > 60
    # Three standard deviations of a share of 0.8.
    assert np.mean(inside) == pytest.approx(0.8, abs=3 * np.sqrt(0.8 * 0.2 / len(inside)))


def test_intervals_drawn_from_one_half_cover_the_other(ratios):
    inside = []
    for clusters in FITS[:3]:
        values = np.array([value for name in clusters for value in ratios.get(name, [])])
        halves = values[::2], values[1::2]
        for known, others in (halves, halves[::-1]):
            if central_interval(known) is not None:
                low, high = central_interval(known)
                inside += ((low <= others) & (others <= high)).tolist()
    assert len(inside) > 40
    assert np.mean(inside) == pytest.approx(0.8, abs=3 * np.sqrt(0.8 * 0.2 / len(inside)))


def some(steps, per_cluster):
    found = {}
    for step in steps:
        found.setdefault(step.hardware, []).append(step)
    return [step for rows in found.values() for step in rows[:: max(1, len(rows) // per_cluster)][:per_cluster]]


def under(values, *, nominal=False):
    """Return hardware whose software costs what ``values`` say, None for nothing."""
    names = [parameter.name for parameter in PARAMETERS]

    def hardware(name):
        accelerator, cluster = hardware_of(name)
        if nominal:
            accelerator = replace(accelerator, calibration=NOMINAL)
        if values is None:
            return accelerator, cluster.under(Software())
        changed = {each: getattr(values, each) for each in names}
        return accelerator, cluster.under(replace(cluster.software, **changed))

    return hardware


def middle(ratios_by_cluster):
    """Return 10 % and 90 % quantiles of measured over predicted seconds, every cluster weighing the same."""
    values = np.concatenate(ratios_by_cluster)
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in ratios_by_cluster])
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return [values[order][np.searchsorted(reached, share)] for share in (0.1, 0.9)]


def ratios_under(steps, hardware, *, without=()):
    found = {}
    for each in predict([step for step in steps if step.hardware not in without], hardware):
        found.setdefault(each.step.hardware, []).append(each.step.step_s / each.predicted_s)
    return [np.array(values) for values in found.values()]


def test_what_was_fitted_elsewhere_is_as_far_off_as_the_prior_says(steps):
    few, cells = some(steps, 3), []
    for clusters in FITS:
        cells += ratios_under(few, under(load_cluster(clusters[0]).software), without=clusters)
    assert middle(cells) == pytest.approx(PRIORS[Basis.TRANSFERRED], rel=0.15)


@pytest.mark.parametrize(("basis", "nominal"), [(Basis.IDEAL_PROGRAMS, False), (Basis.DATA_SHEET, True)])
def test_ideal_programs_are_as_much_too_fast_as_the_prior_says(steps, basis, nominal):
    found = middle(ratios_under(some(steps, 4), under(None, nominal=nominal)))
    assert found == pytest.approx(PRIORS[basis], rel=0.15)


def test_which_interval_is_whose():
    selene, plain = load_cluster("a100-80gb-selene"), load_cluster("a100-superpod")
    chip = load_accelerator("a100-80gb").calibration
    assert step_uncertainty(selene, "a100-80gb", chip).interval.high == selene.uncertainty.high
    assert step_uncertainty(selene, "a100-80gb", chip).compared == selene.uncertainty.compared
    other = step_uncertainty(selene, None, NOMINAL)
    assert (other.basis, other.compared) == (Basis.TRANSFERRED, selene.uncertainty.compared)
    assert step_uncertainty(load_cluster("h100-grandteton-500w"), "h100-96gb-500w", chip).basis is Basis.TRANSFERRED
    assert step_uncertainty(plain, "a100-80gb", chip).basis is Basis.IDEAL_PROGRAMS
    assert step_uncertainty(plain, None, NOMINAL).basis is Basis.DATA_SHEET
    # What the software does costs nothing by itself.
    facts = plain.under(replace(Software(), data_overlap=False))
    assert step_uncertainty(facts, None, NOMINAL).basis is Basis.DATA_SHEET


def test_every_basis_is_said_in_words():
    for found in (stated("tpu-v5p"), step_uncertainty(load_cluster("flat-4gib"), None, NOMINAL)):
        assert f"{found.interval.low:.3g} to {found.interval.high:.3g} times" in found.words
        assert "80 %" in found.words
        assert "is a tie" in found.comparison_words


def figure(**values):
    known = {field.name: getattr(stated("a100-80gb-mosaic"), field.name) for field in fields(StepUncertainty)}
    return StepUncertainty(**(known | values))


def test_a_figure_that_follows_the_seconds_has_their_interval_and_one_that_does_not_has_none():
    found = figure()
    assert found.figure(1.0).low == pytest.approx(found.interval.low)
    assert found.figure(1.0).high == pytest.approx(found.interval.high)
    assert (found.figure(0.0).low, found.figure(0.0).high) == (1.0, 1.0)
    half = found.figure(0.5)
    assert found.interval.low < half.low < 1 < half.high < found.interval.high
    watts = found.figure(0.5, 1.0)
    assert watts.low < half.low < half.high < watts.high
    # 1 + 0.13 either way by the watts alone.
    assert found.figure(0.0, 1.0).high == pytest.approx(1.13)


def test_bounds_of_rates_are_the_other_way_round():
    found = figure().interval
    assert found.inverse().of(1 / 3.0) == pytest.approx(tuple(1 / bound for bound in found.of(3.0))[::-1])


def test_two_steps_tie_when_their_ratio_is_within_the_error_of_ratios():
    found = figure(compared=0.08)
    assert 2 * found.comparison(1.0) == pytest.approx(np.log(1.08))
    assert found.comparison(0.0) == 0.0
