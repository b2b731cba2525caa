"""The accelerator as an architecture description in the style of Timeloop's version 0.4 (Parashar et al., ISPASS 2019).

Mappers of single operators begin with such a file: a tree of memories and arrays with the multipliers at the bottom.
What it cannot say stands in comments at its head.
"""

import math

import yaml

from archplace.arch_configs.architectures import Architectures
from archplace.search.export.candidates import Candidate

_LINE_BITS = 256
"""Width of a memory's line; the mapper moves lines, and only their number matters to capacities."""


class _Tagged(dict[str, object]):
    """A mapping with a tag."""

    tag = ""


class _Container(_Tagged):
    tag = "!Container"


class _Component(_Tagged):
    tag = "!Component"


class _Dumper(yaml.SafeDumper):
    """Writes nodes with their tags."""


def _represent(dumper: yaml.SafeDumper, node: _Tagged) -> yaml.Node:
    return dumper.represent_mapping(node.tag, dict(node), flow_style=False)


_Dumper.add_representer(_Container, _represent)
_Dumper.add_representer(_Component, _represent)


def timeloop_text(candidate: Candidate) -> str:
    """Return the description of a candidate's accelerator, for products of its workload."""
    placement = candidate.placement
    archs, products = placement.architectures, placement.workload.precision.formats.products
    bits = round(8 * products.bytes)
    per_element = float(archs.tensor_macs_per_element[products][0])
    document = {"architecture": {"version": 0.4, "nodes": _nodes(archs, placement.hbm_bytes, bits, per_element)}}
    head = [f"Accelerator of {candidate.title}", "", *_notes(archs, str(products), bits, per_element)]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in head)
    return comments + yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _nodes(archs: Architectures, hbm_bytes: float, bits: int, per_element: float) -> list[_Tagged]:
    clock = float(archs.clock_hz[0])

    def words_per_cycle(bytes_per_s: float) -> float:
        return float(f"{8 * bytes_per_s / bits / clock:.6g}")

    def memory(name: str, kind: str, capacity: float, **more: float) -> _Component:
        attributes = {"width": _LINE_BITS, "depth": int(8 * capacity) // _LINE_BITS, "datawidth": bits, **more}
        return _Component({"name": name, "class": kind, "attributes": attributes})

    hbm, buffer = float(archs.hbm_bytes_per_s[0]), float(archs.global_buffer_bytes_per_s[0])
    ports: dict[str, float] = {"shared_bandwidth": words_per_cycle(hbm)}
    if archs.hbm_separate_ports[0]:
        ports = {"read_bandwidth": words_per_cycle(hbm), "write_bandwidth": words_per_cycle(hbm)}
    each_way = words_per_cycle(buffer)
    nodes: list[_Tagged] = [
        _Container({"name": "accelerator", "attributes": {"global_cycle_seconds": 1 / clock, "datawidth": bits}}),
        memory("hbm", "DRAM", hbm_bytes, **ports),
        memory(
            "global_buffer",
            "SRAM",
            float(archs.global_buffer_bytes[0]),
            read_bandwidth=each_way,
            write_bandwidth=each_way,
        ),
        _Container({"name": "tensor_unit", "spatial": {"meshX": int(archs.tensor_count[0])}}),
        memory(
            "operand_buffer",
            "SRAM",
            float(archs.tensor_local_bytes[0]),
            shared_bandwidth=words_per_cycle(float(archs.tensor_local_bytes_per_s[0])),
        ),
        _Container({"name": "row", "spatial": {"meshY": int(archs.tensor_rows[0])}}),
        _Container({"name": "column", "spatial": {"meshX": int(archs.tensor_cols[0])}}),
    ]
    if math.floor(per_element) > 1:
        nodes.append(_Container({"name": "product", "spatial": {"meshX": math.floor(per_element)}}))
    nodes.append(_Component({"name": "mac", "class": "mac", "attributes": {"datawidth": bits}}))
    return nodes


def _notes(archs: Architectures, products: str, bits: int, per_element: float) -> list[str]:
    """Return what differs between the description and the accelerator as archplace prices it."""
    found = [
        "What differs from the accelerator as archplace prices it:",
        f"- Words are those of {products}, {bits} bits; bandwidths are words per cycle.",
        "- Sums are as wide as operands here; archplace keeps them in the tensor units and writes results rounded.",
        f"- The {int(archs.vector_count[0])} vector units of {int(archs.vector_lanes[0])} lanes are left out: what is "
        "not a product of matrices is.",
        "- A mapper takes one operator; archplace schedules the operators of a layer on all units together.",
        "- Energies and areas are not given: take the mapper's own tables, or archplace show.",
    ]
    if per_element != math.floor(per_element):
        found.append(
            f"- Each element of the array multiplies {per_element:g} times per cycle; here {max(1, int(per_element))}."
        )
    if archs.blocks is not None:
        found.append(
            f"- Kernels give {archs.blocks.units} tensor units together one tile of the result; a mapper may divide "
            "products in any way."
        )
    reached = archs.calibration
    rates = [reached.tensor_rate, reached.global_buffer_bandwidth, reached.hbm_bandwidth]
    if min(rates) < 1 or reached.launch_s:
        found.append(
            f"- Rates are those of the data sheet; kernels reach {reached.tensor_rate:g} of the tensor units', "
            f"{reached.hbm_bandwidth:g} of the HBM's, {reached.global_buffer_bandwidth:g} of the global buffer's, and "
            f"start after {1e6 * reached.launch_s:g} microseconds."
        )
    return found
