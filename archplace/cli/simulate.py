"""``archplace simulate CASE``: run exported cases with ASTRA-sim."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import EXIT_DONE, EXIT_PARTIAL, ConfigError, StoreError
from archplace.cli._output import add_format, print_rows

if TYPE_CHECKING:
    from archplace.search.simulate.binary import Binary

_LIMIT_S = 600.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "cases",
        metavar="CASE",
        nargs="+",
        type=Path,
        help="folder that archplace export wrote, with one case or with one of each point",
    )
    parser.add_argument(
        "--binary",
        metavar="PATH",
        type=Path,
        help="analytical backend of ASTRA-sim (default: what ARCHPLACE_ASTRA_SIM names, or what is on the search path)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=_LIMIT_S,
        help=f"stop the simulator after so long (default: {_LIMIT_S:g})",
    )
    add_format(parser)
    parser.epilog = (
        "The step takes as long as the last device; a case counts as simulated when every device has printed "
        "'finished', however the simulator ends. What was found is kept in the case's folder and, for design points, "
        "in the store of their run. Exit code 4 where some cases could not be simulated. Next: archplace compare CASE."
    )


def run(arguments: argparse.Namespace) -> int:
    """Simulate; print the times to stdout."""
    if not 0 < arguments.timeout < float("inf"):
        raise ConfigError(f"--timeout: found {arguments.timeout:g}; needs a number of seconds above 0")
    from archplace.search.export.manifest import cases_in
    from archplace.search.simulate.binary import NO_BINARY, Binary, find_binary
    from archplace.search.simulate.comparison import in_percent
    from archplace.search.simulate.simulation import SimulationError

    binary = find_binary() if arguments.binary is None else Binary.at(arguments.binary)
    if binary is None:
        raise ConfigError(NO_BINARY)
    rows, failed = [], []
    for folder in (case for given in arguments.cases for case in cases_in(given)):
        try:
            rows.append(_simulate(folder, binary, arguments.timeout))
        except SimulationError as error:
            failed.append(error)
            print(f"archplace: {error}", file=sys.stderr)
    print_rows([in_percent(row) for row in rows] if arguments.format == "table" else rows, arguments.format)
    return EXIT_PARTIAL if failed else EXIT_DONE


def _simulate(folder: Path, binary: "Binary", limit_s: float) -> dict[str, object]:
    from archplace.cli._patience import patience
    from archplace.search.export.manifest import read_manifest
    from archplace.search.simulate.comparison import Comparison
    from archplace.search.simulate.results import keep, store
    from archplace.search.simulate.simulation import simulate

    manifest = read_manifest(folder)
    with patience(f"simulating {folder}: {manifest.nodes:,} nodes on {manifest.npus} devices"):
        found = simulate(folder, binary, limit_s=limit_s)
    for remark in found.remarks:
        print(f"archplace: {folder}: {remark}", file=sys.stderr)
    keep(folder, found)
    try:
        store(manifest, found)
    except StoreError as error:
        # The result stands beside the case all the same.
        print(f"archplace: warning: {folder}: not noted in the run's store: {error}", file=sys.stderr)
    return Comparison.of(folder).row()
