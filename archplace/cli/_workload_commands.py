"""What the actions of ``archplace workload`` do."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import EXIT_DONE, ConfigError, Problem
from archplace.cli import _model_rows
from archplace.cli._output import Row, print_document, print_rows
from archplace.cli._patience import Waiting, patience

if TYPE_CHECKING:
    from archplace.workloads.traced.lift import Lifted
    from archplace.workloads.traces import Auditor, Reader, Statistics, Trace
    from archplace.workloads.traces.pytorch_import import Imported


def info(arguments: argparse.Namespace) -> int:
    """Print what is in a trace."""
    if arguments.top < 0:
        raise ConfigError(f"--top: found {arguments.top}, needs a number from 0")
    with patience(f"reading {arguments.trace}") as waiting:
        head, found = _statistics(arguments.trace, arguments.profile, waiting)
        is_pytorch = _is_pytorch(arguments.trace, arguments.profile)
        model = _model_rows.lifted(arguments.trace, arguments.profile) if is_pytorch else None
    if arguments.format in ("json", "yaml"):
        print_document({**_document(head, found, arguments.top), **_model_document(model)}, arguments.format)
        return EXIT_DONE
    figures = {**head, **_figures(found)}
    if model is not None and not isinstance(model, str):
        figures |= _model_rows.figures(model)
    print_rows([{"figure": name, "value": value} for name, value in figures.items()], arguments.format)
    if arguments.format == "table":
        _print_model(model, arguments.top)
        for title, listing in (("communication", _exchanges(found)), ("names", _names(found))):
            if listing and arguments.top:
                print(
                    f"\n{title}"
                    + (f" (the first {arguments.top} of {len(listing):,})" * (len(listing) > arguments.top))
                )
                print_rows(listing[: arguments.top], "table")
    return EXIT_DONE


def _print_model(model: "Lifted | str | None", top: int) -> None:
    if isinstance(model, str):
        print(f"archplace: no model in this trace: {model}", file=sys.stderr)
    elif model is not None:
        print("\nlayers")
        print_rows(_model_rows.layers(model), "table")
        if model.coverage.unknown and top:
            print("\noperators whose work is not known: taken as they look, and never cut")
            print_rows(_model_rows.unknown(model)[:top], "table")
        for note in model.notes:
            print(f"archplace: note: {note}", file=sys.stderr)


def _model_document(model: "Lifted | str | None") -> Row:
    if model is None:
        return {}
    if isinstance(model, str):
        return {"model": None, "no_model": model}
    known = {name.replace(" ", "_"): value for name, value in _model_rows.figures(model).items()}
    rows = [{name.replace(" ", "_"): value for name, value in row.items()} for row in _model_rows.layers(model)]
    return {"model": {**known, "layers": rows, "unknown": _model_rows.unknown(model), "notes": list(model.notes)}}


def import_trace(arguments: argparse.Namespace) -> int:
    """Make a Chakra trace of PyTorch's traces; print what it was made of."""
    from archplace.workloads.traces import TraceFormat, save_trace, trace_format

    kind = trace_format(arguments.trace)
    if kind is not TraceFormat.PYTORCH:
        raise ConfigError(
            [
                Problem(
                    place=arguments.trace,
                    key="",
                    message=f"a {kind} trace; import takes an execution trace of PyTorch's observer (a profiler's "
                    "trace goes with it, as --profile)",
                )
            ]
        )
    with patience(f"importing {arguments.trace}"):
        imported = _imported(arguments.trace, arguments.profile)
        save_trace(imported.trace, arguments.out)
    row = {
        "file": arguments.out,
        "nodes": len(imported.trace.nodes),
        "calls": imported.n_calls,
        "operators": imported.n_operators,
        "kernels": imported.n_kernels,
        "communications": imported.n_communications,
        "timed operators": imported.n_timed,
        "steps timed": imported.n_steps,
        "external storages": imported.external_storages,
    }
    print_document(row, arguments.format)
    return EXIT_DONE


