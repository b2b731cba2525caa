"""Try the placement options of one workload on some architectures, most promising first."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray
from archplace.search.choices import INFEASIBLE, KEPT, LOST, PRUNED, Kept, Tried, WorkloadResult
from archplace.search.strategy.families import GraphKey
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.options import Placements

if TYPE_CHECKING:
    from archplace.search.workload_search import WorkloadSearch

BoolArray = NDArray[np.bool_]
Indices = NDArray[np.int64]
Key = GraphKey


class Trial:
    """Options tried on some architectures: figures reached and best cases so far, ``(n_options, n, n_figures)``."""

    def __init__(self, search: "WorkloadSearch", indices: Indices, bounds: FloatArray) -> None:
        self._search = search
        self._indices = indices
        self._bounds = bounds
        self._open = search.within(bounds)
        self._reached = np.full(bounds.shape, np.inf)
        self._best_case = np.full(bounds.shape, np.inf)
        self._found: dict[tuple[int, int], tuple[Placements, int]] = {}
        self._placed = np.zeros(bounds.shape[:2], dtype=np.bool_)
        self._compared = search.compared
        # Where workloads must agree on an HBM capacity, the fastest of each capacity counts.
        self._fastest_only = self._compared == [0] and len(search.groups) == 1
        self._fastest_s: FloatArray = np.full(bounds.shape[1], np.inf)
        """(n,) seconds per sample of the fastest placement that keeps the budgets."""
        self._group_of = {int(i): group for group in search.groups for i in group}

    def next_keys(self) -> dict[Key, NDArray[np.intp]]:
        """Return by graphs the architectures whose next option needs them; empty when all is tried."""
        columns = np.flatnonzero(self._open.any(axis=0))
        for i in np.flatnonzero(self._open.any(axis=1)).tolist():
            self._open[i, columns] &= ~self._beaten(i, columns, self._bounds[i, columns])
        columns = np.flatnonzero(self._open.any(axis=0))
        wanted: dict[Key, list[int]] = {}
        if len(columns):
            first = np.where(self._open[:, columns], self._bounds[:, columns, 0], np.inf).argmin(axis=0)
            for option, column in zip(first.tolist(), columns.tolist(), strict=True):
                wanted.setdefault(self._search.spaces[option].option.graph_key, []).append(column)
        return {key: np.array(listed) for key, listed in wanted.items()}

    def _beaten(self, option: int, columns: NDArray[np.intp], figures: FloatArray) -> BoolArray:
        """Return whether what was reached is nowhere worse than ``figures`` ``(n_columns, n_figures)`` of an option.

        Only placements that keep the budgets beat anything.
        """
        if self._fastest_only:
            alone: BoolArray = figures[:, 0] >= self._fastest_s[columns]
            return alone
        reached = self._reached[np.ix_(self._group_of[option], columns)]
        no_worse = (reached[..., self._compared] <= figures[None][..., self._compared]).all(axis=-1)
        return np.asarray((no_worse & self._search.within(reached)).any(axis=0))

    def place(self, key: Key, columns: NDArray[np.intp], lower: LayerSeconds, upper: LayerSeconds) -> None:
        """Place all options that share the graphs of ``key`` and are still open on the architectures at ``columns``."""
        batch = self._search.workload.global_batch
        for i in self._search.options_of(key):
            space = self._search.spaces[i]
            rows = np.flatnonzero(self._open[i, columns])
            self._open[i, columns] = False
            rows = rows[~self._beaten(i, columns[rows], self._bounds[i, columns[rows]])]
            if len(rows) == 0:
                continue
            at = columns[rows]
            # What is not faster than the fastest need not be known, where nothing else counts.
            limit_s = self._fastest_s[at] * batch if self._fastest_only else np.full(len(rows), np.inf)
            high, low = (seconds.take(rows) for seconds in (upper, lower))
            best = space.best_of(high, limit_s)
            self._placed[i, at] = True
            self._reached[i, at] = self._figures(i, at, best)
            good = np.where(self._search.within(self._reached[i, at]), self._reached[i, at, 0], np.inf)
            self._fastest_s[at] = np.minimum(self._fastest_s[at], good)
            for row, column in enumerate(at.tolist()):
                self._found[i, column] = best, row
            fastest = best if high.equals(low) else space.best_of(low, limit_s)
            settled = (fastest.step_s == best.step_s)[:, None]
            hopeful = np.where(settled, self._reached[i, at], self._figures(i, at, fastest, least=True))
            # The order in which a bound adds may differ from that of a sum by a rounding.
            self._best_case[i, at] = np.minimum(hopeful, self._reached[i, at])

    def _figures(
        self, option: int, columns: NDArray[np.intp], placements: Placements, *, least: bool = False
    ) -> FloatArray:
        search = self._search
        indices = self._indices[columns]
        space = search.spaces[option]
        return search.figures.of(
            self._bounds[option, columns],
            placements,
            search.optimizer_j(indices),
            None if least else search.joules(space.option.graph_key, indices),
            indices,
            space,
            search.workload,
            least=least,
        )

    def open_keys(self, column: int) -> frozenset[Key]:
        """Return the graphs whose open brackets could change what is kept of an architecture."""
        best_case, reached = self._best_case[:, column], self._reached[:, column]
        unproven = np.flatnonzero(self._search.within(best_case) & (best_case[:, 0] < reached[:, 0]))
        if self._fastest_only:
            unproven = unproven[best_case[unproven, 0] < self._fastest_s[column]]
        else:
            unproven = np.array([i for i in unproven.tolist() if not self._loses(i, column)], dtype=np.intp)
        return frozenset(self._search.spaces[i].option.graph_key for i in unproven.tolist())

    def tried(self, column: int) -> Tried:
        """Return what came of the options on one architecture."""
        kept = self.kept(column)
        fates = np.where(self._placed[:, column], LOST, PRUNED)
        fates[~self._search.within(self._bounds[:, column])] = INFEASIBLE
        if not self._fastest_only:
            over = self._placed[:, column] & ~self._search.within(self._best_case[:, column])
            fates[over] = INFEASIBLE
        fates[[one.option for one in kept]] = KEPT
        return Tried(kept=kept, options="".join(fates.tolist()))

    def kept(self, column: int) -> list[Kept]:
        """Return the placements of one architecture that are not beaten, the preferred one of equal ones."""
        possible = self._search.within(self._best_case[:, column])
        if self._fastest_only:
            return self._fastest(column, possible)
        return [
            self._as_kept(i, column, self._best_case[i, column])
            for i in np.flatnonzero(possible).tolist()
            if not self._loses(i, column)
        ]

    def _loses(self, option: int, column: int) -> bool:
        group, compared = self._group_of[option], self._compared
        mine, reached = self._best_case[option, column], self._reached[self._group_of[option], column]
        no_worse = (reached[:, compared] <= mine[compared]).all(axis=-1) & self._search.within(reached)
        better = no_worse & (reached[:, compared] < mine[compared]).any(axis=-1)
        return bool((better | (no_worse & (group < option))).any())

    def _fastest(self, column: int, possible: BoolArray) -> list[Kept]:
        """Return the fastest placement alone; its best case is that of all options."""
        if not possible.any():
            return []
        reached, best_case = self._reached[:, column], self._best_case[:, column]
        good = self._search.within(reached)
        # Where only better schedules could keep the budgets, the fastest stands for what these may give.
        candidates = np.flatnonzero(good if good.any() else np.isfinite(reached[:, 0]))
        if len(candidates) == 0:
            return []
        option = int(candidates[reached[candidates, 0].argmin()])
        least = int(np.where(possible, best_case[:, 0], np.inf).argmin())
        return [self._as_kept(option, column, np.minimum(best_case[least], reached[option]))]

    def _as_kept(self, option: int, column: int, best_case: FloatArray) -> Kept:
        placements, row = self._found[option, column]
        placement = placements.at(row)
        assert placement is not None
        proven = bool(best_case[0] == self._reached[option, column, 0])
        return Kept(
            result=WorkloadResult(
                option=self._search.spaces[option].option,
                placement=placement,
                lower_step_s=placement.step_s if proven else float(best_case[0] * self._search.workload.global_batch),
            ),
            option=option,
            reached=self._reached[option, column],
            best_case=best_case,
        )
