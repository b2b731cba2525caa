"""What the checks of both formats of placement instances share."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archplace.arch_configs.errors import Problem

Amount = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""Seconds or bytes; the limit keeps sums, quotients and products of them finite."""
Positive = Annotated[float, Field(ge=1e-30, le=1e30, allow_inf_nan=False)]
MOST_DEVICES = 2**31
"""A limit on all that is counted, so that products of two still are 64-bit integers."""
Count = Annotated[int, Field(ge=1, le=MOST_DEVICES)]

_MOST_LAYERS = 4000
"""The search keeps matrices of layers × layers: beyond this they take gigabytes."""


class Strict(BaseModel):
    """What a file gives: no key that is not asked for, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


def suggestion(word: str, allowed: Sequence[str]) -> str:
    """Return ``; did you mean …?`` where one of ``allowed`` is close, else nothing."""
    close = difflib.get_close_matches(word, allowed, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """Return ``value`` as a message shows it."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is wrong with one instance of a file."""

    place: str
    prefix: str
    """Of all keys: where in the file the instance stands, with a dot at the end, or nothing."""
    problems: list[Problem] = field(default_factory=list)

    def add(self, key: str, message: str) -> None:
        """Add a problem with the value at ``key`` of the instance."""
        self.problems.append(Problem(place=self.place, key=f"{self.prefix}{key}", message=message))

    def within(self, key: str) -> "Findings":
        """Return findings that add to the same problems with what stands at ``key`` of the instance."""
        return Findings(place=self.place, prefix=f"{self.prefix}{key}.", problems=self.problems)

    def add_name(self, name: str, names: set[str]) -> None:
        """Add a problem if ``name`` is among ``names``; add it to them."""
        if name in names:
            message = f"a second instance called {name!r}; rename one"
            self.problems.append(Problem(place=self.place, key=self.prefix.removesuffix("."), message=message))
        names.add(name)

    def add_invalid(self, error: ValidationError, models: Iterable[type[BaseModel]]) -> None:
        """Add pydantic's findings; an unknown key may be meant as one of ``models``' fields."""
        names = {each.alias or name for model in models for name, each in model.model_fields.items()}
        for found in error.errors(include_url=False):
            key = ".".join(str(part) for part in found["loc"])
            what = found["msg"][0].lower() + found["msg"][1:]
            if found["type"] == "missing":
                message = "missing; add it"
            elif found["type"] == "extra_forbidden":
                message = f"unknown key{suggestion(str(found['loc'][-1]), sorted(names))}; correct or remove it"
            else:
                message = f"found {shown(found['input'])}; {what}"
            self.problems.append(Problem(place=self.place, key=(self.prefix + key).removesuffix("."), message=message))


def check_optimizer(found: str, allowed: Sequence[str], key: str, findings: Findings) -> None:
    """Add a problem unless ``found`` is the name of an optimizer."""
    if found not in allowed:
        hint = suggestion(found, allowed)
        findings.add(key, f"found {found!r}; allowed are {', '.join(allowed)}{hint}")


def check_layers(n_layers: int, key: str, findings: Findings) -> None:
    """Add a problem unless a chain has as many layers as can be placed."""
    if not n_layers:
        findings.add(key, "no layers; give at least one")
    if n_layers > _MOST_LAYERS:
        findings.add(key, f"{n_layers} layers; at most {_MOST_LAYERS} are placed: merge layers into larger ones")


def check_widths(widths: Mapping[str, object], key: str, findings: Findings) -> dict[int, str]:
    """Return the tensor-parallel widths that are the keys of ``widths``; add a problem for what is none."""
    numbers: dict[int, str] = {}
    if not widths:
        findings.add(key, "no tensor-parallel width; give the layers of at least one")
    for width in widths:
        if not (width.isascii() and width.isdecimal() and 1 <= int(width[:10]) <= MOST_DEVICES):
            findings.add(f"{key}.{width}", f"found {shown(width)}; a tensor-parallel width is a whole number from 1 on")
        elif int(width) in numbers:
            findings.add(f"{key}.{width}", "the same tensor-parallel width is given twice; remove one")
        else:
            numbers[int(width)] = width
    return numbers
