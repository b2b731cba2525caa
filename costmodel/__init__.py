"""What does it cost? Latency, traffic, memory, energy, power, money and communication as arrays over design points."""

from archplace.costmodel._gemm import Pipelining
from archplace.costmodel.allowance import Allowance
from archplace.costmodel.cost import (
    RETICLE_LIMIT_MM2,
    accelerator_cost_usd,
    die_cost_usd,
    service_life_s,
)
from archplace.costmodel.energy import (
    EnergyParts,
    control_power_w,
    energy_parts,
    operator_energy_j,
    peak_power_w,
    static_power_w,
)
from archplace.costmodel.explanation import Explanation, explain
from archplace.costmodel.kernel_fit import KernelFit, MeasuredKernel, fit_calibration, kernel_errors
from archplace.costmodel.memory import StageMemory
from archplace.costmodel.memory_coefficients import (
    POLICIES,
    Footprint,
    MemoryCoefficients,
    WorkingParts,
    chain_exchanges,
    memory_coefficients,
    parameters_of,
    policy_of,
    updated_parameters,
)
from archplace.costmodel.memory_items import MemoryItems, memory_items
from archplace.costmodel.network import (
    Algorithm,
    AllToAllImplementation,
    AstraSimSystem,
    DeviceOrder,
    Group,
    NetworkPricer,
    PricingMode,
    collective_s,
    distinct_orders,
    order_refusal,
    ring_bytes,
    ring_s,
    sent_bytes,
    spread,
    transfer_s,
)
from archplace.costmodel.offload import HostTraffic, Offload
from archplace.costmodel.operators import ELEMENT_BYTES, OperatorPrices, Pricer
from archplace.costmodel.parts import Activity, Parts
from archplace.costmodel.replicas import Replicas
from archplace.costmodel.replicas import refusal as replica_refusal
from archplace.costmodel.state_sharding import (
    Exchange,
    KeptStates,
    Members,
    Moment,
    SharedStates,
    StateSharding,
    exchanges,
    kept_states,
)
from archplace.costmodel.temporaries import temporary_bytes
from archplace.costmodel.throttle import LOWEST_CLOCK, Load, kept_clock, load_of, power_w, sustained_clock, within_limit

__all__ = [
    "ELEMENT_BYTES",
    "LOWEST_CLOCK",
    "POLICIES",
    "RETICLE_LIMIT_MM2",
    "Activity",
    "Algorithm",
    "AllToAllImplementation",
    "Allowance",
    "AstraSimSystem",
    "DeviceOrder",
    "EnergyParts",
    "Exchange",
    "Explanation",
    "Footprint",
    "Group",
    "HostTraffic",
    "KeptStates",
    "KernelFit",
    "Load",
    "MeasuredKernel",
    "Members",
    "MemoryCoefficients",
    "MemoryItems",
    "Moment",
    "NetworkPricer",
    "Offload",
    "OperatorPrices",
    "Parts",
    "Pipelining",
    "Pricer",
    "PricingMode",
    "Replicas",
    "SharedStates",
    "StageMemory",
    "StateSharding",
    "WorkingParts",
    "accelerator_cost_usd",
    "chain_exchanges",
    "collective_s",
    "control_power_w",
    "die_cost_usd",
    "distinct_orders",
    "energy_parts",
    "exchanges",
    "explain",
    "fit_calibration",
    "kept_clock",
    "kept_states",
    "kernel_errors",
    "load_of",
    "memory_coefficients",
    "memory_items",
    "operator_energy_j",
    "order_refusal",
    "parameters_of",
    "peak_power_w",
    "policy_of",
    "power_w",
    "replica_refusal",
    "ring_bytes",
    "ring_s",
    "sent_bytes",
    "service_life_s",
    "spread",
    "static_power_w",
    "sustained_clock",
    "temporary_bytes",
    "transfer_s",
    "updated_parameters",
    "within_limit",
]
