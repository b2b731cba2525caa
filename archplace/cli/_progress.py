"""Progress on stderr: a live line on a terminal, plain lines otherwise."""

import contextlib
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
    """Shows how far an exploration is; use as a context manager.

    A run does not end because nobody reads its progress any more, or because the disk is full that takes it.
    """

    def __init__(self, objectives: Objectives) -> None:
        self._objectives = objectives
        self._shown: Progress | None = None
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._last_line = -SECONDS_BETWEEN_LINES
        self._last_phase = ""

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self._end_live()

    def _end_live(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print one line that stays."""
        with contextlib.suppress(OSError):
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """Show ``progress``; where lines stay, at most one every few seconds and one when a phase begins."""
        self._shown = progress
        self._write(progress, last=False)

    def close(self) -> None:
        """Show the last progress once more, so that it stays, and leave the terminal to others."""
        if self._shown is not None:
            self._write(self._shown, last=True)
        self._end_live()

    def _write(self, progress: Progress, *, last: bool) -> None:
        text = progress_text(progress, self._objectives, done=last)
        now = time.monotonic()
        with contextlib.suppress(OSError):
            if self._console.is_terminal:
                self._on_terminal(text)
            elif last or progress.phase != self._last_phase or now - self._last_line >= SECONDS_BETWEEN_LINES:
                self._last_line, self._last_phase = now, progress.phase
                print(text, file=sys.stderr, flush=True)

    def _on_terminal(self, text: str) -> None:
        if self._live is None:
            # What goes to stdout is data: it must not be taken for a part of the display on stderr.
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        self._live.update(Text(text), refresh=True)


def progress_text(progress: Progress, objectives: Objectives, *, done: bool = False) -> str:
    """Return one line about how far an exploration is."""
    total = progress.total
    if progress.phase.endswith("bounds"):
        parts = [f"{progress.phase}: {share_text(progress.bounded, total)} architectures bounded"]
        parts += _rate(progress.bounded, progress.elapsed_s)
    elif progress.decided < total:
        parts = [f"{progress.phase}: {share_text(progress.decided, total)} architectures decided"]
        parts += [f"{progress.evaluated:,} evaluated", *_rate(progress.decided, progress.elapsed_s)]
    else:
        phase = "" if done else f"{progress.phase}: "
        parts = [f"{phase}all {total:,} architectures decided", f"{progress.evaluated:,} evaluated"]
        if progress.unproven:
            parts.append(f"{progress.unproven:,} with schedules to close")
    if progress.remaining_s is not None and not done:
        parts.append(f"ETA {duration_text(progress.remaining_s)}")
    text = ", ".join(parts)
    if progress.front:
        best = (value_text(name, value) for name, value in zip(objectives.names, progress.best, strict=True))
        text += f"; front {progress.front:,}, best {', '.join(best)}"
    return text


def share_text(done: int, total: int) -> str:
    """Return how many of how many, and the share; 100 % only for all of them."""
    share = min(99.9, 100 * done / total) if done < total else 100.0
    return f"{done:,}/{total:,} ({share:.1f} %)"


def duration_text(seconds: float) -> str:
    """Return a duration in the two units that matter: ``45 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    whole = round(seconds)
    for unit, size, lower_unit, lower in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // lower
            return f"{whole // size} {unit}" + (f" {rest} {lower_unit}" if rest else "")
    return f"{whole} s"


def _rate(count: int, seconds: float) -> list[str]:
    return [f"{count / seconds:,.0f}/s"] if count and seconds > 0 else []
