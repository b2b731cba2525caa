"""Predicted, replayed and simulated step times side by side, and what their difference is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archplace.search.export.manifest import Manifest, read_manifest
from archplace.search.export.parts import PARTS
from archplace.search.simulate.results import Found, Stored, kept, stored

UNEXPLAINED = "simulator and replay differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a step's seconds go to."""

    name: str
    predicted_s: float
    """As the search prices networks."""
    simulator_prices_s: float
    """With the collectives of the simulator."""
    replayed_s: float
    """On a device of the slowest stage."""

    @property
    def prices_s(self) -> float:
        """What the simulator's collectives take longer than the search's."""
        return self.simulator_prices_s - self.predicted_s

    @property
    def run_s(self) -> float:
        """What running the traces takes longer than the simulator's prices say."""
        return self.replayed_s - self.simulator_prices_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One case."""

    folder: Path
    manifest: Manifest
    found: Found | None
    """None where nothing was simulated yet."""

    @classmethod
    def of(cls, folder: Path) -> "Comparison":
        """Read a case. Raises :class:`~archplace.arch_configs.errors.ConfigError` where there is none."""
        return cls(folder=folder, manifest=read_manifest(folder), found=kept(folder))

    def row(self) -> dict[str, object]:
        """Return the times of the case; differences are relative to what was predicted."""
        manifest, predicted = self.manifest, self.manifest.predicted
        row: dict[str, object] = {
            "case": str(self.folder),
            "workload": manifest.workload,
            "strategy": manifest.strategy,
        }
        row |= {"npus": manifest.npus, "granularity": manifest.granularity}
        simulated_s = None if self.found is None else self.found.step_s
        backend = None if self.found is None else str(self.found.backend)
        return row | {
            "backend": backend,
            **times_row(predicted.step_s, predicted.simulator_step_s, predicted.replayed_step_s, simulated_s),
        }

    def parts(self) -> list[Part]:
        """Return what the times go to, those parts that have any; the last is what the replay does not explain."""
        predicted = self.manifest.predicted
        columns = (predicted.parts_s, predicted.simulator_parts_s, predicted.replayed_parts_s)
        rows = {name: [float(column.get(name, 0.0)) for column in columns] for name in _names(columns)}
        return [
            Part(name=name, predicted_s=first, simulator_prices_s=second, replayed_s=third)
            for name, (first, second, third) in rows.items()
            if first or second or third
        ]

    @property
    def unexplained_s(self) -> float | None:
        """What the simulator takes longer than the replay; None where nothing was simulated."""
        return None if self.found is None else self.found.step_s - self.manifest.predicted.replayed_step_s

    def document(self) -> dict[str, object]:
        """Return everything as plain data."""
        parts = [
            {
                "part": part.name,
                "predicted_s": part.predicted_s,
                "simulator_prices_s": part.simulator_prices_s,
                "replayed_s": part.replayed_s,
                "prices_differ_s": part.prices_s,
                "run_differs_s": part.run_s,
            }
            for part in self.parts()
        ]
        remarks = [] if self.found is None else list(self.found.remarks)
        return {
            **self.row(),
            "slowest_stage": self.manifest.predicted.stage,
            "parts": parts,
            "unexplained_s": self.unexplained_s,
            "remarks": remarks,
        }


def _names(columns: tuple[Mapping[str, float], ...]) -> dict[str, None]:
    # Those of another version stand behind those that are known.
    return dict.fromkeys([*PARTS, *(name for column in columns for name in column)])


def times_row(
    predicted_s: float, simulator_prices_s: float, replayed_s: float, simulated_s: float | None
) -> dict[str, object]:
    """Return times and relative differences as a row."""
    return {
        "predicted_s": predicted_s,
        "simulator_prices_s": simulator_prices_s,
        "replayed_s": replayed_s,
        "simulated_s": simulated_s,
        "vs_predicted": None if simulated_s is None else simulated_s / predicted_s - 1,
        "vs_simulator_prices": None if simulated_s is None else simulated_s / simulator_prices_s - 1,
        "vs_replayed": None if simulated_s is None else simulated_s / replayed_s - 1,
    }


def in_percent(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row for people, its relative differences in percent."""
    return {
        key: f"{100 * value:+.3f} %" if key.startswith("vs_") and isinstance(value, float) else value
        for key, value in row.items()
    }


def run_rows(folder: Path) -> list[dict[str, object]]:
    """Return what was simulated of the points of a run, as rows like those of cases."""
    return [_stored_row(one) for one in stored(folder)]


def _stored_row(one: Stored) -> dict[str, object]:
    return {
        "id": one.point,
        "workload": one.workload,
        "strategy": one.strategy,
        "granularity": one.granularity,
        "backend": str(one.backend),
        **times_row(one.step_s, one.simulator_step_s, one.replayed_step_s, one.simulated_step_s),
    }
