"""``archplace workload what-if``: the traces of a job changed into those of another job."""

import argparse
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from archplace.arch_configs.errors import EXIT_DONE, ConfigError, Problem
from archplace.arch_configs.units import TIME, parse_quantity
from archplace.cli._output import add_format, print_rows
from archplace.cli._patience import patience

if TYPE_CHECKING:
    from archplace.workloads.traces.whatif import Changed, Groups, Record, WhatIf

_SIZES = {
    "hidden": "all widths of the model",
    "sequence": "tokens of a sequence",
    "batch": "sequences of a microbatch",
    "experts": "the number of routed experts of a layer",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "traces",
        metavar="TRACE",
        nargs="+",
        help="the Chakra traces of a job's ranks, NAME.RANK.et, or one of them; or their folder",
    )
    parser.add_argument(
        "--out",
        metavar="FILE|DIR",
        required=True,
        help="where to write: one rank's trace (.et, .json, also .gz), or a folder for those of all ranks",
    )
    for name, text in _SIZES.items():
        parser.add_argument(f"--{name}", metavar="FACTOR", help=f"multiply {text}: 2, 0.5 or 3/2")
    parser.add_argument(
        "--assume",
        metavar="LAWS",
        help="what nodes that do not say it follow, by kind of work: 'product: hidden^2 batch; other: hidden batch; "
        "exchange: hidden batch'",
    )
    parser.add_argument(
        "--layers", metavar="[KIND=]N", help="repeat or take out layers until there are N (of the kind, by its name)"
    )
    parser.add_argument("--ranks", metavar="N", type=int, help="other number of ranks, by data-parallel replicas")
    parser.add_argument(
        "--replicas",
        metavar="DEGREE:DISTANCE",
        help="how many replicas there are in the traces, and how far apart their ranks are; without, the outermost "
        "that process groups and messages allow",
    )
    parser.add_argument(
        "--layout",
        metavar="AXES=ORDER",
        help="number the ranks in another order: tensor8,data4=data,tensor; the axis named first counts fastest",
    )
    parser.add_argument(
        "--slow", metavar="RANK=FACTOR", action="append", default=[], help="let a rank compute slower; may be repeated"
    )
    parser.add_argument(
        "--delay", metavar="RANK=TIME", action="append", default=[], help="let a rank begin later, as 3=5ms"
    )
    parser.add_argument(
        "--groups",
        metavar="FILE.json",
        help="process groups, {name: [ranks]}, in place of those that the traces or their folder's groups.json state",
    )
    parser.add_argument("--world", metavar="N", type=int, help="ranks of the job, where the traces do not tell")
    add_format(parser)
    parser.epilog = (
        "Changes are made in this order: sizes, layers, ranks, layout, slow and delay; each is recorded in the "
        "metadata (what_if). Prints what was done. Sizes follow the laws that nodes state (attribute scaling), as "
        "those of archplace workload trace do, or --assume."
    )


def what_if(arguments: argparse.Namespace) -> int:
    """Change the traces; print what was done."""
    from archplace.workloads.traces.rank_files import GROUPS_FILE, is_file_name, traces_in
    from archplace.workloads.traces.whatif import change, disagreements, open_job, write_job, write_rank

    steps = list(_steps(arguments))
    if not steps:
        raise ConfigError("nothing to change: give --hidden, --layers, --ranks, --layout, --slow … (see --help)")
    given = [Path(name) for name in arguments.traces]
    paths = [path for name in given for path in (traces_in(name) if name.is_dir() else [name])]
    beside = [name / GROUPS_FILE for name in given if (name / GROUPS_FILE).is_file()]
    stated = arguments.groups or next(map(str, beside), None)
    groups = _groups(stated) if stated else None
    with patience(f"reading {len(paths):,} trace" + "s" * (len(paths) > 1)):
        job = open_job(paths, groups=groups, n_ranks=arguments.world)
    for text in disagreements(job):
        _warn(f"{text}: such a job waits for ever")
    with patience(f"writing {arguments.out}"):
        changed = change(job, steps)
        if is_file_name(arguments.out):
            rank = _only_rank(changed, arguments.out)
            count = write_rank(changed, rank, arguments.out)
            _say(f"{arguments.out}: rank {rank} of {changed.job.n_ranks:,}, {count:,} nodes")
        else:
            written = write_job(changed, arguments.out, said=_say)
            _warn_of_missing(changed)
            warn_of_strangers(written)
    if arguments.format == "table":
        print_rows([{"step": record["step"], "what": _words(record)} for record in changed.records], "table")
    else:
        print_rows(changed.records, arguments.format)
    return EXIT_DONE


