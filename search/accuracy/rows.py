"""Measured training steps from a CSV file, one row each."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from math import nan
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from archplace.arch_configs._suggest import clip, listing, unknown_name
from archplace.arch_configs.errors import ConfigError, Problem
from archplace.arch_configs.files import FileModel
from archplace.workloads import Precision, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """What every row says of itself."""

    place: str
    """``file:line``, for messages."""
    id: str
    source: str
    """Who published it."""
    hardware: str
    """A cluster that says which accelerator it consists of, an accelerator, or ``ACCELERATOR@CLUSTER``."""
    step_s: float
    """Measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadStep(PublishedStep):
    """A row of which something cannot be read; ``step_s`` is NaN where that is the measured time."""

    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep(PublishedStep):
    """One published training step with its full configuration."""

    n_devices: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    gated_mlp: bool
    n_experts: int
    """0 for a dense model."""
    top_k: int
    moe_d_ff: int
    """Width of an expert; 0 for a dense model."""
    vocab: int
    seq_len: int
    tp: int
    pp: int
    vpp: int
    """Virtual stages per device."""
    cp: int
    ep: int
    dp: int
    zero_stage: int
    sequence_parallel: bool
    fused_attention: bool
    micro_batch: int
    """In sequences, per replica."""
    global_batch: int
    """In sequences."""
    precision: Precision
    recompute: Recompute
    note: str

    @property
    def model(self) -> tuple[object, ...]:
        """What makes two rows' models the same."""
        names = ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "gated_mlp")
        experts = ("n_experts", "top_k", "moe_d_ff")
        return tuple(getattr(self, name) for name in (*names, *experts, "vocab"))


def _blank(value: object, *, default: object = None) -> object:
    """Return what a blank cell means."""
    return default if isinstance(value, str) and not value.strip() else value


def _flag(value: object) -> object:
    text = value.strip().lower() if isinstance(value, str) else value
    if text not in {"0", "1", "true", "false"}:
        raise ValueError("allowed: 0 or 1")
    return text in {"1", "true"}


def _cell(default: object) -> BeforeValidator:
    return BeforeValidator(partial(_blank, default=default))


_Degree = Annotated[int, Field(ge=1, le=2**20)]
_DegreeOrOne = Annotated[_Degree, _cell(1)]
_Count = Annotated[int, Field(ge=1, le=10**9)]
_CountOrZero = Annotated[int, Field(ge=0, le=10**9), _cell(0)]
_CountOrLeftOut = Annotated[_Count | None, _cell(None)]
_Flag = Annotated[bool, BeforeValidator(_flag), _cell("0")]
_Text = Annotated[str, Field(min_length=1)]


