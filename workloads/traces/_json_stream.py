"""JSON documents larger than memory: one object, some of whose lists are given element by element."""

import codecs
import json
import re
from collections.abc import Iterator

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces._source import Source

MAX_ELEMENT_CHARACTERS = 16 << 20
"""Of one element of a long list, or of a value that is not given in parts: what is held in memory at a time."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SHOWN = 30
_MARGIN = 64

Member = tuple[str, int | None, int, object]
"""Name of the object's member; index in its list, None for a member that is given whole; offset in the file; value."""


class JsonStream:
    """Reads one JSON object from ``source``.

    Raises :class:`ConfigError` with the offset for whatever is not JSON, for members that stand twice, for values that
    are nested too deeply or too large, and for text after the object.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._ascii = "", True
        self._at = 0
        self._base, self._marked = 0, 0
        self._ended = False

    def members(self, streamed: frozenset[str]) -> Iterator[Member]:
        """Give the members in the file's order; of lists whose names are ``streamed``, element after element.

        A list without elements is given whole.
        """
        self._expect("{", "a JSON object")
        seen: set[str] = set()
        if self._peek() == "}":
            self._at += 1
            self._finish()
            return
        while True:
            offset = self._offset()
            name = self._value() if self._peek() == '"' else None
            if not isinstance(name, str):
                raise self._error('a name in quotation marks, or "}"', offset)
            if name in seen:
                raise self._source.error(f"member {name!r:.60} stands twice; which one is meant?", offset)
            seen.add(name)
            self._expect(":", "a colon")
            if name in streamed and self._peek() == "[":
                yield from self._elements(name)
            else:
                self._peek()
                offset = self._offset()
                yield name, None, offset, self._value()
            if self._next("a comma or the end of the object") == "}":
                self._finish()
                return

    def _elements(self, name: str) -> Iterator[Member]:
        self._at += 1
        if self._peek() == "]":
            offset = self._offset()
            self._at += 1
            yield name, None, offset, []
            return
        index = 0
        while True:
            self._peek()
            offset = self._offset()
            yield name, index, offset, self._value()
            index += 1
            at = self._at
            # A comma and a line's end, as most elements have behind them, need no search.
            if self._text[at : at + 3] == ",\n{":
                self._at = at + 2
            elif self._next("a comma or the end of the list", end="]") == "]":
                return

    def _finish(self) -> None:
        if self._peek():
            raise self._error("the end of the file")

    def _next(self, what: str, end: str = "}") -> str:
        found = self._peek()
        if not found or found not in "," + end:
            raise self._error(what)
        self._at += 1
        return found

    def _expect(self, character: str, what: str) -> None:
        if self._peek() != character:
            raise self._error(what)
        self._at += 1

    def _peek(self) -> str:
        """Skip space and return the next character; none at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None  # it matches nothing, too
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill()

    def _value(self) -> object:
        """Decode the value at hand; a value at the very end of what is read may go on."""
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except RecursionError:
                raise self._source.error("values are nested too deeply for a trace", self._offset()) from None
            except json.JSONDecodeError as error:
                # What is only cut off by the end of what is read fails there, or is a string that does not end.
                cut = error.msg.startswith("Unterminated") or error.pos + _MARGIN > len(self._text)
                if self._ended or not cut:
                    at = self._offset(error.pos)
                    raise self._source.error(f"no JSON: {error.msg}; found {self._shown(error.pos)}", at) from None
            except ValueError:
                raise self._source.error("a number with thousands of digits", self._offset()) from None
            else:
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            if len(self._text) - self._at > MAX_ELEMENT_CHARACTERS:
                raise self._source.error(
                    f"a value of more than {MAX_ELEMENT_CHARACTERS:,} characters, or one that is broken",
                    self._offset(),
                )
            self._fill()

    def _fill(self) -> None:
        """Read as much again as is at hand, so that a long value is not decoded too often."""
        self._offset()
        rest = self._text[self._at :]
        wanted = max(1 << 20, len(rest))
        block = self._source.read(wanted)
        self._ended = not block
        try:
            self._text = rest + self._decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            raise self._source.error(f"no UTF-8 text: {error.reason}") from None
        self._ascii = self._text.isascii()
        self._at, self._marked = 0, 0

    def _offset(self, position: int | None = None) -> int:
        """Return where in the file a place in the text is, at or after the last one that was asked for."""
        position = self._at if position is None else position
        if self._ascii:
            self._base += position - self._marked
        else:
            self._base += len(self._text[self._marked : position].encode())
        self._marked = position
        return self._base

    def _shown(self, position: int) -> str:
        text = self._text[position : position + _SHOWN]
        return repr(text) if text else "the end of the file"

    def _error(self, what: str, offset: int | None = None) -> ConfigError:
        at = self._offset() if offset is None else offset
        return self._source.error(f"no JSON: expected {what}, found {self._shown(self._at)}", at)
