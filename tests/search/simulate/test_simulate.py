"""Simulators of all kinds: programs that print what ASTRA-sim prints, and end as it does."""

import json
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest
from export_helpers import PLACEMENTS, candidate_of, run_file

from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.search.export.expand import expand
from archplace.search.export.manifest import read_manifest
from archplace.search.export.passes import Granularity
from archplace.search.export.write import write_case
from archplace.search.simulate.binary import VARIABLE, Backend, Binary, find_binary
from archplace.search.simulate.output import Output
from archplace.search.simulate.results import kept
from archplace.search.simulate.simulation import SimulationError, simulate

UNAWARE, AWARE = "AstraSim_Analytical_Congestion_Unaware", "AstraSim_Analytical_Congestion_Aware"
LINES = """[2026-03-01 12:00:00.000] [system::topology::RingTopology] [info] ring of node 0, id: 0
[2026-03-01 12:00:00.000] [workload] [info] sys[1] finished, 900 cycles, exposed communication 100 cycles.
[2026-03-01 12:00:00.000] [statistics] [info] sys[1], Wall time: 900
[2026-03-01 12:00:00.000] [statistics] [info] sys[1], Comm time: 400
[2026-03-01 12:00:00.000] [statistics] [info] sys[1], GPU time: 800
[2026-03-01 12:00:00.000] [statistics] [info] sys[1], Total compute-communication overlap: 300
[2026-03-01 12:00:00.000] [workload] [info] sys[0] finished, 2004442 cycles, exposed communication 1404442 cycles.
[2026-03-01 12:00:00.000] [system] [warning] Exiting
"""


@pytest.fixture(scope="module", name="written")
def one_written_case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulate")
    candidate = candidate_of(folder, "four devices")
    found = expand(candidate, Granularity.STAGE)
    write_case(candidate, found, folder / "case")
    return folder / "case"


@pytest.fixture(name="case")
def a_copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "case")


