"""``archplace compare CASE``: what was predicted, and what a simulator found."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from archplace.arch_configs.errors import EXIT_DONE, ConfigError
from archplace.cli._output import add_format, print_rows

if TYPE_CHECKING:
    from archplace.search.simulate.comparison import Comparison


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "folders",
        metavar="CASE|DIR",
        nargs="+",
        type=Path,
        help="folders that archplace export wrote, or the folder of a run whose points were simulated",
    )
    add_format(parser)
    parser.epilog = (
        "predicted: as the search prices networks. simulator_prices: predicted with the simulator's collectives. "
        "replayed: the case run by the simulator's rules, without it. simulated: what it found. Differences are "
        "relative. The parts are those of the slowest stage: first what the two ways to price differ by, then what "
        "running the traces adds (a device exchanges one thing at a time), last what only the simulator knows."
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare; print to stdout."""
    from archplace.search.export.manifest import cases_in
    from archplace.search.simulate.comparison import Comparison, run_rows
    from archplace.search.store import FILE as STORE

    rows: list[dict[str, object]] = []
    cases: list[Comparison] = []
    for folder in arguments.folders:
        if (folder / STORE).is_file():
            found = run_rows(folder)
            if not found:
                raise ConfigError(
                    f"{folder}: no point of this run was simulated yet; begin with: archplace export {folder} ID --to "
                    "astra-sim --out CASE"
                )
            rows += found
        else:
            cases += [Comparison.of(each) for each in cases_in(folder)]
    _print(rows, cases, arguments.format)
    return EXIT_DONE


def _print(rows: "Sequence[dict[str, object]]", cases: "Sequence[Comparison]", style: str) -> None:
    from archplace.search.simulate.comparison import in_percent

    if style in ("json", "yaml"):
        documents = [*rows, *(case.document() for case in cases)]
        if style == "json":
            json.dump(documents, sys.stdout, indent=1)
            print()
        else:
            yaml.safe_dump(documents, sys.stdout, sort_keys=False)
        return
    every = [*rows, *(case.row() for case in cases)]
    if style == "csv":
        print_rows(every, style)
        return
    print_rows([in_percent(row) for row in every], style)
    for case in cases:
        print()
        _print_parts(case)


def _print_parts(case: "Comparison") -> None:
    from archplace.search.simulate.comparison import UNEXPLAINED

    print(f"{case.folder}: what the step goes to on stage {case.manifest.predicted.stage}, in milliseconds")
    rows: list[dict[str, object]] = [
        {
            "part": part.name,
            "predicted": _ms(part.predicted_s),
            "prices differ": _ms(part.prices_s, signed=True),
            "run differs": _ms(part.run_s, signed=True),
            "replayed": _ms(part.replayed_s),
        }
        for part in case.parts()
    ]
    totals = [sum(getattr(part, name) for part in case.parts()) for name in ("predicted_s", "prices_s", "run_s")]
    rows.append(
        {
            "part": "step",
            "predicted": _ms(totals[0]),
            "prices differ": _ms(totals[1], signed=True),
            "run differs": _ms(totals[2], signed=True),
            "replayed": _ms(case.manifest.predicted.replayed_step_s),
        }
    )
    print_rows(rows, "table")
    if case.found is None:
        print(f"not simulated yet: archplace simulate {case.folder} --binary PATH")
    else:
        unexplained = case.unexplained_s
        assert unexplained is not None
        print(f"{UNEXPLAINED} by {_ms(unexplained, signed=True)} ms: simulated are {_ms(case.found.step_s)} ms")
        for remark in case.found.remarks:
            print(f"remark: {remark}")


def _ms(seconds: float, *, signed: bool = False) -> str:
    text = f"{1e3 * seconds:{'+' if signed else ''}.3f}"
    return "0" if float(text) == 0 else text