def _steps(arguments: argparse.Namespace) -> "Iterator[WhatIf]":
    """Give the steps in the order in which they are made. Raises ConfigError where there are none."""
    from archplace.workloads.traces.whatif import (
        Axis,
        Layers,
        Ranks,
        Scale,
        Size,
        SlowRank,
        read_assumption,
        read_layout,
    )

    if arguments.assume is not None:
        yield _read("--assume", arguments.assume, read_assumption)
    factors = [(name, getattr(arguments, name)) for name in _SIZES if getattr(arguments, name) is not None]
    if factors:
        yield Scale(factors=tuple((Size(name), _read(f"--{name}", text, _factor)) for name, text in factors))
    if arguments.layers is not None:
        kind, _, number = arguments.layers.rpartition("=")
        yield _read("--layers", number, lambda text: Layers(count=_whole(text), kind=kind or None))
    if arguments.ranks is not None:
        axis = None
        if arguments.replicas is not None:
            degree, _, distance = arguments.replicas.partition(":")
            axis = Axis(_read("--replicas", degree, _whole), _read("--replicas", distance, _whole))
        yield Ranks(count=arguments.ranks, axis=axis)
    elif arguments.replicas is not None:
        raise ConfigError("--replicas: goes with --ranks")
    if arguments.layout is not None:
        yield _read("--layout", arguments.layout, read_layout)
    for text in arguments.slow:
        rank, number = _of_rank("--slow", text, "3=1.5")
        yield SlowRank(rank=rank, factor=_read("--slow", number, _factor))
    for text in arguments.delay:
        rank, number = _of_rank("--delay", text, "3=5ms")
        yield SlowRank(rank=rank, delay_s=_read("--delay", number, _delay))


T = TypeVar("T")


def _read(option: str, text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def _factor(text: str) -> Fraction:
    try:
        found = Fraction(text)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    # Far beyond what fields hold, and nothing to compute with.
    if not Fraction(1, _LARGEST) <= found <= _LARGEST:
        raise ValueError(f"found {text!r:.60}, needs a factor above 0, as 2, 0.5 or 3/2")
    return found


_LARGEST = 10**12


def _whole(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10):
        raise ValueError(f"found {text!r:.60}, needs a whole number")
    return int(text)


def _delay(text: str) -> Fraction:
    return Fraction(parse_quantity(text, TIME, zero=True)).limit_denominator(10**12)


def _of_rank(option: str, text: str, example: str) -> tuple[int, str]:
    rank, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{option}: found {text!r:.60}, needs a rank and its value, as {example}")
    return _read(option, rank, _whole), value


def _groups(path: str) -> "Groups":
    from archplace.workloads.traces.whatif import read_groups

    try:
        return read_groups(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except ValueError as error:
        message = str(error)
    raise ConfigError([Problem(place=path, key="", message=message)])


def _only_rank(changed: "Changed", out: str) -> int:
    """Return the rank whose trace goes into one file."""
    if len(changed.original.traces) > 1:
        raise ConfigError(
            f"--out: {out} is one file, and {len(changed.original.traces):,} traces are changed: name a folder"
        )
    return min(changed.job.traces)


def _warn_of_missing(changed: "Changed") -> None:
    job = changed.job
    missing = job.n_ranks - len(job.traces)
    if missing:
        first = next(rank for rank in range(job.n_ranks) if rank not in job.traces)
        _warn(
            f"{missing:,} of {job.n_ranks:,} ranks have no trace, rank {first} the first: nothing was written for them"
        )


def warn_of_strangers(written: list[Path]) -> None:
    """Say on stderr that a folder has traces of ranks that are not those of the job written there."""
    from archplace.workloads.traces.rank_files import strangers

    found = strangers(written)
    if found:
        _warn(f"{found[0].parent} has {len(found):,} further traces, of another job: {found[0].name} is the first")


def _words(record: "Record") -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in record.items() if name != "step")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}{number}" for name, number in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _warn(text: str) -> None:
    print(f"archplace: warning: {text}", file=sys.stderr)
