"""``archplace status DIR``: how far a run is."""

import argparse
import csv
import json
import sys
import time
from pathlib import Path

import yaml
from rich.console import Console
from rich.live import Live
from rich.text import Text

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INTERRUPTED
from archplace.cli._output import add_format
from archplace.cli._progress import duration_text, share_text
from archplace.search.outcome import Fate
from archplace.search.status import State, Status, read_status
from archplace.search.tables import value_text

SECONDS_BETWEEN_LOOKS = 2.0

_FATES = {
    Fate.OPEN: "open",
    Fate.FRONT: "on the front",
    Fate.DOMINATED: "dominated",
    Fate.PRUNED: "pruned by their bound",
    Fate.INFEASIBLE: "infeasible",
}


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"found {text}, needs 0.1 to 86400 seconds")
    return value


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of a run")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_seconds,
        nargs="?",
        const=SECONDS_BETWEEN_LOOKS,
        help=f"look again every so often until no process is at it (default: every {SECONDS_BETWEEN_LOOKS:g})",
    )
    add_format(parser)
    parser.epilog = (
        "The hypervolume is the share of the box between the least and the greatest bound of each objective, by "
        "logarithms, that the front dominates: it grows from 0 towards 1 and never falls. The remaining time is that "
        "of the present phase: bounds, evaluation, schedules. Reading disturbs no search. Exit code 0 whatever the "
        "state of the run is."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print how far the run is, once or until it ends."""
    status = read_status(arguments.folder)
    printer = _Printer(arguments.format, watch=arguments.watch is not None)
    with printer:
        printer.show(status)
        try:
            while arguments.watch is not None and status.state is State.RUNNING:
                time.sleep(arguments.watch)
                status = read_status(arguments.folder, box=status.box)
                printer.show(status)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return EXIT_DONE


class _Printer:
    """Prints one status after another: on a terminal a table in its place, else one below the other."""

    def __init__(self, style: str, *, watch: bool) -> None:
        self._style = style
        self._watch = watch
        self._first = True
        console = Console(highlight=False)
        live = watch and style == "table" and console.is_terminal
        self._live = Live(Text(""), console=console, auto_refresh=False) if live else None

    def __enter__(self) -> "_Printer":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Status) -> None:
        row = status.row()
        if self._live is not None:
            self._live.update(Text(status_text(status)), refresh=True)
        elif self._style == "table":
            print(("" if self._first else "\n") + status_text(status))
        elif self._style == "json":
            # While watching one line each, so that a program can read them one by one.
            print(json.dumps(row, indent=None if self._watch else 1, allow_nan=False))
        elif self._style == "yaml":
            yaml.safe_dump(row, sys.stdout, sort_keys=False, allow_unicode=True, explicit_start=self._watch)
        else:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            if self._first:
                writer.writerow(row)
            writer.writerow(["" if value is None else value for value in row.values()])
        sys.stdout.flush()
        self._first = False


def status_text(status: Status) -> str:
    """Return a status in words, one thing a line."""
    lines = {"run": f"{status.name} in {status.folder}: {status.state}"}
    if status.total == 0:
        lines["phase"] = "nothing is noted yet"
    else:
        what = "bounded" if status.phase.endswith("bounds") else "decided"
        lines["phase"] = f"{status.phase}: {share_text(status.done, status.total)} architectures {what}"
        counts = (f"{status.fates[fate]:,} {text}" for fate, text in _FATES.items() if status.fates[fate])
        lines["fates"] = ", ".join(counts)
        lines["evaluated"] = f"{status.evaluated:,} architectures"
        if status.unproven:
            lines["evaluated"] += f"; {status.unproven:,} with schedules to close"
    if status.architectures_per_s is not None:
        rate = f", {status.architectures_per_s:,.0f} architectures/s" if status.done else ""
        lines["elapsed"] = f"{duration_text(status.elapsed_s)}{rate}"
    if status.remaining_s is not None:
        lines["remaining"] = f"about {duration_text(status.remaining_s)} to the end of this phase"
    if status.noted_s_ago is not None and status.state is State.RUNNING:
        lines["noted"] = f"{duration_text(status.noted_s_ago)} ago"
    if len(status.front):
        lines["front"] = f"{len(status.front):,} design points"
        best = zip(status.objectives.names, status.best, strict=True)
        lines["best"] = ", ".join(value_text(name, value) for name, value in best if value is not None)
        if status.box is not None:
            share = status.hypervolume
            lines["hypervolume"] = "too many points to measure" if share is None else f"{share:.6f}"
    if status.resume is not None:
        lines["go on with"] = status.resume
    width = max(len(name) for name in lines)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in lines.items())
