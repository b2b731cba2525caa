"""The rates by which traced layers are shared: the network's of a run, and its accelerator's where there is one."""

from dataclasses import replace
from typing import TypeVar

from archplace.arch_configs import Accelerator, Cluster
from archplace.workloads import Workload
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.traced_workload import TracedWorkload

LEAST_LATENCY_S = 1e-9
"""Of a collective where a cluster's network has none: of equal ways to share a layer, one with fewer exchanges wins."""

J = TypeVar("J", bound=Workload | TracedWorkload)


def at_rates_of(job: J, cluster: Cluster, accelerator: Accelerator | None = None) -> J:
    """Return a traced job whose layers are shared by the rates of a run; others as they are.

    Exchanges are priced on the innermost dimension of the network, where groups of a layer lie unless a run says
    otherwise. Where accelerators are searched, arithmetic and memory have the rates that :class:`Rates` says.
    """
    if isinstance(job, TracedWorkload):
        return replace(job, rates=_rates(job, cluster, accelerator))
    return job


def _rates(job: TracedWorkload, cluster: Cluster, accelerator: Accelerator | None) -> Rates:
    inner = next((dimension for dimension in cluster.dimensions if dimension.size > 1), cluster.dimensions[0])
    found = replace(
        job.rates,
        link_bytes_per_s=inner.bandwidth_bytes_per_s,
        collective_latency_s=max(cluster.endpoint.start_s + inner.latency_s, LEAST_LATENCY_S),
    )
    if accelerator is None:
        return found
    units = accelerator.tensor_units
    macs = units.count * units.rows * units.cols * units.macs_per_element_per_cycle[job.precision.formats.products]
    return replace(
        found,
        flops_per_s=2.0 * macs * accelerator.clock_hz,
        hbm_bytes_per_s=accelerator.hbm.bandwidth_bytes_per_s,
    )
