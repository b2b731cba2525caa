"""Work that takes long says so on stderr, and work that does not says nothing."""

import time

import pytest

from archplace.cli import _patience
from archplace.cli._patience import patience


def test_quick_work_is_silent(capsys):
    with patience("counting"):
        pass
    assert capsys.readouterr() == ("", "")


def test_slow_work_says_what_it_does_and_for_how_long(monkeypatch, capsys):
    monkeypatch.setattr(_patience, "SECONDS_IN_SILENCE", 0.01)
    monkeypatch.setattr(_patience, "SECONDS_BETWEEN_LINES", 0.01)
    heard = ""
    with patience("counting"):
        deadline = time.monotonic() + 10
        while heard.count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
            heard += capsys.readouterr().err
    assert heard.splitlines()[:2] == ["counting: 0 s", "counting: 0 s"]


def test_slow_work_says_how_much_is_done(monkeypatch, capsys):
    monkeypatch.setattr(_patience, "SECONDS_IN_SILENCE", 0.01)
    heard = ""
    with patience("reading") as waiting:
        waiting.share = lambda: 0.384
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            time.sleep(0.01)
            heard += capsys.readouterr().err
    assert heard == "reading: 0 s, 38% read\n"


def test_an_error_ends_the_waiting(monkeypatch, capsys):
    monkeypatch.setattr(_patience, "SECONDS_IN_SILENCE", 60.0)
    started = time.monotonic()
    with pytest.raises(ValueError, match="wrong"), patience("counting"):
        raise ValueError("wrong")
    assert time.monotonic() - started < 30
    assert capsys.readouterr().err == ""
