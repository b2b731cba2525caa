"""Messages for a name that is not among the allowed ones."""

from collections.abc import Iterable
from difflib import get_close_matches

from archplace.arch_configs.errors import ConfigError, Problem

_MOST_SHOWN = 24


def close_match(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that ``name`` most likely meant, or None; case, ``-`` and ``_`` do not count."""

    def plain(text: str) -> str:
        return text.lower().replace("-", "_").replace(" ", "_")

    by_plain = {plain(candidate): candidate for candidate in sorted(allowed, reverse=True)}
    matches = get_close_matches(plain(name[:100]), list(by_plain), n=1, cutoff=0.6)
    return by_plain[matches[0]] if matches else None


def listing(names: Iterable[str]) -> str:
    """Return ``names`` joined by commas, shortened when there are very many."""
    names = list(names)
    shown = ", ".join(names[:_MOST_SHOWN])
    return shown if len(names) <= _MOST_SHOWN else f"{shown}, … ({len(names)} in all)"


def unknown_name(name: str, allowed: Iterable[str], *, what: str) -> str:
    """Return the message for ``name``, which is none of ``allowed``; ``what`` says what is named (``"cluster"``)."""
    allowed = list(allowed)
    match = close_match(name, allowed)
    meant = f"did you mean {match!r}? " if match is not None else ""
    return f"unknown {what} {clip(name)}; {meant}allowed: {listing(allowed) or 'none'}"


def clip(value: object) -> str:
    """Return ``repr(value)`` on one line and of bearable length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def describe(value: object) -> str:
    """Return what was found, in words that can follow "found"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the text {clip(value)}" if isinstance(value, str) else clip(value)


def choose(name: str, allowed: Iterable[str], *, what: str, place: str = "", key: str = "") -> str:
    """Return ``name`` if it is one of ``allowed``.

    Raises :class:`ConfigError` with a suggestion otherwise; ``place`` and ``key`` say where the name was given.
    """
    allowed = list(allowed)
    if name in allowed:
        return name
    raise ConfigError([Problem(place=place, key=key, message=unknown_name(name, allowed, what=what))])
