"""The store of a run: one SQLite file in the run's folder, written as results come.

Contract: whatever a ``keep`` method returned from is on disk and survives a kill. The store belongs to one set of
inputs (``digest``); it refuses others and changes nothing then. One process at a time writes; any number may read.
Results hold no wall-clock times and no host names; those stand in ``log`` and ``progress``.
"""

import io
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from archplace import __version__
from archplace.arch_configs.errors import StoppedError, StoreError
from archplace.search.evaluator import BoundBlock
from archplace.search.objectives import Objectives
from archplace.search.outcome import Bound, Outcome, Reasons, Record
from archplace.search.schedule import Schedule, ScheduleStatus
from archplace.search.store_lock import StoreLock

SCHEMA = 2
"""Raised whenever the meaning of what is stored changes."""
FILE = "run.sqlite"
_RECORD = TypeAdapter(Record)
_SECONDS_TO_WAIT = 30.0
"""For a reader or writer of the file to finish."""

_TABLES = """
create table if not exists meta (key text primary key, value text not null);
create table if not exists log (id integer primary key, key text not null, value text not null);
create table if not exists progress (id integer primary key check (id = 0), data text not null);
create table if not exists bounds (kind integer not null, number integer not null, data blob not null,
                                   primary key (kind, number));
create table if not exists records (architecture integer not null, solved integer not null, data text not null,
                                    primary key (architecture, solved));
create table if not exists schedules (key text primary key, data text not null);
create table if not exists outcome (name text primary key, dtype text not null, shape text not null,
                                    data blob not null);
create table if not exists texts (name text primary key, data text not null);
"""

Values = Mapping[str, object]


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
        except StoreError:
            lock.release()
            raise
        try:
            store._claim(digest, meta)
        except StoreError:
            store.close()
            raise
        return store

    def _claim(self, digest: str, meta: Values) -> None:
        with self._writing() as connection:
            known = _meta(connection, self._path) if _has_tables(connection) else {}
            if not known:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                values = {"schema": SCHEMA, "version": __version__, "digest": digest, **meta}
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
        if not path.is_file():
            raise StoreError(
                f"{folder}: no run here ({FILE} is missing); make one with: archplace search RUN.yaml --out {folder}"
            )
        store = cls(folder, _connect(path, read_only=True))
        schema = store.meta().get("schema")
        if schema != SCHEMA:
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
        """Close the file and let others write; what was written stays."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def _path(self) -> Path:
        return self.folder / FILE

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk afterwards, or none."""
        try:
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            raise _cannot_write(self._path, error) from None

    def _read(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]  # rows are of any type
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _cannot_read(self._path, error) from None

    def meta(self) -> dict[str, object]:
        """Return what describes the run: version, digest, inputs, names."""
        return _meta(self._connection, self._path)

    def log(self, key: str, value: object) -> None:
        """Note something about the run itself, such as its wall time."""
        with self._writing() as connection:
            connection.execute("insert into log (key, value) values (?, ?)", (key, json.dumps(value)))

    def logged(self, key: str) -> list[object]:
        """Return what was noted under ``key``, oldest first."""
        return [json.loads(value) for (value,) in self._read("select value from log where key = ? order by id", key)]

    def keep_progress(self, values: Values) -> None:
        """Note how far the run is, for whoever watches."""
        with self._writing() as connection:
            _put_progress(connection, values)

    def progress(self) -> dict[str, object] | None:
        """Return what was noted last, or None."""
        rows = self._read("select data from progress")
        return dict(json.loads(rows[0][0])) if rows else None

    def keep_text(self, name: str, value: object) -> None:
        """Keep a JSON value that is part of the result."""
        with self._writing() as connection:
            _put_text(connection, name, value)

    def text(self, name: str) -> object:
        """Return a JSON value, or None."""
        rows = self._read("select data from texts where name = ?", name)
        return json.loads(rows[0][0]) if rows else None

    def keep_bounds(self, kind: Bound, number: int, block: BoundBlock, progress: Values) -> None:
        """Keep the bounds of one block."""
        arrays = {"values": block.values, "code": block.code, "amount": block.amount}
        arrays |= {f"options{w}": one for w, one in enumerate(block.options)}
        data = _packed(arrays)
        with self._writing() as connection:
            connection.execute("insert or replace into bounds values (?, ?, ?)", (int(kind), number, data))
            _put_progress(connection, progress)

    def bounds(self, kind: Bound, number: int) -> BoundBlock | None:
        """Return the bounds of one block, or None."""
        rows = self._read("select data from bounds where kind = ? and number = ?", int(kind), number)
        if not rows:
            return None
        arrays = _unpacked(rows[0][0], self._path)
        count = sum(name.startswith("options") for name in arrays)
        return BoundBlock(
            values=arrays["values"],
            code=arrays["code"],
            amount=arrays["amount"],
            options=tuple(arrays[f"options{w}"] for w in range(count)),
        )

    def keep_records(
        self, records: Iterable[Record], *, solved: bool, schedules: Mapping[str, Schedule] | None = None
    ) -> None:
        """Keep what evaluating architectures gave, with the schedules found on the way, by content key."""
        rows = [(one.architecture, int(solved), _RECORD.dump_json(one).decode()) for one in records]
        found = [(key, _schedule_text(one)) for key, one in (schedules or {}).items()]
        with self._writing() as connection:
            connection.executemany("insert or replace into schedules values (?, ?)", found)
            connection.executemany("insert or replace into records values (?, ?, ?)", rows)

    def records(self, *, solved: bool) -> dict[int, Record]:
        """Return all stored records by architecture."""
        rows = self._read("select data from records where solved = ? order by architecture", int(solved))
        try:
            records = [_RECORD.validate_json(data) for (data,) in rows]
        except ValidationError as error:
            raise StoreError(
                f"{self._path}: a stored point cannot be read ({error.error_count()} errors); "
                "search again into another folder"
            ) from None
        return {record.architecture: record for record in records}

    def schedules(self) -> dict[str, Schedule]:
        """Return all stored schedules by content key."""
        rows = self._read("select key, data from schedules order by key")
        try:
            return {key: _schedule(text) for key, text in rows}
        except (ValueError, KeyError) as error:
            raise StoreError(f"{self._path}: a stored schedule cannot be read ({error})") from None

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
                [
                    (name, array.dtype.str, json.dumps(array.shape), zlib.compress(array.tobytes(), 1))
                    for name, array in arrays.items()
                ],
            )
            for name, value in texts.items():
                _put_text(connection, name, value)
            _put_progress(connection, progress)

    def outcome(self, references_s: Sequence[float] = ()) -> Outcome | None:
        """Return the finished outcome, or None when the run has not finished."""
        rows = self._read("select name, dtype, shape, data from outcome")
        if not rows:
            return None
        records = self.records(solved=False) | self.records(solved=True)
        try:
            arrays = {
                name: np.frombuffer(zlib.decompress(data), dtype=dtype).reshape(json.loads(shape)).copy()
                for name, dtype, shape, data in rows
            }
            texts = {name: json.loads(data) for name, data in self._read("select name, data from texts")}
            outcome = Outcome(
                objectives=Objectives.of(texts["objectives"]),
                fate=arrays["fate"],
                bound=arrays["bound"],
                bound_kind=arrays["bound_kind"],
                records=records,
                reasons=Reasons(
                    code=arrays["reason_code"],
                    amount=arrays["reason_amount"],
                    texts=tuple(texts["reasons"]),
                    own={int(key): text for key, text in texts["own_reasons"].items()},
                ),
                option_reasons=texts["option_reasons"],
                references_s=tuple(references_s),
                gap=None if texts["gap"] is None else tuple(texts["gap"]),
            )
            front = [outcome.point(architecture, number) for architecture, number in texts["front"]]
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise StoreError(
                f"{self._path}: the stored outcome cannot be read ({error}); search again into another folder"
            ) from None
        # A point of the front that is not there is for the certificate to tell.
        outcome.set_front([point for point in front if point is not None])
        return outcome


