"""``archplace doctor``: what works, what does not, and what is not needed."""

import json

from archplace.cli import main


def rows(capsys):
    code = main(["doctor", "--format", "json"])
    return code, {row["check"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_simulator_is_not_needed(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("ARCHPLACE_ASTRA_SIM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, found = rows(capsys)
    assert code == 0
    assert found["simulator ASTRA-sim"]["ok"] == "none"
    assert "set ARCHPLACE_ASTRA_SIM" in found["simulator ASTRA-sim"]["detail"]
    assert all(row["ok"] == "yes" for check, row in found.items() if check != "simulator ASTRA-sim")


def test_a_simulator_that_is_there_is_named(capsys, monkeypatch, tmp_path):
    binary = tmp_path / "AstraSim_Analytical_Congestion_Aware"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("ARCHPLACE_ASTRA_SIM", str(binary))
    code, found = rows(capsys)
    assert code == 0
    assert found["simulator ASTRA-sim"] == {
        "check": "simulator ASTRA-sim",
        "ok": "yes",
        "detail": f"backend with congestion: {binary}",
    }


def test_a_simulator_that_is_named_and_not_there_is_a_mistake(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ARCHPLACE_ASTRA_SIM", str(tmp_path / "none"))
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "which does not exist" in out
    assert "not working: simulator ASTRA-sim" in err
