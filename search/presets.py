"""An accelerator or a cluster by itself: what it can do, what it takes, and where every number comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from textwrap import wrap

from archplace.arch_configs import (
    Accelerator,
    Architectures,
    Cluster,
    cluster_names,
    load_cluster,
    load_technology,
    price_accelerator_area,
)
from archplace.arch_configs.area import accelerator_area_breakdown
from archplace.arch_configs.calibration import Calibration
from archplace.arch_configs.cluster import Software
from archplace.costmodel import accelerator_cost_usd, peak_power_w, static_power_w
from archplace.search.uncertainty import step_uncertainty
from archplace.search.wording import LINE, bars, number, pairs, percent

Document = dict[str, object]


def accelerator_document(accelerator: Accelerator) -> Document:
    """Return what an accelerator is, in SI units; area, watts and dollars by the technology that its file names."""
    tensor, vector = accelerator.tensor_units, accelerator.vector_units
    elements = tensor.count * tensor.rows * tensor.cols
    document: Document = {
        "accelerator": accelerator.name,
        "clock_hz": accelerator.clock_hz,
        "tensor_units": tensor.count,
        "tensor_rows": tensor.rows,
        "tensor_cols": tensor.cols,
        "tensor_local_buffer_bytes": tensor.local_buffer_bytes,
        "vector_units": vector.count,
        "vector_lanes": vector.lanes,
        "global_buffer_bytes": accelerator.global_buffer.capacity_bytes,
        "global_buffer_bytes_per_s": accelerator.global_buffer.bandwidth_bytes_per_s,
        "hbm_bytes": accelerator.hbm.capacity_bytes,
        "hbm_bytes_per_s": accelerator.hbm.bandwidth_bytes_per_s,
        "hbm_stacks": accelerator.hbm.stacks,
        "peak_flops_per_s": {
            precision: 2 * elements * rate * accelerator.clock_hz
            for precision, rate in tensor.macs_per_element_per_cycle.items()
        },
        "thermal_design_power_w": accelerator.thermal_design_power_w,
        "published_die_mm2": accelerator.die_area_mm2,
    }
    if accelerator.technology is not None:
        document |= _priced(accelerator, accelerator.technology)
    clusters = [name for name in cluster_names() if load_cluster(name).accelerator == accelerator.name]
    kernels = {field.name: getattr(accelerator.calibration, field.name) for field in fields(Calibration)}
    return document | {"calibration": kernels, "clusters": clusters, "sources": dict(accelerator.sources)}


def _priced(accelerator: Accelerator, name: str) -> Document:
    technology = load_technology(name)
    area_mm2 = price_accelerator_area(accelerator, technology)
    parts = accelerator_area_breakdown(accelerator, technology).by_component()
    found: Document = {
        "technology": technology.name,
        "area_mm2": area_mm2,
        "area_parts_mm2": {part: float(area[0]) for part, area in parts.items()},
    }
    chip = Architectures.of(accelerator, area_mm2=area_mm2)
    if technology.power is not None:
        found["static_power_w"] = float(static_power_w(chip, technology)[0])
    if technology.power is not None and technology.energy is not None:
        known = [each for each in chip.tensor_macs_per_element if each in technology.energy.mac_j]
        found["unthrottled_power_w"] = {each: float(peak_power_w(chip, technology, each)[0]) for each in known}
    if technology.cost is not None:
        found["accelerator_usd"] = float(accelerator_cost_usd(chip, accelerator.hbm.capacity_bytes, technology)[0])
    return found


def cluster_document(cluster: Cluster, accelerator: Accelerator | None) -> Document:
    """Return what a cluster is, in SI units; ``accelerator`` is the one that it consists of, if it says so."""
    document: Document = {
        "cluster": cluster.name,
        "accelerator": cluster.accelerator,
        "devices": cluster.size,
        "dimensions": [
            {
                "name": each.name,
                "topology": str(each.topology),
                "size": each.size,
                "bandwidth_bytes_per_s": each.bandwidth_bytes_per_s,
                "latency_s": each.latency_s,
            }
            for each in cluster.dimensions
        ],
        "endpoint": asdict(cluster.endpoint),
        "host": None if cluster.host is None else asdict(cluster.host),
        "software": {field.name: getattr(cluster.software, field.name) for field in fields(Software)},
    }
    if accelerator is not None:
        found = step_uncertainty(cluster, accelerator.name, accelerator.calibration)
        document["step_s_low"], document["step_s_high"] = found.interval.low, found.interval.high
        document["interval_basis"] = str(found.basis)
        document["words"] = found.words
    return document | {"sources": dict(cluster.sources)}


def preset_text(document: Mapping[str, object]) -> str:
    """Return either document as text: figures, then areas, software, and the source of each number."""
    lines = [str(document.get("cluster") or document["accelerator"]), ""]
    lines += pairs(_cells(document))
    areas = document.get("area_parts_mm2")
    if isinstance(areas, Mapping):
        lines += ["", f"Area in {document['technology']}: {number(sum(areas.values()))} mm²"]
        lines += bars({part.replace("_", " "): area for part, area in areas.items()}, "mm²")
    for key, title in (("calibration", "What kernels reach"), ("software", "What programs sustain")):
        section = document.get(key)
        if isinstance(section, Mapping):
            lines += ["", title, *pairs((name.replace("_", " "), str(value)) for name, value in section.items())]
    if "words" in document:
        lines += ["", *wrap(str(document["words"]), LINE)]
    sources = document["sources"]
    assert isinstance(sources, Mapping)
    lines += ["", "Sources"]
    for key, text in sources.items():
        lines += wrap(f"{key}: {' '.join(str(text).split())}", LINE, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


_UNITS = (
    ("_bytes_per_s", "GB/s", 1e-9),
    ("_flops_per_s", "TFLOP/s", 1e-12),
    ("buffer_bytes", "MiB", 2.0**-20),
    ("_bytes", "GB", 1e-9),
    ("_mm2", "mm²", 1.0),
    ("_hz", "GHz", 1e-9),
    ("_usd", "USD", 1.0),
    ("_w", "W", 1.0),
)
_APART = ("area_parts_mm2", "calibration", "software", "sources", "words", "interval_basis")


def _cells(document: Mapping[str, object]) -> list[tuple[str, str]]:
    cells = []
    for key, value in document.items():
        if key in _APART or value is None:
            continue
        unit, scale = next(((unit, scale) for end, unit, scale in _UNITS if key.endswith(end)), ("", 1.0))
        if key == "dimensions":
            assert isinstance(value, Sequence)
            cells += [(f"dimension {each['name']}", _dimension(each)) for each in value]
        elif isinstance(value, Mapping):
            text = ", ".join(f"{name} {_number(each, scale)}" for name, each in value.items())
            cells.append((_name(key), f"{text} {unit}".strip()))
        elif isinstance(value, list):
            cells.append((_name(key), ", ".join(map(str, value)) or "none"))
        elif key.startswith("step_s"):
            assert isinstance(value, float)
            cells.append((f"measured step, {key.rpartition('_')[2]}", f"{percent(value)} of the predicted one"))
        else:
            cells.append((_name(key), f"{_number(value, scale)} {unit}".strip()))
    return cells


def _name(key: str) -> str:
    for end in ("_bytes_per_s", "_per_s", "_bytes", "_mm2", "_hz", "_usd", "_w"):
        if key.endswith(end):
            key = key.removesuffix(end) + (" price" if end == "_usd" else " bandwidth" if end == "_bytes_per_s" else "")
            break
    return key.replace("_", " ").replace("hbm", "HBM")


def _number(value: object, scale: float) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return number(value * scale if scale != 1 else value)


def _dimension(each: Mapping[str, object]) -> str:
    bandwidth, latency = each["bandwidth_bytes_per_s"], each["latency_s"]
    assert isinstance(bandwidth, float)
    assert isinstance(latency, float)
    return (
        f"{each['topology']} of {each['size']}, {number(bandwidth / 1e9)} GB/s each way, {number(latency * 1e6)} µs"
    ).replace("_", " ")
