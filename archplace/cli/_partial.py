"""Say that what is printed comes from a run that is not finished."""

import sys
from pathlib import Path

from archplace.search.run import RunResult, resume_command
from archplace.search.store import Store
from archplace.search.store_lock import is_locked


def warn_partial(result: RunResult, folder: Path) -> None:
    """Warn on stderr, with the command that goes on, or that watches where a process is at it."""
    evaluated, total = len(result.outcome.records), len(result.architectures)
    if is_locked(folder):
        advice = f"Watch it with: archplace status {folder} --watch"
    else:
        with Store.open(folder) as store:
            advice = f"Go on with: {resume_command(store)}"
    print(
        f"archplace: warning: {folder}: the run is not finished: {evaluated:,} of {total:,} architectures have been "
        f"evaluated so far, and others may be better. {advice}",
        file=sys.stderr,
    )
