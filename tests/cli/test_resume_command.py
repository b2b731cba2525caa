"""The command that goes on is the one that was given."""

import argparse
import shlex
from pathlib import Path

import pytest

from archplace.cli._resume import command_line


def parser():
    found = argparse.ArgumentParser(prog="tool search")
    found.add_argument("run")
    found.add_argument("-o", "--out", type=Path)
    found.add_argument("--jobs", type=int, default=4)
    found.add_argument("--names", nargs="+", default=[])
    found.add_argument("--quick", action="store_true")
    found.add_argument("--debug", action="store_true")
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run.yaml", "tool search run.yaml"),
        ("--out x run.yaml --jobs 4", "tool search run.yaml --out x"),
        ("run.yaml --jobs 0 --quick", "tool search run.yaml --jobs 0 --quick"),
        ("-o 'my folder' 'my run.yaml' --debug", "tool search 'my run.yaml' --out 'my folder'"),
        ("run.yaml --names a 'b c'", "tool search run.yaml --names a 'b c'"),
        ("'$HOME;rm.yaml' --out \"it's\"", "tool search '$HOME;rm.yaml' --out 'it'\"'\"'s'"),
    ],
)
def test_it_gives_the_same_arguments(given, expected):
    arguments = parser().parse_args(shlex.split(given))
    text = command_line(parser(), arguments)
    assert text == expected
    again = parser().parse_args(shlex.split(text)[2:])
    assert {**vars(again), "debug": None} == {**vars(arguments), "debug": None}
