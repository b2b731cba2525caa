"""Read schedule instances from JSON.

The format is that of PHAZE's operator scheduler: a list of ``{seed or name, num_tc, num_vc, nodes, edges}``, plain or
gzipped; a node is ``{id, core_type, latency, intra_op_latency}``, the latencies those on one core and on all of them.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.schedule.graph import Kind, ScheduleGraph
from archplace.search.schedule.problem import ScheduleProblem

CORE_TYPES: Mapping[str, Kind] = {
    "TC": Kind.TENSOR,
    "VC": Kind.VECTOR,
    "TCandVC": Kind.FUSED,
    "Network": Kind.NETWORK,
}
"""The format's names for the kinds of operator; ``Network``, a collective, is not in PHAZE's own files."""

_Latency = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""The limit keeps sums of latencies finite."""
_Count = Annotated[int, Field(ge=1, le=2**31)]
_MOST_OPERATORS = 2000
"""The precedence closure is a matrix of operators × operators: beyond this it takes minutes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Node(_Strict):
    id: int
    core_type: str
    latency: _Latency | None
    """On one core; null if the operator cannot run on one."""
    intra_op_latency: _Latency | None = None
    """On all cores; null if it cannot be spread (a collective never is)."""


class _Instance(_Strict):
    name: str | None = None
    seed: int | None = None
    num_tc: _Count
    num_vc: _Count
    nodes: Annotated[list[_Node], Field(min_length=1, max_length=_MOST_OPERATORS)]
    edges: list[Annotated[list[int], Field(min_length=2, max_length=2)]]
    makespan: JsonValue = None
    """A known answer, kept for whoever compares; the scheduler does not read it."""


_KEYS = sorted({*_Node.model_fields, *_Instance.model_fields})


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInstance:
    """One problem with its name in the file."""

    name: str
    """The file's ``name``, else its ``seed``, else the index in the list."""
    problem: ScheduleProblem
    """Times are in the unit of the file's latencies."""


def read_schedule_instances(path: Path) -> list[ScheduleInstance]:
    """The instances in the JSON file ``path`` (plain or gzipped), in the file's order.

    The file holds one instance or a list of them. Raises ``ConfigError`` with everything that is wrong with the file,
    each problem with the index of its instance.
    """
    loaded = _load(path)
    entries: list[object] = loaded if isinstance(loaded, list) else [loaded]
    if not entries:
        raise ConfigError([Problem(place=str(path), key="", message="an empty list; give at least one instance")])
    problems: list[Problem] = []
    instances: list[ScheduleInstance] = []
    for index, entry in enumerate(entries):
        try:
            raw = _Instance.model_validate(entry)
        except ValidationError as error:
            problems += _of_validation(path, index, error)
            continue
        built = _problem(path, index, raw)
        if isinstance(built, ScheduleProblem):
            name = raw.name if raw.name is not None else str(index if raw.seed is None else raw.seed)
            instances.append(ScheduleInstance(name=name, problem=built))
        else:
            problems += built
    if problems:
        raise ConfigError(problems)
    return instances


def _problem(path: Path, index: int, raw: _Instance) -> ScheduleProblem | list[Problem]:
    """Build one problem, or say everything that is wrong with it."""
    problems: list[Problem] = []

    def complain(key: str, message: str) -> None:
        problems.append(Problem(place=str(path), key=f"{index}.{key}", message=message))

    position: dict[int, int] = {}
    for i, node in enumerate(raw.nodes):
        if node.id in position:
            complain(f"nodes.{i}.id", f"operator {node.id} is given twice; ids must differ")
        position.setdefault(node.id, i)
        if node.core_type not in CORE_TYPES:
            meant = _did_you_mean(node.core_type, [*CORE_TYPES])
            complain(
                f"nodes.{i}.core_type", f"found {_shown(node.core_type)}; allowed are {', '.join(CORE_TYPES)}{meant}"
            )
        if node.latency is None and node.intra_op_latency is None:
            complain(f"nodes.{i}", f"operator {node.id} has neither latency; give latency, intra_op_latency, or both")
    for i, edge in enumerate(raw.edges):
        for end in edge:
            if end not in position:
                complain(f"edges.{i}", f"there is no operator {end}; operators are {_shown(sorted(position))}")
    if problems:
        return problems
    try:
        graph = ScheduleGraph.build(
            kinds=[CORE_TYPES[node.core_type] for node in raw.nodes],
            edges=[(position[source], position[target]) for source, target in raw.edges],
            names=[str(node.id) for node in raw.nodes],
        )
        infinity = float("inf")
        return graph.problem(
            one_s=[infinity if node.latency is None else node.latency for node in raw.nodes],
            all_s=[infinity if node.intra_op_latency is None else node.intra_op_latency for node in raw.nodes],
            tensor_units=raw.num_tc,
            vector_units=raw.num_vc,
        )
    except ConfigError as error:
        return [
            Problem(place=str(path), key=f"{index}.{problem.place}", message=problem.message)
            for problem in error.problems
        ]


def _of_validation(path: Path, index: int, error: ValidationError) -> list[Problem]:
    """Turn pydantic's findings into problems."""
    problems = []
    for found in error.errors(include_url=False):
        key = ".".join(str(part) for part in (index, *found["loc"]))
        if found["type"] == "missing":
            message = "missing; add it"
        elif found["type"] == "extra_forbidden":
            message = f"unknown key{_did_you_mean(str(found['loc'][-1]), _KEYS)}; correct or remove it"
        else:
            message = f"found {_shown(found['input'])}; {found['msg'][0].lower()}{found['msg'][1:]}"
        problems.append(Problem(place=str(path), key=key, message=message))
    return problems


def _did_you_mean(word: str, allowed: list[str]) -> str:
    close = get_close_matches(word[:100], allowed, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _load(path: Path) -> object:
    """The JSON value in ``path``."""
    place = str(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        what = "it is a directory; name a file" if path.is_dir() else (error.strerror or str(error))
        raise ConfigError([Problem(place=place, key="", message=f"cannot be read: {what}")]) from None
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        loaded: object = json.loads(
            content.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse
        )
        return loaded
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"the gzip data is damaged or cut off ({error}); write the file again"
    except UnicodeDecodeError as error:
        message = f"neither gzip nor text in UTF-8 (byte {error.start}); give JSON, plain or gzipped"
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        message = f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}"
    except RecursionError:
        message = "not an instance file: the JSON is nested too deeply"
    except ValueError as error:
        message = str(error)
    raise ConfigError([Problem(place=place, key="", message=message)])


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice in one object; remove one")
    return members


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"found {constant}, which is not a number in JSON; latencies are finite and at least 0")
