"""One case through the simulator: run it, and judge by what it printed, not by how it ended."""

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archplace.arch_configs.errors import ConfigError
from archplace.search.export.manifest import Manifest, read_manifest
from archplace.search.export.simulator_files import PREFIX, TRACES, arguments, open_files
from archplace.search.simulate.binary import Backend, Binary
from archplace.search.simulate.output import Output

_LISTED = 5
_BYTES_PER_NODE = 1300


class SimulationError(ConfigError):
    """The simulator did not come to an end with this case; the text says how far it came and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What the simulator found."""

    backend: Backend
    finish_ns: tuple[int, ...]
    """When each device has done everything."""
    computing_ns: tuple[int | None, ...]
    """How long each device computed; None where the simulator does not say."""
    remarks: tuple[str, ...]
    """What was odd and does not matter."""

    @property
    def step_s(self) -> float:
        """Seconds of the step: until all devices have finished."""
        return max(self.finish_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    output: Output
    code: int | None
    """Exit code, negative for a signal; None where it was stopped."""


def simulate(folder: Path, binary: Binary, *, limit_s: float) -> Simulation:
    """Run a case and return what was found.

    Raises :class:`ConfigError` for a case that is not whole or that the binary cannot run, and
    :class:`SimulationError` where not every device finishes within ``limit_s``.
    """
    manifest = read_manifest(folder)
    _check(folder, manifest, binary)
    ended = _run(folder, manifest, binary, limit_s)
    if _struck(manifest, ended):
        ended = _run(folder, manifest, binary, limit_s)
    return _judged(folder, manifest, binary, ended, limit_s)


def _struck(manifest: Manifest, ended: _Ended) -> bool:
    """Whether the simulator crashed in the midst of a case that it could run.

    It frees groups of devices that have finished while others run on, some of them twice; most often that has no
    consequence before the end.
    """
    crashed = ended.code is not None and -ended.code in (signal.SIGABRT, signal.SIGSEGV)
    return crashed and 0 < len(ended.output.finish_ns) < manifest.npus


def _check(folder: Path, manifest: Manifest, binary: Binary) -> None:
    missing = [npu for npu in range(manifest.npus) if not (folder / TRACES / f"{PREFIX}.{npu}.et").is_file()]
    if missing:
        raise ConfigError(
            f"{folder}: {len(missing)} of {manifest.npus} traces are missing, the first is "
            f"{TRACES}/{PREFIX}.{missing[0]}.et: the case is not whole; export it again with --force"
        )
    if binary.backend is Backend.WITH_CONGESTION and len(manifest.network) > 1:
        names = " and ".join(each.dimension for each in manifest.network)
        raise ConfigError(
            f"{folder}: its network has {len(manifest.network)} dimensions ({names}), and the backend with congestion "
            "simulates one; take the binary AstraSim_Analytical_Congestion_Unaware"
        )
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = open_files(manifest.npus)
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"{folder}: the simulator opens {needed} files at a time, one for each of {manifest.npus} devices, and "
            f"this machine allows {most}; raise the hard limit of open files (ulimit -Hn)"
        )


def _run(folder: Path, manifest: Manifest, binary: Binary, limit_s: float) -> _Ended:
    """Run the binary in the case's folder; its logs go where they do not stay."""
    output = Output()
    with tempfile.TemporaryDirectory(prefix="archplace-simulate-") as scratch:
        printed = Path(scratch) / "printed"
        given = arguments(str(Path(scratch) / "log"), congestion=binary.backend is Backend.WITH_CONGESTION)
        # The soft limit is the shell's to raise: this process keeps its own.
        raise_limit = f'[ "$(ulimit -n)" = unlimited ] || ulimit -n {open_files(manifest.npus)}'
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = soft == resource.RLIM_INFINITY or soft >= open_files(manifest.npus)
        script = 'exec "$0" "$@"' if enough else f'{raise_limit} && exec "$0" "$@"'
        try:
            with printed.open("wb") as sink:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", script, str(binary.path), *given],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                code = _wait(process, limit_s)
            with printed.open(encoding="utf-8", errors="replace") as lines:
                output.read(lines)
        except OSError as error:
            raise ConfigError(f"{binary.path}: cannot be run: {error.strerror or error}") from None
    return _Ended(output=output, code=code)


def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> int | None:
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            # It began a session, and so leads a group of its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _judged(folder: Path, manifest: Manifest, binary: Binary, ended: _Ended, limit_s: float) -> Simulation:
    output = ended.output
    finished = {npu: ns for npu, ns in output.finish_ns.items() if npu < manifest.npus}
    if output.critical or len(finished) < manifest.npus:
        raise SimulationError(f"{folder}: {_why(manifest, ended, finished, limit_s)}")
    return Simulation(
        backend=binary.backend,
        finish_ns=tuple(finished[npu] for npu in range(manifest.npus)),
        computing_ns=tuple(output.computing_ns.get(npu) for npu in range(manifest.npus)),
        remarks=tuple(_remarks(manifest, ended)),
    )


def _remarks(manifest: Manifest, ended: _Ended) -> list[str]:
    found = []
    if ended.code is None:
        found.append("the simulator did not end by itself after all devices had finished, and was stopped")
    elif ended.code != 0:
        how = _ending(ended.code)
        found.append(f"the simulator {how} while it was ending; all {manifest.npus} devices had finished before")
    return found


def _why(manifest: Manifest, ended: _Ended, finished: Mapping[int, int], limit_s: float) -> str:
    """Return what went wrong, and what may help."""
    output, count = ended.output, manifest.npus
    so_far = f"{len(finished)} of {count} devices finished"
    if output.critical:
        return f"the simulator gave up ({so_far}): {output.critical[0]}"
    said = f"; it said last: {output.tail[-1]}" if output.tail else ""
    if ended.code is None:
        return f"stopped after {limit_s:g} s ({so_far}); allow more with --timeout, or export with fewer --nodes"
    if ended.code == 0 and (finished or output.hangs):
        missing = [npu for npu in range(count) if npu not in finished]
        listed = ", ".join(map(str, missing[:_LISTED])) + (", …" if len(missing) > _LISTED else "")
        return (
            f"a silent hang: {so_far}, and the simulator ended without an error; device {listed} still waits for a "
            "message or a collective that never comes. The case's replay met none: has it been changed since it was "
            "exported, or is this another version of the simulator?"
        )
    if ended.code == -signal.SIGKILL:
        needed = manifest.nodes * _BYTES_PER_NODE / 1e9
        return (
            f"the simulator was killed ({so_far}), probably for want of memory: {manifest.nodes:,} nodes need about "
            f"{needed:.1f} GB; export with fewer --nodes"
        )
    if "parse_error" in " ".join(output.tail) or "Too many open files" in " ".join(output.tail):
        return (
            f"the simulator {_ending(ended.code)} ({so_far}){said}. It says so where it may not open enough files: it "
            f"needs {open_files(count)} at a time; raise: ulimit -n"
        )
    if not finished and ended.code == 0:
        return f"the program printed no line 'finished'{said}; is it an analytical backend of ASTRA-sim?"
    return f"the simulator {_ending(ended.code)} ({so_far}){said}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashed (signal {-code})"
