"""``archplace workload info|collect|import|…``: execution traces, collected, looked at, and made into others."""

import argparse
from collections.abc import Callable, Iterable

from archplace.arch_configs.errors import EXIT_DONE
from archplace.cli import _collect_command, _whatif_commands, _workload_trace
from archplace.cli import _workload_commands as commands
from archplace.cli._output import add_format

_ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], int]]] = {
    "info": ("say what is in a trace: nodes, work, communication by kind and size, critical path", commands.info),
    "collect": ("run a training script and write traces of its steps", _collect_command.collect),
    "import": ("make a Chakra trace of PyTorch's execution trace and profiles", commands.import_trace),
    "convert": ("write a trace as another format: Chakra records or JSON, plain or gzip", commands.convert),
    "diff": ("say what differs between two traces", commands.diff),
    "graph": ("write a trace's graph for Graphviz (.dot) or graph libraries (.graphml)", commands.graph),
    "timeline": ("write a trace's timeline for chrome://tracing or ui.perfetto.dev", commands.timeline),
    "trace": ("write a workload, such as a built-in model, as Chakra traces of its devices", _workload_trace.trace),
    "what-if": (
        "change traces: other sizes, layers, ranks or rank order, a slow rank",
        _whatif_commands.what_if,
    ),
}
_WHAT = "a Chakra trace (records or JSON) or an execution trace of PyTorch, plain or gzip"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made = {}
    for name, (text, _) in _ACTIONS.items():
        made[name] = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made[name].add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
    for name in ("info", "convert", "graph", "timeline"):
        made[name].add_argument("trace", metavar="TRACE", help=_WHAT)
    made["import"].add_argument("trace", metavar="TRACE", help="an execution trace of PyTorch's observer")
    made["diff"].add_argument("trace", metavar="TRACE", help=_WHAT)
    made["diff"].add_argument("other", metavar="OTHER", help="the same, to compare with")
    _add_profile([made[name] for name in ("info", "import", "convert", "graph", "timeline")])
    _collect_command.configure(made["collect"])
    _workload_trace.configure(made["trace"])
    _whatif_commands.configure(made["what-if"])
    for name in ("import", "convert"):
        made[name].add_argument(
            "--out",
            metavar="FILE",
            required=True,
            help="where to write: Chakra records, or JSON where the name ends in .json; with .gz compressed",
        )
    made["graph"].add_argument(
        "--out", metavar="FILE", required=True, help="where to write: .dot (also .gv) or .graphml; with .gz compressed"
    )
    made["timeline"].add_argument(
        "--out", metavar="FILE.json", required=True, help="where to write; with .gz compressed"
    )
    made["info"].add_argument(
        "--top", metavar="N", type=int, default=10, help="how many names and communications to list (default: 10)"
    )
    for name in ("info", "import", "diff"):
        add_format(made[name])


def _add_profile(parsers: Iterable[argparse.ArgumentParser]) -> None:
    for parser in parsers:
        parser.add_argument(
            "--profile",
            metavar="KINETO.json",
            action="append",
            default=[],
            help="with an execution trace of PyTorch: a Chrome trace of its profiler, of the same run (kernels, true "
            "nesting) or of further steps of the same script (durations); may be given twice, once of each kind",
        )


def run(arguments: argparse.Namespace) -> int:
    """Do the action; data goes to stdout and into files."""
    code = _ACTIONS[arguments.action][1](arguments)
    assert code == EXIT_DONE or code > 0
    return code
