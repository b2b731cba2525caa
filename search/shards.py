"""A run shared out among processes that know of each other by files alone: jobs of an array on a shared file system.

Shard i of n explores the architectures whose index leaves the remainder i − 1 when divided by n, in a store of its own.
What it has found so far it shows in a file; what others show there it takes to prune by, and never waits for. ::

    DIR/shard-2-of-8/run.sqlite       what shard 2 has done
    DIR/fronts/shard-2-of-8.json      the front of the points that it has evaluated so far
    DIR/fronts/references.json        with several workloads: what throughputs are relative to

Files appear whole or not at all. One that is no such file is ignored with a warning: it costs evaluations, not truth.
"""

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from archplace import __version__
from archplace.arch_configs.architectures import FloatArray
from archplace.arch_configs.errors import ConfigError
from archplace.search.evaluator import References
from archplace.search.outcome import Bound, Evaluated, Outcome, Progress
from archplace.search.run import MakeEngine, RunSearch, keep_references
from archplace.search.runfile import Run

FRONTS = "fronts"
REFERENCES = "references.json"
EXCHANGE = "exchange"
"""What the texts of a shard's store are called that say which points of others it was shown, by step."""
MOST_SHARDS = 10_000

_TOLERANCE = 1e-9
_FOLDER = re.compile(r"shard-([1-9]\d*)-of-([1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Shard:
    """One share of a run: ``number`` of ``count``, from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard called ``i/n``; raises :class:`ConfigError`."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        number, count = (int(part) for part in match.groups()) if match else (0, 0)
        if not 1 <= number <= count <= MOST_SHARDS:
            raise ConfigError(
                f"--shard: found {text!r}; needs i/n with 1 ≤ i ≤ n ≤ {MOST_SHARDS}, such as 1/8 for the first of eight"
            )
        return cls(number=number, count=count)

    @classmethod
    def of_folder(cls, folder: Path) -> Self | None:
        """Return the shard whose folder this is, by its name; None where it is no shard's."""
        match = _FOLDER.fullmatch(folder.name)
        return None if match is None else cls(number=int(match[1]), count=int(match[2]))

    @property
    def name(self) -> str:
        """What the shard's folder and file are called."""
        return f"shard-{self.number}-of-{self.count}"

    def __str__(self) -> str:
        return f"shard {self.number} of {self.count}"

    def folder(self, root: Path) -> Path:
        """Return where the shard of the run in ``root`` keeps its store."""
        return root / self.name

    def front_file(self, root: Path) -> Path:
        """Return where it shows its front."""
        return root / FRONTS / f"{self.name}.json"

    def members(self, n_archs: int) -> NDArray[np.bool_]:
        """Return ``(n_archs,)`` which architectures it explores."""
        members: NDArray[np.bool_] = np.arange(n_archs) % self.count == self.number - 1
        return members

    @property
    def others(self) -> list["Shard"]:
        """The other shards of the run."""
        numbers = range(1, self.count + 1)
        return [Shard(number=number, count=self.count) for number in numbers if number != self.number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A point that another shard has evaluated."""

    shard: int
    architecture: int
    number: int
    values: tuple[float, ...]


def start_shard(job: Run, root: Path, shard: Shard) -> RunSearch:
    """Open or make the store of one shard of the run in ``root``; raises as :meth:`RunSearch.start`."""
    return RunSearch.start(job, shard.folder(root), meta={"shard": [shard.number, shard.count]})


def run_shard(
    search: RunSearch,
    root: Path,
    shard: Shard,
    on_progress: Callable[[Progress], None],
    *,
    say: Callable[[str], None],
    jobs: int | None = None,
    make_engine: MakeEngine | None = None,
) -> Outcome:
    """Explore a shard's architectures; arguments as for :meth:`RunSearch.run`, ``say`` warns the user."""
    exchange = FrontExchange(search, root, shard, say)
    if len(search.job.workloads) > 1:
        _share_references(search, root, on_progress, say=say, jobs=jobs, make_engine=make_engine)
    outcome = search.run(
        on_progress,
        jobs=jobs,
        make_engine=make_engine,
        members=shard.members(len(search.architectures)),
        exchange=exchange,
    )
    exchange.show(outcome.front)
    return outcome


class FrontExchange:
    """Shows the front of one shard to the others, and this one theirs.

    What was shown at each step is stored first: a shard that was interrupted sees the same again.
    """

    def __init__(self, search: RunSearch, root: Path, shard: Shard, say: Callable[[str], None]) -> None:
        self._search = search
        self._root = root
        self._shard = shard
        self._say = say
        self._step = 0
        self._known: set[Shown] = set()
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._shown: list[object] = []

    def exchange(self, front: Sequence[Evaluated]) -> FloatArray:
        """Show ``front``; return the values (n, n_objectives) of what others have shown since the step before."""
        store, name = self._search.store, f"{EXCHANGE} {self._step}"
        self._step += 1
        found = shown_of(store.text(name))
        if found is None:
            self.show(front)
            found = [point for other in self._shard.others for point in self._look(other) if point not in self._known]
            store.keep_text(name, [[p.shard, p.architecture, p.number, list(p.values)] for p in found])
        self._known.update(found)
        return np.array([point.values for point in found]).reshape(-1, len(self._search.job.objectives))

    def show(self, front: Sequence[Evaluated]) -> None:
        """Write the shard's front, if it has changed."""
        points: list[object] = [[point.architecture, point.number, list(point.values)] for point in front]
        if points == self._shown:
            return
        self._shown = points
        content = {**_of_run(self._search.job), "shard": self._shard.name, "points": points}
        _write(self._shard.front_file(self._root), content, self._say)

    def _look(self, other: Shard) -> list[Shown]:
        """Return what another shard shows, where it has changed; nothing where it shows nothing that can be used."""
        path = other.front_file(self._root)
        try:
            state = path.stat()
            signature = (state.st_mtime_ns, state.st_size, state.st_ino)
            if self._seen.get(path) == signature:
                return []
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            self._say(f"{path}: cannot be read ({error}); it is ignored")
            return []
        self._seen[path] = signature
        try:
            return self._checked(other, content)
        except (ValueError, TypeError, KeyError) as error:
            self._say(f"{path}: not a front of this run ({error}); it is ignored")
            return []

    def _checked(self, other: Shard, content: dict[str, object]) -> list[Shown]:
        """Return the points of a front file; raises ValueError, TypeError or KeyError for what cannot be one."""
        expected = {**_of_run(self._search.job), "shard": other.name}
        for key, value in expected.items():
            if content[key] != value:
                raise ValueError(f"its {key} is {content[key]!r}, not {value!r}")
        points = content["points"]
        found = shown_of([[other.number, *point] for point in points] if isinstance(points, list) else points)
        if found is None:
            raise ValueError("its points are none")
        if not found:
            return []
        evaluator = self._search.evaluator
        values = np.array([point.values for point in found])
        architectures = np.array([point.architecture for point in found])
        count = len(evaluator.architectures)
        if values.shape[1:] != (len(evaluator.objectives),) or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError("its points have other values than numbers of each objective")
        if not ((architectures >= 0) & (architectures < count)).all() or not other.members(count)[architectures].all():
            raise ValueError("its points are of architectures that are not that shard's")
        if (values < evaluator.bounds(architectures, Bound.WORK).values * (1 - _TOLERANCE)).any():
            raise ValueError("its points are better than they can be")
        return found


def shown_of(content: object) -> list[Shown] | None:
    """Return points from their JSON form; None for what is none."""
    if not isinstance(content, list):
        return None
    found = []
    for item in content:
        match item:
            case [int(shard), int(architecture), int(number), list(given)] if all(
                isinstance(value, float | int) for value in given
            ):
                values = tuple(float(value) for value in given)
                found.append(Shown(shard=shard, architecture=architecture, number=number, values=values))
            case _:
                return None
    return found


def _of_run(job: Run) -> dict[str, object]:
    return {"version": __version__, "digest": job.digest}


def _write(path: Path, content: object, say: Callable[[str], None]) -> None:
    """Write a file that others read at any moment: they see the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(content))
        part.replace(path)
    except OSError as error:
        # Others prune less without it; what this shard finds is in its store.
        say(f"{path}: cannot be written ({error.strerror}); other shards do not see it")


def _share_references(
    search: RunSearch,
    root: Path,
    on_progress: Callable[[Progress], None],
    *,
    say: Callable[[str], None],
    jobs: int | None,
    make_engine: MakeEngine | None,
) -> None:
    """Store what throughputs are relative to: as another shard has found it, or found here for all of them.

    It is of the whole space, so that each shard finds the same.
    """
    path = root / FRONTS / REFERENCES
    store, expected = search.store, _of_run(search.job)
    if store.text("references_s") is not None:
        return
    try:
        content = json.loads(path.read_text())
        references = [float(value) for value in content["references_s"]]
        gap = float(content["references_gap"])
        if any(content[key] != value for key, value in expected.items()):
            raise ValueError("of another run")
        if len(references) != len(search.job.workloads) or not all(0 < value <= math.inf for value in references):
            raise ValueError("not a number for each workload")
        if not 0 <= gap < math.inf:
            raise ValueError("a gap that is none")
        keep_references(store, References(seconds=tuple(references), gap=gap))
        return
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError) as error:
        say(f"{path}: cannot be used ({error}); it is found anew")
    found = search.references(on_progress, jobs=jobs, make_engine=make_engine)
    _write(path, {**expected, "references_s": list(found.seconds), "references_gap": found.gap}, say)
