"""Cases on disk: everything that ASTRA-sim needs in one folder, or traces for other readers."""

import os
from dataclasses import dataclass
from pathlib import Path

from archplace.search.export import simulator_files as files
from archplace.search.export.candidates import Candidate
from archplace.search.export.case import Case
from archplace.search.export.expand import Expanded
from archplace.search.export.folders import whole_folder
from archplace.search.export.manifest import FILE, PLAIN_KIND, manifest_text
from archplace.search.export.trace_files import Style, TraceEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written."""

    traces: int
    files: int
    """Different ones among them; the others are links to these."""
    bytes: int
    """On disk."""


def write_case(candidate: Candidate, found: Expanded, folder: Path) -> Written:
    """Write a case that was replayed; ``folder`` appears when all of it is there.

    Raises :class:`ConfigError` where it cannot be written.
    """
    case = found.case
    with whole_folder(folder) as partial:
        written = write_traces(case, partial / files.TRACES)
        layers = files.layers(case)
        texts = {
            files.GROUPS: files.groups_text(case),
            files.SYSTEM: files.system_text(len(layers)),
            files.SYSTEM_CONGESTION: files.system_text(pieces=files.congestion_pieces(case)),
            files.NETWORK: files.network_text(layers),
            files.NETWORK_CONGESTION: files.network_text(files.true_layers(case.communicators.numbering)),
            files.MEMORY: files.memory_text(),
            files.SCRIPT: files.script_text(case.n_npus),
            # Last: a folder that has it is whole.
            FILE: manifest_text(candidate, found),
        }
        size = written.bytes
        for name, text in texts.items():
            path = partial / name
            path.write_text(text, encoding="utf-8")
            size += path.stat().st_size
        (partial / files.SCRIPT).chmod(0o755)
    return Written(traces=written.traces, files=written.files, bytes=size)


def write_plain(candidate: Candidate, found: Expanded, folder: Path) -> Written:
    """Write the traces of a case with durations, and who is in which group, for readers other than the simulator.

    Raises :class:`ConfigError` where they cannot be written.
    """
    case = found.case
    with whole_folder(folder) as partial:
        written = write_traces(case, partial / files.TRACES, Style.PLAIN)
        texts = {
            files.GROUPS: files.groups_text(case),
            FILE: manifest_text(candidate, found, kind=PLAIN_KIND),
        }
        size = written.bytes
        for name, text in texts.items():
            (partial / name).write_text(text, encoding="utf-8")
            size += (partial / name).stat().st_size
    return Written(traces=written.traces, files=written.files, bytes=size)


def write_traces(case: Case, folder: Path, style: Style = Style.ASTRA_SIM) -> Written:
    """Write the trace of every device; those with the same content are links to one file, where links are possible."""
    folder.mkdir()
    encoder = TraceEncoder(case, style)
    known: dict[object, Path] = {}
    size = 0
    for npu in range(case.n_npus):
        path = folder / f"{files.PREFIX}.{npu}.et"
        content = encoder.content(npu)
        if content in known and _linked(known[content], path):
            continue
        data = b"".join(encoder.records(npu))
        path.write_bytes(data)
        size += len(data)
        known.setdefault(content, path)
    return Written(traces=case.n_npus, files=len(known), bytes=size)


def _linked(first: Path, path: Path) -> bool:
    try:
        os.link(first, path)
    except OSError:
        # No such thing on this file system, or no more of them to this file.
        return False
    return True