def convert(arguments: argparse.Namespace) -> int:
    """Write a trace in another form; nothing is held in memory but the node at hand and what the audit needs."""
    from archplace.workloads.traces import audit_file, open_writer

    with (
        patience(f"converting {arguments.trace}") as waiting,
        _opened(arguments.trace, arguments.profile) as (reader, auditor),
        open_writer(arguments.out, reader.metadata) as writer,
    ):
        waiting.share = lambda: reader.share
        count = writer.write(auditor)
        if auditor.found.n_forward and not _is_pytorch(arguments.trace, arguments.profile):
            audit_file(arguments.trace)
    print(f"{arguments.out}: {count:,} nodes", file=sys.stderr)
    return EXIT_DONE


def diff(arguments: argparse.Namespace) -> int:
    """Print what differs between two traces: figures, communications, names."""
    with patience("reading both traces") as waiting:
        sides = [_statistics(path, [], waiting) for path in (arguments.trace, arguments.other)]
    (head, left_found), (other_head, right_found) = sides
    exchange, name = ("kind", "group", "bytes"), ("name",)
    compared: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("figure", {**head, **_figures(left_found)}, {**other_head, **_figures(right_found)}),
        ("communication", _counted(_exchanges(left_found), exchange), _counted(_exchanges(right_found), exchange)),
        ("name", _counted(_names(left_found), name), _counted(_names(right_found), name)),
    ]
    rows: list[Row] = []
    for what, left, right in compared:
        for key in dict.fromkeys([*left, *right]):
            if left.get(key) != right.get(key) and key != "file":
                row = {"what": what, "which": key, "trace": left.get(key), "other": right.get(key)}
                rows.append(row)
    if rows or arguments.format != "table":
        print_rows(rows, arguments.format)
    else:
        print("no difference in figures, communications and names")
    return EXIT_DONE


def graph(arguments: argparse.Namespace) -> int:
    """Write a trace's graph."""
    from archplace.workloads.traces import audit_file
    from archplace.workloads.traces.drawing import write_dot, write_graphml

    name = Path(arguments.out).name.removesuffix(".gz")
    writers = {".dot": write_dot, ".gv": write_dot, ".graphml": write_graphml}
    write = writers.get(Path(name).suffix)
    if write is None:
        raise ConfigError(
            f"--out: found {arguments.out!r}; the name ends in {', '.join(writers)}, each with or without .gz"
        )
    with (
        patience(f"drawing {arguments.trace}") as waiting,
        _opened(arguments.trace, arguments.profile) as (reader, auditor),
    ):
        waiting.share = lambda: reader.share
        count = write(auditor, arguments.out, control=not reader.metadata.control_is_caller)
        forward = auditor.found.n_forward
    print(f"{arguments.out}: {count:,} nodes", file=sys.stderr)
    if forward and not _is_pytorch(arguments.trace, arguments.profile):
        try:
            audit_file(arguments.trace)
        except ConfigError as error:
            # A picture is what helps to find a cycle.
            print(f"archplace: warning: {error}", file=sys.stderr)
    if write is write_dot and count > _MOST_DRAWN:
        print(
            f"archplace: warning: Graphviz draws {count:,} nodes slowly, if at all; graph viewers read .graphml",
            file=sys.stderr,
        )
    return EXIT_DONE


_MOST_DRAWN = 2000


def timeline(arguments: argparse.Namespace) -> int:
    """Write a trace's timeline."""
    from archplace.workloads.traces.drawing import write_timeline

    with patience(f"drawing {arguments.trace}"):
        trace = _whole(arguments.trace, arguments.profile)
        found = write_timeline(trace, arguments.out)
    starts = "as recorded" if found.recorded else "as soon as dependencies and lanes allow"
    untimed = "" if found.timed else "; the trace has no durations: each node is drawn as 1 µs"
    count = len(set(found.lanes))
    lanes = f"{count} lane" + "s" * (count > 1)
    print(
        f"{arguments.out}: {len(trace.nodes):,} nodes in {lanes}, {found.end_ns / 1e6:,.3f} ms, "
        f"starts {starts}{untimed}",
        file=sys.stderr,
    )
    return EXIT_DONE


