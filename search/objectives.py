"""What a search can optimise, and how the figures of workloads become the values of a design point.

Inside the search every objective is minimised: throughput stands as seconds per sample. Values are only compared, never
added, so that no objective needs a weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from archplace.arch_configs.architectures import FloatArray


class Objective(StrEnum):
    """What a run can optimise; the order is that of the columns of every array of values."""

    THROUGHPUT = "throughput"
    """Samples per second, maximised; of several workloads the geometric mean."""
    WORST_CASE = "worst_case"
    """Throughput relative to the best of the space, of the workload where that is least; maximised."""
    ENERGY = "energy"
    """Joules per sample of the whole cluster; of several workloads the geometric mean."""
    COST = "cost"
    """US dollars per sample, hardware and energy; of several workloads the geometric mean."""
    POWER = "power"
    """Watts of one accelerator with everything at full rate."""
    AREA = "area"
    """Square millimetres of one accelerator's die."""


FIGURES = ("seconds", "joules", "usd")
"""Figures per sample that a placement decides, in the order of an array's last axis."""

_FIGURE = {Objective.THROUGHPUT: 0, Objective.WORST_CASE: 0, Objective.ENERGY: 1, Objective.COST: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The objectives of one run, in the order of :class:`Objective`."""

    names: tuple[Objective, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> "Objectives":
        """Return the objectives called ``names``, in any order, each once; at least one."""
        if not names or len(set(names)) < len(names):
            raise ValueError(f"objectives: found {list(names)}; needs at least one, each once")
        wanted = {Objective(name) for name in names}
        return cls(names=tuple(objective for objective in Objective if objective in wanted))

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: Objective) -> bool:
        return name in self.names

    @property
    def compared(self) -> tuple[int, ...]:
        """Columns of :data:`FIGURES` by which two placements on one architecture are compared; at least one.

        Where no objective depends on the placement, the fastest one is taken.
        """
        return tuple(sorted({_FIGURE[name] for name in self.names if name in _FIGURE})) or (0,)

    @property
    def depend_on_time(self) -> tuple[bool, ...]:
        """Which objectives depend on the placement; the others are the architecture's."""
        return tuple(name in _FIGURE for name in self.names)

    def values(
        self, figures: FloatArray, *, references_s: Sequence[float], power_w: FloatArray, area_mm2: FloatArray
    ) -> FloatArray:
        """Return the values of design points, ``(n, n_objectives)``, all minimised.

        ``figures`` ``(n_workloads, n, n_figures)``: figures per sample as :data:`FIGURES`; ``references_s``
        ``(n_workloads,)`` seconds per sample that the worst case is relative to; ``power_w`` and ``area_mm2`` ``(n,)``.
        Infinite where a figure is.
        """
        columns = []
        for name in self.names:
            if name is Objective.WORST_CASE:
                relative = figures[:, :, 0] / np.asarray(references_s)[:, None]
                columns.append(relative.max(axis=0))
            elif name in _FIGURE:
                columns.append(geometric_mean(figures[:, :, _FIGURE[name]]))
            else:
                columns.append(power_w if name is Objective.POWER else area_mm2)
        return np.column_stack(columns)


def geometric_mean(values: FloatArray) -> FloatArray:
    """Return the geometric mean over the first axis; of a single row that row itself, to the last bit."""
    if len(values) == 1:
        single: FloatArray = values[0]
        return single
    with np.errstate(divide="ignore"):
        mean: FloatArray = np.exp(np.mean(np.log(values), axis=0))
    return mean
