"""The one way a YAML file comes into the program: read, validated, every problem of the file reported at once.

A file's shape is a :class:`FileModel`; :func:`load` returns an instance of it or raises
:class:`~archplace.arch_configs.errors.ConfigError`. The models are turned into frozen dataclasses by the room that
owns them.
"""

import inspect
import json
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from archplace.arch_configs._suggest import clip, close_match, describe, listing
from archplace.arch_configs._yaml import Document, KeyPath, YamlValue, dotted, parse_yaml
from archplace.arch_configs.errors import ConfigError, Problem

__all__ = [
    "Document",
    "FileModel",
    "KeyPath",
    "YamlValue",
    "dotted",
    "load",
    "load_many",
    "parse_document",
    "parse_text",
    "read_document",
    "read_lenient",
]

T = TypeVar("T", bound=BaseModel)

_LARGEST_FILE_BYTES = 16 * 2**20


class FileModel(BaseModel):
    """Base of everything that stands in a file: unknown keys are errors, nothing is converted silently.

    ``true`` is not 1, ``"8"`` is not 8, ``8.0`` is not a whole number, and NaN or infinity is not a number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read_document(path: Path | str) -> Document:
    """Return the file as plain data with places.

    Raises :class:`ConfigError` for a file that is missing, a directory, not readable, not UTF-8, too large, or not
    valid YAML, and for duplicate keys. An empty file has the data None.
    """
    document = read_lenient(path)
    if document.problems:
        raise ConfigError(document.problems)
    return document


def read_lenient(path: Path | str) -> Document:
    """As :func:`read_document`, but with duplicate keys and unusable scalars left in the document's ``problems``.

    :func:`parse_document` reports them along with the others; problems of the reader's own may be added first.
    """
    name = str(path)

    def refuse(message: str) -> ConfigError:
        return ConfigError([Problem(place=name or "file name", key="", message=message)])

    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE_BYTES + 1)
    except IsADirectoryError:
        raise refuse("found a directory; a YAML file is needed") from None
    except FileNotFoundError:
        raise refuse(f"no such file{_similar_file(path)}") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a name with a null character
        raise refuse(f"cannot be a file's name: {error}") from None
    if len(content) > _LARGEST_FILE_BYTES:
        raise refuse(f"is larger than {_LARGEST_FILE_BYTES >> 20} MiB, the most that is read")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        byte = content[error.start]
        place = f"{name}:{line}:{column}"
        message = f"found the byte 0x{byte:02x}, which is not UTF-8 text; save the file as UTF-8"
        raise ConfigError([Problem(place=place, key="", message=message)]) from None
    return parse_yaml(text, name)


def parse_text(text: str, path: str = "text") -> Document:
    """Return YAML ``text`` as a document; ``path`` names it in messages."""
    return parse_yaml(text, path)


def _similar_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == path.suffix]
    except OSError:
        return f": there is no folder {clip(str(path.parent))} either"
    # The ending, which files of one kind share, must not make their names alike.
    match = close_match(path.stem, [Path(name).stem for name in names])
    return f"; did you mean {str(path.with_name(match + path.suffix))!r}?" if match else ""


def load(path: Path | str, schema: type[T]) -> T:
    """Read ``path`` and validate it as ``schema``; raises :class:`ConfigError` with all problems of the file."""
    return parse_document(read_lenient(path), schema)


def load_many(paths: Iterable[Path | str], schema: type[T]) -> list[T]:
    """Load several files of one kind; raises :class:`ConfigError` with the problems of all of them."""
    loaded: list[T] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            loaded.append(load(path, schema))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return loaded


def parse_document(document: Document, schema: type[T]) -> T:
    """Validate a document as ``schema``.

    Raises :class:`ConfigError` with all problems, in the order of the file: unknown keys with a suggestion, missing
    keys, and values of the wrong type or range, each with what was found and what is allowed.
    """
    if not isinstance(document.data, dict):
        found = "an empty file" if document.data is None else describe(document.data)
        keys = listing(_keys_of(schema))
        raise ConfigError([document.problem((), f"found {found}; allowed: a mapping with the keys {keys}")])
    try:
        # By way of JSON, so that strictness means the file's types: lists may become tuples and text enumerations,
        # but text never becomes a number.
        instance = schema.model_validate_json(json.dumps(document.data))
        problems = []
    except ValidationError as error:
        details = [details for details in error.errors(include_url=False) if not _counts_only_good_entries(details)]
        problems = [_problem(document, schema, detail) for detail in details]
    if not problems and not document.problems:
        return instance
    # A scalar that could not be read has no value; that its value is missing is not worth a second message.
    unreadable = {problem.place for problem in document.problems}
    problems = [problem for problem in problems if problem.place not in unreadable]
    raise ConfigError(sorted(dict.fromkeys([*document.problems, *problems]), key=_line_and_column))


def _counts_only_good_entries(details: ErrorDetails) -> bool:
    """Whether a list is called too short only because wrong entries, reported on their own, were not counted."""
    found = details["input"]
    return details["type"] == "too_short" and isinstance(found, list) and len(found) >= details["ctx"]["min_length"]


def _line_and_column(problem: Problem) -> tuple[int, ...]:
    return tuple(int(part) for part in problem.place.rsplit(":", 2)[1:] if part.isdigit())


def _problem(document: Document, schema: type[BaseModel], details: ErrorDetails) -> Problem:
    """Return a pydantic error in this program's words."""
    kind, location = details["type"], details["loc"]
    path, value = _walk(document.data, location)
    name = str(location[-1]) if location else ""
    if kind == "extra_forbidden":
        allowed = _keys_at(schema, path[:-1])
        match = close_match(name, allowed)
        meant = f"did you mean {match!r}? " if match and match != name else ""
        message = f"unknown key {clip(name)}; {meant}allowed: {listing(allowed) or 'no keys'}"
        return document.problem(path, message, at_key=True)
    if kind == "missing":
        where = f"in {dotted(path)!r}" if path else "in the file"
        message = f"the key {name!r} is missing {where}; add '{name}: …'"
        return document.problem((*path, name), message)
    return document.problem(path, _message(details, value))


