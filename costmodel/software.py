"""Seconds of operators under the programs that run on a cluster: what frameworks add to what kernels need."""

from collections.abc import Mapping, Sequence

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
    keep lanes and ports busy for as much longer; no operator takes less than its dispatch. The same as :class:`Pricer`
    under ideal software.
    """

    def __init__(
        self,
        architectures: Architectures,
        cluster: Cluster,
        *,
        network: NetworkPricer | None = None,
        groups: Mapping[Axis, Group] | None = None,
    ) -> None:
        super().__init__(architectures, cluster, network=network, groups=groups)
        self._software = cluster.software

    def parts(self, operator: Operator, *, one_unit: bool) -> Parts:
        """Return what the seconds of one compute operator consist of, its dispatch left out."""
        parts = super().parts(operator, one_unit=one_unit)
        factor = self._software.vector_traffic
        # Optimizers have one kernel for all parameters, whatever other element-wise work is made of.
        if operator.unit is not Unit.VECTOR or operator.phase is Phase.OPTIMIZER or factor == 1.0:
            return parts
        return parts._replace(
            lanes_s=parts.lanes_s * factor, global_port_s=parts.global_port_s * factor, hbm_s=parts.hbm_s * factor
        )

    def price(self, operators: Sequence[Operator]) -> OperatorPrices:
        """Return the seconds of ``operators`` in both modes, none below the dispatch of an operator."""
        prices, least = super().price(operators), self._software.dispatch_s
        if not least:
            return prices
        return OperatorPrices(one_s=np.maximum(prices.one_s, least), all_s=np.maximum(prices.all_s, least))

    def collective_s(self, collective: Collective) -> float:
        """Return the seconds of a collective, at least its dispatch; nothing for a group of one."""
        seconds = super().collective_s(collective)
        return max(seconds, self._software.dispatch_s) if seconds else seconds
