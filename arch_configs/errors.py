"""The errors that a user can cause, and the exit codes they lead to.

::

    ArchplaceError
    ├── ConfigError       a file or a value that the user gave is wrong      exit 2
    ├── InfeasibleError   the whole question has no answer                   exit 3
    └── StoreError        a run folder cannot be used as it is               exit 2
        └── StoppedError  the run had to stop; what is finished is stored    exit 4

Infeasible *points* are results with a reason, never exceptions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

EXIT_DONE = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_INFEASIBLE = 3
EXIT_PARTIAL = 4
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in an input, with its place.

    ``place`` is ``file``, ``file:line:column`` or the name of a command-line option; ``key`` the dotted path of the
    value or ``""``; ``message`` says what was found, what is allowed, and how to fix it.
    """

    place: str
    key: str
    message: str

    def __str__(self) -> str:
        parts = [part for part in (self.place, self.key) if part]
        return ": ".join([*parts, self.message])


class ArchplaceError(Exception):
    """Base of every error that a user can cause; its text is complete without a traceback."""

    exit_code = EXIT_INTERNAL


class ConfigError(ArchplaceError):
    """One or more problems in what the user gave, all of them at once, one line each."""

    exit_code = EXIT_USAGE

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(place="", key="", message=problems)]
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InfeasibleError(ArchplaceError):
    """Nothing in the whole space satisfies the constraints; the text says which constraint rejects how much."""

    exit_code = EXIT_INFEASIBLE


class StoreError(ArchplaceError):
    """A run folder belongs to other inputs, another version, or is damaged; the text says how to go on."""

    exit_code = EXIT_USAGE


class StoppedError(StoreError):
    """A run could not write any more (a full disk, say): what it had finished before is stored."""

    exit_code = EXIT_PARTIAL
