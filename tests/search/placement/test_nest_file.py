"""Reading NEST's questions: in seconds and bytes, and what is wrong in one line each, with its place."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.cli import main
from archplace.search.placement import NestInstance, Optimizer, read_instances

Json = dict[str, Any]
REFERENCE = Path(__file__).parent / "data" / "nest_placement.json.gz"


def layer(orig_id: int) -> Json:
    return {"orig_id": orig_id, "fw_ms": 1.5, "bw_ms": 3, "param_bytes": 10, "activation_bytes": 7}


def instance() -> Json:
    return {
        "schema": "nest-dp-1",
        "name": "small",
        "num_devices": 8,
        "hbm_bytes": 1000,
        "microbatches_per_batch": 16,
        "ep": 2,
        "cp": 1,
        "sp": False,
        "recompute": True,
        "optimizer": "Adam",
        "recompute_forward_priced_as_backward": False,
        "network": {
            "devices_per_level": [4, 2],
            "bandwidth_per_level": [2e6, 1e6],
            "latency_per_level": [0.25, 0.5],
        },
        "graphs": {
            "1": {
                "layers": [layer(-1), layer(0), layer(1)],
                "edges": [[0, 1, 4], [1, 2, 4.5], [0, 2, 1]],
            }
        },
    }


def write(folder: Path, value: object) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(value))
    return path


def test_milliseconds_become_seconds(tmp_path: Path) -> None:
    (read,) = read_instances(write(tmp_path, instance()))
    assert isinstance(read, NestInstance)
    assert [level.fan_out for level in read.levels] == [4, 2]
    assert [level.bandwidth_bytes_per_s for level in read.levels] == [2e9, 1e9]
    assert [level.latency_s for level in read.levels] == [0.25e-3, 0.5e-3]
    chain = read.chains[1]
    assert chain.layer_ids == (-1, 0, 1)
    assert (chain.forward_s.tolist(), chain.backward_s.tolist()) == ([1.5e-3] * 3, [3e-3] * 3)
    assert chain.edge_targets.tolist() == [1, 2, 2]
    assert chain.edge_bytes.tolist() == [4.0, 4.5, 1.0]
    assert (read.optimizer, read.recompute, read.recomputed_forward_as_backward) == (Optimizer.ADAM, True, False)
    assert (read.stage_devices(1), read.max_devices, read.microbatches, read.memory_bytes) == (2, 8, 16, 1000.0)


def test_a_file_may_mix_both_formats_and_names_must_differ(tmp_path: Path) -> None:
    node = {"id": 3, "parameterSize": 1, "activationSize": 1, "optimalLatencyFw": 1, "optimalLatencyBw": 1}
    phaze = {
        "maxMemoryPerDevice": 10,
        "maxDevices": 4,
        "bandwidth": 2.0,
        "mbsInBatch": 8,
        "nodes": {"1": [node | {"isTensorParallelized": False}]},
        "edges": {"1": []},
        "activationRecomputation": False,
        "optimizerAlgorithm": "SGD",
    }
    unnamed = {key: value for key, value in instance().items() if key != "name"}
    mixed = [phaze, instance(), {"name": "a", "instance": phaze}, unnamed]
    assert [each.name for each in read_instances(write(tmp_path, mixed))] == ["0", "small", "a", "3"]
    with pytest.raises(ConfigError, match="1: a second instance called 'small'; rename one"):
        read_instances(write(tmp_path, [instance(), instance()]))


def put(*keys: str | int, value: object) -> Callable[[Json], None]:
    def change(raw: Any) -> None:
        for key in keys[:-1]:
            raw = raw[key]
        raw[keys[-1]] = value

    return change


def drop(key: str) -> Callable[[Json], None]:
    return lambda raw: raw.pop(key)


GRAPH = ("graphs", "1")


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        (drop("network"), "network", "missing"),
        (drop("schema"), "schema", "missing"),
        (put("schema", value="nest-dp-2"), "schema", "input should be 'nest-dp-1'"),
        (put("num_device", value=8), "num_device", "did you mean 'num_devices'?"),
        (put("num_devices", value=9), "network.devices_per_level", "connect 4 · 2 = 8 devices, num_devices is 9"),
        (put("num_devices", value=0), "num_devices", "greater than or equal to 1"),
        (put("ep", value=1.5), "ep", "found 1.5"),
        (put("ep", value=2**31), "graphs.2", "devices a stage; at most"),
        (put("hbm_bytes", value=float("nan")), "hbm_bytes", "found nan"),
        (put("optimizer", value="adam"), "optimizer", "did you mean 'Adam'?"),
        (put("recompute", value=1), "recompute", "found 1"),
        (put("network", "devices_per_level", value=[]), "network.devices_per_level", "0 levels; give 1 to 16"),
        (put("network", "devices_per_level", value=[2] * 17), "network.devices_per_level", "17 levels; give 1 to 16"),
        (put("network", "devices_per_level", 1, value=0), "network.devices_per_level.1", "found 0"),
        (put("network", "bandwidth_per_level", value=[1.0]), "network.bandwidth_per_level", "1 values for 2 levels"),
        (put("network", "bandwidth_per_level", 0, value=0), "network.bandwidth_per_level.0", "found 0"),
        (put("network", "latency_per_level", value=[0, 0, 0]), "network.latency_per_level", "3 values for 2 levels"),
        (put("network", "latency_per_level", 1, value=-1), "network.latency_per_level.1", "found -1"),
        (put("graphs", value={}), "graphs", "no tensor-parallel width"),
        (put("graphs", "two", value={"layers": [], "edges": []}), "graphs.two", "whole number from 1 on"),
        (put(*GRAPH, "layers", value=[]), "graphs.1.layers", "no layers"),
        (put(*GRAPH, "layers", 1, "fw_ms", value=-1), "graphs.1.layers.1.fw_ms", "found -1"),
        (put(*GRAPH, "layers", 1, "fw_s", value=1), "graphs.1.layers.1.fw_s", "did you mean 'fw_ms'?"),
        (put(*GRAPH, "edges", 1, value=[1, 2]), "graphs.1.edges.1", "2 values; an edge is [from, to, bytes]"),
        (put(*GRAPH, "edges", 1, value=[1, 3, 4]), "graphs.1.edges.1", "from 1 to 3; edges lead from a layer"),
        (put(*GRAPH, "edges", 1, value=[2, 1, 4]), "graphs.1.edges.1", "counted from 0 to 2"),
        (put(*GRAPH, "edges", 1, value=[0.5, 1, 4]), "graphs.1.edges.1", "from 0.5 to 1"),
        (put(*GRAPH, "edges", 1, value=[0, 1, 4]), "graphs.1.edges.1", "the edge from 0 to 1 is given twice"),
        (put(*GRAPH, "edges", 1, 2, value=-4), "graphs.1.edges.1.2", "found -4"),
        (
            put(*GRAPH, "edges", value=[[0, 1, 4]]),
            "graphs.1.edges",
            "layer 1 has no edge to the next; add [1, 2, bytes]",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key(
    tmp_path: Path, change: Callable[[Json], None], key: str, says: str
) -> None:
    raw = instance()
    raw["graphs"]["2"] = copy.deepcopy(raw["graphs"]["1"])
    change(raw)
    path = write(tmp_path, [raw])
    with pytest.raises(ConfigError) as caught:
        read_instances(path)
    lines = [line.removeprefix(f"{path}: ") for line in str(caught.value).splitlines()]
    assert any(line.startswith(f"0.{key}: ") and says in line for line in lines), lines
    assert all(len(line) < 250 for line in lines)


def test_everything_wrong_at_once(tmp_path: Path) -> None:
    first, second = instance(), instance()
    first["num_devices"] = 100
    first["optimizer"] = "Lion"
    first["graphs"]["1"]["edges"].append([0, 7, 1])
    second["cp"] = -1
    del second["hbm_bytes"]
    with pytest.raises(ConfigError) as caught:
        read_instances(write(tmp_path, [first, second]))
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["0.optimizer", "0.network.devices_per_level", "0.graphs.1.edges.3", "1.hbm_bytes", "1.cp"]


def test_place_prints_a_row_per_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(REFERENCE), "--format", "json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    rows = json.loads(output.out)
    assert len(rows) == 69
    by_name = {row["name"]: row for row in rows}
    best = by_name["tpuv4_mixtral_mbs1_64.ms"]
    assert best["time_per_batch"] == pytest.approx(2221.546992751685, rel=1e-9)  # 2,221,546.99 ms in the file
    assert (best["tensor_parallel"], best["data_parallel"], best["pipeline_parallel"]) == (1, 1, 16)
    assert {stage["devices"] for stage in best["stages"]} == {4}
    assert best["stages"][0]["first_layer"] == -1
    assert "needs at least 44 devices" in by_name["perturbed_04"]["reason"]
