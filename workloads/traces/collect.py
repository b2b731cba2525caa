"""Collecting: a training script runs as it is until enough of its steps were seen, then it is stopped.

A step ends when the optimizer's ``step`` returns. Of the steps behind the first few, one runs under PyTorch's observer
(what was called with which tensors) and its profiler (kernels, who called whom), and some more under the profiler
alone, because the observer makes calls slower than they are. The script needs no change. Scripts that start several
processes, as with ``torchrun``, collect on each rank.
"""

import contextlib
import gzip
import runpy
import sys
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from archplace.arch_configs.errors import ConfigError, Problem

if TYPE_CHECKING:
    from archplace.workloads.traces._step_windows import Windows

_BLOCK_BYTES = 1 << 20
_ROOM = "make room there and where temporary files go (TMPDIR), or give another --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script and its arguments."""

    name: str
    """Its path; or, as for ``python -m``, a module's name."""
    arguments: tuple[str, ...] = ()
    is_module: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was written, by one process."""

    calls: Path
    """The observer's trace of one step."""
    profile: Path
    """The profiler's, of the same step."""
    steps: Path | None
    """The profiler's of further steps, without the observer; None where the script ended before."""
    rank: int
    n_timed: int
    """How many further steps there are."""


def collect(script: Script, folder: str | Path, *, skip: int = 2, timed: int = 3) -> Collected:
    """Run ``script`` as the main program, in this process, and write traces of its steps into ``folder``.

    The first ``skip`` steps pass unseen, at least one: optimizers make their moments in the first, and data-parallel
    training regroups its gradients behind it. The next is traced, and ``timed`` further ones are profiled. Then the
    script is stopped. Files end in the rank: ``calls.0.json.gz``, ``profile.0.json.gz``, ``steps.0.json.gz``. What the
    script prints goes to stderr.

    Raises :class:`ConfigError` where PyTorch or the script is missing, where the script fails (its own traceback goes
    to stderr), where it ends before the traced step has, and where the traces cannot be written; none is kept then.
    """
    if skip < 1:
        raise ConfigError(f"--skip: found {skip}, must be at least 1: a step is known by the end of the one before")
    if timed < 0:
        raise ConfigError(f"--timed: found {timed}, must be at least 0")
    if not script.is_module and not Path(script.name).is_file():
        raise _problem(script, "no such file; give a training script, or -m and the name of a module")
    try:
        from archplace.workloads.traces._step_windows import Done, Windows
    except ImportError as error:
        raise ConfigError(
            f"collecting runs PyTorch, and {error.name or 'torch'} is not installed: pip install 'archplace[torch]'"
        ) from None
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([Problem(place=str(folder), key="", message=f"cannot be written to: {error}")]) from None
    with tempfile.TemporaryDirectory(prefix=".collect-", dir=folder) as scratch:
        windows = Windows(Path(scratch), skip=skip, timed=timed)
        with _as_main_program(script), contextlib.redirect_stdout(sys.stderr), windows:
            try:
                _run(script)
            except Done:
                pass
            except SystemExit as error:
                if error.code not in (None, 0):
                    raise _problem(script, f"ended with code {error.code} {_after(windows)}") from None
            except Exception as error:  # noqa: BLE001 a script may raise anything; its traceback is the user's
                own = _below(error)
                if own is None:
                    raise _problem(script, f"cannot be run: {error}") from None
                traceback.print_exception(own)
                raise _problem(script, f"raised {type(error).__name__} {_after(windows)}: {error}") from None
        if windows.failure is not None:
            why = windows.failure.strerror or windows.failure
            raise ConfigError(
                [Problem(place=str(folder), key="", message=f"the traces cannot be written: {why}; {_ROOM}")]
            )
        if windows.calls is None or windows.profile is None:
            raise _problem(
                script,
                f"ended {_after(windows)}, and {skip + 1} are needed, of which the last is traced"
                + ("" if windows.n_steps else "; a step ends with the step() of a torch.optim.Optimizer")
                + "; let it train longer, or skip fewer",
            )
        for path in (windows.calls, windows.profile, windows.steps):
            if path is not None and not _is_whole(path):
                message = f"the trace {path.name} was not written to its end; {_ROOM}"
                raise ConfigError([Problem(place=str(folder), key="", message=message)])
        return _kept(windows, folder)


def _is_whole(path: Path) -> bool:
    """Whether a JSON document behind gzip ends as one; PyTorch only logs what it could not write."""
    last = b""
    try:
        with gzip.open(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                last = block.rstrip()[-1:] or last
    except (OSError, EOFError, zlib.error):
        return False
    return last == b"}"


def _kept(windows: "Windows", folder: Path) -> Collected:
    def keep(path: Path, name: str) -> Path:
        return path.replace(folder / f"{name}.{windows.rank}.json.gz")

    assert windows.calls is not None
    assert windows.profile is not None
    if windows.steps is None:
        # What an earlier script left belongs to other steps.
        (folder / f"steps.{windows.rank}.json.gz").unlink(missing_ok=True)
    return Collected(
        calls=keep(windows.calls, "calls"),
        profile=keep(windows.profile, "profile"),
        steps=None if windows.steps is None else keep(windows.steps, "steps"),
        rank=windows.rank,
        n_timed=windows.n_timed,
    )


@contextlib.contextmanager
def _as_main_program(script: Script) -> Iterator[None]:
    """Let the script see its arguments, and find modules where it would if it had been started by itself."""
    arguments, path = sys.argv, list(sys.path)
    sys.argv = [script.name, *script.arguments]
    sys.path.insert(0, str(Path.cwd()) if script.is_module else str(Path(script.name).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path


def _run(script: Script) -> None:
    if script.is_module:
        runpy.run_module(script.name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script.name, run_name="__main__")


def _below(error: Exception) -> Exception | None:
    """Return the error with the traceback from the script on: how it came to run is not what failed.

    None where no line of the script ran, such as for a module that does not exist.
    """
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename) == Path(__file__):
        place = place.tb_next
    while place is not None and place.tb_frame.f_code.co_filename.startswith("<frozen runpy"):
        place = place.tb_next
    # An error of syntax shows its own line.
    return None if place is None and not isinstance(error, SyntaxError) else error.with_traceback(place)


def _after(windows: "Windows") -> str:
    return f"after {windows.n_steps} step" + "s" * (windows.n_steps != 1)


def _problem(script: Script, message: str) -> ConfigError:
    return ConfigError(
        [Problem(place=f"-m {script.name}" if script.is_module else script.name, key="", message=message)]
    )
