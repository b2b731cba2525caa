"""PyTorch's operator schemas: ``ns::name.overload(Tensor(a!) self, int x=1, *, Tensor[] y) -> Tensor(a!)``."""

import functools
import re
from typing import NamedTuple


class SchemaArgument(NamedTuple):
    """One argument of an operator."""

    name: str
    type: str
    written: bool
    """Whether the operator changes it."""
    aliased: bool
    """Whether a result may lie in the same memory."""


@functools.lru_cache(maxsize=4096)
def schema_arguments(schema: str) -> tuple[SchemaArgument, ...]:
    """Return the arguments in order, keyword-only ones last; none for text that is no schema."""
    begin = schema.find("(")
    if begin < 0:
        return ()
    parts, depth, start = [], 0, begin + 1
    for place in range(begin, len(schema)):
        character = schema[place]
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        if depth == 0 or (character == "," and depth == 1):
            parts.append(schema[start:place].strip())
            start = place + 1
        if depth == 0:
            break
    return tuple(_argument(part) for part in parts if part and part != "*")


def _argument(text: str) -> SchemaArgument:
    before = text.split("=", 1)[0].strip()
    kind, _, name = before.rpartition(" ")
    return SchemaArgument(name=name, type=kind, written=bool(re.search(r"\([^)]*!", kind)), aliased="Tensor(" in kind)
