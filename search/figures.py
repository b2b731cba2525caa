"""Figures per sample of placements: seconds, joules of the whole cluster, US dollars.

For a step of T seconds on N accelerators and a global batch B::

    joules  = dynamic + optimizer·updates + link·sent + static·N·T
    usd     = price(accelerator)·N·T / service life + price(joule)·joules

per step; per sample both are divided by B. *dynamic* is what the operators of all microbatches take, with those that
recomputation repeats; *updates* counts every copy of a parameter that an optimizer step changes; *sent* are the bytes
that replicas exchange, as rings send them, and the activations and gradients that cross stage boundaries. All N
accelerators are powered for the whole step, used or not. All terms grow with T: a lower bound on T
gives one on every figure.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.technology import Technology
from archplace.costmodel import Pricer, accelerator_cost_usd, operator_energy_j, parameters_of, static_power_w
from archplace.search.steptimes import OPTIMIZER_PARAMETERS, LayerJoules, StepTimes, optimizer_operator
from archplace.search.strategy.chain import of_layers
from archplace.search.strategy.layers import Pass
from archplace.search.strategy.options import Option, OptionSpace, Placements
from archplace.workloads import TrainingJob

_BLOCK = 65536
"""Architectures whose optimizer step is priced at a time."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What turns seconds into the other figures, for the architectures of one space."""

    count: int
    """How many of seconds, joules, dollars are computed: a later one needs the earlier."""
    accelerators: int
    technology: Technology | None = None
    static_w: FloatArray | None = None
    """(n_archs,) watts of one accelerator whatever it does."""
    price_usd: Callable[[int], FloatArray] | None = None
    """Price of one accelerator with an HBM capacity, (n_archs,)."""

    @classmethod
    def of_space(
        cls, architectures: Architectures, technology: Technology | None, *, accelerators: int, count: int
    ) -> "Figures":
        """Return the figures up to ``count``; :class:`ConfigError` where the technology table lacks what they need."""
        if count == 1 or technology is None:
            assert count == 1, "energy and cost need a technology table"
            return cls(count=1, accelerators=accelerators)
        technology.need_energy()
        static_w = static_power_w(architectures, technology, host=True)
        if count == 2:
            return cls(count=2, accelerators=accelerators, technology=technology, static_w=static_w)
        technology.need_cost()
        known: dict[int, FloatArray] = {}

        def price_usd(hbm_bytes: int) -> FloatArray:
            if hbm_bytes not in known:
                known[hbm_bytes] = accelerator_cost_usd(architectures, hbm_bytes, technology)
            return known[hbm_bytes]

        return cls(count=3, accelerators=accelerators, technology=technology, static_w=static_w, price_usd=price_usd)

    def optimizer_j(self, architectures: Architectures, cluster: Cluster, workload: TrainingJob) -> FloatArray | None:
        """Return the joules of one parameter's optimizer step, ``(n_archs,)``; None where joules are not computed."""
        if self.count == 1:
            return None
        assert self.technology is not None
        operator = optimizer_operator(workload.optimizer_work(OPTIMIZER_PARAMETERS))
        found = np.empty(len(architectures))
        for start in range(0, len(found), _BLOCK):
            block = slice(start, start + _BLOCK)
            pricer = Pricer(architectures.take(block), cluster)
            joules = operator_energy_j(pricer, [operator], self.technology)
            found[block] = joules[:, 0] / OPTIMIZER_PARAMETERS
        return found

    def joules(self, times: StepTimes, pricer: Pricer) -> LayerJoules:
        """Return the dynamic joules of passes over layers, ``(n, S)`` each as ``pricer``."""
        assert self.technology is not None
        return times.joules(pricer, self.technology)

    def least_dynamic_j(self, joules: LayerJoules, space: OptionSpace, workload: TrainingJob) -> FloatArray:
        """Return the dynamic joules of all microbatches of a step that no placement of an option undercuts, ``(n,)``.

        What memory forces to recompute is counted.
        """
        table, units = space.table, _units(space, workload)
        once = of_layers(joules.passes[Pass.FORWARD] + joules.passes[Pass.BACKWARD], table.counts)
        return units * (once + self._least_again_j(joules, space))

    def _least_again_j(self, joules: LayerJoules, space: OptionSpace) -> FloatArray:
        """Return the least joules of recomputation for one microbatch on one device, ``(n,)``."""
        table = space.table
        again = table.replayed(joules.passes)
        least: FloatArray = of_layers(again[:, 0], table.counts)
        forced = space.recomputed.min(axis=0, initial=np.inf)
        for policy in range(1, again.shape[1]):
            more = np.maximum(again[:, policy, 1:-1] - again[:, policy - 1, 1:-1], 0.0).min(axis=1, initial=np.inf)
            least = least + np.where(forced[policy] > 0, forced[policy] * more, 0.0)
        return least

    def bounds(
        self,
        step_s: FloatArray,
        dynamic_j: FloatArray | None,
        optimizer_j: FloatArray | None,
        indices: Indices | slice,
        space: OptionSpace,
        batch: int,
    ) -> FloatArray:
        """Return lower bounds of the figures, ``(n, count)``, from lower bounds of the step seconds ``(n,)``.

        ``dynamic_j`` and ``optimizer_j`` ``(n,)`` are as :meth:`dynamic_j` and :meth:`optimizer_j` give them.
        """
        found = np.empty((len(step_s), self.count))
        found[:, 0] = step_s / batch
        if self.count > 1:
            assert dynamic_j is not None
            assert self.static_w is not None
            assert optimizer_j is not None
            once_j = optimizer_j * _parameters(space)
            found[:, 1] = (dynamic_j + once_j + self.static_w[indices] * (self.accelerators * step_s)) / batch
        if self.count > 2:
            found[:, 2] = self._usd(found[:, 0], found[:, 1], indices, space.option)
        return found

    def of(
        self,
        bounds: FloatArray,
        placements: Placements,
        optimizer_j: FloatArray | None,
        joules: LayerJoules | None,
        indices: Indices,
        space: OptionSpace,
        workload: TrainingJob,
        *,
        least: bool = False,
    ) -> FloatArray:
        """Return the figures of placements, ``(n, count)``; infinite where there is none.

        With ``least`` no placement of the option that takes as long or longer has lower ones: what replicas, boundaries
        and further recomputation add is left out, and ``joules`` are not needed.

        ``bounds`` ``(n, count)`` are those of :meth:`bounds` for the same architectures and option: no figure falls
        below its bound. The same placement with other HBM takes the same joules, to the last bit.
        """
        batch = workload.global_batch
        found = np.empty(bounds.shape)
        found[:, 0] = placements.step_s / batch
        if self.count > 1:
            assert self.static_w is not None
            assert optimizer_j is not None
            static_w = self.static_w[indices] * self.accelerators
            with np.errstate(invalid="ignore"):
                if least:
                    found[:, 1] = bounds[:, 1] + static_w * np.maximum(found[:, 0] - bounds[:, 0], 0.0)
                else:
                    dynamic_j = self._dynamic_j(placements, optimizer_j, joules, space, workload)
                    found[:, 1] = np.maximum((dynamic_j + static_w * placements.step_s) / batch, bounds[:, 1])
        if self.count > 2:
            found[:, 2] = np.maximum(self._usd(found[:, 0], found[:, 1], indices, space.option), bounds[:, 2])
        found[~np.isfinite(placements.step_s)] = np.inf
        return found

    def _dynamic_j(
        self,
        placements: Placements,
        optimizer_j: FloatArray,
        joules: LayerJoules | None,
        space: OptionSpace,
        workload: TrainingJob,
    ) -> FloatArray:
        """Return the joules of layers, with those that are repeated, of optimizer steps and of exchanges, ``(n,)``."""
        assert self.technology is not None
        assert joules is not None
        table = space.table
        link = self.technology.need_energy().network_j_per_byte
        rows = np.maximum(placements.row, 0)
        layers, again = placements.layers_by_policy(), table.replayed(joules.passes)
        layers_j = of_layers(joules.passes[Pass.FORWARD] + joules.passes[Pass.BACKWARD], table.counts)
        for policy in range(again.shape[1]):
            layers_j = layers_j + of_layers(again[:, policy], layers[:, policy])
        total: FloatArray = _units(space, workload) * layers_j
        return total + optimizer_j * table.updates[rows] + link * table.sent_bytes[rows]

    def _usd(self, seconds: FloatArray, joules: FloatArray, indices: Indices | slice, option: Option) -> FloatArray:
        assert self.technology is not None
        assert self.price_usd is not None
        cost = self.technology.need_cost()
        hardware = self.price_usd(option.hbm_bytes)[indices] * (self.accelerators / cost.service_life_s)
        usd: FloatArray = hardware * seconds + cost.energy_usd_per_j * joules
        return usd


def _units(space: OptionSpace, workload: TrainingJob) -> float:
    """Return how often a layer is passed in a step: microbatches, on each device that shares the layer."""
    sharding = space.option.sharding
    return float(sharding.stage_devices * (workload.global_batch // sharding.microbatch))


def _parameters(space: OptionSpace) -> float:
    """Return the parameters of one copy of the model on all its devices."""
    sharding = space.option.sharding
    dense, expert = parameters_of(space.table.step.layers)
    spread = dense * sharding.tensor + expert * (sharding.expert * sharding.expert_tensor)
    return float(of_layers(spread, space.table.counts))
