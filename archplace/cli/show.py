"""``archplace show DIR [ID]``: print the front of a run, one design point, or an accelerator or cluster by name."""

import argparse
import sys
from pathlib import Path

from archplace.arch_configs import accelerator_names, cluster_names, load_accelerator, load_cluster
from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, EXIT_PARTIAL, ConfigError
from archplace.arch_configs.files import read_lenient
from archplace.cli._output import add_format, print_document, print_rows
from archplace.cli._partial import warn_partial
from archplace.cli._points import baseline_of, design
from archplace.search.intervals import bounds_row, full_rows
from archplace.search.presets import Document, accelerator_document, cluster_document, preset_text
from archplace.search.report.design import design_document
from archplace.search.report.text import design_text, fate_text
from archplace.search.run import RunResult, open_result
from archplace.search.tables import (
    BASELINE,
    PointView,
    baseline_view,
    fate_row,
    front_rows,
    option_rows,
    point_views,
    view,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="folder of a run; or an accelerator or cluster, built in or a file, to print what it is and can do",
    )
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help=f"number of a design (12; of further designs on one architecture 12.1, 12.2, …), or '{BASELINE}'; "
        "without it the front is listed",
    )
    parser.add_argument(
        "--options", action="store_true", help="list the fate of every placement option on the architecture ID"
    )
    add_format(parser)
    parser.epilog = (
        "JSON, YAML and CSV carry every metric in SI units (shares as fractions of one); the table rounds. An "
        "architecture that was not evaluated is shown with its fate, its bound, and the design that dominates it or "
        "the reason why it is infeasible. Of an unfinished run what was evaluated so far is shown, with exit code 4."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the front, or the design that was asked for."""
    if not arguments.folder.is_dir() and arguments.id is None:
        presets = _presets(arguments.folder)
        if presets:
            _print_presets(presets, arguments.format)
            return EXIT_DONE
    result = open_result(arguments.folder)
    code = _show(result, arguments)
    if result.partial:
        warn_partial(result, arguments.folder)
        return EXIT_PARTIAL
    return code


def _presets(path: Path) -> list[Document]:
    """Return the accelerator and the cluster that a file describes, or that are built in under a name."""
    name, found = str(path), []
    kinds = read_lenient(path).data if path.is_file() else {}
    described = kinds if isinstance(kinds, dict) else {}
    if "accelerator" in described or name in accelerator_names():
        found.append(accelerator_document(load_accelerator(path if described else name)))
    if "cluster" in described or name in cluster_names():
        cluster = load_cluster(path if described else name)
        chip = None if cluster.accelerator is None else load_accelerator(cluster.accelerator)
        found.append(cluster_document(cluster, chip))
    return found


def _print_presets(presets: list[Document], style: str) -> None:
    if style == "table":
        print("\n\n".join(map(preset_text, presets)))
    elif style == "csv":
        print_rows(
            [{key: value for key, value in each.items() if not isinstance(value, dict)} for each in presets], style
        )
    elif len(presets) == 1:
        print_document(presets[0], style)
    else:
        print_rows(presets, style)


def _show(result: RunResult, arguments: argparse.Namespace) -> int:
    if arguments.options and (arguments.id is None or arguments.id == BASELINE):
        raise ConfigError("--options needs the number of an architecture: archplace show DIR ID --options")
    if arguments.id is None:
        return _list(result, arguments.format)
    if arguments.id == BASELINE:
        _print_point(baseline_of(result), arguments.format)
        return EXIT_DONE
    architecture, number = design(result, arguments.id)
    if arguments.options:
        print_rows(option_rows(result, architecture), arguments.format)
        return EXIT_DONE
    point = result.outcome.point(architecture, number)
    if point is not None:
        _print_point(view(result, point), arguments.format)
    elif arguments.format == "table":
        print(fate_text(fate_row(result, architecture)))
    else:
        print_document(fate_row(result, architecture), arguments.format)
    return EXIT_DONE


def _list(result: RunResult, style: str) -> int:
    if not result.outcome.front and not result.partial:
        reason = result.outcome.main_reason()
        print(
            f"archplace: the front is empty: nothing is feasible; the most frequent reason: {reason}", file=sys.stderr
        )
        if style in ("json", "yaml"):
            print_rows([], style)
        return EXIT_INFEASIBLE
    rows = front_rows(result) if style == "table" else full_rows(point_views(result))
    print_rows(rows, style)
    return EXIT_DONE


def _print_point(point: PointView, style: str) -> None:
    baseline = baseline_view(point.result)
    if style == "csv":
        print_rows([{**point.row(), **bounds_row(point)}], style)
    elif style == "table":
        print(design_text(design_document(point, baseline)))
    else:
        print_document(design_document(point, baseline), style)
