"""How the store writes arrays and schedules: a line of JSON that tells their shapes, then their bytes, compressed.

The same values give the same bytes. Whoever decodes what something else has written gets a ``ValueError``.
"""

import json
import struct
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from archplace.search.evaluator import BoundBlock
from archplace.search.schedule import Schedule, ScheduleStatus

_LEVEL = 1
"""Of compression: bounds shrink to a third, and more effort gains little."""

_SCHEDULE_HEAD = struct.Struct("<Iddc")
"""Operators, makespan, lower bound, status."""
_STATUS = {ScheduleStatus.OPTIMAL: b"o", ScheduleStatus.GAP: b"g"}
_STATUS_OF = {code: status for status, code in _STATUS.items()}
_BYTES_PER_OPERATOR = 8 + 1 + 8


def pack_block(block: BoundBlock) -> bytes:
    """Return the bounds of a block as bytes."""
    arrays: dict[str, NDArray[np.generic]] = {"values": block.values, "code": block.code, "amount": block.amount}
    arrays |= {f"options{w}": one for w, one in enumerate(block.options)}
    return _pack(arrays)


def unpack_block(data: bytes) -> BoundBlock:
    """Return the block that :func:`pack_block` wrote. Raises ``ValueError`` for anything else."""
    arrays = _unpack(data)
    try:
        return BoundBlock(
            values=arrays["values"].astype(np.float64, copy=False),
            code=arrays["code"].astype(np.int16, copy=False),
            amount=arrays["amount"].astype(np.float64, copy=False),
            options=tuple(
                arrays[f"options{w}"].astype(np.float64, copy=False)
                for w in range(sum(name.startswith("options") for name in arrays))
            ),
        )
    except KeyError as error:
        raise ValueError(f"no array {error}") from None


def _pack(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    head = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    parts = [json.dumps(head).encode(), b"\n", *(np.ascontiguousarray(array).tobytes() for array in arrays.values())]
    return zlib.compress(b"".join(parts), _LEVEL)


def _unpack(data: bytes) -> dict[str, NDArray[np.generic]]:
    try:
        plain = zlib.decompress(data)
        head, _, body = plain.partition(b"\n")
        arrays: dict[str, NDArray[np.generic]] = {}
        at = 0
        for name, (dtype, shape) in json.loads(head).items():
            size = np.dtype(dtype).itemsize * int(np.prod(shape))
            arrays[name] = np.frombuffer(body[at : at + size], dtype=dtype).reshape(shape).copy()
            at += size
    except (zlib.error, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    return arrays


def pack_array(array: NDArray[np.generic]) -> bytes:
    """Return the items of an array, compressed; data type and shape are kept beside it."""
    return zlib.compress(array.tobytes(), _LEVEL)


def unpack_array(data: bytes, dtype: str, shape: str) -> NDArray[np.generic]:
    """Return the array that :func:`pack_array` wrote; ``shape`` is JSON. Raises ``ValueError`` for anything else."""
    try:
        return np.frombuffer(zlib.decompress(data), dtype=dtype).reshape(json.loads(shape)).copy()
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from None


def pack_schedule(one: Schedule) -> bytes:
    """Return a schedule as bytes; not compressed, because tens of thousands are read when a run goes on."""
    head = _SCHEDULE_HEAD.pack(len(one.start_s), one.makespan_s, one.lower_bound_s, _STATUS[one.status])
    arrays = (one.start_s.astype("<f8"), one.mode.astype("i1"), one.unit.astype("<i8"))
    return b"".join((head, *(array.tobytes() for array in arrays)))


def unpack_schedule(data: bytes) -> Schedule:
    """Return the schedule that :func:`pack_schedule` wrote. Raises ``ValueError`` for anything else."""
    try:
        n_ops, makespan_s, lower_bound_s, status = _SCHEDULE_HEAD.unpack_from(data)
        at = _SCHEDULE_HEAD.size
        if len(data) != at + _BYTES_PER_OPERATOR * n_ops:
            raise ValueError(f"{len(data)} bytes are not a schedule of {n_ops} operators")
        return Schedule(
            start_s=np.frombuffer(data, dtype="<f8", count=n_ops, offset=at).copy(),
            mode=np.frombuffer(data, dtype="i1", count=n_ops, offset=at + 8 * n_ops).copy(),
            unit=np.frombuffer(data, dtype="<i8", count=n_ops, offset=at + 9 * n_ops).copy(),
            makespan_s=makespan_s,
            lower_bound_s=lower_bound_s,
            status=_STATUS_OF[status],
        )
    except (struct.error, TypeError, KeyError) as error:
        raise ValueError(f"not a schedule: {error}") from None
