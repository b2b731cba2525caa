"""What strategies are searched for: one training job on one accelerator in one cluster."""

from dataclasses import dataclass, field

from archplace.arch_configs import Accelerator, Cluster
from archplace.arch_configs.architectures import Architectures
from archplace.costmodel import Allowance
from archplace.costmodel.network import NetworkPricer, PricingMode
from archplace.workloads import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """One job on as many devices as ``cluster`` has."""

    workload: TrainingJob
    accelerator: Accelerator
    cluster: Cluster
    """Sized to the job."""
    allowance: Allowance = field(default_factory=Allowance)
    network_mode: PricingMode = PricingMode.BEST

    @property
    def accelerators(self) -> int:
        """Devices of the job."""
        return self.cluster.size

    @property
    def architectures(self) -> Architectures:
        """The accelerator as a table of one row."""
        return Architectures.of(self.accelerator)

    def network(self) -> NetworkPricer:
        """Return the prices of the network."""
        return NetworkPricer(self.cluster, self.network_mode)

    @property
    def peak_flops_per_s(self) -> float:
        """FLOP/s of one device's tensor units at the precision of the workload's products."""
        units, rates = self.accelerator.tensor_units, self.accelerator.tensor_units.macs_per_element_per_cycle
        rate = rates[self.workload.precision.formats.products]
        return 2.0 * units.count * units.rows * units.cols * rate * self.accelerator.clock_hz