class _Row(FileModel):
    model_config = ConfigDict(extra="ignore", strict=False, frozen=True, allow_inf_nan=False)

    id: _Text
    source: _Text
    hardware: _Text
    n_devices: _Degree
    n_layers: _Count
    d_model: _Count
    n_heads: _Count
    n_kv_heads: _CountOrLeftOut = None
    """Left out: as many as heads."""
    head_dim: _CountOrLeftOut = None
    """Left out: the model's width over its heads."""
    d_ff: _CountOrZero
    """0 where all blocks have experts: as wide as one of them."""
    gated_mlp: _Flag = False
    n_experts: _CountOrZero = 0
    top_k: _CountOrZero = 0
    moe_d_ff: _CountOrZero = 0
    vocab: _Count
    seq_len: _Count
    tp: _DegreeOrOne = 1
    pp: _DegreeOrOne = 1
    vpp: _DegreeOrOne = 1
    cp: _DegreeOrOne = 1
    ep: _DegreeOrOne = 1
    dp: _Degree
    zero_stage: Annotated[int, Field(ge=0, le=3), _cell(0)] = 0
    sequence_parallel: _Flag = False
    fused_attention: _Flag = False
    micro_batch: _Degree
    global_batch: _Count
    precision: Precision
    recompute: Annotated[Recompute, _cell(Recompute.NONE)] = Recompute.NONE
    step_s: Annotated[float, Field(gt=0)]
    note: str = ""

    def step(self, place: str) -> MeasuredStep:
        """Return the row with what is left out filled in."""
        values = {field.name: getattr(self, field.name) for field in fields(MeasuredStep) if field.name != "place"}
        heads = self.n_heads
        values["d_ff"] = self.d_ff or self.moe_d_ff
        values["n_kv_heads"] = heads if self.n_kv_heads is None else self.n_kv_heads
        values["head_dim"] = max(1, self.d_model // heads) if self.head_dim is None else self.head_dim
        return MeasuredStep(place=place, **values)


def read_steps(path: Path | str) -> tuple[MeasuredStep, ...]:
    """Return the rows of a CSV file in its order.

    Columns are named by the fields of :class:`MeasuredStep`; others are ignored. ``n_kv_heads`` and ``head_dim`` may be
    blank or left out, degrees and ``vpp`` then are 1, counts of experts, ``zero_stage`` and flags 0. Raises
    :class:`ConfigError` with every problem of the file.
    """
    rows, problems = _rows(path)
    if problems:
        raise ConfigError(problems)
    return tuple(row for row in rows if isinstance(row, MeasuredStep))


def read_rows(path: Path | str) -> tuple[MeasuredStep | UnreadStep, ...]:
    """Return the rows of a CSV file in its order as :func:`read_steps`, with those that cannot be read in their places.

    Raises :class:`ConfigError` for a file that cannot be read, or none of whose rows can.
    """
    rows, problems = _rows(path)
    if not any(isinstance(row, MeasuredStep) for row in rows):
        raise ConfigError(problems)
    return tuple(rows)


def _rows(path: Path | str) -> tuple[list[MeasuredStep | UnreadStep], list[Problem]]:
    """Return the rows, and all that is wrong with them; a file without rows is wrong."""
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([Problem(place=name, key="", message=f"cannot be read: {error.strerror or error}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(place=name, key="", message="is not UTF-8 text; save it as CSV in UTF-8")]) from None
    rows: list[MeasuredStep | UnreadStep] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for line, row in _lines(text, name):
        place, wrong = f"{name}:{line}", []
        try:
            step = _Row.model_validate(row).step(place)
        except ValidationError as error:
            wrong = [_problem(place, row, dict(detail)) for detail in error.errors(include_url=False)]
        else:
            if step.id in seen:
                message = f"found {clip(step.id)}, which line {seen[step.id]} has; give each row an id of its own"
                wrong = [Problem(place=place, key="id", message=message)]
            seen.setdefault(step.id, line)
        rows.append(_unread(place, line, row, wrong) if wrong else step)
        problems += wrong
    if not rows:
        problems = [Problem(place=name, key="", message="has no rows; give a header and a row for each measured step")]
    return rows, problems


def _unread(place: str, line: int, row: Mapping[str, str], wrong: list[Problem]) -> UnreadStep:
    try:
        seconds = float(row.get("step_s", ""))
    except ValueError:
        seconds = nan
    return UnreadStep(
        place=place,
        id=row.get("id", "").strip() or f"line {line}",
        source=row.get("source", "").strip() or "unnamed",
        hardware=row.get("hardware", "").strip(),
        step_s=seconds,
        reason="; ".join(f"{problem.key}: {problem.message}" for problem in wrong),
    )


def _lines(text: str, name: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number of each row's last line and its cells by column."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    columns = reader.fieldnames or ()
    required = [key for key, field in _Row.model_fields.items() if field.is_required()]
    missing = [key for key in required if key not in columns]
    if missing:
        found = f"found the columns {listing(columns)}" if columns else "found no header"
        raise ConfigError(
            [Problem(place=f"{name}:1", key=key, message=f"the column {key!r} is missing; {found}") for key in missing]
        )
    for row in reader:
        if "" in row:
            message = f"found more cells than the {len(columns)} columns of the header"
            raise ConfigError([Problem(place=f"{name}:{reader.line_num}", key="", message=message)])
        yield reader.line_num, row


def _problem(place: str, row: Mapping[str, str], detail: Mapping[str, object]) -> Problem:
    location = detail["loc"]
    assert isinstance(location, tuple)
    key = str(location[0]) if location else ""
    choices = {"precision": Precision, "recompute": Recompute}
    if key in choices and detail["type"] == "enum":
        return Problem(place=place, key=key, message=unknown_name(row.get(key, ""), map(str, choices[key]), what=key))
    text = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    allowed = text if text.startswith("allowed") else f"allowed: {text}"
    return Problem(place=place, key=key, message=f"found {clip(row.get(key, ''))}; {allowed}")
