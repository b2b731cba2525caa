"""The options that say who computes: this machine or a farm, the whole space or a share of it."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from archplace.arch_configs.errors import ConfigError
from archplace.search.run import MakeEngine

_WAIT_S = 300.0


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine``, ``--scheduler`` and ``--wait``."""
    parser.add_argument(
        "--engine",
        choices=("local", "dask"),
        default="local",
        help="who computes: this machine, or the workers of a dask scheduler (default: local)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="with --engine dask: the scheduler's address, tcp://HOST:PORT or tls://HOST:PORT, or its scheduler file",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=_WAIT_S,
        help=f"with --engine dask: give up when no worker has come by then (default: {_WAIT_S:g})",
    )


def engine_of(arguments: argparse.Namespace, say: Callable[[str], None]) -> MakeEngine | None:
    """Return what makes the engine that was asked for; None for this machine.

    ``say`` tells the user what goes wrong on a farm. Raises :class:`ConfigError` for options that do not go together.
    """
    if arguments.engine == "local":
        if arguments.scheduler is not None:
            raise ConfigError(f"--scheduler: found {arguments.scheduler}; it needs --engine dask")
        return None
    if arguments.scheduler is None:
        raise ConfigError(
            "--engine dask: needs --scheduler ADDRESS, the address that 'dask scheduler' prints or its scheduler file"
        )
    if not 0 <= arguments.wait < math.inf:
        raise ConfigError(f"--wait: found {arguments.wait:g}, needs a number of seconds from 0")
    from archplace.search.farm.engine import dask_engine

    if "://" not in arguments.scheduler and not Path(arguments.scheduler).is_file():
        raise ConfigError(
            f"--scheduler: found {arguments.scheduler!r}, which is neither an address (tcp://HOST:PORT or "
            "tls://HOST:PORT) nor a file; 'dask scheduler' prints the one and, with --scheduler-file, writes the other"
        )
    return dask_engine(arguments.scheduler, say=say, wait_s=arguments.wait)
