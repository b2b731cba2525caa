"""An architecture as the section of a run file that describes an accelerator."""

from archplace.arch_configs.architectures import Architectures
from archplace.arch_configs.calibration import NOMINAL

Fields = dict[str, object]


def accelerator_fields(archs: Architectures, name: str, *, hbm_bytes: float, source: str) -> Fields:
    """Return the one architecture of ``archs`` with a memory of ``hbm_bytes``; ``source`` says where it comes from.

    Numbers are in SI units. What decides no step time (die, area, power) is left out.
    """
    tensor: Fields = {
        "count": int(archs.tensor_count[0]),
        "rows": int(archs.tensor_rows[0]),
        "cols": int(archs.tensor_cols[0]),
        "macs_per_element_per_cycle": {
            precision: float(rate[0]) for precision, rate in archs.tensor_macs_per_element.items()
        },
        "local_buffer": int(archs.tensor_local_bytes[0]),
        "local_bandwidth": float(archs.tensor_local_bytes_per_s[0]),
        "source": source,
    }
    if archs.blocks is not None:
        tensor["blocks"] = {
            "units": archs.blocks.units,
            "tiles": [list(tile) for tile in archs.blocks.tiles],
            "cluster": archs.blocks.cluster,
            "source": source,
        }
    found: Fields = {
        "name": name,
        "clock": float(archs.clock_hz[0]),
        "source": source,
        "tensor_units": tensor,
        "vector_units": {
            "count": int(archs.vector_count[0]),
            "lanes": int(archs.vector_lanes[0]),
            "local_buffer": int(archs.vector_local_bytes[0]),
            "source": source,
        },
        "global_buffer": {
            "capacity": int(archs.global_buffer_bytes[0]),
            "bandwidth": float(archs.global_buffer_bytes_per_s[0]),
            "source": source,
        },
        "hbm": {
            "capacity": int(hbm_bytes),
            "bandwidth": float(archs.hbm_bytes_per_s[0]),
            "stacks": int(archs.hbm_stacks[0]),
            "separate_ports": bool(archs.hbm_separate_ports[0]),
            "source": source,
        },
    }
    reached = archs.calibration
    if reached != NOMINAL:
        found["calibration"] = {
            "tensor_rate": reached.tensor_rate,
            "lane_rate": reached.lane_rate,
            "global_buffer_bandwidth": reached.global_buffer_bandwidth,
            "hbm_bandwidth": reached.hbm_bandwidth,
            "launch": reached.launch_s,
            "source": source,
        }
    return found
