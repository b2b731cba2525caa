"""Which devices form the groups of a parallel axis: sets of strides that follow from the order of the axes.

Devices are numbered along the parallel axes, innermost first, so that a group of an axis is a number of devices at one
distance, and a group over several axes one such level per axis (as Megatron-Core's rank generator lays them out).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from archplace.workloads.operators import Axis

Level = tuple[int, int]
"""Members and stride: ``(size, stride)``."""

_STAGE_AXES = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA)
ORDERED_AXES = (*_STAGE_AXES, Axis.PIPELINE)
"""The axes along which devices are numbered; expert groups take theirs from the first three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Devices ``x0 + i1 · stride1 + i2 · stride2 + …``; the groups of an axis differ in ``x0`` alone.

    Raises ``ValueError`` when two levels would number a device twice.
    """

    levels: tuple[Level, ...]
    """Innermost first, none of size 1, none that continues the one before it; empty for a group of one."""

    def __post_init__(self) -> None:
        reach = 1
        for size, stride in self.levels:
            if size < 2 or stride < reach:
                raise ValueError(
                    f"a group's levels are (size, stride), innermost first, each of at least 2 devices beyond the "
                    f"{reach} of the levels before it; found {self.levels}: make it with Group.of"
                )
            reach = size * stride

    @classmethod
    def of(cls, levels: Iterable[Level]) -> "Group":
        """Return the group with these levels: those of size 1 go, and those that continue one another become one."""
        merged: list[Level] = []
        for size, stride in levels:
            if size == 1:
                continue
            if merged and merged[-1][0] * merged[-1][1] == stride:
                merged[-1] = (merged[-1][0] * size, merged[-1][1])
            else:
                merged.append((size, stride))
        return cls(levels=tuple(merged))

    @classmethod
    def neighbours(cls, size: int, *, stride: int = 1) -> "Group":
        """Return ``size`` devices, ``stride`` apart."""
        return cls.of([(size, stride)])

    @property
    def size(self) -> int:
        """Number of members."""
        return prod(size for size, _ in self.levels)

    @property
    def extent(self) -> int:
        """Devices from the first member to the end of the outermost level's last stride."""
        return self.levels[-1][0] * self.levels[-1][1] if self.levels else 1

    def members(self) -> tuple[int, ...]:
        """Return the devices of the group of device 0, in the order in which the levels count them."""
        found = [0]
        for size, stride in self.levels:
            found = [device + i * stride for i in range(size) for device in found]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """The parallel axes in the order in which devices are numbered.

    Routed experts are spread over ``expert · expert_tensor`` of a stage's tensor · context · data devices: the first
    ones in this order, those that share an expert innermost; what remains of the stage's devices are replicas of the
    experts, over which their gradients are reduced (Megatron-Core's convention).

    Raises ``ValueError`` for a degree below 1, an axis that stands twice or is not numbered, and for expert degrees
    that the stage's devices cannot be divided by.
    """

    degrees: tuple[tuple[Axis, int], ...]
    """Axis and degree, innermost first; an axis that is left out has degree 1."""
    expert: int = field(default=1, kw_only=True)
    expert_tensor: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        axes = [axis for axis, _ in self.degrees]
        for axis in axes:
            if axis not in ORDERED_AXES:
                allowed = ", ".join(ORDERED_AXES)
                raise ValueError(
                    f"axis {axis}: devices are numbered along {allowed}; give {axis} as a degree of its own"
                )
            if axes.count(axis) > 1:
                raise ValueError(f"axis {axis} stands {axes.count(axis)} times in the order; each may stand once")
        for axis, degree in (*self.degrees, (Axis.EXPERT, self.expert), (Axis.EXPERT_TENSOR, self.expert_tensor)):
            if degree < 1:
                raise ValueError(f"the {axis} parallel degree is {degree}, must be at least 1")
        self._expert_levels()

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(degree for _, degree in self.degrees)

    def degree(self, axis: Axis) -> int:
        """Return the number of members of the axis's groups."""
        if axis is Axis.EXPERT:
            return self.expert
        if axis is Axis.EXPERT_TENSOR:
            return self.expert_tensor
        return dict(self.degrees).get(axis, 1)

    def group(self, axis: Axis) -> Group:
        """Return the groups of one axis."""
        if axis is Axis.EXPERT_TENSOR:
            return Group.of(self._expert_levels()[0])
        if axis is Axis.EXPERT:
            return Group.of(self._expert_levels()[1])
        return self.union(axis)

    def union(self, *axes: Axis) -> Group:
        """Return the groups of devices that differ in any of these numbered axes and in no other."""
        return Group.of(self._levels(axes))

    @property
    def gradient_group(self) -> Group:
        """The replicas of all parameters but the routed experts': context · data."""
        return self.union(Axis.CONTEXT, Axis.DATA)

    @property
    def expert_gradient_group(self) -> Group:
        """The replicas of the routed experts' parameters."""
        return Group.of(self._expert_levels()[2])

    def _levels(self, axes: Iterable[Axis]) -> list[Level]:
        wanted, levels, stride = frozenset(axes), [], 1
        for axis, degree in self.degrees:
            if axis in wanted:
                levels.append((degree, stride))
            stride *= degree
        return levels

    def _expert_levels(self) -> tuple[list[Level], list[Level], list[Level]]:
        """Return the levels of the expert-tensor, expert and expert-gradient groups."""
        rest = self._levels(_STAGE_AXES)
        parts = []
        for name, count in (("expert_tensor", self.expert_tensor), ("expert", self.expert)):
            taken: list[Level] = []
            while count > 1:
                rest = [level for level in rest if level[0] > 1]
                if not rest:
                    raise ValueError(self._no_room(name, "has fewer"))
                (size, stride), rest = rest[0], rest[1:]
                if size % count == 0:
                    taken.append((count, stride))
                    rest.insert(0, (size // count, stride * count))
                    count = 1
                elif count % size == 0:
                    taken.append((size, stride))
                    count //= size
                else:
                    raise ValueError(
                        self._no_room(name, f"has axes that {count} does not divide, such as one of {size}")
                    )
            parts.append(taken)
        return parts[0], parts[1], rest

    def _no_room(self, name: str, why: str) -> str:
        stage = " x ".join(str(self.degree(axis)) for axis in _STAGE_AXES)
        return (
            f"{name}: expert {self.expert} x expert_tensor {self.expert_tensor} devices are taken from a stage's "
            f"tensor x context x data = {stage} devices, which {why}"
        )