def program(folder, body, name=UNAWARE):
    """Write a program with this body of Python; ``finish`` prints a device's line."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable} -S\n"
        "import os, signal, sys, time\n"
        "def finish(npu, ns):\n"
        "    print(f'[t] [workload] [info] sys[{npu}] finished, {ns} cycles, exposed communication 5 cycles.')\n"
        "    print(f'[t] [statistics] [info] sys[{npu}], GPU time: {ns - 5}', flush=True)\n"
        f"{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ALL = "for npu in (2, 0, 3, 1): finish(npu, 1000 + npu)\n"


def result(case, tmp_path, body, limit_s=20.0):
    return simulate(case, Binary.at(program(tmp_path, body)), limit_s=limit_s)


def test_lines_of_the_log():
    output = Output()
    output.read(LINES.splitlines(keepends=True))
    assert output.finish_ns == {1: 900, 0: 2_004_442}
    assert (output.computing_ns, output.exchanging_ns) == ({1: 800}, {1: 400})
    assert not output.critical
    assert not output.hangs
    assert output.tail == ["[2026-03-01 12:00:00.000] [system] [warning] Exiting"]


def test_the_step_takes_as_long_as_the_last_device(case, tmp_path):
    found = result(case, tmp_path, ALL)
    assert found.finish_ns == (1000, 1001, 1002, 1003)
    assert found.computing_ns == (995, 996, 997, 998)
    assert found.step_s == 1003e-9
    assert not found.remarks


@pytest.mark.parametrize("signal", ["SIGABRT", "SIGSEGV"])
def test_a_crash_after_all_have_finished_is_a_remark(case, tmp_path, signal):
    found = result(case, tmp_path, f"{ALL}os.kill(os.getpid(), signal.{signal})")
    assert found.step_s == 1003e-9
    assert found.remarks == (
        f"the simulator crashed ({signal}) while it was ending; all 4 devices had finished before",
    )


def test_a_crash_in_the_midst_is_given_a_second_try(case, tmp_path):
    once = tmp_path / "once"
    body = f"""if not os.path.exists({str(once)!r}):
    open({str(once)!r}, 'w').close()
    finish(3, 7)
    os.abort()
{ALL}"""
    assert result(case, tmp_path, body).step_s == 1003e-9


def test_one_that_does_not_end_is_stopped(case, tmp_path):
    found = result(case, tmp_path, f"{ALL}time.sleep(60)", limit_s=2.0)
    assert "was stopped" in found.remarks[0]
    with pytest.raises(SimulationError, match=r"stopped after 0\.5 s \(1 of 4 devices finished\); allow more"):
        result(case, tmp_path, "finish(1, 10)\ntime.sleep(60)", limit_s=0.5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("finish(0, 1); finish(2, 3)", r"a silent hang: 2 of 4 devices finished.*device 1, 3 still waits"),
        ("print('Hardware Resource sys[0] has unreleased nodes')", r"a silent hang: 0 of 4 .*device 0, 1, 2, 3 still"),
        (
            f"{ALL}print('[t] [workload] [critical] workload file: traces/npu.3.et does not exist')\nsys.exit(1)",
            r"gave up \(4 of 4 devices finished\): workload file: traces/npu\.3\.et does not exist",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", r"killed \(0 of 4 .*want of memory: NODES nodes need about 0\.0 GB"),
        ("finish(0, 1)\nos.kill(os.getpid(), signal.SIGSEGV)", r"the simulator crashed \(SIGSEGV\) \(1 of 4 devices"),
        (
            "print('what(): [json.exception.parse_error.101] parse error at line 1', file=sys.stderr)\nos.abort()",
            r"crashed \(SIGABRT\).*opens? enough files: it needs 36 at a time; raise: ulimit -n",
        ),
        ("print('hello')", "printed no line 'finished'; it said last: hello; is it an analytical backend"),
        (
            "print('bad option', file=sys.stderr)\nsys.exit(3)",
            r"exit code 3 \(0 of 4 devices finished\); it said last: bad",
        ),
    ],
)
def test_what_goes_wrong_is_named(case, tmp_path, body, said):
    with pytest.raises(SimulationError) as error:
        result(case, tmp_path, body)
    nodes = read_manifest(case).nodes
    assert re.search(said.replace("NODES", f"{nodes:,}"), str(error.value)), str(error.value)


def test_the_simulator_is_given_the_files_of_the_case(case, tmp_path):
    body = (
        "print(os.getcwd()); print(sys.argv); open(sys.argv[0] + '.seen', 'w').write(repr((os.getcwd(), sys.argv[1:])))"
    )
    before = sorted(case.rglob("*"))
    result(case, tmp_path, f"{body}\n{ALL}")
    place, given = eval((tmp_path / f"{UNAWARE}.seen").read_text())  # what the program above wrote
    assert case.samefile(place)
    files = dict(each.removeprefix("--").split("=") for each in given)
    assert files["system-configuration"] == "system.json"
    assert not Path(files["logging-folder"]).exists()
    assert sorted(case.rglob("*")) == before


def test_cases_that_are_not_whole_are_refused(case, tmp_path):
    (case / "traces" / "npu.2.et").unlink()
    with pytest.raises(ConfigError, match=r"1 of 4 traces are missing, the first is traces/npu\.2\.et"):
        result(case, tmp_path, ALL)
    with pytest.raises(ConfigError, match="no case here"):
        result(tmp_path, tmp_path, ALL)


def test_the_backend_with_congestion_takes_one_dimension(case, tmp_path):
    binary = Binary.at(
        program(tmp_path, f"assert '--system-configuration=system-congestion.json' in sys.argv\n{ALL}", AWARE)
    )
    assert binary.backend is Backend.WITH_CONGESTION
    assert simulate(case, binary, limit_s=20.0).backend is Backend.WITH_CONGESTION
    manifest = json.loads((case / "manifest.json").read_text())
    manifest["network"].append({"dimension": "fabric", "npus": 2})
    (case / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="its network has 2 dimensions"):
        simulate(case, binary, limit_s=20.0)


def test_binaries_are_found_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() is None
    path = program(tmp_path, "")
    assert find_binary() == Binary(path=path, backend=Backend.WITHOUT_CONGESTION)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=f"{VARIABLE}: found .*which is a folder.* it holds {path}"):
        find_binary()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="does not exist"):
        find_binary()
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="not executable"):
        Binary.at(path)


def test_the_commands_from_a_run_file_to_the_comparison(tmp_path, capsys):
    job = run_file(tmp_path, *PLACEMENTS["four devices"])
    case = tmp_path / "case"
    assert main(["export", str(job), "--to", "astra-sim", "--out", str(case), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["npus"], row["granularity"]) == (4, "operator")
    assert main(["export", str(job), "--to", "astra-sim", "--out", str(case)]) == 2
    assert "replace it with --force" in capsys.readouterr().err
    assert main(["compare", str(case)]) == 0
    assert "not simulated yet" in capsys.readouterr().out

    slower = round(1.5e9 * row["replayed_step_s"])
    binary = program(tmp_path, f"for npu in range(4): finish(npu, {slower} - npu)\nos.abort()")
    assert main(["simulate", str(case), "--binary", str(binary), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert "crashed (SIGABRT) while it was ending" in err
    assert json.loads(out)[0]["vs_replayed"] == pytest.approx(0.5, rel=1e-6)
    assert kept(case).finish_ns[0] == slower

    assert main(["compare", str(case), "--format", "json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    parts = document["parts"]
    total = sum(part["predicted_s"] + part["prices_differ_s"] + part["run_differs_s"] for part in parts)
    assert total + document["unexplained_s"] == pytest.approx(document["simulated_s"], rel=1e-9)
    assert main(["compare", str(case), "--format", "csv"]) == 0
    assert main(["compare", str(case)]) == 0
    assert "simulator and replay differ by +" in capsys.readouterr().out


def test_some_that_fail_do_not_keep_others_back(written, tmp_path, capsys):
    cases = [str(shutil.copytree(written, tmp_path / name)) for name in ("bad", "good")]
    binary = program(tmp_path, f"if 'bad' in os.getcwd(): sys.exit(1)\n{ALL}")
    assert main(["simulate", *cases, "--binary", str(binary), "--format", "json"]) == 4
    out, err = capsys.readouterr()
    assert [row["case"] for row in json.loads(out)] == [cases[1]]
    assert "bad: the simulator ended with exit code 1" in err


def test_a_folder_of_several_cases_is_simulated_whole(written, tmp_path, capsys):
    cases = [str(shutil.copytree(written, tmp_path / "cases" / name)) for name in ("design-1", "design-2")]
    binary = program(tmp_path, ALL)
    assert main(["simulate", str(tmp_path / "cases"), "--binary", str(binary), "--format", "json"]) == 0
    assert [row["case"] for row in json.loads(capsys.readouterr().out)] == cases


def test_traces_for_other_readers_are_no_cases(tmp_path, capsys):
    job, out = run_file(tmp_path, *PLACEMENTS["four devices"]), tmp_path / "out"
    assert main(["export", str(job), "--to", "chakra", "--out", str(out), "--granularity", "stage"]) == 0
    assert main(["simulate", str(out), "--binary", str(program(tmp_path, ALL))]) == 2
    assert "which export --to chakra wrote for other readers; the simulator takes" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf"])
def test_timeouts_that_are_none(written, tmp_path, capsys, timeout):
    binary = program(tmp_path, ALL)
    assert main(["simulate", str(written), "--binary", str(binary), f"--timeout={timeout}"]) == 2
    assert "--timeout: found" in capsys.readouterr().err
