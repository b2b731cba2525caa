"""The scripts that `archplace farm` prints: shells and Python read them, and they say what was asked for."""

import ast
import os
import shlex
import subprocess
from dataclasses import replace

import pytest
from farm_cluster import write_run
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.search.farm.scripts import FarmJob, array_script, dask_script

JOB = FarmJob(
    system="slurm",
    run="runs/a run.yaml",
    out="/data/it's here",
    cwd="/home/some one",
    workers=12,
    memory_bytes=4 << 30,
    minutes=90,
    queue="long",
    project="chips",
    effort="quick",
    python="/opt/python3",
)

# Stand-ins for the commands that submit: they keep what they were given.
SUBMIT = {
    "sbatch": '#!/bin/bash\necho "sbatch $*" >> "$LOG"\ncat >> "$LOG"\necho "4711;alpha"\n',
    "bsub": '#!/bin/bash\necho "bsub $*" >> "$LOG"\ncat >> "$LOG"\necho "Job <4711> is submitted to queue <long>."\n',
}


def submitted(script, folder):
    """Run a script with stand-ins for what submits jobs; return what it would have submitted."""
    for name, text in SUBMIT.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    log = folder / "log"
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(log)}
    result = subprocess.run(["bash"], input=script, text=True, capture_output=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return log.read_text()


def test_slurm_array_and_merge(tmp_path):
    text = submitted(array_script(replace(JOB, cwd=str(tmp_path))), tmp_path)
    first, second = text.split("sbatch --dependency=afterok:4711 --kill-on-invalid-dep=yes\n")
    for line in ("#SBATCH --array=1-12", "#SBATCH --mem=4096M", "#SBATCH --time=01:30:00", "#SBATCH --partition=long"):
        assert line in first.splitlines()
    assert "#SBATCH --account=chips" in second.splitlines()
    assert (
        "exec /opt/python3 -m archplace search 'runs/a run.yaml' --out '/data/it'\"'\"'s here' --effort quick "
        '--jobs 1 --shard "${SLURM_ARRAY_TASK_ID}/12"' in first.splitlines()
    )
    assert "exec /opt/python3 -m archplace merge '/data/it'\"'\"'s here'" in second.splitlines()


def test_lsf_array_and_merge(tmp_path):
    text = submitted(array_script(replace(JOB, system="lsf", cwd=str(tmp_path))), tmp_path)
    first, second = text.split("bsub -w done(4711)\n")
    for line in ('#BSUB -J "archplace-a-run[1-12]"', "#BSUB -M 4194304", "#BSUB -W 01:30", "#BSUB -q long"):
        assert line in first.splitlines()
    assert '--shard "${LSB_JOBINDEX}/12"' in first
    assert "#BSUB -P chips" in second.splitlines()
    assert "-m archplace merge" in second


@pytest.mark.parametrize(("system", "cluster"), [("slurm", "SLURMCluster"), ("lsf", "LSFCluster")])
def test_dask_script(system, cluster):
    tree = ast.parse(dask_script(replace(JOB, system=system)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = next(call for call in calls if isinstance(call.func, ast.Name) and call.func.id == cluster)
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in made.keywords}
    assert options["cores"] == options["processes"] == 1
    assert options["memory"] == "4096 MiB"
    assert options["queue"] == "long"
    assert options["account" if system == "slurm" else "project"] == "chips"
    assert options["walltime"] == ("01:30:00" if system == "slurm" else "01:30")
    adapt = next(call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "adapt")
    assert {keyword.arg: ast.literal_eval(keyword.value) for keyword in adapt.keywords} == {
        "minimum_jobs": 12,
        "maximum_jobs": 12,
    }
    lists = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)]
    words = ast.literal_eval(lists[0].value)
    assert words[:5] == ["/opt/python3", "-m", "archplace", "search", "runs/a run.yaml"]
    assert words[-1] == "--scheduler"


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="/"), min_size=1, max_size=12)


@given(run=NAMES, out=NAMES, cwd=NAMES, system=st.sampled_from(["slurm", "lsf"]))
def test_any_names_stay_words(run, out, cwd, system):
    job = replace(JOB, system=system, run=run, out=out, cwd=cwd)
    compile(dask_script(job), "script", "exec")
    script = array_script(job)
    # The command of the array job, split by rules of the shell.
    line = next(line for line in script.split("\n") if line.startswith("exec") and "--shard" in line)
    words = shlex.split(line)
    assert words[5] == run
    assert words[7] == out


@pytest.mark.parametrize("system", ["slurm", "lsf"])
def test_shells_read_odd_names(system):
    job = replace(JOB, system=system, run="$(a) `b` \"c\" 'd' \\e !f #g.yaml", out="*; & |", cwd="-x ~ {1,2}")
    script = array_script(job)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"workers": 0}, "--workers: found 0, needs 1 to"),
        ({"workers": 10**6}, "--workers: found 1000000"),
        ({"memory_bytes": 10**6}, "--memory: found 1000000 bytes"),
        ({"minutes": 0}, "--time"),
        ({"queue": "a b"}, "--queue: found 'a b'"),
        ({"project": "$(rm)"}, "--project"),
        ({"out": "a\nb"}, "--out"),
    ],
)
def test_what_cannot_stand_in_a_script_is_refused(change, told):
    with pytest.raises(ConfigError) as error:
        replace(JOB, **change)
    assert str(error.value).startswith(told)


def test_the_command(tmp_path, capsys):
    run = str(write_run(tmp_path))
    for system in ("slurm", "lsf"):
        assert main(["farm", system, run, "--out", "results", "--workers", "3", "--memory", "2 GiB"]) == 0
        script = capsys.readouterr().out
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
        assert "/3" in script
        assert main(["farm", system, run, "--out", "results", "--how", "dask"]) == 0
        compile(capsys.readouterr().out, "script", "exec")
    for options, told in [
        (["--memory", "much"], "--memory: "),
        (["--time", "90"], "--time: found '90'"),
        (["--workers", "0"], "--workers: found 0"),
    ]:
        assert main(["farm", "slurm", run, "--out", "results", *options]) == 2
        assert told in capsys.readouterr().err
    assert main(["farm", "slurm", str(tmp_path / "missing.yaml"), "--out", "results"]) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--engine", "dask"], "--engine dask: needs --scheduler"),
        (["--scheduler", "tcp://127.0.0.1:1"], "it needs --engine dask"),
        (["--engine", "dask", "--scheduler", "x", "--wait", "nan"], "--wait: found nan"),
        (["--engine", "dask", "--scheduler", "x", "--wait", "-1"], "--wait: found -1"),
    ],
)
def test_options_of_the_farm_that_do_not_fit(options, told, tmp_path, capsys):
    run, out = str(write_run(tmp_path)), tmp_path / "out"
    assert main(["search", run, "--out", str(out), *options]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()
