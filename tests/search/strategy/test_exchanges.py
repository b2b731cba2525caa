"""What stages hand to each other: a tensor-parallel group sends every part once where its links are fast."""

import pytest

from archplace.arch_configs import load_cluster
from archplace.costmodel.network import DeviceOrder, NetworkPricer
from archplace.search.strategy.exchanges import boundary_s
from archplace.workloads import Axis, CollectiveKind, LayerSharding, OptimizerKind, Precision, Workload, load_model

NETWORK = NetworkPricer(load_cluster("a100-superpod").sized(16))
WORKLOAD = Workload(
    name="job",
    model=load_model("megatron-gpt-22b"),
    sequence_length=2048,
    global_batch=8,
    precision=Precision.FP16,
    optimizer=OptimizerKind.ADAM,
)
PAYLOAD = 2048 * 6144 * 2


def seconds(tensor, *, sequence=False, payload=PAYLOAD):
    step = WORKLOAD.step(LayerSharding(microbatch=1, tensor=tensor, sequence=sequence))
    order = DeviceOrder(((Axis.TENSOR, tensor), (Axis.DATA, 8 // tensor), (Axis.PIPELINE, 2)))
    return boundary_s(step, float(payload), order, NETWORK), order


def test_each_device_of_a_node_sends_its_part_between_nodes_and_gathers_the_others():
    found, order = seconds(8)
    part = NETWORK.transfer_s(PAYLOAD / 8, order.group(Axis.PIPELINE))
    gathered = NETWORK.seconds(CollectiveKind.ALL_GATHER, PAYLOAD, order.group(Axis.TENSOR))
    assert found == pytest.approx(float(part + gathered), rel=1e-12)
    assert found < 0.5 * float(NETWORK.transfer_s(PAYLOAD, order.group(Axis.PIPELINE)))


@pytest.mark.parametrize(("tensor", "sequence"), [(1, False), (8, True)])
def test_what_differs_between_devices_is_sent_whole(tensor, sequence):
    found, order = seconds(tensor, sequence=sequence)
    assert found == float(NETWORK.transfer_s(PAYLOAD, order.group(Axis.PIPELINE)))


def test_small_messages_are_sent_whole():
    found, order = seconds(8, payload=1024)
    assert found == float(NETWORK.transfer_s(1024, order.group(Axis.PIPELINE)))
