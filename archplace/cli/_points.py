"""Design points of a run by what the user calls them."""

from archplace.arch_configs.errors import ConfigError
from archplace.search.points import BASELINE, PointView, baseline_view
from archplace.search.run import RunResult


def design(result: RunResult, text: str) -> tuple[int, int]:
    """Return architecture and number of the point that ``text`` names."""
    count = len(result.architectures)
    first, _, second = text.partition(".")
    allowed = f"allowed are 0 to {count - 1}" + (f" and '{BASELINE}'" if result.baseline is not None else "")
    plain = text.isascii() and first.isdigit() and (second.isdigit() or "." not in text)
    if not plain or int(first) >= count:
        raise ConfigError(f"ID: found {text!r}; {allowed}; list the front with: archplace show DIR")
    architecture, number = int(first), int(second or 0)
    record = result.outcome.records.get(architecture)
    points = 0 if record is None else len(record.points)
    if number and number >= points:
        known = f"{first} to {first}.{points - 1}" if points > 1 else first if points else "none"
        raise ConfigError(f"ID: found {text!r}; the design points of architecture {architecture} are: {known}")
    return architecture, number


def baseline_of(result: RunResult) -> PointView:
    """Return the baseline's point."""
    if result.baseline is None:
        raise ConfigError("ID: found 'baseline', but the run names none; add the key 'baseline' to the run file")
    point = baseline_view(result)
    if point is None:
        raise ConfigError(f"ID: the baseline {result.baseline.name} has no design point: {result.baseline.reason}")
    return point
