"""Collecting runs a training script as it is, stops it in time, and says what it missed."""

import errno
import gzip
import json
import sys
from pathlib import Path

import pytest
from torch.profiler import profile

from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.workloads.traced.lift import lift
from archplace.workloads.traces import import_pytorch, load_trace
from archplace.workloads.traces.collect import Script, collect
from archplace.workloads.traces.examples import train_gpt
from archplace.workloads.traces.host_trace import load_host_trace

EXAMPLE = Path(train_gpt.__file__)
SMALL = ("--layers", "2", "--width", "16", "--heads", "2", "--vocabulary", "32", "--sequence", "8", "--batch", "2")
TRAIN = """
import sys, torch
from pathlib import Path
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{step}\\n")
    print("loss", step)
    optimizer.zero_grad()
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
"""


def script(folder: Path, text: str, *arguments: str) -> Script:
    path = folder / "train.py"
    path.write_text(text)
    return Script(name=str(path), arguments=arguments)


def test_the_example_becomes_a_trace_with_durations(tmp_path: Path) -> None:
    found = collect(Script(name=str(EXAMPLE), arguments=SMALL), tmp_path / "gpt", skip=1, timed=2)
    assert found.rank == 0
    assert found.n_timed == 2
    assert sorted(path.name for path in (tmp_path / "gpt").iterdir()) == [
        "calls.0.json.gz",
        "profile.0.json.gz",
        "steps.0.json.gz",
    ]
    imported = import_pytorch(found.calls, [found.profile, found.steps])
    assert imported.n_steps == 2
    assert imported.n_timed > 0.95 * imported.n_operators
    lifted = lift(found.calls)
    assert [count for _, count in lifted.model.layers] == [1, 2, 1]
    assert lifted.optimizer == "AdamW"


def test_exactly_one_step_is_traced(tmp_path: Path) -> None:
    found = collect(script(tmp_path, TRAIN, "10", str(tmp_path / "log")), tmp_path / "out", timed=0)
    names = [node.name for node in load_host_trace(found.calls).nodes]
    assert names.count("aten::addmm") == 1
    assert sum(name.startswith("Optimizer.step") for name in names) == 1
    assert sum(name.startswith("Optimizer.zero_grad") for name in names) == 1
    assert found.steps is None


def test_the_script_is_stopped_behind_the_last_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    collect(script(tmp_path, TRAIN, "100", str(log)), tmp_path / "out", skip=3, timed=2)
    assert log.read_text().split() == ["0", "1", "2", "3", "4", "5"]


def test_fewer_further_steps_than_wanted_are_kept(tmp_path: Path) -> None:
    found = collect(script(tmp_path, TRAIN, "5", str(tmp_path / "log")), tmp_path / "out", timed=9)
    assert found.n_timed == 2
    assert import_pytorch(found.calls, [found.steps]).n_steps == 2


def test_what_the_script_prints_goes_to_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    collect(script(tmp_path, TRAIN, "9", str(tmp_path / "log")), tmp_path / "out", timed=0)
    shown = capfd.readouterr()
    assert "loss 2" in shown.err
    assert "loss" not in shown.out


def test_arguments_and_path_of_the_caller_come_back(tmp_path: Path) -> None:
    before = sys.argv, list(sys.path)
    collect(script(tmp_path, TRAIN, "9", str(tmp_path / "log")), tmp_path / "out", timed=0)
    assert (sys.argv, sys.path) == before


