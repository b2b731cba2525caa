"""What does it cost? Latency, traffic, memory, area and communication as arrays over design points."""

from archplace.costmodel._gemm import Pipelining
from archplace.costmodel.collectives import collective_s, ring_s, spread, transfer_s
from archplace.costmodel.memory import LayerMemory, StageMemory, stage_memory
from archplace.costmodel.operators import ELEMENT_BYTES, OperatorPrices, Parts, Pricer

__all__ = [
    "ELEMENT_BYTES",
    "LayerMemory",
    "OperatorPrices",
    "Parts",
    "Pipelining",
    "Pricer",
    "StageMemory",
    "collective_s",
    "ring_s",
    "spread",
    "stage_memory",
    "transfer_s",
]
