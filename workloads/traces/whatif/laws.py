"""Scaling laws: what the numbers of a node follow when a model or its batch grows.

A law is a sum of terms, each a coefficient times powers of sizes; a size stands for how many times as large it is as in
the trace at hand, so that with all sizes at 1 the law gives the trace's own number. The product of a token's activation
with a weight matrix has ``num_ops = c · batch · sequence · hidden^2``; the bytes that it touches are the sum of
activations, which grow with ``batch · sequence · hidden``, and of weights, which grow with ``hidden^2``. Polynomials
are closed under scaling, so that a scaled trace has laws again, and exact ones: coefficients are fractions.

Nodes carry their laws as text, in the attribute ``scaling``::

    num_ops = 51539607552 batch sequence hidden^2; tensor_size = 25165824 batch sequence hidden + 14155776 hidden^2
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

SCALING = "scaling"
"""Name of the attribute."""


class Size(StrEnum):
    """What can grow."""

    BATCH = "batch"
    """Sequences that the rank computes in a microbatch."""
    SEQUENCE = "sequence"
    """Tokens of a sequence."""
    HIDDEN = "hidden"
    """All widths of the model together: of the activation between layers, of heads, of feed-forward parts."""
    EXPERTS = "experts"
    """Routed experts of a layer, each of the width that it has."""


Exponents = tuple[int, ...]
"""By size, in the order of :class:`Size`."""

_SIZES = tuple(Size)
NONE: Exponents = (0,) * len(_SIZES)
_TERM = re.compile(r"(\d+(?:/\d+)?)((?:\s+[a-z]+(?:\^-?\d)?)*)")
_FACTOR = re.compile(r"([a-z]+)(?:\^(-?\d))?")
_MOST_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Law:
    """A sum of terms, by exponents in falling order; no coefficient is 0, and none is negative."""

    terms: tuple[tuple[Exponents, Fraction], ...]

    @classmethod
    def of(cls, terms: dict[Exponents, Fraction]) -> "Law":
        """Return the law with these terms. Raises ValueError for a negative coefficient."""
        if any(coefficient < 0 for coefficient in terms.values()):
            raise ValueError(f"a law has no negative terms, found {terms}")
        return cls(tuple(sorted(((one, c) for one, c in terms.items() if c), reverse=True)))

    @property
    def value(self) -> Fraction:
        """What it gives now; 0 for no terms."""
        return sum((coefficient for _, coefficient in self.terms), Fraction(0))

    def scaled(self, size: Size, factor: Fraction) -> "Law":
        """Return the law once ``size`` is ``factor`` times as large."""
        at = _SIZES.index(size)
        return Law(tuple((one, coefficient * factor ** one[at]) for one, coefficient in self.terms))

    def times(self, factor: Fraction) -> "Law":
        """Return the law of a number that is ``factor`` times as large, a factor above 0."""
        return Law(tuple((one, coefficient * factor) for one, coefficient in self.terms))

    def follows(self, size: Size) -> bool:
        """Whether any term follows ``size``."""
        at = _SIZES.index(size)
        return any(one[at] for one, _ in self.terms)

    def __str__(self) -> str:
        return " + ".join(_term_text(one, coefficient) for one, coefficient in self.terms) or "0"


def _term_text(exponents: Exponents, coefficient: Fraction) -> str:
    words = [str(coefficient)]
    for size, power in zip(_SIZES, exponents, strict=True):
        if power:
            words.append(str(size) if power == 1 else f"{size}^{power}")
    return " ".join(words)


Laws = tuple[tuple[str, Law], ...]
"""By what they give: ``num_ops``, ``tensor_size``, ``comm_size``, or one number of a list, as ``loops[1]``."""


def laws_text(laws: Laws) -> str:
    """Return laws as the attribute has them."""
    return "; ".join(f"{name} = {law}" for name, law in laws)


@lru_cache(maxsize=1 << 14)
def read_laws(text: str) -> Laws:
    """Return the laws that an attribute states. Raises ValueError for what is none."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"scaling laws of {len(text):,} characters; at most {_MOST_CHARACTERS:,} are read")
    laws = []
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, terms = map(str.strip, part.partition("="))
        if not equals or not re.fullmatch(r"[a-z_]+(\[\d{1,2}\])?", name):
            raise ValueError(f"a scaling law reads 'num_ops = 12 batch hidden^2 + 3 hidden', found {part!r:.60}")
        laws.append((name, read_law(terms)))
    return tuple(laws)


def read_law(text: str) -> Law:
    """Return the law that ``text`` states. Raises ValueError for what is none."""
    found: dict[Exponents, Fraction] = {}
    for term in text.split("+"):
        if term.strip() == "0":
            continue
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ValueError(f"a term reads '12 batch hidden^2', found {term.strip()!r:.60}")
        powers = _powers(match[2])
        try:
            found[powers] = found.get(powers, Fraction(0)) + Fraction(match[1])
        except ZeroDivisionError:
            raise ValueError(f"a term divides by zero: {term.strip()!r:.60}") from None
    return Law.of(found)


def _powers(words: str) -> Exponents:
    powers = dict.fromkeys(_SIZES, 0)
    for word in words.split():
        factor = _FACTOR.fullmatch(word)
        if factor is None or factor[1] not in powers:
            raise ValueError(f"sizes are {', '.join(_SIZES)}, each with ^ and its power, found {word!r:.60}")
        powers[Size(factor[1])] += int(factor[2] or 1)
    return tuple(powers.values())
