"""Write what was fitted into cluster files, with its date and errors."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from archplace.arch_configs import Cluster
from archplace.arch_configs.calibration import CENTRAL_SHARE
from archplace.arch_configs.cluster import IDEAL_SOFTWARE
from archplace.arch_configs.errors import ConfigError, Problem
from archplace.search.accuracy.calibrate import Fit, FloatArray

_FACTS = ("tensor_pieces", "data_overlap", "early_stop")
"""What is said about software and not fitted."""
_SECTION = r"^  {name}:[^\n]*\n(?:(?:    [^\n]*)?\n)*"


def fitted_text(fit: Fit, sources: Sequence[str], date: str) -> str:
    """Return where fitted values come from: the date, the rows of which ``sources``, and the errors."""
    rows = f"{len(fit.errors)} published steps ({', '.join(sources)}) on {', '.join(fit.clusters)}"
    text = f"Fitted {date} by archplace calibrate to {rows}: {_errors(fit.errors)}"
    if len(fit.held_out_errors):
        text += f"; of the {len(fit.held_out_errors)} steps that were held out: {_errors(fit.held_out_errors)}"
    return text


def _errors(errors: FloatArray) -> str:
    sizes = np.abs(errors)
    return f"mean error {sizes.mean():.1%}, median {np.median(sizes):.1%}"


def software_section(cluster: Cluster, fit: Fit, text: str) -> str:
    """Return the section ``software`` of a cluster file, indented as a key of ``cluster``.

    Fitted values are rounded to three digits and have ``text`` as their source; values that a fit was given are left
    out where they change nothing. What else the cluster says of its software stays with its source.
    """
    lines, origins = ["  software:"], []
    for name, value in fit.values.items():
        if value == getattr(IDEAL_SOFTWARE, name):
            continue
        key, shown = ("dispatch", f"{value * 1e6:.3g} us") if name == "dispatch_s" else (name, f"{value:.3g}")
        lines.append(f"    {key}: {shown}")
        origins.append((key, text))
    for name in _FACTS:
        value = getattr(cluster.software, name)
        if f"software.{name}" in cluster.sources and value != getattr(IDEAL_SOFTWARE, name):
            lines.append(f"    {name}: {json.dumps(value)}")
            origins.append((name, cluster.sources[f"software.{name}"]))
    lines.append("    source:")
    first: dict[str, str] = {}
    for key, origin in origins:
        said = f"With {first[origin]}" if origin in first else origin
        first.setdefault(origin, key)
        lines.append(f"      {key}: {json.dumps(said, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def uncertainty_section(fit: Fit, sources: Sequence[str], date: str) -> str:
    """Return the section ``uncertainty`` of a cluster file, empty where the fit has too few steps to say anything.

    Bounds are rounded to three digits.
    """
    found = fit.uncertainty
    if found is None:
        return ""
    held_out = f", {len(fit.held_out_errors)} of them held out of the fit" if len(fit.held_out_errors) else ""
    text = (
        f"Stated {date} by archplace calibrate: central {CENTRAL_SHARE:.0%} of measured over predicted seconds of "
        f"{found.steps} published steps ({', '.join(sources)}) on {', '.join(fit.clusters)}{held_out}, the others as "
        "if fitted without the steps of their model"
    )
    lines = ["  uncertainty:", f"    steps: {found.steps}", f"    low: {found.low:.3g}", f"    high: {found.high:.3g}"]
    if found.compared is not None:
        lines.append(f"    compared: {found.compared:.3g}")
    return "\n".join([*lines, f"    source: {json.dumps(text, ensure_ascii=False)}"]) + "\n"


def write_section(path: Path, name: str, section: str) -> None:
    """Put the section ``name`` into a cluster file, in place of the one that is there, or else at its end.

    An empty section removes the one that is there.

    The file has the keys of ``cluster`` indented by two spaces, as the built-in ones have. Raises :class:`ConfigError`
    for a file of another form, and for one that cannot be written.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^cluster:\n  [^ ]", text, re.MULTILINE):
            message = "the keys of 'cluster' must be indented by two spaces; put the printed section in by hand"
            raise ConfigError([Problem(place=str(path), key="", message=message)])
        pattern = re.compile(_SECTION.format(name=name), re.MULTILINE)
        new, found = pattern.subn(lambda _: section, text, count=1)
        if section and not found:
            new = text.rstrip("\n") + "\n" + section
        path.write_text(new, encoding="utf-8")
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise ConfigError([Problem(place=str(path), key="", message=message)]) from None