def _imported(path: str, profiles: list[str]) -> "Imported":
    from archplace.workloads.traces.pytorch_import import import_pytorch

    return import_pytorch(path, profiles)


def _is_pytorch(path: str, profiles: list[str]) -> bool:
    from archplace.workloads.traces import TraceFormat, trace_format

    kind = trace_format(path)
    if kind is not TraceFormat.PYTORCH and profiles:
        raise ConfigError(f"--profile: goes with an execution trace of PyTorch, and {path} is a {kind} trace")
    return kind is TraceFormat.PYTORCH


def _whole(path: str, profiles: list[str]) -> "Trace":
    from archplace.workloads.traces import load_trace

    return _imported(path, profiles).trace if _is_pytorch(path, profiles) else load_trace(path)


@contextlib.contextmanager
def _opened(path: str, profiles: list[str]) -> "Iterator[tuple[Reader, Auditor]]":
    """Open a trace of any kind; what is imported is in memory."""
    from archplace.workloads.traces import Auditor, MemoryReader, open_reader

    if _is_pytorch(path, profiles):
        reader = MemoryReader(_imported(path, profiles).trace, path)
        yield reader, Auditor(reader)
        return
    with open_reader(path) as opened:
        yield opened, Auditor(opened)


def _statistics(path: str, profiles: list[str], waiting: Waiting) -> "tuple[Row, Statistics]":
    from archplace.workloads.traces import statistics_of, trace_format

    with _opened(path, profiles) as (reader, auditor):
        waiting.share = lambda: reader.share
        try:
            found = statistics_of(auditor, control=not reader.metadata.control_is_caller)
        except ValueError as error:
            raise ConfigError([Problem(place=path, key="", message=str(error))]) from None
        head = {"file": path, "format": trace_format(path).value, "schema version": reader.metadata.version or None}
    return head, found


def _figures(found: "Statistics") -> dict[str, object]:
    figures: dict[str, object] = {"nodes": found.n_nodes, "dependencies": found.n_dependencies}
    figures |= {f"{role.value} nodes": count for role, count in sorted(found.n_by_role.items())}
    if found.n_mislabelled:
        figures["host nodes labelled as collectives"] = found.n_mislabelled
    figures |= {
        "flops": found.flops or None,
        "touched bytes": found.touched_bytes or None,
        "communicated bytes": found.communicated_bytes or None,
        "longest chain": found.longest_chain,
    }
    figures |= {f"{role.value} s": total / 1e9 for role, total in sorted(found.duration_ns.items()) if total}
    figures["critical path s"] = found.critical_path_ns / 1e9 if found.critical_path_ns else None
    figures["parallelism"] = found.parallelism
    return figures


def _exchanges(found: "Statistics") -> list[Row]:
    return [
        {"kind": one.kind, "group": one.group or "all", "bytes": one.size_bytes, "count": one.count}
        for one in found.exchanges
    ]


def _names(found: "Statistics") -> list[Row]:
    return [{"name": name, "count": count, "s": lasts / 1e9 if lasts else None} for name, count, lasts in found.names]


def _counted(rows: list[Row], keys: tuple[str, ...]) -> dict[str, object]:
    return {" ".join(str(row[key]) for key in keys): row["count"] for row in rows}


def _document(head: Row, found: "Statistics", top: int) -> Row:
    document = {name.replace(" ", "_"): value for name, value in {**head, **_figures(found)}.items()}
    return document | {"communication": _exchanges(found)[:top], "names": _names(found)[:top]}
