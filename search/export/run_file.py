"""A candidate as a run file, which ``archplace evaluate`` and ``archplace export`` take as they take any other.

Everything that was decided stands in it: the accelerator in full, the placement, the layers of each stage and what each
recomputes. The workload and the cluster are named: built-in ones, or the files that were given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from archplace.arch_configs import Cluster, load_cluster
from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import Allowance
from archplace.search.export.accelerator_fields import accelerator_fields
from archplace.search.export.candidates import Candidate
from archplace.search.plan_tables import placement_of
from archplace.search.strategy.strategy import DEALT_EVENLY
from archplace.workloads import TrainingJob, load_job
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.traced_workload import TracedWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What the run file calls workload and cluster; None for what the candidate is known to come from."""

    workload: str | None = None
    cluster: str | None = None


def run_file_text(candidate: Candidate, named: Named) -> str:
    """Return a run file that describes a candidate.

    Raises :class:`ConfigError` where workload or cluster are none that a name stands for, and where the names given
    stand for others.
    """
    placement = candidate.placement
    strategy, workload, cluster = placement.strategy, placement.workload, placement.cluster
    point = "" if candidate.origin.point is None else f" design {candidate.origin.point} of"
    source = f"archplace export of{point} the run {candidate.origin.name}"
    run: dict[str, object] = {
        "workload": _workload(candidate, named.workload),
        "cluster": _cluster(candidate, named.cluster),
        "accelerators": cluster.size,
        "global_batch": workload.global_batch,
        "sequence_length": workload.sequence_length,
        "placement": placement_of(strategy),
    }
    policies = [str(policy) for policy in placement.policies]
    if len(set(policies)) == 1:
        run["placement"] = {**placement_of(strategy), "recompute": policies[0]}
    else:
        run["stage_recompute"] = policies
    if strategy.schedule not in DEALT_EVENLY and placement.held is not None:
        run["stages"] = [sum(layers) for layers in placement.held]
    default, allowance = Allowance(), placement.allowance
    if allowance != default:
        run["memory"] = {"fragmentation": allowance.fragmentation, "reserved": int(allowance.reserved_bytes)}
    run["accelerator"] = accelerator_fields(
        placement.architectures, candidate.accelerator, hbm_bytes=placement.hbm_bytes, source=source
    )
    head = (
        f"# {candidate.title}: a step of {candidate.predicted.step_s:.6g} s. Price it again: archplace evaluate FILE\n"
    )
    if isinstance(workload, TracedWorkload) and candidate.origin.point is not None:
        # A search shares layers before it knows the accelerator, and what is exported is of one accelerator.
        head += "# Its layers come from a trace: they are shared anew by this accelerator's rates, and may take less.\n"
    return head + yaml.safe_dump(
        {"run": run}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=1 << 20
    )


def _workload(candidate: Candidate, name: str | None) -> str:
    wanted = candidate.placement.workload

    def sized(job: TrainingJob) -> str:
        # Jobs are what they say they are. Rates, by which traced layers are shared, are those of each run.
        found = job.resized(global_batch=wanted.global_batch, sequence_length=wanted.sequence_length)
        return repr(replace(found, rates=Rates()) if isinstance(found, TracedWorkload) else found)

    known = name or candidate.origin.workload
    return _named("workload", known, wanted.name, lambda text: sized(load_job(text)) == sized(wanted))


def _cluster(candidate: Candidate, name: str | None) -> str:
    wanted: Cluster = candidate.placement.cluster
    known = name or candidate.origin.cluster
    return _named("cluster", known, wanted.name, lambda text: load_cluster(text).sized(wanted.size) == wanted)


def _named(what: str, given: str | None, own_name: str, is_it: Callable[[str], bool]) -> str:
    """Return the name under which a workload or cluster is found."""
    text = own_name if given is None else given
    try:
        same = is_it(text)
    except (ConfigError, ValueError) as error:
        if given is not None:
            raise ConfigError(f"--{what}: {error}") from None
        same = False
    if same:
        return str(Path(text).resolve()) if Path(text).is_file() else text
    if given is None:
        raise ConfigError(
            f"the {what} {own_name} of the run is none of the built-in ones: give the file that describes it with "
            f"--{what} FILE"
        )
    raise ConfigError(f"--{what}: {text} is another {what} than the {own_name} that the run had; give the file of that")
