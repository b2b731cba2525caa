"""What stands beside a case: what was exported, what was predicted of it, and what the simulator cannot express."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archplace import __version__
from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.export.candidates import Candidate
from archplace.search.export.case import Case
from archplace.search.export.expand import Expanded
from archplace.search.export.parts import predicted_parts, spent
from archplace.search.export.simulator_files import layers
from archplace.search.plan_tables import placement_of

FILE = "manifest.json"
KIND: Literal["archplace simulator case"] = "archplace simulator case"
PLAIN_KIND = "archplace traces"
"""Of traces that are for other readers than the simulator."""
_KILOBYTES_PER_NODE = 1.3
_MICROSECONDS_PER_NODE = 48
"""Of ASTRA-sim's backend without congestion on one core, measured with a million nodes."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class OriginFields(_Part):
    """Where the case comes from."""

    run: str
    folder: str | None = None
    point: str | None = None
    digest: str | None = None


class DimensionFields(_Part):
    """A dimension of the network."""

    dimension: str
    npus: int


class PredictedFields(_Part):
    """What the step was predicted to take, in seconds."""

    step_s: Seconds
    """As the search prices networks."""
    simulator_step_s: Seconds
    """With the collectives of the simulator, one at a time on each device."""
    replayed_step_s: Seconds
    """By the dry replay of this case."""
    stage: int
    """The slowest, whose parts these are."""
    parts_s: dict[str, float]
    """Of the step as the search prices networks."""
    simulator_parts_s: dict[str, float]
    """Of the step with the collectives of the simulator."""
    replayed_parts_s: dict[str, float]
    """The same of the replay, on a device of that stage."""
    finish_ns: tuple[int, ...]
    """When each device has done everything in the replay."""


class Manifest(_Part):
    """The manifest of a case, as read back."""

    kind: Literal["archplace simulator case"]
    archplace: str
    origin: OriginFields
    workload: str
    accelerator: str
    cluster: str
    strategy: str
    npus: Annotated[int, Field(ge=2)]
    network: tuple[DimensionFields, ...]
    nodes: Annotated[int, Field(ge=1)]
    granularity: str
    predicted: PredictedFields

    @property
    def title(self) -> str:
        """One line for people."""
        point = "" if self.origin.point is None else f" design {self.origin.point}"
        return f"{self.origin.run}{point}: {self.workload} as {self.strategy}"


def manifest_text(candidate: Candidate, found: Expanded, kind: str = KIND) -> str:
    """Return the manifest."""
    case, replayed = found.case, found.replayed
    placed = case.placed
    evaluation, strategy = placed.evaluation, placed.placement.strategy
    stage = max(range(strategy.stages), key=lambda j: placed.cut.loads_s[j])
    cluster, origin = placed.placement.cluster, candidate.origin
    manifest: dict[str, object] = {
        "kind": kind,
        "archplace": __version__,
        "origin": {
            "run": origin.name,
            "folder": None if origin.folder is None else str(origin.folder),
            "point": origin.point,
            "digest": origin.digest,
        },
        "workload": candidate.workload.name,
        "global_batch": candidate.workload.global_batch,
        "sequence_length": candidate.workload.sequence_length,
        "accelerator": candidate.accelerator,
        "cluster": cluster.name,
        "strategy": str(strategy),
        "placement": placement_of(strategy),
        "npus": case.n_npus,
        "network": [
            {"dimension": dimension.name, "npus": dimension.size}
            for dimension in case.communicators.numbering.dimensions
        ],
        "stages": [
            {"stage": j, "layers": dict(view.layers), "recompute": str(view.recompute)}
            for j, view in enumerate(evaluation.stages)
        ],
        "stage_of_npu": case.role.tolist(),
        "granularity": str(case.granularity),
        "nodes": case.n_nodes,
        "process_groups": len(case.groups),
        "simulator": {
            "name": "ASTRA-sim, analytical backend without congestion",
            "memory_bytes": round(case.n_nodes * _KILOBYTES_PER_NODE * 1000),
            "seconds": round(case.n_nodes * _MICROSECONDS_PER_NODE / 1e6, 1),
            "open_files": case.n_npus,
        },
        "predicted": {
            "step_s": candidate.predicted.step_s,
            "simulator_step_s": found.predicted.step_s,
            "replayed_step_s": replayed.step_ns / 1e9,
            "stage": stage,
            "parts_s": predicted_parts(candidate.predicted, exact=False),
            "simulator_parts_s": found.predicted.parts_s(),
            "replayed_parts_s": spent(case, replayed, stage),
            "finish_ns": replayed.finish_ns.tolist(),
        },
        "approximations": approximations(case),
    }
    return json.dumps(manifest, indent=1) + "\n"


