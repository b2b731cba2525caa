"""Seconds of operators on accelerators: every operator on every architecture, in two modes.

*All units* means that all units of the operator's kind work on it and that it has the accelerator's memory ports to
itself. *One unit* means that a single unit (for a fused operator one of each kind) works on it while the others may
work on something else: the shared ports, HBM and global buffer, are then divided evenly among all units of the
accelerator, so that whatever runs side by side never asks for more than there is.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import Architectures, FloatArray
from archplace.arch_configs.cluster import Cluster
from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import _attention_blocks as tiling
from archplace.costmodel._attention import passes_again
from archplace.costmodel._blocks import block_cycles
from archplace.costmodel._distinct import Distinct, distinct
from archplace.costmodel._gemm import ArrayCycles, Pipelining, TensorConfigs, Traffic, array_cycles, canonical, traffic
from archplace.costmodel._vector import hbm_read_bytes, lane_cycles, row_stays_on_chip
from archplace.costmodel.network import Group, NetworkPricer, PricingMode
from archplace.costmodel.parts import Activity, Parts
from archplace.workloads.operators import Axis, Collective, FusedAttention, Gemm, Operator, Unit, VectorWork
from archplace.workloads.precision import Format

ELEMENT_BYTES = {str(form): form.bytes for form in Format}
"""Bytes of one element by precision, its share of a block's scale included."""


_KEPT_TOTALS = 1 << 22
"""Operators × architectures whose seconds a pricer keeps, 16 bytes each: graphs repeat most of their operators."""

