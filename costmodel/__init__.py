"""What does it cost? Latency, traffic, memory, energy, power, money and communication as arrays over design points."""

from archplace.costmodel._gemm import Pipelining
from archplace.costmodel.collectives import collective_s, ring_bytes, ring_s, sent_bytes, spread, transfer_s
from archplace.costmodel.cost import (
    RETICLE_LIMIT_MM2,
    accelerator_cost_usd,
    die_cost_usd,
    energy_cost_usd_per_j,
    service_life_s,
)
from archplace.costmodel.energy import EnergyParts, energy_parts, operator_energy_j, peak_power_w, static_power_w
from archplace.costmodel.memory import LayerMemory, StageMemory, stage_memory
from archplace.costmodel.operators import ELEMENT_BYTES, Activity, OperatorPrices, Parts, Pricer

__all__ = [
    "ELEMENT_BYTES",
    "RETICLE_LIMIT_MM2",
    "Activity",
    "EnergyParts",
    "LayerMemory",
    "OperatorPrices",
    "Parts",
    "Pipelining",
    "Pricer",
    "StageMemory",
    "accelerator_cost_usd",
    "collective_s",
    "die_cost_usd",
    "energy_cost_usd_per_j",
    "energy_parts",
    "operator_energy_j",
    "peak_power_w",
    "ring_bytes",
    "ring_s",
    "sent_bytes",
    "service_life_s",
    "spread",
    "stage_memory",
    "static_power_w",
    "transfer_s",
]
