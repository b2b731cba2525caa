"""How much of a trace its lifted graph explains."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archplace.workloads.traced.calls import Pass
from archplace.workloads.traced.versions import Step, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Operators of the forward and backward pass, and those whose work is not known."""

    n_calls: Mapping[Pass, int]
    """Calls by part of the step."""
    n_operators: int
    """Calls of the forward and the backward pass that make tensors."""
    n_known: int
    bytes: float
    """Bytes of what these read and write."""
    bytes_known: float
    unknown: tuple[tuple[str, int], ...]
    """Names of operators without a rule, with how often they are called, the most frequent first: their loops are
    taken as they look, and nothing of them is cut."""

    @property
    def share(self) -> float:
        """Share of the bytes that known operators read and write; 1 of none."""
        return self.bytes_known / self.bytes if self.bytes else 1.0


def coverage_of(values: Sequence[Value], steps: Sequence[Step], known: Mapping[int, bool]) -> Coverage:
    """Return the coverage; ``known`` says of each step of the forward and backward pass whether it has a rule."""
    touched = {place: _touched(values, steps[place]) for place in known}
    unknown = Counter(steps[place].name for place, is_known in known.items() if not is_known)
    return Coverage(
        n_calls=Counter(step.call.part for step in steps if not step.is_synthetic),
        n_operators=len(known),
        n_known=sum(known.values()),
        bytes=sum(touched.values()),
        bytes_known=sum(size for place, size in touched.items() if known[place]),
        unknown=tuple(sorted(unknown.items(), key=lambda item: (-item[1], item[0]))),
    )


def _touched(values: Sequence[Value], step: Step) -> float:
    size = 0.0
    for number in {*(one for argument in step.arguments for one in argument), *step.results}:
        elements = 1
        for length in values[number].shape:
            elements *= length
        size += elements * values[number].item_bytes
    return size