_Content = tuple[Unit, str, Gemm | None, FusedAttention | None, VectorWork | None]
"""What decides the seconds of a compute operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPrices:
    """Seconds of each operator on each architecture, shape ``(n_archs, n_ops)``."""

    one_s: FloatArray
    """On one unit, the ports shared evenly. For a network operator: its only mode."""
    all_s: FloatArray
    """On all units of its kind, with nothing else running. For a network operator the same as ``one_s``."""


class _TensorPart(NamedTuple):
    """A product on the array, per architecture."""

    array_s: FloatArray
    local_port_s: FloatArray
    global_port_s: FloatArray
    fill_s: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    first_load_bytes: FloatArray


def _scaled(rates: FloatArray, fraction: float) -> FloatArray:
    return rates if fraction == 1.0 else rates * fraction


def _lane_operations(work: VectorWork) -> float:
    return float(work.elements * work.operations_per_element)


class Pricer:
    """Prices operators on ``architectures`` inside ``cluster``.

    Tensor-unit configurations and buffer sizes that several architectures share are priced once; so are equal products.
    Memory grows with ``n_archs`` × operators of one call.

    Collectives are priced by ``network``, by default as rings over ideal links of the cluster; ``groups`` says which
    devices form the groups of a parallel axis, those of other axes are neighbours at stride 1.
    """

    def __init__(
        self,
        architectures: Architectures,
        cluster: Cluster,
        *,
        pipelining: Pipelining = Pipelining.OVERLAPPED,
        network: NetworkPricer | None = None,
        groups: Mapping[Axis, Group] | None = None,
    ) -> None:
        self._archs = architectures
        self._network = network or NetworkPricer(cluster, PricingMode.RING)
        self._groups = dict(groups or {})
        self._pipelining = pipelining
        calibration = architectures.calibration
        self._hbm_bytes_per_s = _scaled(architectures.hbm_bytes_per_s, calibration.hbm_bandwidth)
        self._global_bytes_per_s = _scaled(architectures.global_buffer_bytes_per_s, calibration.global_buffer_bandwidth)
        self._units = (architectures.tensor_count + architectures.vector_count).astype(np.float64)
        # What an operator finds of the global buffer: all of it, or one or two units' shares.
        self._buffers = {
            held: distinct(architectures.global_buffer_bytes * (held / self._units if held else 1.0))
            for held in (0, 1, 2)
        }
        self._configs: dict[tuple[str, bool], tuple[TensorConfigs, NDArray[np.intp]]] = {}
        self._cycles: dict[tuple[Gemm, str, tuple[float, float], bool], ArrayCycles] = {}
        self._traffic: dict[tuple[Gemm, str, int], Traffic] = {}
        self._totals: dict[_Content, tuple[FloatArray, FloatArray]] = {}

    @property
    def architectures(self) -> Architectures:
        """The architectures that are priced."""
        return self._archs

    def subset(self, indices: NDArray[np.intp] | NDArray[np.int64] | slice) -> "Pricer":
        """Return a pricer of the architectures at ``indices`` that shares what has been priced already."""
        part = copy(self)
        part._archs = self._archs.take(indices)
        part._units = self._units[indices]
        part._hbm_bytes_per_s = self._hbm_bytes_per_s[indices]
        part._global_bytes_per_s = self._global_bytes_per_s[indices]
        part._buffers = {
            held: Distinct(rows=buffers.rows, of=buffers.of[indices]) for held, buffers in self._buffers.items()
        }
        for precision in self._archs.tensor_macs_per_element:
            for one_unit in (False, True):
                self._tensor_configs(precision, one_unit)
        part._configs = {key: (configs, of[indices]) for key, (configs, of) in self._configs.items()}
        part._totals = {}
        return part

    def in_groups(self, groups: Mapping[Axis, Group]) -> "Pricer":
        """Return a pricer of the same architectures that shares what has been priced, for other groups of devices."""
        part = copy(self)
        part._groups = dict(groups)
        return part

    def price(self, operators: Sequence[Operator]) -> OperatorPrices:
        """Return the seconds of ``operators`` (any order) on every architecture, in both modes.

        Raises :class:`ConfigError` when an operator's precision has no rate on these tensor units.
        """
        shape = (len(self._archs), len(operators))
        one_s, all_s = np.empty(shape), np.empty(shape)
        for i, operator in enumerate(operators):
            if operator.unit is Unit.NETWORK:
                assert operator.collective is not None
                one_s[:, i] = all_s[:, i] = self.collective_s(operator.collective)
            else:
                one_s[:, i], all_s[:, i] = self._totals_s(operator)
        return OperatorPrices(one_s=one_s, all_s=all_s)

    def _totals_s(self, operator: Operator) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of one compute operator in both modes; of one like it that was priced before, its."""
        key = (operator.unit, operator.precision, operator.gemm, operator.attention, operator.vector)
        known = self._totals.get(key)
        if known is not None:
            return known
        found = self.parts(operator, one_unit=True).total_s, self.parts(operator, one_unit=False).total_s
        if (len(self._totals) + 1) * len(self._archs) <= _KEPT_TOTALS:
            self._totals[key] = found
        return found

    def collective_s(self, collective: Collective) -> float:
        """Return the seconds of a collective, on every architecture the same.

        Raises ``ValueError`` when its group does not fit the cluster or is not as large as its axis's groups are.
        """
        group = self._group(collective)
        return float(self._network.seconds(collective.kind, float(collective.payload_bytes), group))

    def _group(self, collective: Collective) -> Group:
        group = self._groups.get(collective.axis) or Group.neighbours(collective.group_size)
        if group.size != collective.group_size:
            raise ValueError(
                f"a collective among {collective.group_size} devices of the {collective.axis} axis, whose groups have "
                f"{group.size}; price it with the groups of its own sharding"
            )
        return group

    def parts(self, operator: Operator, *, one_unit: bool) -> Parts:
        """Return what the seconds of one compute operator consist of, on every architecture."""
        share = self._share(operator.unit) if one_unit else np.ones(1)
        if operator.unit is Unit.VECTOR:
            assert operator.vector is not None
            return self._vector(operator.vector, one_unit=one_unit, share=share)
        if operator.attention is not None:
            assert operator.vector is not None
            return self._attention(
                operator.attention, operator.vector, operator.precision, one_unit=one_unit, share=share
            )
        assert operator.gemm is not None
        tensor = self._tensor(operator.gemm, operator.precision, operator.vector, one_unit=one_unit, share=share)
        if operator.unit is Unit.TENSOR:
            return Parts(
                array_s=tensor.array_s,
                lanes_s=np.zeros(1),
                local_port_s=tensor.local_port_s,
                global_port_s=tensor.global_port_s,
                hbm_s=self._hbm_s(tensor.read_bytes, tensor.write_bytes, share),
                fill_s=tensor.fill_s,
                first_load_s=self._first_load_s(tensor, share),
                launch_s=self._archs.calibration.launch_s,
            )
        assert operator.vector is not None
        return self._fused(tensor, operator.vector, one_unit=one_unit, share=share)

    def activity(self, operator: Operator, *, one_unit: bool = False) -> Activity:
        """Return what one execution of ``operator`` does: the traffic of the mapping whose seconds are ``all_s``.

        With ``one_unit`` that of the mapping whose seconds are ``one_s``: one unit with its share of the global buffer,
        which re-reads what does not fit, while the other units work on something else.

        A byte between HBM and the units crosses the global buffer's port once. The result of a fused operator's product
        goes from the array to the lanes and crosses it only where it is written and read back.
        """
        nothing = np.zeros(1)
        if operator.unit is Unit.NETWORK:
            assert operator.collective is not None
            collective = operator.collective
            payload, group = float(collective.payload_bytes), self._group(collective)
            sent = float(self._network.sent_bytes(collective.kind, payload, group))
            return Activity(
                macs=0.0,
                lane_operations=0.0,
                local_bytes=nothing,
                global_bytes=nothing,
                hbm_bytes=nothing,
                network_bytes=sent,
            )
        share = self._share(operator.unit) if one_unit else np.ones(1)
        work, buffer_bytes = operator.vector, self._archs.global_buffer_bytes * share
        if operator.unit is Unit.VECTOR:
            assert work is not None
            return Activity(
                macs=0.0,
                lane_operations=_lane_operations(work),
                local_bytes=nothing,
                global_bytes=np.full(1, float(work.read_bytes) * work.passes + work.write_bytes),
                hbm_bytes=hbm_read_bytes(work, row_stays_on_chip(work, buffer_bytes)) + float(work.write_bytes),
                network_bytes=0.0,
            )
        size = ELEMENT_BYTES[operator.precision]
        if operator.attention is not None:
            assert work is not None
            again = passes_again(operator.attention, size, buffer_bytes)
            local_bytes = global_bytes = np.zeros(1)
            if self._archs.blocks is not None:
                tiles, _ = self._attention_tiles(operator.attention, work, operator.precision, one_unit=one_unit)
                local_bytes = self._tile_local_bytes(operator.attention, size)
                global_bytes = np.full(1, tiles.read_elements * size + tiles.sum_bytes)
            for product in operator.attention.products if self._archs.blocks is None else ():
                _, cycles, of, _, _ = self._product(product, operator.precision, None, one_unit=one_unit)
                local_bytes = local_bytes + (cycles.local_elements * size)[of]
                global_bytes = global_bytes + (cycles.global_read_elements * size)[of]
            return Activity(
                macs=float(operator.attention.macs),
                lane_operations=_lane_operations(work),
                local_bytes=local_bytes,
                global_bytes=global_bytes + float(work.write_bytes),
                hbm_bytes=again.read_bytes + again.write_bytes + float(work.read_bytes + work.write_bytes),
                network_bytes=0.0,
            )
        assert operator.gemm is not None
        gemm, cycles, of, moved, buffer = self._product(operator.gemm, operator.precision, work, one_unit=one_unit)
        result_bytes = float(gemm.batch * gemm.m * gemm.n * size)
        written = result_bytes if work is None else float(work.write_bytes)
        global_bytes = (cycles.global_read_elements * size + written)[of]
        hbm_bytes = ((moved.a + moved.b) * (gemm.batch * size) + written)[buffer]
        if work is not None:
            hbm_bytes = hbm_bytes + float(work.read_bytes)
            if work.reductions:
                back_and_forth = 2 * result_bytes * (1.0 - row_stays_on_chip(work, buffer_bytes))
                global_bytes, hbm_bytes = global_bytes + back_and_forth, hbm_bytes + back_and_forth
        return Activity(
            macs=float(gemm.macs),
            lane_operations=_lane_operations(work) if work is not None else 0.0,
            local_bytes=(cycles.local_elements * size)[of],
            global_bytes=global_bytes,
            hbm_bytes=hbm_bytes,
            network_bytes=0.0,
        )

    def array_s(self, operator: Operator) -> tuple[FloatArray, FloatArray]:
        """Return the seconds that a TENSOR or FUSED operator keeps all arrays busy on every architecture, if all had
        equal shares of it, padding included; and as they do share it, at their full rate."""
        clock = self._archs.clock_hz
        if operator.attention is not None and self._archs.blocks is not None:
            assert operator.vector is not None
            _, busy = self._attention_tiles(operator.attention, operator.vector, operator.precision, one_unit=False)
            return busy.balanced / clock, busy.unthrottled / clock
        balanced = unthrottled = np.zeros(1)
        products = operator.attention.products if operator.attention is not None else [operator.gemm]
        for product in products:
            assert product is not None
            epilogue = operator.vector if operator.gemm is not None else None
            _, cycles, of, _, _ = self._product(product, operator.precision, epilogue, one_unit=False)
            balanced, unthrottled = balanced + cycles.balanced[of], unthrottled + cycles.unthrottled[of]
        return balanced / clock, unthrottled / clock

    def _share(self, unit: Unit) -> FloatArray:
        """Return the fraction of the shared ports that one unit has (a fused operator holds two units)."""
        return (2.0 if unit is Unit.FUSED else 1.0) / self._units

    def _hbm_s(self, reads: FloatArray, writes: FloatArray, share: FloatArray) -> FloatArray:
        moved = np.where(self._archs.hbm_separate_ports, np.maximum(reads, writes), reads + writes)
        return moved / (self._hbm_bytes_per_s * share)

    def _first_load_s(self, tensor: _TensorPart, share: FloatArray) -> FloatArray:
        if self._pipelining is not Pipelining.OVERLAPPED:
            return np.zeros(1)
        return tensor.first_load_bytes / (self._hbm_bytes_per_s * share)

    def _tensor(
        self, gemm: Gemm, precision: str, epilogue: VectorWork | None, *, one_unit: bool, share: FloatArray
    ) -> _TensorPart:
        size = ELEMENT_BYTES[precision]
        gemm, cycles, of, moved, buffer = self._product(gemm, precision, epilogue, one_unit=one_unit)
        clock = self._archs.clock_hz
        fill_s = cycles.fill[of] / clock
        if cycles.leaving is not None:
            fill_s = fill_s + cycles.leaving[of] / clock / share
        return _TensorPart(
            array_s=cycles.compute[of] / clock,
            local_port_s=cycles.local_port[of] / clock,
            global_port_s=cycles.global_port[of] / clock / share,
            fill_s=fill_s,
            read_bytes=(moved.a + moved.b)[buffer] * (gemm.batch * size),
            write_bytes=moved.c[buffer] * (gemm.batch * size),
            first_load_bytes=np.minimum(self._archs.tensor_rows, gemm.k)
            * np.minimum(self._archs.tensor_cols, gemm.n)
            * float(size),
        )

    def _product(
        self, gemm: Gemm, precision: str, epilogue: VectorWork | None, *, one_unit: bool
    ) -> tuple[Gemm, ArrayCycles, NDArray[np.intp], Traffic, NDArray[np.intp]]:
        """Return the canonical product, its cycles by configuration and its traffic by buffer size, each with the index
        of every architecture's."""
        gemm = canonical(gemm)
        size = ELEMENT_BYTES[precision]
        configs, of = self._tensor_configs(precision, one_unit)
        more = (epilogue.read_bytes / size, epilogue.write_bytes / size) if epilogue is not None else (0.0, 0.0)
        key = (gemm, precision, more, one_unit)
        if key not in self._cycles:
            sustained, blocks = self._archs.calibration.tensor_rate, self._archs.blocks
            if blocks is None:
                found = array_cycles(gemm, configs, self._pipelining, sustained=sustained, epilogue=more)
            else:
                found = block_cycles(
                    gemm, configs, blocks, self._pipelining, element_bytes=size, sustained=sustained, epilogue=more
                )
            self._cycles[key] = found
        held = 0 if not one_unit else 1 if epilogue is None else 2
        buffers = self._buffers[held]
        if (gemm, precision, held) not in self._traffic:
            m, n, k = (np.array(float(extent)) for extent in (gemm.m, gemm.n, gemm.k))
            self._traffic[gemm, precision, held] = traffic(m, n, k, buffers.rows[:, 0] / size)
        return gemm, self._cycles[key], of, self._traffic[gemm, precision, held], buffers.of

    def _tensor_configs(self, precision: str, one_unit: bool) -> tuple[TensorConfigs, NDArray[np.intp]]:
        if (precision, one_unit) not in self._configs:
            archs = self._archs
            if precision not in archs.tensor_macs_per_element:
                allowed = ", ".join(sorted(archs.tensor_macs_per_element))
                raise ConfigError(f"precision {precision}: the tensor units have no rate for it; they have {allowed}")
            size = ELEMENT_BYTES[precision]
            found = distinct(
                np.ones_like(archs.tensor_count) if one_unit else archs.tensor_count,
                archs.tensor_rows,
                archs.tensor_cols,
                archs.tensor_macs_per_element[precision],
                archs.tensor_local_bytes / size,
                archs.tensor_local_bytes_per_s / (archs.clock_hz * size),
                self._global_bytes_per_s / (archs.clock_hz * size),
            )
            count, rows, cols, rate, local, local_rate, global_rate = found.rows.T
            configs = TensorConfigs(
                count=count.astype(np.int64),
                rows=rows,
                cols=cols,
                macs_per_element=rate,
                local_elements=local,
                local_elements_per_cycle=local_rate,
                global_elements_per_cycle=global_rate,
            )
            self._configs[precision, one_unit] = (configs, found.of)
        return self._configs[precision, one_unit]

    def _lanes(self, work: VectorWork, *, one_unit: bool) -> FloatArray:
        units = np.ones(1) if one_unit else self._archs.vector_count.astype(np.float64)
        return lane_cycles(work, units, self._archs.vector_lanes.astype(np.float64)) / self._archs.clock_hz

    def _vector(self, work: VectorWork, *, one_unit: bool, share: FloatArray) -> Parts:
        lanes_s = self._lanes(work, one_unit=one_unit) / self._archs.calibration.lane_rate
        buffer_bytes = self._archs.global_buffer_bytes * share
        reads = hbm_read_bytes(work, row_stays_on_chip(work, buffer_bytes))
        port_bytes = np.maximum(float(work.read_bytes) * work.passes, float(work.write_bytes))
        return Parts(
            array_s=np.zeros(1),
            lanes_s=lanes_s,
            local_port_s=np.zeros(1),
            global_port_s=port_bytes / (self._global_bytes_per_s * share),
            hbm_s=self._hbm_s(reads, np.full(1, float(work.write_bytes)), share),
            fill_s=np.zeros(1),
            first_load_s=np.zeros(1),
            launch_s=self._archs.calibration.launch_s,
        )

    def _attention(
        self, attention: FusedAttention, work: VectorWork, precision: str, *, one_unit: bool, share: FloatArray
    ) -> Parts:
        """Price attention whose scores stay on chip.

        Its products follow each other, and arrays and lanes take turns: a tile of scores must pass the lanes before the
        next product reads it. A kernel that works on two tiles at once hides part of this (Shah et al. 2024,
        arXiv:2407.08608, section 3.1); measured ones reach 50 to 75 % of the arrays' peak all the same. Scores and
        probabilities go between arrays and lanes as the products' results and operands do, through the global buffer;
        HBM sees what ``work`` says and what :func:`passes_again` adds.
        """
        again = passes_again(attention, ELEMENT_BYTES[precision], self._archs.global_buffer_bytes * share)
        reads, writes = again.read_bytes + float(work.read_bytes), again.write_bytes + float(work.write_bytes)
        hbm_s = self._hbm_s(reads, writes, share)
        if self._archs.blocks is not None:
            return self._attention_in_blocks(attention, work, precision, hbm_s, one_unit=one_unit, share=share)
        products = [
            self._tensor(product, precision, None, one_unit=one_unit, share=share) for product in attention.products
        ]
        nothing, lanes_s = np.zeros(1), self._lanes(work, one_unit=one_unit)
        return Parts(
            array_s=sum((product.array_s for product in products), nothing),
            lanes_s=lanes_s,
            local_port_s=sum((product.local_port_s for product in products), nothing),
            global_port_s=sum((product.global_port_s for product in products), nothing),
            hbm_s=hbm_s,
            fill_s=sum((product.fill_s for product in products), nothing),
            first_load_s=self._first_load_s(products[0], share),
            turns_s=lanes_s,
            launch_s=self._archs.calibration.launch_s,
        )

    def _attention_in_blocks(
        self,
        attention: FusedAttention,
        work: VectorWork,
        precision: str,
        hbm_s: FloatArray,
        *,
        one_unit: bool,
        share: FloatArray,
    ) -> Parts:
        """Price attention whose tiles multiprocessors take one at a time; its arrays wait for sums as for lanes."""
        archs, size = self._archs, ELEMENT_BYTES[precision]
        tiles, busy = self._attention_tiles(attention, work, precision, one_unit=one_unit)
        tensor_count = np.ones(1) if one_unit else archs.tensor_count.astype(np.float64)
        vector_count = np.ones(1) if one_unit else archs.vector_count.astype(np.float64)
        local_bytes = self._tile_local_bytes(attention, size)
        lanes_s = tiling.tile_lane_cycles(tiles, vector_count, archs.vector_lanes.astype(np.float64)) / archs.clock_hz
        port_bytes_per_s = self._global_bytes_per_s * share
        return Parts(
            array_s=busy.compute / archs.clock_hz,
            lanes_s=lanes_s,
            local_port_s=local_bytes / (tensor_count * archs.tensor_local_bytes_per_s),
            global_port_s=(tiles.read_elements * size + tiles.sum_bytes) / port_bytes_per_s,
            hbm_s=hbm_s,
            fill_s=np.zeros(1),
            first_load_s=np.zeros(1),
            turns_s=lanes_s + tiles.sum_bytes / port_bytes_per_s,
            launch_s=archs.calibration.launch_s,
        )

    def _attention_tiles(
        self, attention: FusedAttention, work: VectorWork, precision: str, *, one_unit: bool
    ) -> tuple[tiling.AttentionTiles, tiling.Busy]:
        archs, blocks = self._archs, self._archs.blocks
        assert blocks is not None
        self._tensor_configs(precision, one_unit)  # refuses a precision without a rate
        tiles = tiling.attention_tiles(attention, work, blocks)
        tensor_count = np.ones(1) if one_unit else archs.tensor_count.astype(np.float64)
        unit_macs = archs.tensor_rows * archs.tensor_cols * archs.tensor_macs_per_element[precision]
        return tiles, tiling.tile_array_cycles(tiles, tensor_count, unit_macs, blocks, archs.calibration.tensor_rate)

    def _tile_local_bytes(self, attention: FusedAttention, size: float) -> FloatArray:
        """Return the operands' bytes into arrays: each once for as many rows or columns as an array has."""
        return attention.macs * (1.0 / self._archs.tensor_rows + 1.0 / self._archs.tensor_cols) * size

    def _fused(self, tensor: _TensorPart, work: VectorWork, *, one_unit: bool, share: FloatArray) -> Parts:
        """Price a product whose result passes through the vector unit before it is written.

        The product's own result does not go to HBM: ``work.write_bytes`` is all that is written, ``work.read_bytes``
        what is read besides the product's operands. Where the epilogue reduces over rows, a whole row of results must
        stay on chip; where it cannot, the result is written and read back once.
        """
        lanes_s = self._lanes(work, one_unit=one_unit)
        reads = tensor.read_bytes + work.read_bytes
        writes = np.full(1, float(work.write_bytes))
        if work.reductions:
            resident = row_stays_on_chip(work, self._archs.global_buffer_bytes * share) > 0
            reads = np.where(resident, reads, reads + tensor.write_bytes)
            writes = np.where(resident, writes, writes + tensor.write_bytes)
        return Parts(
            array_s=tensor.array_s,
            lanes_s=lanes_s,
            local_port_s=tensor.local_port_s,
            global_port_s=tensor.global_port_s,
            hbm_s=self._hbm_s(reads, writes, share),
            fill_s=tensor.fill_s,
            first_load_s=self._first_load_s(tensor, share),
            launch_s=self._archs.calibration.launch_s,
        )
