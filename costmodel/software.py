"""Seconds of operators under the programs that run on a cluster: what frameworks add to what kernels need."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.cluster import Cluster
from archplace.costmodel.network import Group, NetworkPricer
from archplace.costmodel.operators import OperatorPrices, Pricer
from archplace.costmodel.parts import Parts
from archplace.workloads.operators import Axis, Collective, Operator, Phase, Unit


class SoftwarePricer(Pricer):
    """A pricer whose operators take what the programs of its cluster make of them.

    Element-wise operators move :attr:`~archplace.arch_configs.cluster.Software.vector_traffic` times the bytes, and
    keep lanes and ports busy for as much longer; products run at the rate that long runs sustain; fused attention takes
    longer by a factor of its own; no operator takes less than its dispatch. The same as :class:`Pricer` under ideal
    software.
    """

    def __init__(
        self,
        architectures: Architectures,
        cluster: Cluster,
        *,
        network: NetworkPricer | None = None,
        groups: Mapping[Axis, Group] | None = None,
    ) -> None:
        self._software = cluster.software
        super().__init__(_sustained(architectures, self._software.tensor_rate), cluster, network=network, groups=groups)
        self._kernels: Pricer | None = None
        if self._software.tensor_rate != 1.0:
            self._kernels = Pricer(architectures, cluster, network=network, groups=groups)

    def parts(self, operator: Operator, *, one_unit: bool) -> Parts:
        """Return what the seconds of one compute operator consist of, its dispatch left out."""
        factor = self._factor(operator)
        if operator.attention is not None and self._kernels is not None:
            parts = self._kernels.parts(operator, one_unit=one_unit)
        else:
            parts = super().parts(operator, one_unit=one_unit)
        if factor == 1.0:
            return parts
        longer = {name: seconds * factor for name, seconds in parts._asdict().items() if name != "launch_s"}
        return parts._replace(**longer)

    def _factor(self, operator: Operator) -> float:
        """Return the operator's seconds over those of its kernel."""
        software = self._software
        if operator.attention is not None:
            return software.attention_gradient_time if operator.attention.gradients else software.attention_time
        # Optimizers have one kernel for all parameters, whatever other element-wise work is made of.
        several = operator.unit is Unit.VECTOR and operator.phase is not Phase.OPTIMIZER
        return software.vector_traffic if several else 1.0

    def price(self, operators: Sequence[Operator]) -> OperatorPrices:
        """Return the seconds of ``operators`` in both modes, none below the dispatch of an operator.

        Optimizer steps are priced for some of the parameters and scaled: theirs is left out.
        """
        prices, dispatch_s = super().price(operators), self._software.dispatch_s
        if not dispatch_s:
            return prices
        least = np.array([0.0 if operator.phase is Phase.OPTIMIZER else dispatch_s for operator in operators])
        return OperatorPrices(one_s=np.maximum(prices.one_s, least), all_s=np.maximum(prices.all_s, least))

    def collective_s(self, collective: Collective) -> float:
        """Return the seconds of a collective, at least its dispatch; nothing for a group of one."""
        seconds = super().collective_s(collective)
        return max(seconds, self._software.dispatch_s) if seconds else seconds


def _sustained(architectures: Architectures, rate: float) -> Architectures:
    if rate == 1.0:
        return architectures
    calibration = architectures.calibration
    return replace(architectures, calibration=replace(calibration, tensor_rate=calibration.tensor_rate * rate))