def _walk(data: YamlValue, location: Sequence[str | int]) -> tuple[KeyPath, YamlValue]:
    """Follow an error's location into the data, leaving out parts (names of union members) that are not there."""
    path: KeyPath = ()
    for part in location:
        if isinstance(data, dict) and str(part) in data:
            data, path = data[str(part)], (*path, str(part))
        elif isinstance(data, list) and isinstance(part, int) and 0 <= part < len(data):
            data, path = data[part], (*path, part)
    return path, data


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _message(details: ErrorDetails, value: YamlValue) -> str:
    """Return what was found and what is allowed."""
    kind, context = details["type"], details.get("ctx", {})
    found = f"found {describe(value)}"
    if kind in _TYPES:
        hint = ""
        if kind in ("int_type", "float_type", "int_from_float") and isinstance(value, str):
            plain = value.replace("_", "").replace(",", "")
            hint = f": write {plain}" if plain != value and plain.isdigit() else " (without quotes or unit)"
        if kind == "string_type" and isinstance(value, bool | int | float):
            hint = f": write {json.dumps(str(value))} if text is meant"
        return f"{found}; allowed: {_TYPES[kind]}{hint}"
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", details["msg"]))
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"])
        allowed = [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]
        match = close_match(value, allowed) if isinstance(value, str) else None
        return f"{found}; " + (f"did you mean {match!r}? " if match else "") + f"allowed: {listing(allowed)}"
    limits = {
        "greater_than": ("gt", "more than"),
        "greater_than_equal": ("ge", "at least"),
        "less_than": ("lt", "less than"),
        "less_than_equal": ("le", "at most"),
        "multiple_of": ("multiple_of", "a multiple of"),
    }
    if kind in limits:
        limit, words = limits[kind]
        return f"{found}; allowed: {words} {context[limit]}"
    if kind in ("too_short", "too_long"):
        bound = (
            f"at least {context.get('min_length')}" if kind == "too_short" else f"at most {context.get('max_length')}"
        )
        return f"found {context.get('actual_length')} entries; allowed: {bound}"
    if kind == "string_too_short":
        return f"{found}; allowed: text of at least {context.get('min_length')} characters"
    message = details["msg"]
    return f"{found}; {message[:1].lower()}{message[1:]}"


def _keys_of(schema: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in schema.model_fields.items()]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """Return the models that an annotation mentions, through Annotated, unions, lists and mappings."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models_in(argument)]


def _keys_at(schema: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the keys that ``schema`` allows in the mapping at ``path``, those of every shape it may have."""
    models = [schema]
    for part in path:
        if isinstance(part, int):
            continue
        fields = [info for model in models for name, info in model.model_fields.items() if part in (name, info.alias)]
        # A part that names no field is the key of a mapping of models, which stay the candidates.
        if fields:
            models = [model for info in fields for model in _models_in(info.annotation)]
    return list(dict.fromkeys(key for model in models for key in _keys_of(model)))
