"""Progress on stderr: a live line on a terminal, plain lines otherwise."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from archplace.search.objectives import Objectives
from archplace.search.outcome import Progress
from archplace.search.tables import value_text

SECONDS_BETWEEN_LINES = 5.0


class ProgressLine:
    """Shows how far an exploration is; use as a context manager."""

    def __init__(self, objectives: Objectives) -> None:
        self._objectives = objectives
        self._shown: Progress | None = None
        self._console = Console(stderr=True)
        self._live = Live(Text(""), console=self._console, transient=False) if self._console.is_terminal else None
        self._started = time.monotonic()
        self._last_line = -SECONDS_BETWEEN_LINES

    def __enter__(self) -> "ProgressLine":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """Show ``progress``; where lines stay, at most one every few seconds."""
        self._shown = progress
        self._write(progress, last=False)

    def close(self) -> None:
        """Show the last progress once more, so that it stays."""
        if self._shown is not None:
            self._write(self._shown, last=True)

    def _write(self, progress: Progress, *, last: bool) -> None:
        elapsed = time.monotonic() - self._started
        rate = progress.decided / elapsed if elapsed > 0 else 0.0
        eta = (progress.total - progress.decided) / rate if rate > 0 else float("nan")
        if progress.decided < progress.total:
            text = (
                f"{progress.phase}: {progress.decided:,}/{progress.total:,} architectures decided "
                f"({progress.decided / progress.total:.1%}), {progress.evaluated:,} evaluated, {rate:,.0f}/s, "
                f"ETA {eta:.0f} s"
            )
        else:
            text = f"all {progress.total:,} architectures decided, {progress.evaluated:,} evaluated"
            if progress.unproven:
                text += f"; closing schedules, {progress.unproven:,} architectures to go"
        if progress.front:
            best = ", ".join(
                value_text(name, value) for name, value in zip(self._objectives.names, progress.best, strict=True)
            )
            text += f"; front {progress.front}, best {best}"
        if self._live is not None:
            self._live.update(Text(text), refresh=True)
        elif last or elapsed - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = elapsed
            print(text, file=sys.stderr, flush=True)
