"""The store of a run: one SQLite file in the run's folder, written as results come.

Contract: whatever a ``keep`` method returned from is on disk and survives a kill. The store belongs to one set of
inputs (``digest``); it refuses others and changes nothing then. One process at a time writes; any number may read.
What is stored of a step is never written again. Results hold no wall-clock times and no host names; those stand in
``log`` and ``progress``.

A run may explore more than once: a portfolio first explores for each of its workloads alone. ``scope`` tells these
explorations apart; the run's own has the empty one.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from archplace import __version__
from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.errors import StoppedError, StoreError
from archplace.search._store_codec import (
    pack_array,
    pack_block,
    pack_schedule,
    unpack_array,
    unpack_block,
    unpack_schedule,
)
from archplace.search.evaluator import BoundBlock
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Outcome, Reasons, Record
from archplace.search.schedule import Schedule
from archplace.search.store_lock import StoreLock

SCHEMA = 4
"""Raised whenever the meaning of what is stored changes."""
FILE = "run.sqlite"
_RECORD = TypeAdapter(Record)
_SECONDS_TO_WAIT = 30.0
"""For a reader or writer of the file to finish."""

# Not the write-ahead log, though it would commit five times as fast: it needs memory that readers and the writer share,
# which network file systems do not have.
_TABLES = (
    "create table meta (key text primary key, value text not null)",
    "create table log (id integer primary key, key text not null, value text not null)",
    "create table progress (id integer primary key check (id = 0), data text not null)",
    "create table bounds (scope text not null, kind integer not null, number integer not null, data blob not null, "
    "primary key (scope, kind, number))",
    "create table records (scope text not null, architecture integer not null, solved integer not null, "
    "data text not null, primary key (scope, architecture, solved))",
    "create table schedules (key text primary key, data blob not null)",
    "create table outcome (name text primary key, dtype text not null, shape text not null, data blob not null)",
    "create table texts (name text primary key, data text not null)",
)

Values = Mapping[str, object]
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading and writing raises; the second where the name of a table is damaged, by what tells so."""
_AGAIN = "search again into another folder"


