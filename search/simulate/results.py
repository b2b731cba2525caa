"""What a simulator found, kept: in the case's folder, and in the store of the run that the case comes from."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archplace.arch_configs.errors import ConfigError, Problem, StoreError
from archplace.search.export.manifest import Manifest, OriginFields
from archplace.search.simulate.binary import Backend
from archplace.search.simulate.simulation import Simulation
from archplace.search.store import Store

FILE = "simulation.json"
_KIND: Literal["archplace simulation"] = "archplace simulation"

LOGGED = "simulated"
"""What the store's log calls what was simulated."""


class Found(BaseModel):
    """What was simulated of a case, as read back."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["archplace simulation"] = _KIND
    backend: Backend
    step_s: float = Field(gt=0, allow_inf_nan=False)
    finish_ns: tuple[int, ...] = ()
    computing_ns: tuple[int | None, ...] = ()
    remarks: tuple[str, ...] = ()


class Stored(BaseModel):
    """One case simulated, as a run's store has it beside the prediction."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    point: str
    workload: str
    strategy: str
    granularity: str
    backend: Backend
    step_s: float
    """Predicted, as the search prices networks."""
    simulator_step_s: float
    """Predicted with the collectives of the simulator."""
    replayed_step_s: float
    simulated_step_s: float


def keep(folder: Path, simulation: Simulation) -> None:
    """Write what was found beside the case. Raises :class:`ConfigError` where that cannot be written."""
    found = Found(
        backend=simulation.backend,
        step_s=simulation.step_s,
        finish_ns=simulation.finish_ns,
        computing_ns=simulation.computing_ns,
        remarks=simulation.remarks,
    )
    path = folder / FILE
    partial = path.with_name(f".{FILE}.partial")
    try:
        partial.write_text(json.dumps(found.model_dump(mode="json")) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        message = f"cannot be written: {error.strerror or error}"
        raise ConfigError([Problem(place=str(path), key="", message=message)]) from None


def kept(folder: Path) -> Found | None:
    """Return what was found of a case, or None where nothing was simulated."""
    path = folder / FILE
    try:
        return Found.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = f"{error.error_count()} errors" if isinstance(error, ValidationError) else str(error)
        message = f"cannot be read ({reason}); simulate the case again"
        raise ConfigError([Problem(place=str(path), key="", message=message)]) from None


def store(manifest: Manifest, simulation: Simulation) -> Path | None:
    """Note what was found in the store of the run that the case comes from; return its folder, or None without one.

    Raises :class:`StoreError` where that run is not there any more, or is another one now.
    """
    origin, predicted = manifest.origin, manifest.predicted
    if origin.folder is None or origin.point is None:
        return None
    folder = Path(origin.folder)
    stored = Stored(
        point=origin.point,
        workload=manifest.workload,
        strategy=manifest.strategy,
        granularity=manifest.granularity,
        backend=simulation.backend,
        step_s=predicted.step_s,
        simulator_step_s=predicted.simulator_step_s,
        replayed_step_s=predicted.replayed_step_s,
        simulated_step_s=simulation.step_s,
    )
    with Store.open(folder) as run:
        _same(run, origin, folder)
        run.log(LOGGED, stored.model_dump(mode="json"))
    return folder


def _same(run: Store, origin: OriginFields, folder: Path) -> None:
    if run.meta().get("digest") != origin.digest:
        raise StoreError(f"{folder}: has another run now than the one that the case was exported from; export it again")


def stored(folder: Path) -> list[Stored]:
    """Return what was simulated of the points of a run; of a case that was simulated several times the last."""
    latest: dict[tuple[str, str, str, Backend], Stored] = {}
    with Store.open(folder) as run:
        for value in run.logged(LOGGED):
            try:
                one = Stored.model_validate(value)
            except ValidationError as error:
                raise StoreError(
                    f"{folder}: a stored simulation cannot be read ({error.error_count()} errors); simulate again"
                ) from None
            latest[one.point, one.workload, one.granularity, one.backend] = one
    return list(latest.values())
