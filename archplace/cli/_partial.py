"""Say that what is printed comes from a run that is not finished."""

import sys
from pathlib import Path

from archplace.search.run import RunResult


def warn_partial(result: RunResult, folder: Path) -> None:
    """Warn on stderr, with the command that goes on."""
    evaluated, total = len(result.outcome.records), len(result.architectures)
    print(
        f"archplace: warning: {folder}: the run is not finished: {evaluated:,} of {total:,} architectures have been "
        "evaluated so far, and others may be better. Go on with: archplace search "
        f"{result.run.name}.yaml --out {folder}",
        file=sys.stderr,
    )
