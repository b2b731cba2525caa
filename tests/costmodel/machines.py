"""Small machines for the tests of this room."""

import numpy as np

from archplace.arch_configs.accelerator import Accelerator, GlobalBuffer, Hbm, TensorUnits, VectorUnits
from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
from archplace.arch_configs.cluster import Cluster, NetworkDimension, Topology
from archplace.costmodel._gemm import TensorConfigs


def tensor_configs(
    *,
    count: int = 1,
    rows: int = 128,
    cols: int = 128,
    rate: float = 1.0,
    local: float = 1e12,
    local_rate: float = 1e12,
    global_rate: float = 1e12,
) -> TensorConfigs:
    """One configuration; ports and buffers do not bind unless given."""
    return TensorConfigs(
        count=np.array([count]),
        rows=np.array([float(rows)]),
        cols=np.array([float(cols)]),
        macs_per_element=np.array([rate]),
        local_elements=np.array([local]),
        local_elements_per_cycle=np.array([local_rate]),
        global_elements_per_cycle=np.array([global_rate]),
    )


def accelerator(
    *,
    clock_hz: float = 1e9,
    tensor_count: int = 4,
    rows: int = 128,
    cols: int = 128,
    local_bytes: int = 1 << 18,
    local_bytes_per_s: float = 1e12,
    vector_count: int = 2,
    lanes: int = 128,
    global_bytes: int = 1 << 25,
    global_bytes_per_s: float = 4e12,
    hbm_bytes_per_s: float = 1e12,
    separate_ports: bool = False,
    blocks: Blocks | None = None,
    calibration: Calibration = NOMINAL,
) -> Accelerator:
    """An accelerator that differs from a small TPU only where asked."""
    return Accelerator(
        name="test chip",
        clock_hz=clock_hz,
        tensor_units=TensorUnits(
            count=tensor_count,
            rows=rows,
            cols=cols,
            macs_per_element_per_cycle={"bf16": 1.0},
            local_buffer_bytes=local_bytes,
            local_bandwidth_bytes_per_s=local_bytes_per_s,
            blocks=blocks,
        ),
        vector_units=VectorUnits(count=vector_count, lanes=lanes, local_buffer_bytes=1 << 12),
        global_buffer=GlobalBuffer(capacity_bytes=global_bytes, bandwidth_bytes_per_s=global_bytes_per_s),
        hbm=Hbm(
            capacity_bytes=32 * 10**9,
            bandwidth_bytes_per_s=hbm_bytes_per_s,
            stacks=2,
            separate_ports=separate_ports,
        ),
        calibration=calibration,
        sources={},
    )


def table(**changes: object) -> Architectures:
    """One such accelerator as a table."""
    return Architectures.of(accelerator(**changes))


def cluster() -> Cluster:
    """Two dimensions: 8 devices on fast links, 16 such groups on slow ones."""
    return Cluster(
        name="test cluster",
        dimensions=(
            NetworkDimension(
                name="node", topology=Topology.SWITCH, size=8, bandwidth_bytes_per_s=400e9, latency_s=1e-6
            ),
            NetworkDimension(
                name="fabric", topology=Topology.SWITCH, size=16, bandwidth_bytes_per_s=50e9, latency_s=5e-6
            ),
        ),
        sources={},
    )
