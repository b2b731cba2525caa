"""YAML text to plain data with the place of every value, without PyYAML's traps.

Scalars follow the YAML 1.2 core schema: ``614e9``, ``1e-12`` and ``1E5`` are numbers, only ``true`` and ``false`` are
booleans (``no`` and ``on`` are text), ``1:30`` and ``2024-01-01`` are text. A number with a leading zero is refused,
since YAML 1.1 reads it as octal and YAML 1.2 as decimal. A key that occurs twice is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from archplace.arch_configs._suggest import clip
from archplace.arch_configs.errors import ConfigError, Problem

YamlValue = None | bool | int | float | str | list["YamlValue"] | dict[str, "YamlValue"]
KeyPath = tuple[str | int, ...]

_DEEPEST = 64
_MOST_VALUES = 1_000_000
_MOST_DIGITS = 300
_MOST_PROBLEMS = 100

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


def dotted(path: KeyPath) -> str:
    """Return a key path as text: ``("a", "b", 2, "c")`` is ``a.b[2].c``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML file as plain data, with the line and column of every key and value."""

    path: str
    data: YamlValue
    value_marks: Mapping[KeyPath, tuple[int, int]] = field(repr=False)
    """Line and column, from 1, where the value at a key path begins."""
    key_marks: Mapping[KeyPath, tuple[int, int]] = field(repr=False)
    """The same for the key under which a value stands; list items have none."""
    problems: tuple[Problem, ...] = ()
    """Duplicate keys and unusable scalars; such a scalar's value is None."""

    def place(self, key_path: KeyPath = (), *, at_key: bool = False) -> str:
        """Return ``file:line:column`` of the value at ``key_path`` (or of its key).

        A mapping or list is shown at its key. A path that is not in the file is shown at its nearest parent that is.
        """
        while key_path and key_path not in self.value_marks:
            key_path = key_path[:-1]
        value: YamlValue = self.data
        for part in key_path:
            if isinstance(value, dict):
                value = value[str(part)]
            elif isinstance(value, list):
                value = value[int(part)]
        mark = self.value_marks.get(key_path)
        if at_key or isinstance(value, dict | list):
            mark = self.key_marks.get(key_path, mark)
        return self.path if mark is None else f"{self.path}:{mark[0]}:{mark[1]}"

    def problem(self, key_path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem of the value at ``key_path``."""
        return Problem(place=self.place(key_path, at_key=at_key), key=dotted(key_path), message=message)


class _RefusedError(Exception):
    """A file that cannot be read on; the message and the mark of the place."""

    def __init__(self, message: str, mark: yaml.Mark | None) -> None:
        super().__init__(message)
        self.message, self.mark = message, mark


class _Loader(yaml.SafeLoader):
    """Only composes nodes; scalars resolve by the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's protocol

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # The composer recurses; a limit of our own gives an error with a place instead of a RecursionError.
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _RefusedError(
                f"found more than {_DEEPEST} levels of nesting, which is the most allowed", self.get_mark()
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_DECIMAL = list("-+0123456789")
_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(rf"(?:{_INT.pattern})\Z"), _DECIMAL)
_Loader.add_implicit_resolver(f"{_TAG}float", re.compile(rf"(?:{_FLOAT.pattern})\Z"), [*_DECIMAL, "."])
_Loader.add_implicit_resolver(f"{_TAG}merge", re.compile(r"<<\Z"), ["<"])


def _spot(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


class _Builder:
    """Turns composed nodes into data and collects what is wrong on the way."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.value_marks: dict[KeyPath, tuple[int, int]] = {}
        self.key_marks: dict[KeyPath, tuple[int, int]] = {}
        self._values = 0
        self._open: set[int] = set()

    def report(self, key_path: KeyPath, node: yaml.Node, message: str) -> None:
        line, column = _spot(node.start_mark)
        self.problems.append(Problem(place=f"{self.path}:{line}:{column}", key=dotted(key_path), message=message))

    def _count(self, node: yaml.Node) -> None:
        # Aliases are expanded, so the count of values (not of nodes) is what an alias bomb blows up.
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _RefusedError(
                f"the file expands to more than {_MOST_VALUES:,} values; aliases (*name) may not multiply like this",
                node.start_mark,
            )

    def build(self, node: yaml.Node, key_path: KeyPath) -> YamlValue:
        self._count(node)
        if id(node) in self._open:
            raise _RefusedError("an alias (*name) refers to the value that contains it", node.start_mark)
        self.value_marks[key_path] = _spot(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key_path)
        if len(key_path) > _DEEPEST:
            raise _RefusedError(
                f"found more than {_DEEPEST} levels of nesting, which is the most allowed", node.start_mark
            )
        self._open.add(id(node))
        result: YamlValue
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq", key_path)
            result = [self.build(item, (*key_path, index)) for index, item in enumerate(node.value)]
        else:
            assert isinstance(node, yaml.MappingNode)
            self._check_tag(node, "map", key_path)
            result = self._mapping(node, key_path)
        self._open.discard(id(node))
        return result

    def _check_tag(self, node: yaml.Node, expected: str, key_path: KeyPath) -> None:
        if node.tag != _TAG + expected:
            self.report(key_path, node, f"found the tag {clip(node.tag)}; tags are not allowed: remove it")

    def _mapping(self, node: yaml.MappingNode, key_path: KeyPath) -> dict[str, YamlValue]:
        result: dict[str, YamlValue] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.report(key_path, key_node, "found a list or mapping as a key; keys must be plain text")
                continue
            if key_node.tag == f"{_TAG}merge":
                merged.append(value_node)
                continue
            key = key_node.value
            child = (*key_path, key)
            if any("\ud800" <= character <= "\udfff" for character in key):
                self.report(key_path, key_node, f"found the key {clip(key)}, which is not valid Unicode text")
                continue
            if key in result:
                line, column = self.key_marks[child]
                self.report(
                    child, key_node, f"the key stands twice, first at {self.path}:{line}:{column}; remove one of them"
                )
                continue
            self.key_marks[child] = _spot(key_node.start_mark)
            result[key] = self.build(value_node, child)
        for source in merged:
            self._merge(source, key_path, result)
        return result

    def _merge(self, source: yaml.Node, key_path: KeyPath, result: dict[str, YamlValue]) -> None:
        """Add the keys of ``<<: source`` that ``result`` has not."""
        parts = source.value if isinstance(source, yaml.SequenceNode) else [source]
        for part in parts:
            if not isinstance(part, yaml.MappingNode):
                self.report(key_path, source, "found '<<:' with something else than a mapping or a list of mappings")
                continue
            self._count(part)
            if id(part) in self._open:
                raise _RefusedError("'<<:' merges a mapping into itself", source.start_mark)
            self._open.add(id(part))
            new = [
                (key, value)
                for key, value in part.value
                if not (isinstance(key, yaml.ScalarNode) and key.value in result)
            ]
            for key, value in self._mapping(
                yaml.MappingNode(part.tag, new, part.start_mark, part.end_mark), key_path
            ).items():
                result.setdefault(key, value)
            self._open.discard(id(part))

    def _scalar(self, node: yaml.ScalarNode, key_path: KeyPath) -> YamlValue:
        text = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind in ("str", "merge"):
            if any("\ud800" <= character <= "\udfff" for character in text):
                self.report(key_path, node, f"found {clip(text)}, which is not valid Unicode text")
                return None
            return str(text)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return bool(text.lower() == "true")
        if kind in ("int", "float") and len(text) > _MOST_DIGITS:
            self.report(key_path, node, f"found a number of {len(text)} characters; at most {_MOST_DIGITS} are allowed")
            return None
        if kind in ("int", "float") and _LEADING_ZERO.fullmatch(text):
            self.report(
                key_path,
                node,
                f"found {text}; a leading zero is ambiguous (octal or decimal): write {int(text)}, or 0o… for octal, "
                "or quote it if it is text",
            )
            return None
        if kind == "int" and _INT.fullmatch(text):
            return int(text, 0)
        if kind == "float" and (_FLOAT.fullmatch(text) or _INT.fullmatch(text)):
            return (
                float(int(text, 0))
                if text[:2] in ("0o", "0x")
                else float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            )
        self.report(key_path, node, f"found {clip(text)} with the tag {clip(node.tag)}; remove the tag")
        return None


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    text = ", ".join(parts) or "cannot be parsed"
    if "'\\t'" in text or "tab" in text:
        text += " (YAML is indented with spaces, never with tabs)"
    return f"not valid YAML: {' '.join(text.split())}"


def parse_yaml(text: str, path: str) -> Document:
    """Return ``text`` as a document; ``path`` is the file's name in messages.

    An empty text has the data None. Duplicate keys and unusable scalars are in the document's ``problems``, so that
    they can be reported along with the others; raises :class:`ConfigError` at the first error of syntax.
    """
    builder = _Builder(path)
    try:
        node = _compose(text)
        data = None if node is None else builder.build(node, ())
    except yaml.reader.ReaderError as error:
        line, column = _position(text, error.position)
        message = f"found the character {clip(text[error.position])}, which is not allowed in YAML"
        raise ConfigError([Problem(place=f"{path}:{line}:{column}", key="", message=message)]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(
            [
                Problem(
                    place=_place(path, error.problem_mark or error.context_mark), key="", message=_syntax_message(error)
                )
            ]
        ) from None
    except _RefusedError as refusal:
        raise ConfigError([Problem(place=_place(path, refusal.mark), key="", message=refusal.message)]) from None
    return Document(
        path=path,
        data=data,
        value_marks=builder.value_marks,
        key_marks=builder.key_marks,
        problems=tuple(_first(builder.problems)),
    )


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError) as error:
        # Of an escape beyond Unicode, such as "\\U00110000", or a version number of thousands of digits.
        raise _RefusedError(f"not valid YAML: {error}", loader.get_mark()) from None


def _place(path: str, mark: yaml.Mark | None) -> str:
    if mark is None:
        return path
    line, column = _spot(mark)
    return f"{path}:{line}:{column}"


def _first(problems: list[Problem]) -> Iterator[Problem]:
    yield from problems[:_MOST_PROBLEMS]
    if len(problems) > _MOST_PROBLEMS:
        yield Problem(place=problems[0].place, key="", message=f"and {len(problems) - _MOST_PROBLEMS} problems more")