def approximations(case: Case) -> list[str]:
    """Return what the simulator cannot express, and what stands in its place."""
    placed = case.placed
    strategy, cluster = placed.placement.strategy, placed.placement.cluster
    found = [
        "Computing: durations are those of the schedule on the units of the accelerator, taken as they are.",
        "Communication: a device exchanges one thing at a time; messages between stages wait for collectives, and "
        "collectives for them.",
        "Collectives: rings in each dimension of the network, all-to-alls with one message at a time; the search takes "
        "the fastest algorithm of each dimension.",
        "Links: full bandwidth for messages of every size, and no congestion; what it costs to start a collective, and "
        "to pass its buffer, is left out.",
        "Numbers of devices: the slowest dimension counts first, because the simulator charges a message by the first "
        "dimension in which two numbers differ.",
    ]
    if len(layers(case)) > len(case.communicators.numbering.dimensions):
        found.append(
            "Network: its one dimension is written as two of the same links, in which every message takes the same; "
            "with one the simulator frees rings twice."
        )
    if any(dimension.sustained < 1 for dimension in cluster.dimensions):
        found.append("Software: what the programs of the cluster sustain of its links is left out.")
    if any(not case.communicators.is_even(team.group) for team, _ in case.groups):
        found.append(
            "Uneven groups: some fill no part of the network evenly; they run as one ring through several dimensions, "
            "of which the simulator charges each step alone."
        )
    if strategy.offload.activations or strategy.offload.optimizer:
        found.append(
            "Offloading: the link to the host is no part of the network; what outlasts computing is waited for."
        )
    if case.granularity == "stage":
        found.append(
            "Granularity stage: the exchanges of a kind that a stage makes of a microbatch are one, behind part of its "
            "computing."
        )
    if strategy.overlap.data and len(case.placed.cut.loads_s) > 1:
        found.append(
            "The step before: what its update changed is gathered at the beginning, behind the first forward pass."
        )
    return found


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a case. Raises :class:`ConfigError` for a folder that is none."""
    path = folder / FILE
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"{folder}: no case here ({path.name}: {error.strerror}); make one with: archplace export RUN.yaml --to "
            f"astra-sim --out {folder}"
        ) from None
    except UnicodeDecodeError:
        raise _damaged(path, "not a text") from None
    if _kind(folder) == PLAIN_KIND:
        raise ConfigError(
            f"{folder}: traces with durations, which export --to chakra wrote for other readers; the simulator takes "
            "what archplace export … --to astra-sim writes"
        )
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _damaged(path, f"{place}: {first['msg']}" if place else first["msg"]) from None


def is_case(folder: Path) -> bool:
    """Whether a folder holds a case, whole enough to be known as one."""
    return _kind(folder) == KIND


def cases_in(folder: Path) -> list[Path]:
    """Return the cases that stand in a folder of several, in order; of any other folder, itself."""
    inside = sorted(each for each in folder.iterdir() if is_case(each)) if folder.is_dir() else []
    return [folder] if is_case(folder) or not inside else inside


def is_export(folder: Path) -> bool:
    """Whether a folder holds a case, or traces for other readers."""
    return _kind(folder) in (KIND, PLAIN_KIND)


def _kind(folder: Path) -> object:
    try:
        found = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        return None
    return found.get("kind") if isinstance(found, Mapping) else None


def _damaged(path: Path, what: str) -> ConfigError:
    message = f"not the manifest of a case ({what}); export it again with --force"
    return ConfigError([Problem(place=str(path), key="", message=message)])
