"""Seconds as a function of bytes: continuous, piecewise linear, never falling.

Every price of this room is one: α + β·P on each piece of the payload P. Sums, the least and the largest of several, and
the price of a part of the payload are again such functions, so that what a group's collective costs is worked out once
and then looked up for arrays of payloads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archplace.arch_configs.architectures import FloatArray

_SAME = 1e-12
"""Slopes this close, relatively, are one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """``value[i] + slope[i] · (P − start[i])`` on the piece from ``start[i]`` to ``start[i + 1]``, the last endless.

    All of shape ``(n_pieces,)``; ``start[0]`` is 0.
    """

    start: FloatArray
    value: FloatArray
    slope: FloatArray

    @classmethod
    def line(cls, constant: float, slope: float) -> "Curve":
        """Return ``constant + slope · P``."""
        return cls(start=np.zeros(1), value=np.array([float(constant)]), slope=np.array([float(slope)]))

    def at(self, payload: FloatArray) -> FloatArray:
        """Return the values at ``payload``, of any shape, none negative."""
        piece = np.searchsorted(self.start, payload, side="right") - 1
        return self.value[piece] + self.slope[piece] * (payload - self.start[piece])

    def times(self, factor: float, *, of: float = 1.0, plus: float = 0.0) -> "Curve":
        """Return ``factor`` times the value at the part ``of`` of the payload, and ``plus``; ``of`` is positive."""
        return Curve(start=self.start / of, value=factor * self.value + plus, slope=factor * of * self.slope)


def total(curves: Sequence[Curve]) -> Curve:
    """Return the sum; zero everywhere when there are none."""
    if not curves:
        return Curve.line(0.0, 0.0)
    if len(curves) == 1:
        return curves[0]
    start = np.unique(np.concatenate([curve.start for curve in curves]))
    pieces = [np.searchsorted(curve.start, start, side="right") - 1 for curve in curves]
    slope = np.sum([curve.slope[piece] for curve, piece in zip(curves, pieces, strict=True)], axis=0)
    return _simple(start, np.sum([curve.at(start) for curve in curves], axis=0), slope)


def least(curves: Sequence[Curve]) -> Curve:
    """Return the least of the curves at each payload; of at least one."""
    return _envelope(curves, 1.0)


def largest(curves: Sequence[Curve]) -> Curve:
    """Return the largest of the curves at each payload; of at least one."""
    return _envelope(curves, -1.0)


def _envelope(curves: Sequence[Curve], sign: float) -> Curve:
    """Return the lower envelope for ``sign`` 1, the upper one for −1.

    Between neighbouring starts all curves are lines, and the envelope is concave (convex). Where the curve that is the
    envelope's just after a start is not the one just before the next, the crossing of the two becomes a start as well,
    until none is missing.
    """
    if len(curves) == 1:
        return curves[0]
    if all(len(curve.start) == 1 for curve in curves):
        return _envelope_of_lines([(sign * curve.value[0], sign * curve.slope[0]) for curve in curves], sign)
    start = np.unique(np.concatenate([curve.start for curve in curves]))
    while True:
        pieces = [np.searchsorted(curve.start, start, side="right") - 1 for curve in curves]
        value = sign * np.array([curve.at(start) for curve in curves])
        slope = sign * np.array([curve.slope[piece] for curve, piece in zip(curves, pieces, strict=True)])
        every = np.arange(len(start))
        after = _first(value, slope)
        length = np.append(np.diff(start), 1.0)
        end = value + slope * length
        end[:, -1], last = slope[:, -1], slope
        # Just before the next start, of equal values the one that came down fastest; on the last piece, at infinity.
        before = _first(end, np.where(every == len(start) - 1, value, -last))
        rise = slope[after, every] - slope[before, every]
        gap = value[before, every] - value[after, every]
        crossing = start + np.divide(gap, rise, out=np.zeros_like(gap), where=rise > 0)
        inside = (rise > 0) & (crossing > start * (1 + _SAME)) & (crossing < np.append(start[1:] * (1 - _SAME), np.inf))
        if not inside.any():
            return _simple(start, sign * value[after, every], sign * slope[after, every])
        start = np.unique(np.concatenate([start, crossing[inside]]))


def _envelope_of_lines(lines: list[tuple[float, float]], sign: float) -> Curve:
    """Return ``sign`` times the lower envelope of ``(value at 0, slope)``: from the line that is least at 0 on, always
    to the one among the less steep that it meets first."""
    value, slope = min(lines)
    start, pieces = 0.0, [(0.0, value, slope)]
    while True:
        meetings = [((v - value) / (slope - b), b, v) for v, b in lines if b < slope * (1 - _SAME * sign)]
        if not meetings:
            break
        meeting, slope, value = min(meetings)
        start = max(start, meeting)
        pieces.append((start, value + slope * start, slope))
    starts, values, slopes = np.array(pieces).T
    return _simple(starts, sign * values, sign * slopes)


def _first(keys: FloatArray, ties: FloatArray) -> NDArray[np.intp]:
    """Return the row with the least key in each column, of nearly equal ones the least in ``ties``."""
    lowest = keys.min(axis=0)
    near = keys <= lowest + _SAME * np.abs(lowest)
    first: NDArray[np.intp] = np.argmin(np.where(near, ties, np.inf), axis=0)
    return first


def _simple(start: FloatArray, value: FloatArray, slope: FloatArray) -> Curve:
    """Return the curve without starts at which the slope stays the same."""
    keep = np.append(True, np.abs(np.diff(slope)) > _SAME * np.abs(slope[1:]))
    return Curve(start=start[keep], value=value[keep], slope=slope[keep])
