"""The command line as a user meets it: exit codes, one-line errors, data on stdout."""

import subprocess
import sys

import pytest

from archplace.cli import main
from archplace.cli._main import COMMANDS


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "archplace", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_names_every_command():
    result = run("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert command in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert "usage: archplace" in capsys.readouterr().out


def test_help_imports_no_solver_and_no_plotting():
    code = (
        "import sys, archplace.cli; archplace.cli.main(['--help']); "
        "slow = {'ortools', 'pulp', 'plotly', 'networkx', 'numpy', 'pandas'} & set(sys.modules); "
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arguments", [["nonsense"], [], ["search"], ["search", "--out"]])
def test_usage_errors_exit_with_2(arguments, capsys):
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["search", "schedule", "place", "validate"])
@pytest.mark.parametrize("content", ["", "a: [", "\x00", "- 1\n- 2\n", "x: &a [*a]", "{}"])
def test_files_that_are_not_what_they_should_be(command, content, tmp_path, capsys):
    path = tmp_path / "input.yaml"
    path.write_text(content)
    arguments = [command, str(path)] + (["--out", str(tmp_path / "out")] if command == "search" else [])
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "input.yaml" in error
    assert "Traceback" not in error
    assert "internal error" not in error


@pytest.mark.parametrize("command", ["search", "schedule", "place", "validate"])
def test_a_folder_or_nothing_instead_of_a_file(command, tmp_path, capsys):
    for path in (tmp_path, tmp_path / "missing.yaml"):
        arguments = [command, str(path)] + (["--out", str(tmp_path / "out")] if command == "search" else [])
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert str(path) in error
        assert "Traceback" not in error


@pytest.mark.parametrize("command", ["report", "show"])
def test_folder_without_a_run(command, tmp_path, capsys):
    assert main([command, str(tmp_path)]) == 2
    assert "no run here" in capsys.readouterr().err
