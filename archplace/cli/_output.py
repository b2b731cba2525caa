"""Print rows as table, JSON, CSV or YAML."""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence

import yaml

Value = str | int | float | bool | None
Row = Mapping[str, object]

FORMATS = ("table", "json", "csv", "yaml")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``, which every listing has."""
    parser.add_argument("--format", choices=FORMATS, default="table", help="how to print (default: table)")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(_cell(item) for item in value)
    return str(value)


def print_rows(rows: Sequence[Row], style: str) -> None:
    """Print ``rows`` to stdout in ``style`` (one of :data:`FORMATS`); JSON and YAML keep full precision."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if style == "json":
        json.dump([dict(row) for row in rows], sys.stdout, indent=1)
        print()
    elif style == "yaml":
        yaml.safe_dump([dict(row) for row in rows], sys.stdout, sort_keys=False)
    elif style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells = (row.get(column) for column in columns)
            writer.writerow(["" if c is None else _cell(c) if isinstance(c, list | tuple) else c for c in cells])
    else:
        table = [columns, *[[_cell(row.get(column)) for column in columns] for row in rows]]
        widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_document(document: Row, style: str) -> None:
    """Print one thing: unlike a listing, JSON and YAML are an object, not a list of one."""
    if style == "json":
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        print()
    elif style == "yaml":
        yaml.safe_dump(dict(document), sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        print_rows([document], style)
