"""What does communication cost? Groups of devices in the network, collectives and transfers between their members."""

from archplace.costmodel.network.astra_sim import AllToAllImplementation, AstraSimSystem
from archplace.costmodel.network.groups import ORDERED_AXES, DeviceOrder, Group
from archplace.costmodel.network.layout import Share, lay, spread
from archplace.costmodel.network.orders import distinct_orders, order_refusal
from archplace.costmodel.network.plans import Algorithm, Phase
from archplace.costmodel.network.pricer import NetworkPricer, PricingMode
from archplace.costmodel.network.ring import collective_s, ring_bytes, ring_s, sent_bytes, transfer_s

__all__ = [
    "ORDERED_AXES",
    "Algorithm",
    "AllToAllImplementation",
    "AstraSimSystem",
    "DeviceOrder",
    "Group",
    "NetworkPricer",
    "Phase",
    "PricingMode",
    "Share",
    "collective_s",
    "distinct_orders",
    "lay",
    "order_refusal",
    "ring_bytes",
    "ring_s",
    "sent_bytes",
    "spread",
    "transfer_s",
]
