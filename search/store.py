"""The store of a run: one SQLite file in the run's folder, written as results come.

Contract: whatever :meth:`Store.add_points` or :meth:`Store.finish` returned from is on disk and survives a kill. The
store belongs to one set of inputs (``digest``); it refuses others and changes nothing then. Results hold no wall-clock
times and no host names; those stand in ``log``.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from archplace import __version__
from archplace.arch_configs.errors import StoreError
from archplace.search.explore import Evaluated, Outcome
from archplace.search.schedule import Schedule, ScheduleStatus

SCHEMA = 1
"""Raised whenever the meaning of what is stored changes."""
FILE = "run.sqlite"
_POINT = TypeAdapter(Evaluated)

_TABLES = """
create table if not exists meta (key text primary key, value text not null);
create table if not exists log (id integer primary key, key text not null, value text not null);
create table if not exists points (architecture integer primary key, data text not null);
create table if not exists schedules (key text primary key, data text not null);
create table if not exists outcome (name text primary key, dtype text not null, data blob not null);
create table if not exists reasons (kind text not null, subject text not null, reason text not null,
                                    primary key (kind, subject));
"""


class Store:
    """An open store. Use as a context manager, or call :meth:`close`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._connection = connection

    @classmethod
    def create(cls, folder: Path, *, digest: str, meta: Mapping[str, object]) -> Self:
        """Open the store of ``folder`` for a run of the inputs with ``digest``; make it where there is none.

        Raises :class:`StoreError` when the folder cannot be written or holds a run of other inputs or another version.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be used as run folder: {error.strerror}; give another --out") from None
        store = cls(folder, _connect(folder / FILE))
        with store._connection:
            store._connection.executescript(_TABLES)
        known = store.meta()
        if not known:
            with store._connection:
                values = {"schema": SCHEMA, "version": __version__, "digest": digest, **meta}
                store._connection.executemany(
                    "insert into meta values (?, ?)", [(key, json.dumps(value)) for key, value in values.items()]
                )
            return store
        if known.get("schema") != SCHEMA or known.get("version") != __version__:
            found = f"version {known.get('version')} (schema {known.get('schema')})"
            store.close()
            raise StoreError(
                f"{folder}: written by archplace {found}, this is {__version__} (schema {SCHEMA}); "
                "give another --out, or move the folder away"
            )
        if known.get("digest") != digest:
            store.close()
            raise StoreError(
                f"{folder}: holds a run of other inputs "
                f"(digest {str(known.get('digest'))[:12]}, these give {digest[:12]}); "
                "give another --out, or move the folder away to start anew"
            )
        return store

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open an existing store to read it. Raises :class:`StoreError` when there is none."""
        path = folder / FILE
        if not path.is_file():
            raise StoreError(
                f"{folder}: no run here ({FILE} is missing); make one with: archplace search RUN.yaml --out {folder}"
            )
        store = cls(folder, _connect(path))
        if store.meta().get("schema") != SCHEMA:
            schema = store.meta().get("schema")
            store.close()
            raise StoreError(
                f"{folder}: store schema {schema}, this archplace reads {SCHEMA}; search again into another folder"
            )
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._connection.close()

    def meta(self) -> dict[str, object]:
        """Return what describes the run: version, digest, inputs, names."""
        try:
            rows = self._connection.execute("select key, value from meta").fetchall()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.folder / FILE}: not a store of archplace ({error}); move it away") from None
        return {key: json.loads(value) for key, value in rows}

    def log(self, key: str, value: object) -> None:
        """Note something about the running, such as wall time; not part of the results."""
        with self._connection:
            self._connection.execute("insert into log (key, value) values (?, ?)", (key, json.dumps(value)))

    def logged(self, key: str) -> list[object]:
        """Return what was noted under ``key``, oldest first."""
        rows = self._connection.execute("select value from log where key = ? order by id", (key,)).fetchall()
        return [json.loads(value) for (value,) in rows]

    def add_points(self, points: Iterable[Evaluated]) -> None:
        """Store evaluated points; on return they are on disk."""
        with self._connection:
            self._connection.executemany(
                "insert or replace into points values (?, ?)",
                [(point.architecture, _POINT.dump_json(point).decode()) for point in points],
            )

    def points(self) -> list[Evaluated]:
        """Return all stored points by architecture."""
        rows = self._connection.execute("select data from points order by architecture").fetchall()
        try:
            return [_POINT.validate_json(data) for (data,) in rows]
        except ValidationError as error:
            raise StoreError(
                f"{self.folder / FILE}: a stored point cannot be read ({error.error_count()} errors)"
            ) from None

    def add_schedules(self, schedules: Mapping[str, Schedule]) -> None:
        """Store schedules by content key."""
        rows = [
            (
                key,
                json.dumps(
                    {
                        "start_s": one.start_s.tolist(),
                        "mode": one.mode.tolist(),
                        "unit": one.unit.tolist(),
                        "makespan_s": one.makespan_s,
                        "lower_bound_s": one.lower_bound_s,
                        "status": one.status.value,
                    }
                ),
            )
            for key, one in schedules.items()
        ]
        with self._connection:
            self._connection.executemany("insert or replace into schedules values (?, ?)", rows)

    def schedules(self) -> dict[str, Schedule]:
        """Return all stored schedules by content key."""
        found = {}
        for key, text in self._connection.execute("select key, data from schedules order by key"):
            data = json.loads(text)
            found[key] = Schedule(
                start_s=np.array(data["start_s"]),
                mode=np.array(data["mode"], dtype=np.int8),
                unit=np.array(data["unit"], dtype=np.int64),
                makespan_s=data["makespan_s"],
                lower_bound_s=data["lower_bound_s"],
                status=ScheduleStatus(data["status"]),
            )
        return found

    def finish(self, outcome: Outcome) -> None:
        """Store the fates of all architectures and the reasons."""
        arrays: dict[str, NDArray[np.generic]] = {
            "fate": outcome.fate,
            "bound": outcome.bound_seconds_per_sample,
            "by": outcome.by,
        }
        reasons = [("architecture", str(key), text) for key, text in outcome.reasons.items()]
        reasons += [("option", key, text) for key, text in outcome.option_reasons.items()]
        with self._connection:
            self._connection.executemany(
                "insert or replace into outcome values (?, ?, ?)",
                [(name, array.dtype.str, array.tobytes()) for name, array in arrays.items()],
            )
            self._connection.execute("delete from reasons")
            self._connection.executemany("insert into reasons values (?, ?, ?)", reasons)

    def outcome(self) -> Outcome | None:
        """Return the finished outcome, or None when the run has not finished."""
        rows = self._connection.execute("select name, dtype, data from outcome").fetchall()
        arrays = {name: np.frombuffer(data, dtype=dtype).copy() for name, dtype, data in rows}
        if not arrays:
            return None
        reasons = self._connection.execute("select kind, subject, reason from reasons").fetchall()
        return Outcome(
            fate=arrays["fate"],
            bound_seconds_per_sample=arrays["bound"],
            by=arrays["by"],
            points={point.architecture: point for point in self.points()},
            reasons={int(subject): text for kind, subject, text in reasons if kind == "architecture"},
            option_reasons={subject: text for kind, subject, text in reasons if kind == "option"},
        )


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=5)
        connection.execute("select count(*) from sqlite_master")
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot be opened as a store ({error}); move it away or give another --out") from None
    return connection