class Store:
    """An open store. Use as a context manager, or call :meth:`close`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: StoreLock | None = None) -> None:
        self.folder = folder
        self._connection = connection
        self._lock = lock

    @classmethod
    def create(cls, folder: Path, *, digest: str, meta: Values) -> Self:
        """Open the store of ``folder`` to write a run of the inputs with ``digest``; make it where there is none.

        Raises :class:`StoreError` when the folder cannot be written, is written by another process, or holds a run of
        other inputs or another version.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be used as run folder: {error.strerror}; give another --out") from None
        lock = StoreLock.take(folder)
        try:
            store = cls(folder, _connect(folder / FILE), lock)
        except BaseException:
            lock.release()
            raise
        try:
            store._claim(digest, meta)
        except BaseException:
            store.close()
            raise
        return store

    def _claim(self, digest: str, meta: Values) -> None:
        known = self.meta() if self._has_tables() else {}
        if not known:
            values = {"schema": SCHEMA, "version": __version__, "digest": digest, **meta}
            with self._writing() as connection:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.executemany(
                    "insert into meta values (?, ?)", [(key, json.dumps(value)) for key, value in values.items()]
                )
            return
        if known.get("schema") != SCHEMA or known.get("version") != __version__:
            found = f"version {known.get('version')} (schema {known.get('schema')})"
            raise StoreError(
                f"{self.folder}: written by archplace {found}, this is {__version__} (schema {SCHEMA}); "
                "give another --out, or move the folder away"
            )
        if known.get("digest") != digest:
            raise StoreError(
                f"{self.folder}: holds a run of other inputs "
                f"(digest {str(known.get('digest'))[:12]}, these give {digest[:12]}); "
                "give another --out, or move the folder away to start anew"
            )

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open an existing store to read it. Raises :class:`StoreError` when there is none."""
        path = folder / FILE
        missing = f"make one with: archplace search RUN.yaml --out {folder}"
        if any(folder.glob("shard-*-of-*")):
            missing = f"there are shards of one: put them together with: archplace merge {folder}"
        if not path.is_file():
            raise StoreError(f"{folder}: no run here ({FILE} is missing); {missing}")
        store = cls(folder, _connect(path, read_only=True))
        try:
            if not store._has_tables():
                raise StoreError(f"{folder}: no run here yet ({FILE} is empty); {missing}")
            schema = store.meta().get("schema")
            if schema != SCHEMA:
                raise StoreError(f"{folder}: store schema {schema}, this archplace reads {SCHEMA}; {_AGAIN}")
        except BaseException:
            store.close()
            raise
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let others write; what was written stays."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def _path(self) -> Path:
        return self.folder / FILE

    def _has_tables(self) -> bool:
        return bool(self._read("select name from sqlite_master where name = 'meta'"))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk afterwards, or none."""
        connection = self._connection
        try:
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
        except _ERRORS as error:
            raise _cannot_write(self._path, error) from None

    def _read(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]  # rows are of any type
        try:
            return self._connection.execute(query, values).fetchall()
        except _ERRORS as error:
            raise _cannot_read(self._path, error) from None

    def _damaged(self, what: str, error: Exception) -> StoreError:
        reason = f"{error.error_count()} errors" if isinstance(error, ValidationError) else str(error)
        return StoreError(f"{self._path}: {what} cannot be read ({reason}); {_AGAIN}")

    def _json(self, what: str, text: str) -> object:
        try:
            return json.loads(text)
        except (ValueError, TypeError) as error:
            raise self._damaged(what, error) from None

    def meta(self) -> dict[str, object]:
        """Return what describes the run: version, digest, inputs, names."""
        rows = self._read("select key, value from meta")
        return {key: self._json("what describes the run", value) for key, value in rows}

    def log(self, key: str, value: object) -> None:
        """Note something about the run itself, such as its wall time."""
        with self._writing() as connection:
            connection.execute("insert into log (key, value) values (?, ?)", (key, json.dumps(value)))

    def logged(self, key: str) -> list[object]:
        """Return what was noted under ``key``, oldest first."""
        rows = self._read("select value from log where key = ? order by id", key)
        return [self._json("a note", value) for (value,) in rows]

    def keep_progress(self, values: Values) -> None:
        """Note how far the run is, for whoever watches."""
        with self._writing() as connection:
            _put_progress(connection, values)

    def progress(self) -> dict[str, object] | None:
        """Return what was noted last, or None."""
        rows = self._read("select data from progress")
        found = self._json("the progress", rows[0][0]) if rows else None
        return found if isinstance(found, dict) else None

    def keep_text(self, name: str, value: object) -> None:
        """Keep a JSON value that is part of the result."""
        with self._writing() as connection:
            _put_text(connection, name, value)

    def text(self, name: str) -> object:
        """Return a JSON value, or None."""
        rows = self._read("select data from texts where name = ?", name)
        return self._json(f"the stored {name}", rows[0][0]) if rows else None

    def keep_bounds(self, kind: Bound, number: int, block: BoundBlock, progress: Values, *, scope: str = "") -> None:
        """Keep the bounds of one block, and how far the run is."""
        data = pack_block(block)
        with self._writing() as connection:
            connection.execute("insert or replace into bounds values (?, ?, ?, ?)", (scope, int(kind), number, data))
            _put_progress(connection, progress)

    def bounds(self, kind: Bound, number: int, *, scope: str = "") -> BoundBlock | None:
        """Return the bounds of one block, or None."""
        rows = self._read(
            "select data from bounds where scope = ? and kind = ? and number = ?", scope, int(kind), number
        )
        return self._block(rows[0][0]) if rows else None

    def all_bounds(self, kind: Bound, *, scope: str = "") -> Iterator[BoundBlock]:
        """Yield the bounds of all blocks of a kind."""
        query = "select number from bounds where scope = ? and kind = ? order by number"
        for (number,) in self._read(query, scope, int(kind)):
            block = self.bounds(kind, number, scope=scope)
            if block is not None:
                yield block

    def _block(self, data: bytes) -> BoundBlock:
        try:
            return unpack_block(data)
        except ValueError as error:
            raise self._damaged("a block of bounds", error) from None

    def keep_records(
        self,
        records: Iterable[Record],
        *,
        solved: bool,
        schedules: Mapping[str, Schedule] | None = None,
        progress: Values | None = None,
        scope: str = "",
    ) -> None:
        """Keep what evaluating architectures gave, with the schedules found on the way, by content key.

        What is stored already stays as it is. ``progress`` tells how far the run is, where that is to be noted.
        """
        rows = [(scope, one.architecture, int(solved), _RECORD.dump_json(one).decode()) for one in records]
        found = [(key, pack_schedule(one)) for key, one in (schedules or {}).items()]
        with self._writing() as connection:
            connection.executemany("insert or ignore into schedules values (?, ?)", found)
            connection.executemany("insert or ignore into records values (?, ?, ?, ?)", rows)
            if progress is not None:
                _put_progress(connection, progress)

    def record(self, architecture: int, *, solved: bool, scope: str = "") -> Record | None:
        """Return one stored record, or None."""
        query = "select data from records where scope = ? and architecture = ? and solved = ?"
        rows = self._read(query, scope, architecture, int(solved))
        return self._record(rows[0][0]) if rows else None

    def records(self, *, solved: bool, scope: str = "") -> dict[int, Record]:
        """Return all stored records by architecture."""
        query = "select data from records where scope = ? and solved = ? order by architecture"
        records = [self._record(data) for (data,) in self._read(query, scope, int(solved))]
        return {record.architecture: record for record in records}

    def _record(self, data: str) -> Record:
        try:
            return _RECORD.validate_json(data)
        except ValidationError as error:
            raise self._damaged("a stored point", error) from None

    @property
    def n_evaluated(self) -> int:
        """Number of architectures evaluated."""
        return int(self._read("select count(distinct architecture) from records where scope = ''")[0][0])

    def point_values(self, n_objectives: int) -> FloatArray:
        """Return the values of all stored points (n_points, n_objectives); of an architecture the latest ones.

        Several times as fast as :meth:`records`, for whoever watches.
        """
        latest: dict[int, str] = dict(
            self._read("select architecture, data from records where scope = '' order by architecture, solved")
        )
        try:
            rows = [point["values"] for data in latest.values() for point in json.loads(data)["points"]]
            return np.array(rows, dtype=np.float64).reshape(len(rows), n_objectives)
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged("a stored point", error) from None

    def schedules(self) -> dict[str, Schedule]:
        """Return all stored schedules by content key."""
        rows = self._read("select key, data from schedules order by key")
        try:
            return {key: unpack_schedule(data) for key, data in rows}
        except ValueError as error:
            raise self._damaged("a stored schedule", error) from None

    def finish(self, outcome: Outcome, *, progress: Values) -> None:
        """Store the fates of all architectures, the front, and the reasons."""
        arrays: dict[str, NDArray[np.generic]] = {
            "fate": outcome.fate,
            "bound": outcome.bound,
            "bound_kind": outcome.bound_kind,
            "reason_code": outcome.reasons.code,
            "reason_amount": outcome.reasons.amount,
        }
        texts: dict[str, object] = {
            "objectives": [str(name) for name in outcome.objectives.names],
            "reasons": list(outcome.reasons.texts),
            "own_reasons": {str(i): text for i, text in sorted(outcome.reasons.own.items())},
            "option_reasons": outcome.option_reasons,
            "front": [[point.architecture, point.number] for point in outcome.front],
            "gap": None if outcome.gap is None else list(outcome.gap),
        }
        with self._writing() as connection:
            connection.executemany(
                "insert or replace into outcome values (?, ?, ?, ?)",
                [(name, array.dtype.str, json.dumps(array.shape), pack_array(array)) for name, array in arrays.items()],
            )
            for name, value in texts.items():
                _put_text(connection, name, value)
            _put_progress(connection, progress)

    @property
    def finished(self) -> bool:
        """Whether there is an outcome."""
        return bool(self._read("select name from outcome limit 1"))

    def outcome(self, references_s: Sequence[float] = ()) -> Outcome | None:
        """Return the finished outcome, or None when the run has not finished."""
        rows = self._read("select name, dtype, shape, data from outcome")
        if not rows:
            return None
        records = self.records(solved=False) | self.records(solved=True)
        try:
            arrays = {name: unpack_array(data, dtype, shape) for name, dtype, shape, data in rows}
            texts = {name: json.loads(data) for name, data in self._read("select name, data from texts")}
            outcome = Outcome(
                objectives=Objectives.of(texts["objectives"]),
                fate=arrays["fate"].astype(np.int8, copy=False),
                bound=arrays["bound"].astype(np.float64, copy=False),
                bound_kind=arrays["bound_kind"].astype(np.int8, copy=False),
                records=records,
                reasons=Reasons(
                    code=arrays["reason_code"].astype(np.int16, copy=False),
                    amount=arrays["reason_amount"].astype(np.float64, copy=False),
                    texts=tuple(texts["reasons"]),
                    own={int(key): text for key, text in texts["own_reasons"].items()},
                ),
                option_reasons=texts["option_reasons"],
                references_s=tuple(references_s),
                gap=None if texts["gap"] is None else tuple(texts["gap"]),
            )
            front = [outcome.point(architecture, number) for architecture, number in texts["front"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged("the stored outcome", error) from None
        # A point of the front that is not there is for the certificate to tell.
        outcome.set_front([point for point in front if point is not None])
        return outcome


def _put_progress(connection: sqlite3.Connection, values: Values) -> None:
    connection.execute("insert or replace into progress values (0, ?)", (json.dumps(values),))


def _put_text(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("insert or replace into texts values (?, ?)", (name, json.dumps(value)))


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    # A reader may have to undo what a killed writer left half done; in a folder that it cannot write, it reads as is.
    modes = ("rw", "ro") if read_only else ("rwc",)
    for mode in modes:
        connection = None
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_SECONDS_TO_WAIT, isolation_level=None
            )
            connection.execute("select count(*) from sqlite_master")
        except _ERRORS as error:
            if connection is not None:
                connection.close()
            if mode == modes[-1]:
                raise StoreError(
                    f"{path}: cannot be opened as a store ({error}); move it away or give another --out"
                ) from None
        else:
            return connection
    raise AssertionError("one of the modes opens the file or raises")


def _cannot_read(path: Path, error: Exception) -> StoreError:
    if "locked" in str(error):
        return StoreError(f"{path}: another process keeps it locked ({error}); try again when that has ended")
    return StoreError(f"{path}: not a store of archplace, or damaged ({error}); move it away and search again")


def _cannot_write(path: Path, error: Exception) -> StoreError:
    if "locked" in str(error):
        return StoppedError(f"{path}: another process keeps it locked ({error}); go on when that has ended")
    if isinstance(error, UnicodeDecodeError) or "malformed" in str(error) or "not a database" in str(error):
        return _cannot_read(path, error)
    if not path.exists():
        return StoppedError(f"{path}: has been moved or deleted ({error}); put it back, or search again from the start")
    return StoppedError(
        f"{path}: cannot be written ({error}): is the disk full? What was finished before is stored; make room, then "
        "go on with the same command"
    )
