"""``archplace accuracy FILE.csv``: price published training steps and say how far off the prices are."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, ConfigError, Problem
from archplace.cli._output import add_format, print_rows
from archplace.cli._patience import patience

if TYPE_CHECKING:
    from archplace.search.accuracy import Prediction


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE.csv", help="measured training steps with their configuration, one a row")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw predicted over measured seconds as well")
    add_format(parser)
    parser.epilog = (
        "The column 'hardware' names a cluster (built in, or a file) that says of which accelerator it consists, an "
        "accelerator, which stands for its best-known cluster, or both as ACCELERATOR@CLUSTER. The table has a line "
        "for each source; json, csv and yaml have every step with what its time is made of. Rows that cannot be read "
        "or priced are listed with the reason. Exit code 3 when no step can be priced. docs/accuracy.md describes the "
        "columns and figures."
    )


def run(arguments: argparse.Namespace) -> int:
    """Price every row; print the result to stdout."""
    # Imported here, so that help and mistakes in the command line come at once.
    from archplace.search.accuracy import predict, read_rows
    from archplace.search.accuracy.tables import accuracy_text, flat_row, prediction_row

    steps = read_rows(arguments.file)
    with patience(f"pricing {len(steps)} training steps"):
        predictions = list(predict(steps))
    if arguments.format == "table":
        print(accuracy_text(predictions))
    else:
        row = flat_row if arguments.format == "csv" else prediction_row
        print_rows([row(prediction) for prediction in predictions], arguments.format)
    if arguments.plot:
        _draw(predictions, arguments.plot)
    priced = any(prediction.reason is None for prediction in predictions)
    return EXIT_DONE if priced else EXIT_INFEASIBLE


def _draw(predictions: "Sequence[Prediction]", path: str) -> None:
    from archplace.search.accuracy.scatter import draw, prepare

    try:
        picture = draw(prepare(predictions))
        Path(path).write_text(picture, encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"cannot be drawn: {error.strerror if isinstance(error, OSError) else error}"
        raise ConfigError([Problem(place=path, key="", message=message)]) from None
    print(f"wrote {path}", file=sys.stderr)