def test_schedulers_made_late_still_work(tmp_path: Path) -> None:
    late = TRAIN + "    torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
    assert collect(script(tmp_path, late, "9", str(tmp_path / "log")), tmp_path / "out", timed=1).n_timed == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRAIN, "ended after 2 steps, and 3 are needed"),
        ("x = 1", r"ended after 0 steps.*step\(\) of a torch.optim.Optimizer"),
        (TRAIN + "    1 / (step - 1)\n", "raised ZeroDivisionError after 2 steps: division by zero"),
        (TRAIN + "    sys.exit(7)\n", "ended with code 7 after 1 step$"),
    ],
)
def test_scripts_that_end_too_early_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(script(tmp_path, text, "2", str(tmp_path / "log")), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_failing_script_shows_its_own_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError):
        collect(script(tmp_path, "def f():\n    raise KeyError('here')\nf()\n"), tmp_path / "out")
    shown = capfd.readouterr().err
    assert "train.py" in shown
    assert "raise KeyError('here')" in shown
    assert "runpy" not in shown


@pytest.mark.parametrize(("given", "message"), [({"skip": 0}, "--skip: found 0"), ({"timed": -1}, "--timed: found -1")])
def test_numbers_of_steps_out_of_range_are_refused(tmp_path: Path, given: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(script(tmp_path, TRAIN), tmp_path / "out", **given)


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.py: no such file"):
        collect(Script(name="nowhere.py"), tmp_path)


def test_a_missing_module_is_refused_without_a_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"-m nowhere\.train: cannot be run: .*No module named 'nowhere'"):
        collect(Script(name="nowhere.train", is_module=True), tmp_path / "out")
    assert "Traceback" not in capfd.readouterr().err


def test_a_syntax_error_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="raised SyntaxError after 0 steps"):
        collect(script(tmp_path, "x = (\n"), tmp_path / "out")
    assert "x = (" in capfd.readouterr().err


def test_a_full_disk_is_not_the_script_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_: profile, path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(profile, "export_chrome_trace", full)
    with pytest.raises(ConfigError, match=r"out: the traces cannot be written: No space left on device; make room"):
        collect(script(tmp_path, TRAIN, "9", str(tmp_path / "log")), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    assert "Traceback" not in capfd.readouterr().err


def test_traces_that_end_in_the_midst_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_: profile, path: str) -> None:
        with gzip.open(path, "wt") as stream:
            stream.write('{"traceEvents": [{"name": "aten')

    monkeypatch.setattr(profile, "export_chrome_trace", cut)
    with pytest.raises(ConfigError, match=r"the trace profile\.json\.gz was not written to its end; make room"):
        collect(script(tmp_path, TRAIN, "9", str(tmp_path / "log")), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_an_earlier_script_s_further_steps_do_not_stay(tmp_path: Path) -> None:
    trained = script(tmp_path, TRAIN, "9", str(tmp_path / "log"))
    assert collect(trained, tmp_path / "out", timed=1).steps == tmp_path / "out" / "steps.0.json.gz"
    collect(trained, tmp_path / "out", timed=0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["calls.0.json.gz", "profile.0.json.gz"]


def test_a_missing_pytorch_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "archplace.workloads.traces._step_windows", raising=False)
    with pytest.raises(ConfigError, match=r"torch is not installed: pip install 'archplace\[torch\]'"):
        collect(script(tmp_path, TRAIN), tmp_path / "out")


def test_the_command_writes_all_traces_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    given = ["workload", "collect", str(script(tmp_path, TRAIN).name), "--out", str(out), "--format", "json", "--args"]
    assert main([*given, "9", str(tmp_path / "log")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["trace"] == str(out / "step.0.et")
    assert len(load_trace(out / "step.0.et").nodes) == said["operators"]
    assert said["steps timed"] == 3


def test_the_command_runs_modules_and_writes_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "training_of_a_module.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "one.json.gz"
    given = ["workload", "collect", "-m", "training_of_a_module", "--out", str(out), "--timed", "0", "--args"]
    assert main([*given, "9", str(tmp_path / "log")]) == 0
    assert len(load_trace(out).nodes) > 10
    assert "one.json.gz" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "one.json.gz", "training_of_a_module.py"]


def test_several_processes_do_not_share_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    path = script(tmp_path, TRAIN).name
    assert main(["workload", "collect", path, "--out", str(tmp_path / "one.et")]) == 2
    assert "give a folder" in capsys.readouterr().err
