"""``archplace doctor``: say what this installation can do."""

import argparse
import importlib
import importlib.metadata
import platform
import sqlite3
import sys
import tempfile
from pathlib import Path

from archplace import __version__
from archplace.arch_configs.errors import EXIT_DONE, EXIT_INTERNAL, ConfigError
from archplace.cli._output import Row, add_format, print_rows

NEEDED = ("numpy", "networkx", "pyyaml", "pydantic", "rich", "plotly", "ortools", "pulp", "highspy", "protobuf")

_SIMULATOR = "simulator ASTRA-sim"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check packages, solvers, built-in files and the file system; exit 1 when something needed does not work.

    A simulator is not needed.
    """
    python = _row("python", sys.version_info >= (3, 11), platform.python_version())
    rows = [_row("archplace", True, __version__), python]
    rows += [_package(name) for name in NEEDED]
    rows += [_cpsat(), _milp(), _builtins(), _store(), _simulator()]
    print_rows(rows, arguments.format)
    failed = [row["check"] for row in rows if row["ok"] == "NO"]
    if failed:
        names = ", ".join(map(str, failed))
        help_ = "see its detail" if failed == [_SIMULATOR] else "reinstall with: pip install -e ."
        print(f"archplace: not working: {names}; {help_}", file=sys.stderr)
        return EXIT_INTERNAL
    return EXIT_DONE


def _row(check: str, ok: bool, detail: str) -> Row:
    return {"check": check, "ok": "yes" if ok else "NO", "detail": detail}


def _package(name: str) -> Row:
    try:
        return _row(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return _row(name, False, f"not installed: pip install {name}")


def _tiny_problem_makespan(engine: str) -> float:
    from archplace.search.schedule import ScheduleGraph, solve

    # Two independent operators on two units: side by side 2 s, one after the other on all units 2.4 s.
    graph = ScheduleGraph.build(kinds=[0, 0], edges=[])
    problem = graph.problem(one_s=[2, 2], all_s=[1.2, 1.2], tensor_units=2, vector_units=1)
    return solve(problem, engine=engine).makespan_s


def _cpsat() -> Row:
    try:
        return _row("solver CP-SAT", abs(_tiny_problem_makespan("cpsat") - 2) < 1e-6, "solves a small schedule")
    except (ImportError, RuntimeError) as error:
        return _row("solver CP-SAT", False, str(error))


def _milp() -> Row:
    try:
        return _row("solver HiGHS", abs(_tiny_problem_makespan("milp") - 2) < 1e-6, "solves the same as a MILP")
    except (ImportError, RuntimeError) as error:
        return _row("solver HiGHS", False, str(error))


def _builtins() -> Row:
    from archplace.arch_configs import accelerator_names, cluster_names, space_names
    from archplace.workloads import workload_names

    groups = {
        "accelerators": accelerator_names(),
        "clusters": cluster_names(),
        "spaces": space_names(),
        "workloads": workload_names(),
    }
    detail = "; ".join(f"{name}: {', '.join(found)}" for name, found in groups.items())
    return _row("built-in files", all(groups.values()), detail)


def _store() -> Row:
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "probe.sqlite")
        connection.execute("create table probe (x)")
        connection.close()
    return _row("sqlite", True, sqlite3.sqlite_version)


def _simulator() -> Row:
    from archplace.search.simulate.binary import NO_BINARY, find_binary

    try:
        found = find_binary()
    except ConfigError as error:
        return _row(_SIMULATOR, False, str(error))
    if found is None:
        return {
            "check": _SIMULATOR,
            "ok": "none",
            "detail": f"{NO_BINARY}; only archplace simulate needs it",
        }
    return _row(_SIMULATOR, True, f"backend {found.backend}: {found.path}")
