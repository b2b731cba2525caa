"""Reading placement instances: everything that is wrong with a file at once, each in one line with its place."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archplace.arch_configs.errors import ConfigError
from archplace.search.placement import place_instance, read_instances

Json = dict[str, Any]


def node(layer: int, **changes: object) -> Json:
    values: Json = {
        "id": layer,
        "parameterSize": 10.0,
        "activationSize": 1,
        "optimalLatencyFw": 1.0,
        "optimalLatencyBw": 2.0,
        "isTensorParallelized": False,
    }
    return values | changes


def edge(source: int, target: int, size: float = 4.0) -> Json:
    return {"sourceId": source, "destId": target, "communicationCost": size}


def instance() -> Json:
    return {
        "maxMemoryPerDevice": 1000,
        "maxDevices": 4,
        "bandwidth": 2.0,
        "mbsInBatch": 8,
        "nodes": {"1": [node(-1), node(0), node(7)]},
        "edges": {"1": [edge(-1, 0), edge(0, 7)]},
        "activationRecomputation": False,
        "optimizerAlgorithm": "SGD",
    }


def write(folder: Path, value: object) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(value))
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_instances(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    assert all(str(path) in line for line in lines)
    return [line.removeprefix(str(path)).removeprefix(": ") for line in lines]


@pytest.mark.parametrize("compress", [False, True])
def test_reads_one_or_many_plain_or_gzipped(tmp_path: Path, compress: bool) -> None:
    def written(value: object) -> Path:
        path = tmp_path / "some.case.json"
        content = json.dumps(value).encode()
        path.write_bytes(gzip.compress(content) if compress else content)
        return path

    assert [each.name for each in read_instances(written(instance()))] == ["some"]
    assert [each.name for each in read_instances(written({"name": "a", "instance": instance()}))] == ["a"]
    many = [{"name": "b", "instance": instance(), "expected": {"any": [None]}}, instance()]
    read = read_instances(written(many))
    assert [each.name for each in read] == ["b", "1"]
    assert read[0].chains[1].layer_ids == (-1, 0, 7)
    assert read[0].chains[1].edge_targets.tolist() == [1, 2]
    assert place_instance(read[0]).feasible


def test_layers_are_put_in_pipeline_order(tmp_path: Path) -> None:
    raw = instance()
    raw["nodes"]["1"].reverse()
    raw["edges"]["1"].append(edge(-1, 7))
    chain = read_instances(write(tmp_path, raw))[0].chains[1]
    assert chain.layer_ids == (-1, 0, 7)
    assert list(zip(chain.edge_sources.tolist(), chain.edge_targets.tolist(), strict=True)) == [(0, 1), (1, 2), (0, 2)]


def put(*keys: str | int, value: object) -> Callable[[Json], None]:
    def change(raw: Any) -> None:
        for key in keys[:-1]:
            raw = raw[key]
        raw[keys[-1]] = value

    return change


def drop(key: str) -> Callable[[Json], None]:
    return lambda raw: raw.pop(key)


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        (drop("bandwidth"), "bandwidth", "missing"),
        (put("bandwidth", value=0), "bandwidth", "found 0"),
        (put("bandwidth", value=-3.0), "bandwidth", "found -3.0"),
        (put("bandwidth", value=float("inf")), "bandwidth", "found inf"),
        (put("maxMemoryPerDevice", value=float("nan")), "maxMemoryPerDevice", "found nan"),
        (put("maxDevices", value=0), "maxDevices", "greater than or equal to 1"),
        (put("maxDevices", value=2.5), "maxDevices", "found 2.5"),
        (put("maxDevices", value=10**400), "maxDevices", "found 1000"),
        (put("mbsInBatch", value="8"), "mbsInBatch", "found '8'"),
        (put("mbsInBatch", value=True), "mbsInBatch", "found True"),
        (put("bandwith", value=1), "bandwith", "did you mean 'bandwidth'?"),
        (put("optimizerAlgorithm", value="adam"), "optimizerAlgorithm", "did you mean 'Adam'?"),
        (put("nodes", "1", 0, "optimalLatencyFw", value=-1.0), "nodes.1.0.optimalLatencyFw", "found -1.0"),
        (put("nodes", "1", 2, "activationSize", value=float("nan")), "nodes.1.2.activationSize", "found nan"),
        (put("nodes", "1", 2, "parameterSize", value=1e300), "nodes.1.2.parameterSize", "found 1e+300"),
        (put("nodes", "1", 2, "id", value=0), "nodes.1.2.id", "layer 0 is given twice"),
        (put("nodes", "1", value=[]), "nodes.1", "no layers"),
        (put("nodes", "1", value=[node(i) for i in range(-1, 4000)]), "nodes.1", "4001 layers; at most 4000"),
        (put("nodes", value={}), "nodes", "no tensor-parallel width"),
        (put("nodes", "two", value=[]), "nodes.two", "whole number from 1 on"),
        (put("nodes", "01", value=[node(0)]), "nodes.01", "given twice"),
        (put("nodes", "0", value=[]), "nodes.0", "whole number from 1 on"),
        (put("nodes", "2", value=[node(0)]), "edges.2", "missing"),
        (put("edges", "4", value=[]), "edges.4", "without nodes"),
        (put("edges", "1", 1, value=edge(0, 8)), "edges.1.1.destId", "there is no layer 8"),
        (put("edges", "1", 1, value=edge(7, 7)), "edges.1.1", "to itself"),
        (put("edges", "1", 1, value=edge(-1, 0)), "edges.1.1", "given twice"),
        (put("edges", "1", 1, value=edge(-1, 7)), "edges.1", "not a chain: neither of the layers 0 and 7"),
        (put("edges", "1", 1, value=edge(0, -1)), "edges.1", "cycle"),
        (put("edges", "1", 1, value=edge(0, 7, -4.0)), "edges.1.1.communicationCost", "found -4.0"),
        (put("edges", "1", value=[]), "edges.1", "not a chain"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(
    tmp_path: Path, change: Callable[[Json], None], key: str, says: str
) -> None:
    raw = instance()
    change(raw)
    lines = problems_of(write(tmp_path, [{"name": "x", "instance": raw}]))
    assert any(line.startswith(f"0.instance.{key}: ") and says in line for line in lines), lines
    assert all(len(line) < 250 for line in lines)


def test_everything_wrong_in_all_instances_at_once(tmp_path: Path) -> None:
    first, second = instance(), copy.deepcopy(instance())
    first["maxDevices"] = -1
    del first["mbsInBatch"]
    second["edges"]["1"].append(edge(5, 6))
    lines = problems_of(write(tmp_path, [first, second, 7, {"name": "x"}]))
    keys = [line.split(": ")[0] for line in lines]
    assert keys == ["0.maxDevices", "0.mbsInBatch", "1.edges.1.2.sourceId", "1.edges.1.2.destId", "2", "3.instance"]


def test_two_instances_of_one_name(tmp_path: Path) -> None:
    twice = [{"name": "x", "instance": instance()}] * 2
    assert problems_of(write(tmp_path, twice)) == ["1.instance: a second instance called 'x'; rename one"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"[]", "an empty list"),
        (b"null", "found nothing"),
        (b'{"a": 1,\n "b" 2}', ":2:6: not valid JSON: expecting ':' delimiter"),
        (b'{"a": 1, "a": 2}', "the key 'a' is given twice"),
        (b"\xff\xfe", "neither gzip nor text in UTF-8"),
        (gzip.compress(b'{"name": "case"}' * 100, mtime=0)[:-20], "gzip data is damaged or cut off"),
        (b"\x1f\x8b not gzip at all", "gzip data is damaged or cut off"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "digits"),
    ],
)
def test_files_that_are_no_instances(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    lines = problems_of(path)
    assert says in lines[0], lines


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == ["cannot be read: it is a directory; name a file"]
    assert problems_of(tmp_path / "none.json") == ["cannot be read: No such file or directory"]