def _put_progress(connection: sqlite3.Connection, values: Values) -> None:
    connection.execute("insert or replace into progress values (0, ?)", (json.dumps(values),))


def _put_text(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("insert or replace into texts values (?, ?)", (name, json.dumps(value)))


def _packed(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    buffer = io.BytesIO()
    # A mapping of any names: the stub's keyword for pickles does not apply.
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return zlib.compress(buffer.getvalue(), 1)


def _unpacked(data: bytes, path: Path) -> dict[str, NDArray[np.generic]]:  # type: ignore[misc]
    try:
        with np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False) as found:
            return dict(found)
    except (ValueError, OSError, zlib.error) as error:
        raise StoreError(f"{path}: stored bounds cannot be read ({error}); search again into another folder") from None


def _schedule_text(one: Schedule) -> str:
    return json.dumps(
        {
            "start_s": one.start_s.tolist(),
            "mode": one.mode.tolist(),
            "unit": one.unit.tolist(),
            "makespan_s": one.makespan_s,
            "lower_bound_s": one.lower_bound_s,
            "status": one.status.value,
        }
    )


def _schedule(text: str) -> Schedule:
    data = json.loads(text)
    return Schedule(
        start_s=np.array(data["start_s"]),
        mode=np.array(data["mode"], dtype=np.int8),
        unit=np.array(data["unit"], dtype=np.int64),
        makespan_s=data["makespan_s"],
        lower_bound_s=data["lower_bound_s"],
        status=ScheduleStatus(data["status"]),
    )


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("select count(*) from sqlite_master where name = 'meta'").fetchone()[0])


def _meta(connection: sqlite3.Connection, path: Path) -> dict[str, object]:
    try:
        return {key: json.loads(value) for key, value in connection.execute("select key, value from meta")}
    except sqlite3.Error as error:
        raise _cannot_read(path, error) from None
    except ValueError:
        raise StoreError(f"{path}: what describes the run cannot be read; search again into another folder") from None


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    # A reader may have to undo what a killed writer left half done; in a folder that it cannot write, it reads as is.
    modes = ("rw", "ro") if read_only else ("rwc",)
    for mode in modes:
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_SECONDS_TO_WAIT)
            connection.execute("select count(*) from sqlite_master")
        except sqlite3.Error as error:
            if mode == modes[-1]:
                raise StoreError(
                    f"{path}: cannot be opened as a store ({error}); move it away or give another --out"
                ) from None
        else:
            return connection
    raise AssertionError("one of the modes opens the file or raises")


def _cannot_read(path: Path, error: sqlite3.Error) -> StoreError:
    if "locked" in str(error):
        return StoreError(f"{path}: another process keeps it locked ({error}); try again when that has ended")
    return StoreError(f"{path}: not a store of archplace, or damaged ({error}); move it away and search again")


def _cannot_write(path: Path, error: sqlite3.Error) -> StoreError:
    if "locked" in str(error):
        return StoppedError(f"{path}: another process keeps it locked ({error}); go on when that has ended")
    if "malformed" in str(error) or "not a database" in str(error):
        return _cannot_read(path, error)
    return StoppedError(
        f"{path}: cannot be written ({error}): is the disk full? What was finished before is stored; make room, then "
        "go on with the same command"
    )
