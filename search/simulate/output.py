"""What ASTRA-sim prints: lines of a log, one cycle a nanosecond."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
_STATISTIC = re.compile(r"sys\[(\d+)\], (GPU|Comm) time: (\d+)")
_CRITICAL = re.compile(r"\[critical\]\s*(.*)")
_HANG = re.compile(r"unreleased nodes", re.IGNORECASE)
_TAIL = 5


@dataclass(kw_only=True)
class Output:
    """What was printed, as far as it counts."""

    finish_ns: dict[int, int] = field(default_factory=dict)
    """By device; one that did not finish has no entry."""
    computing_ns: dict[int, int] = field(default_factory=dict)
    """When each device computed, by device."""
    exchanging_ns: dict[int, int] = field(default_factory=dict)
    """When anything of its communication was under way, by device."""
    critical: list[str] = field(default_factory=list)
    hangs: bool = False
    """Whether the simulator noticed that something still waits."""
    tail: list[str] = field(default_factory=list)
    """The last lines that are none of these."""

    def read(self, lines: Iterable[str]) -> None:
        """Take in lines."""
        for line in lines:
            self._line(line.rstrip())

    def _line(self, line: str) -> None:
        if found := _FINISHED.search(line):
            self.finish_ns[int(found[1])] = int(found[2])
        elif found := _STATISTIC.search(line):
            times = self.computing_ns if found[2] == "GPU" else self.exchanging_ns
            times[int(found[1])] = int(found[3])
        elif found := _CRITICAL.search(line):
            self.critical.append(found[1])
        elif _HANG.search(line):
            self.hangs = True
        elif line and "[info]" not in line:
            self.tail = [*self.tail[1 - _TAIL :], line]
