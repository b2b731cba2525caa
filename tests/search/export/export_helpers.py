"""Placements to export, on the built-in workloads."""

from functools import cache

import yaml

from archplace.costmodel.network import PricingMode
from archplace.search.export.candidates import of_plan
from archplace.search.export.case import Case
from archplace.search.export.passes import Granularity
from archplace.search.planfile import load_plan

BASE = {"workload": "llama2-7b", "accelerator": "h100-sxm", "cluster": "h100-superpod", "global_batch": 16}
MIXTRAL = {"workload": "mixtral-8x7b", "global_batch": 64}
TPU = {"accelerator": "tpu-v4", "cluster": "tpu-v4"}

PLACEMENTS = {
    "tensor, data, pipeline": (16, {"tensor_parallel": 2, "pipeline_parallel": 2, "state_sharding": "optimizer"}, {}),
    "four devices": (4, {"tensor_parallel": 2, "pipeline_parallel": 2}, {}),
    "one node": (8, {"tensor_parallel": 2}, {"accelerator": "b200-sxm", "cluster": "b200-sxm-node"}),
    "gpipe": (16, {"pipeline_parallel": 4, "schedule": "gpipe", "recompute": "full"}, {}),
    "interleaved": (
        8,
        {"pipeline_parallel": 4, "schedule": "interleaved", "virtual_stages": 2, "tensor_parallel": 2},
        {},
    ),
    "zero bubble": (16, {"tensor_parallel": 4, "pipeline_parallel": 4, "schedule": "zb-h1"}, {}),
    "dual pipe": (8, {"tensor_parallel": 2, "pipeline_parallel": 4, "schedule": "dualpipe"}, {}),
    "dual pipe, gradients shared": (
        16,
        {"tensor_parallel": 4, "pipeline_parallel": 2, "schedule": "dualpipe", "state_sharding": "gradients"},
        {},
    ),
    "parameters shared": (16, {"state_sharding": "zero-3", "shard_group": 8, "recompute": "selective"}, {}),
    "gradients shared": (8, {"tensor_parallel": 2, "pipeline_parallel": 2, "state_sharding": "gradients"}, {}),
    "nothing hidden": (16, {"tensor_parallel": 2, "pipeline_parallel": 4, "overlap": [[]]}, {}),
    "offloaded": (8, {"tensor_parallel": 2, "pipeline_parallel": 2, "offload": "all"}, {}),
    "context gathered": (16, {"context_parallel": 2, "context_exchange": "all_gather", "pipeline_parallel": 2}, {}),
    "context ring": (
        16,
        {"context_parallel": 4, "tensor_parallel": 2, "state_sharding": "optimizer"},
        {"workload": "llama3-8b", "global_batch": 32},
    ),
    "experts": (32, {"expert_parallel": 8, "pipeline_parallel": 2, "state_sharding": "optimizer"}, MIXTRAL),
    "experts and tensors": (
        32,
        {"expert_parallel": 4, "tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 4},
        MIXTRAL,
    ),
    "torus": (32, {"tensor_parallel": 4, "pipeline_parallel": 2, "state_sharding": "optimizer"}, TPU),
    "slow network": (
        16,
        {"tensor_parallel": 2, "pipeline_parallel": 2, "state_sharding": "optimizer"},
        {"cluster": "flat-4gib", "global_batch": 32},
    ),
    "parameters on a slow network": (
        16,
        {"tensor_parallel": 2, "state_sharding": "parameters", "recompute": "full"},
        {"cluster": "flat-4gib"},
    ),
    "products cut": (
        8,
        {"tensor_parallel": 4, "sequence_parallel": True, "tensor_overlap_pieces": 4},
        {"global_batch": 8},
    ),
}
"""Devices, placement, and what else the run file says."""


def run_file(folder, devices, placement, others):
    """Write a run file and return its path."""
    path = folder / "job.yaml"
    run = {**BASE, "accelerators": devices, **others, "placement": placement}
    path.write_text(yaml.safe_dump({"run": run}, sort_keys=False))
    return path


def candidate_of(folder, name):
    """Return one of PLACEMENTS as a candidate."""
    return of_plan(load_plan(run_file(folder, *PLACEMENTS[name])))


@cache
def _placed(folder, name):
    candidate = candidate_of(folder, name)
    return candidate.placement.priced(PricingMode.ASTRA_SIM, candidate.cache)


@cache
def case_of(folder, name, granularity="stage"):
    """Return one of PLACEMENTS as a case."""
    return Case(_placed(folder, name), Granularity(granularity))
