"""Write a report's files, each whole or not at all."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from archplace.arch_configs.errors import StoreError
from archplace.search.report.contents import Contents, document
from archplace.search.run import RunResult

FILES = ("report.html", "front.csv", "front.json")


def write_report(result: RunResult, folder: Path, *, beside_run: bool = True) -> tuple[Path, ...]:
    """Write :data:`FILES` into ``folder`` and return their paths.

    The same run gives the same bytes, wherever they are written. Raises :class:`StoreError` when the folder cannot be
    written; files of an earlier report then stay as they were.
    """
    from archplace.search.report.page import write_page

    contents = Contents.of(result)
    texts = {
        "report.html": write_page(contents, beside_run=beside_run),
        "front.csv": front_csv(contents),
        "front.json": front_json(contents),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _replace(folder, texts)
    except OSError as error:
        raise StoreError(
            f"{folder}: the report cannot be written: {error.strerror}; give another folder with --out"
        ) from None


def front_csv(contents: Contents) -> str:
    """Return the front as CSV; numbers keep full precision (``float(text)`` gives them back exactly).

    Without a feasible design there is only the column ``id``.
    """
    rows = contents.rows
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["id"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def front_json(contents: Contents) -> str:
    """Return the whole report as one JSON document."""
    return json.dumps(document(contents), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _replace(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write all files beside their places first, so that a full disk leaves the earlier ones whole."""
    waiting: dict[str, Path] = {}
    try:
        for name, text in texts.items():
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", newline="", dir=folder, prefix=f".{name}.", delete=False
            ) as file:
                waiting[name] = Path(file.name)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for name, path in waiting.items():
            path.chmod(0o644)
            path.replace(folder / name)
    finally:
        for path in waiting.values():
            path.unlink(missing_ok=True)
    return tuple(folder / name for name in texts)
