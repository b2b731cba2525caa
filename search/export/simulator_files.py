"""What ASTRA-sim wants beside the traces: process groups, system, network, remote memory, and a script that starts it.

The network file has the slowest dimension first, as devices are numbered. A gigabyte per second is there 2³⁰ bytes per
second. All collectives of the traces run inside one dimension, on groups of their own, for which the simulator takes
rings, and of all-to-alls the only entry of the list: direct, with one message at a time. Collectives are not
cut into pieces: in the backend without congestion those that run at the same time would each have all of a link. The
backend with congestion has a system and a network file of its own.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from archplace.arch_configs.cluster import NetworkDimension, Topology
from archplace.search.export.case import Case
from archplace.search.export.communicators import Numbering
from archplace.search.export.wires import DELAY_NS, link_bytes_per_s
from archplace.workloads.traces import CollectiveType

_GB = 2**30
_PIECES = 16
_TOPOLOGIES = {
    Topology.SWITCH: "Switch",
    Topology.FULLY_CONNECTED: "FullyConnected",
    Topology.RING: "Ring",
}

TRACES = "traces"
PREFIX = "npu"
"""Traces are ``traces/npu.0.et`` and so on."""
GROUPS, SYSTEM, SYSTEM_CONGESTION, NETWORK, NETWORK_CONGESTION, MEMORY, SCRIPT = (
    "groups.json",
    "system.json",
    "system-congestion.json",
    "network.yaml",
    "network-congestion.yaml",
    "memory.json",
    "run.sh",
)


def groups_text(case: Case) -> str:
    """Return the process groups: members by number, in the order of their ring."""
    groups = {str(group.number): list(group.members) for group in case.process_groups()}
    lines = [f"{json.dumps(number)}: {json.dumps(members)}" for number, members in groups.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def system_text(dimensions: int = 1, *, pieces: int = 1) -> str:
    """Return the system: nanoseconds as operations, rings, collectives in so many pieces at a time.

    A ring is named for each of the network's dimensions. Groups inside one take a ring whatever the list says when it
    has several entries; of one entry they all take the same object, which the simulator then frees for each of them.
    """
    rings = ["ring"] * dimensions
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": DELAY_NS,
        "active-chunks-per-dimension": pieces,
        "preferred-dataset-splits": pieces,
        "all-reduce-implementation": rings,
        "all-gather-implementation": rings,
        "reduce-scatter-implementation": rings,
        "all-to-all-implementation": ["direct1"],
        "collective-optimization": "localBWAware",
        "peak-perf": 1,
        # So fast that adding up takes no time: the cost model's operators have what devices read and write.
        "local-mem-bw": 1_000_000_000_000,
        "roofline-enabled": 1,
    }
    return json.dumps(system, indent=2) + "\n"


def congestion_pieces(case: Case) -> int:
    """Return into how many pieces the backend with congestion is to cut collectives.

    It passes messages on from hop to hop as a whole; only pieces that follow one another fill all hops of a way. Pieces
    of an all-gather must have a byte, or the simulator never ends.
    """
    gathered = (
        step.size_bytes for program in case.programs for step in program if step.collective is CollectiveType.ALL_GATHER
    )
    return _PIECES if min(gathered, default=_PIECES) >= _PIECES else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One dimension as the network file has it."""

    dimension: NetworkDimension
    size: int


def layers(case: Case) -> tuple[Layer, ...]:
    """Return the dimensions as the backend without congestion is to have them.

    A single one that no group fills is written as two of the same links, in which a message takes what it takes in the
    one: with two entries in the lists of algorithms every group gets a ring of its own, which it may free.
    """
    whole = true_layers(case.communicators.numbering)
    filled = any(len(group.members) == case.n_npus for group in case.process_groups())
    if len(whole) > 1 or filled or whole[0].dimension.topology is Topology.RING:
        return whole
    (single,) = whole
    inner = next((size for size in range(math.isqrt(single.size), 1, -1) if single.size % size == 0), 1)
    if inner == 1:
        return whole
    return tuple(Layer(dimension=single.dimension, size=size) for size in (inner, single.size // inner))


def true_layers(numbering: Numbering) -> tuple[Layer, ...]:
    """Return the dimensions as they are."""
    return tuple(Layer(dimension=dimension, size=dimension.size) for dimension in numbering.dimensions)


def network_text(found: Sequence[Layer]) -> str:
    """Return a network."""
    dimensions = [layer.dimension for layer in found]
    network = {
        "topology": [_TOPOLOGIES[dimension.topology] for dimension in dimensions],
        "npus_count": [layer.size for layer in found],
        # Between fully connected devices that of one link, of as many as the whole dimension has.
        "bandwidth": [
            link_bytes_per_s(dimension.topology, dimension.size, dimension.bandwidth_bytes_per_s) / _GB
            for dimension in dimensions
        ],
        "latency": [round(dimension.latency_s * 1e9, 3) for dimension in dimensions],
    }
    return yaml.safe_dump(network, sort_keys=False, default_flow_style=None, width=1 << 20)


def memory_text() -> str:
    """Return the remote memory: none."""
    return json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}, indent=2) + "\n"


def arguments(logs: str, *, congestion: bool = False) -> tuple[str, ...]:
    """Return the simulator's arguments, to be run in the case's folder; it logs to the folder ``logs``.

    ``congestion`` for the backend that has it.
    """
    return (
        f"--workload-configuration={TRACES}/{PREFIX}",
        f"--system-configuration={SYSTEM_CONGESTION if congestion else SYSTEM}",
        f"--network-configuration={NETWORK_CONGESTION if congestion else NETWORK}",
        f"--remote-memory-configuration={MEMORY}",
        f"--comm-group-configuration={GROUPS}",
        f"--logging-folder={logs}",
    )


def open_files(n_npus: int) -> int:
    """Return how many files the simulator has open: a trace of every device, and some of its own."""
    return n_npus + 32


def script_text(n_npus: int) -> str:
    """Return the script that runs the case with the binary that it is given."""
    needed = open_files(n_npus)
    given = " \\\n  ".join(arguments("log")).replace(SYSTEM, '"$system"').replace(NETWORK, '"$network"')
    return f"""#!/bin/sh
# Runs this case with ASTRA-sim: ./run.sh BINARY [OPTION...]
# BINARY is AstraSim_Analytical_Congestion_Unaware, or its sibling Congestion_Aware for a network of one dimension.
# The step takes as long as the largest number of cycles (nanoseconds) of the {n_npus} lines "finished"; there must be
# one for every device, whatever the exit code.
set -eu
if [ "$#" -lt 1 ]; then
  echo "usage: $0 BINARY [OPTION...]" >&2
  exit 2
fi
binary=$(command -v "$1") || {{ echo "$0: $1: no such program" >&2; exit 2; }}
case $binary in /*) ;; *) binary=$PWD/$binary ;; esac
system={SYSTEM} network={NETWORK}
case $binary in *_Aware) system={SYSTEM_CONGESTION} network={NETWORK_CONGESTION} ;; esac
shift
cd "$(dirname "$0")"
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt {needed} ]; then
  ulimit -n {needed} || {{ echo "$0: needs {needed} open files at a time; raise: ulimit -n" >&2; exit 2; }}
fi
exec "$binary" \\
  {given} "$@"
"""
