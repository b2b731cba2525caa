"""Traced layers are shared by the rates of the run."""

from pathlib import Path

import pytest

from archplace.arch_configs import load_accelerator, load_cluster
from archplace.search.planfile import load_plan
from archplace.search.runfile import load_run
from archplace.search.sharding_rates import at_rates_of
from archplace.workloads import load_job, load_workload
from archplace.workloads.traced.rates import Rates

RUNS = Path(__file__).parents[2] / "runs"


def test_a_plan_has_the_rates_of_its_accelerator_and_network():
    job = at_rates_of(
        load_job(RUNS / "traced-gpt-workload.yaml"), load_cluster("a100-superpod"), load_accelerator("a100-80gb")
    )
    # NVIDIA A100 data sheet, 2021: bf16, HBM2e, NVLink in one direction
    assert job.rates.flops_per_s == pytest.approx(312e12, rel=0.01)
    assert job.rates.hbm_bytes_per_s == pytest.approx(2.04e12, rel=0.01)
    assert job.rates.link_bytes_per_s == 300e9
    assert job.rates.collective_latency_s == pytest.approx(14.55e-6)


def test_a_search_has_the_rates_of_its_network(tmp_path):
    (workload,) = load_run(RUNS / "traced-gpt.yaml").workloads
    assert workload.rates.link_bytes_per_s == 300e9
    assert workload.rates.flops_per_s == Rates().flops_per_s
    path = tmp_path / "plan.yaml"
    job = RUNS / "traced-gpt-workload.yaml"
    path.write_text(f"run: {{workload: {job}, accelerator: tpu-v4, cluster: tpu-v4-pod, accelerators: 16}}\n")
    planned = load_plan(path).problem.workload
    assert planned.rates.link_bytes_per_s == 90e9
    assert planned.rates.flops_per_s == pytest.approx(275e12, rel=0.01)


def test_one_device_has_the_network_that_it_would_have():
    job, cluster = load_job(RUNS / "traced-gpt-workload.yaml"), load_cluster("a100-superpod")
    assert at_rates_of(job, cluster.sized(1)).rates.link_bytes_per_s == 300e9


def test_other_jobs_stay_as_they_are():
    job = load_workload("gpt2-xl")
    assert at_rates_of(job, load_cluster("a100-superpod"), load_accelerator("a100-80gb")) is job
