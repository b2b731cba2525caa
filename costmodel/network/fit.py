"""Fit the achievable fractions of a network dimension and the costs at its endpoints to measured collectives.

Few parameters, all physical: the seconds in which a collective starts, the rate at which a device passes its own buffer
once, and at a handful of message sizes the fraction of the bandwidth that messages of that size reach. They are fitted
under the pricing that uses them, with the best algorithm for each payload.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.cluster import Cluster, Endpoint, NetworkDimension
from archplace.costmodel.network.groups import Group
from archplace.costmodel.network.pricer import NetworkPricer
from archplace.workloads.operators import CollectiveKind

_STEP = 1e-4
_ROUNDS = 60
_MOST_DAMPING = 1e9
_ENOUGH = 1e-7
"""Relative gain of a round below which the fit has converged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of one kind of collective among the same devices, for several payloads."""

    kind: CollectiveKind
    members: int
    payload_bytes: FloatArray
    """Full buffer of each device, shape ``(n,)``."""
    seconds: FloatArray
    """Shape ``(n,)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFit:
    """A fitted dimension with its endpoints, and how far their prices are from the measurements."""

    dimension: NetworkDimension
    endpoint: Endpoint
    relative_errors: FloatArray
    """Priced / measured − 1, in the order of the measurements."""

    @property
    def median_error(self) -> float:
        """Median of the absolute relative errors."""
        return float(np.median(np.abs(self.relative_errors)))


def relative_errors(cluster: Cluster, measured: Sequence[Measured]) -> FloatArray:
    """Return priced / measured − 1 of every measurement, for devices that are neighbours in ``cluster``."""
    pricer = NetworkPricer(cluster)
    errors = [
        pricer.seconds(series.kind, series.payload_bytes, Group.neighbours(series.members)) / series.seconds - 1.0
        for series in measured
    ]
    return np.concatenate(errors)


def fit_dimension(
    dimension: NetworkDimension, measured: Sequence[Measured], *, message_sizes: Sequence[int]
) -> NetworkFit:
    """Return ``dimension`` with the fractions at ``message_sizes`` (rising), and the endpoint, that fit best.

    The latency of a hop stays the dimension's: few measurements tell it from the start. Least squares of the relative
    errors by Levenberg and Marquardt's method, from a start of 10 µs, a pass of 1 TB/s and half of the bandwidth.
    Fractions stay between 0 and 1, and such that a larger message never takes less time. Raises ``ValueError`` with
    fewer measurements than parameters.
    """
    count = sum(len(series.seconds) for series in measured)
    if count < len(message_sizes) + 2:
        raise ValueError(
            f"found {count} measurements for {len(message_sizes) + 2} parameters; measure more, or fit fewer sizes"
        )

    def build(parameters: FloatArray) -> Cluster:
        fractions = 1.0 / (1.0 + np.exp(-parameters[2:]))
        table: list[tuple[int, float]] = []
        for size, fraction in zip(message_sizes, fractions.tolist(), strict=True):
            limit = table[-1][1] * size / table[-1][0] if table else 1.0
            table.append((size, min(fraction, limit)))
        start_s, seconds_per_byte = np.exp(parameters[:2]).tolist()
        return Cluster(
            name=dimension.name,
            dimensions=(replace(dimension, achievable=tuple(table)),),
            sources={},
            endpoint=Endpoint(start_s=start_s, pass_bytes_per_s=1.0 / seconds_per_byte),
        )

    parameters = np.append(np.log([1e-5, 1e-12]), np.zeros(len(message_sizes)))
    errors = relative_errors(build(parameters), measured)
    damping = 1e-3
    for _ in range(_ROUNDS):
        slopes = np.empty((count, len(parameters)))
        for index in range(len(parameters)):
            moved = parameters.copy()
            moved[index] += _STEP
            slopes[:, index] = (relative_errors(build(moved), measured) - errors) / _STEP
        normal = slopes.T @ slopes
        before = float(errors @ errors)
        while damping < _MOST_DAMPING:
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-9)
            trial = parameters - np.linalg.solve(scaled, slopes.T @ errors)
            found = relative_errors(build(trial), measured)
            if float(found @ found) < before:
                parameters, errors, damping = trial, found, damping / 3
                break
            damping *= 4
        if before - float(errors @ errors) <= _ENOUGH * before:
            break
    fitted = build(parameters)
    return NetworkFit(dimension=fitted.dimensions[0], endpoint=fitted.endpoint, relative_errors=errors)
