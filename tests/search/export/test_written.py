"""Cases on disk, read back as other tools read them."""

import errno
import json
import re
import subprocess

import pytest
import yaml
from export_helpers import candidate_of, run_file
from hand_cases import HandCase, cluster, compute, dimension, reduce

from archplace.arch_configs.cluster import Topology
from archplace.arch_configs.errors import ConfigError
from archplace.search.export import expand as expand_module
from archplace.search.export import write as write_module
from archplace.search.export.candidates import of_plan
from archplace.search.export.expand import Expanded, estimated_nodes, expand
from archplace.search.export.folders import refuse_occupied, whole_folder
from archplace.search.export.manifest import approximations, is_case, read_manifest
from archplace.search.export.passes import Granularity
from archplace.search.export.simulator_files import congestion_pieces, layers
from archplace.search.export.write import write_case, write_traces
from archplace.search.planfile import load_plan
from archplace.workloads.traces import AttributeKind, NodeKind, load_trace

KINDS = {
    "is_cpu_op": AttributeKind.BOOL,
    "num_ops": AttributeKind.INT64,
    "tensor_size": AttributeKind.UINT64,
    "comm_type": AttributeKind.INT64,
    "comm_size": AttributeKind.INT64,
    "comm_tag": AttributeKind.INT32,
    "comm_src": AttributeKind.INT32,
    "comm_dst": AttributeKind.INT32,
    "pg_name": AttributeKind.STRING,
}
"""How each attribute is encoded, so that old and new readers of the simulator take it."""


@pytest.fixture(scope="module", name="written")
def one_written_case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    candidate = candidate_of(folder, "tensor, data, pipeline")
    found = expand(candidate, Granularity.STAGE)
    write_case(candidate, found, folder / "case")
    return folder / "case", found


def test_traces_say_what_the_programs_do(written):
    folder, found = written
    case = found.case
    for npu in (0, 5, 15):
        nodes = load_trace(folder / "traces" / f"npu.{npu}.et").nodes
        program = case.program(npu)
        assert len(nodes) == len(program)
        for place, (node, step) in enumerate(zip(nodes, program, strict=True)):
            values = node.values()
            assert (node.id, node.kind, tuple(node.data_parents)) == (place, step.kind, step.after)
            assert not node.control_parents
            assert all(KINDS[attribute.name] is attribute.kind for attribute in node.attributes())
            assert values["is_cpu_op"] is False
            if step.kind is NodeKind.COMPUTE:
                # A picosecond an operation, rounded down.
                assert values["num_ops"] // 1000 == step.nanoseconds
                assert values["tensor_size"] == 1
                assert node.duration_micros >= 1
            elif step.kind is NodeKind.COLLECTIVE:
                assert values["pg_name"] == str(case.group(npu, step.team).number)
                assert (values["comm_type"], values["comm_size"]) == (step.collective, step.size_bytes)
            else:
                other = "comm_dst" if step.kind is NodeKind.SEND else "comm_src"
                assert values[other] == case.peer(npu, step.peer)
                assert (values["comm_tag"], values["comm_size"]) == (step.tag, step.size_bytes)


def test_files_beside_the_traces(written):
    folder, found = written
    groups = json.loads((folder / "groups.json").read_text())
    assert groups == {str(group.number): list(group.members) for group in found.case.process_groups()}
    network = yaml.safe_load((folder / "network.yaml").read_text())
    # The slowest dimension first; a gigabyte is 2^30 bytes there.
    assert network == {
        "topology": ["Switch", "Switch"],
        "npus_count": [2, 8],
        "bandwidth": [50e9 / 2**30, 450e9 / 2**30],
        "latency": [2700.0, 600.0],
    }
    system = json.loads((folder / "system.json").read_text())
    assert system["preferred-dataset-splits"] == system["active-chunks-per-dimension"] == 1
    assert (system["roofline-enabled"], system["peak-perf"]) == (1, 1)
    assert system["endpoint-delay"] >= 1
    algorithms = {key.removesuffix("-implementation"): value for key, value in system.items() if "-impl" in key}
    # A ring for each dimension; of all-to-alls only a single entry counts.
    assert algorithms.pop("all-to-all") == ["direct1"]
    assert algorithms == {key: ["ring", "ring"] for key in ("all-reduce", "all-gather", "reduce-scatter")}
    assert json.loads((folder / "memory.json").read_text()) == {"memory-type": "NO_MEMORY_EXPANSION"}


def test_the_manifest_says_what_was_predicted(written):
    folder, found = written
    manifest = read_manifest(folder)
    predicted = manifest.predicted
    assert (manifest.npus, manifest.nodes) == (16, found.case.n_nodes)
    assert manifest.title == "job: llama2-7b as tp2 pp2 dp4 mbs1 1f1b shard-optimizer"
    assert predicted.finish_ns == tuple(found.replayed.finish_ns.tolist())
    assert sum(predicted.parts_s.values()) == pytest.approx(predicted.step_s)
    assert sum(predicted.simulator_parts_s.values()) == pytest.approx(predicted.simulator_step_s)
    assert sum(predicted.replayed_parts_s.values()) == pytest.approx(predicted.replayed_step_s)
    document = json.loads((folder / "manifest.json").read_text())
    assert any("exchanges one thing at a time" in each for each in document["approximations"])
    assert document["placement"]["tensor_parallel"] == 2


def test_the_script_gives_the_simulator_its_files(written, tmp_path):
    folder, _ = written
    binary = tmp_path / "prints its arguments"
    binary.write_text('#!/bin/sh\npwd\nfor each in "$@"; do echo "$each"; done\n')
    binary.chmod(0o755)
    result = subprocess.run([folder / "run.sh", binary, "--more"], capture_output=True, text=True, check=True)
    place, *given = result.stdout.splitlines()
    assert folder.samefile(place)
    files = dict(re.fullmatch(r"--(.+?)=(.+)", each).groups() for each in given if "=" in each)
    assert files.pop("workload-configuration") == "traces/npu"
    assert files.pop("logging-folder") == "log"
    assert all((folder / file).is_file() for file in files.values())
    assert given[-1] == "--more"
    assert subprocess.run([folder / "run.sh"], capture_output=True, check=False).returncode == 2
    assert subprocess.run([folder / "run.sh", "no such program"], capture_output=True, check=False).returncode == 2


def test_devices_that_do_the_same_with_the_same_share_a_file(tmp_path):
    same = [compute(10), reduce(1, 2**20, 0)]
    case = HandCase(cluster(dimension(4)), [same] * 4, {1: (0, 1, 2, 3)})
    case.programs = (tuple(same),)
    case.role = case.role * 0
    found = write_traces(case, tmp_path / "traces")
    assert (found.traces, found.files) == (4, 1)
    files = [tmp_path / "traces" / f"npu.{npu}.et" for npu in range(4)]
    assert len({file.stat().st_ino for file in files}) == 1
    assert found.bytes == files[0].stat().st_size


def test_without_links_files_are_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(write_module.os, "link", refuse)
    same = [compute(10)]
    case = HandCase(cluster(dimension(2)), [same] * 2)
    case.programs, case.role = (tuple(same),), case.role * 0
    write_traces(case, tmp_path / "traces")
    first, second = (tmp_path / "traces" / f"npu.{npu}.et" for npu in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_ino != second.stat().st_ino


def test_a_full_disk_leaves_nothing_behind(written, tmp_path, monkeypatch):
    _, found = written
    candidate = candidate_of(tmp_path, "tensor, data, pipeline")
    left = sorted(tmp_path.iterdir())
    real, count = write_module.Path.write_bytes, []

    def write_bytes(self, data):
        count.append(self)
        if len(count) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(write_module.Path, "write_bytes", write_bytes)
    with pytest.raises(
        ConfigError, match="case: cannot be written: No space left on device; nothing was changed there"
    ):
        write_case(candidate, found, tmp_path / "case")
    assert len(count) == 4
    assert sorted(tmp_path.iterdir()) == left


def _write_and_fail(path):
    path.write_text("new")
    raise ValueError("missing")


def test_what_was_there_stays_until_all_is_written(tmp_path):
    target = tmp_path / "case"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(ValueError, match="missing"), whole_folder(target) as partial:
        _write_and_fail(partial / "new")
    assert [each.name for each in target.iterdir()] == ["old"]
    with whole_folder(target) as partial:
        (partial / "new").write_text("new")
    assert [each.name for each in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_only_cases_are_replaced_and_only_when_asked(written, tmp_path):
    folder, _ = written
    refuse_occupied(tmp_path / "new" / "case", force=False, is_ours=is_case)
    (tmp_path / "empty").mkdir()
    refuse_occupied(tmp_path / "empty", force=False, is_ours=is_case)
    refuse_occupied(folder, force=True, is_ours=is_case)
    with pytest.raises(ConfigError, match="exists; replace it with --force"):
        refuse_occupied(folder, force=False, is_ours=is_case)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(ConfigError, match="holds something else"):
        refuse_occupied(tmp_path / "mine", force=True, is_ours=is_case)
    with pytest.raises(ConfigError, match="is no folder"):
        refuse_occupied(tmp_path / "mine" / "thesis.txt", force=True, is_ours=is_case)
    with pytest.raises(ConfigError, match=r"thesis\.txt is a file"):
        refuse_occupied(tmp_path / "mine" / "thesis.txt" / "case", force=True, is_ours=is_case)


def test_manifests_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match="no case here"):
        read_manifest(tmp_path)
    for text in ("", "{", '{"kind": "something else"}', "[]", "\x00"):
        (tmp_path / "manifest.json").write_text(text)
        assert not is_case(tmp_path)
        with pytest.raises(ConfigError, match="not the manifest of a case"):
            read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["four devices", "parameters shared"])
def test_the_budget_of_nodes_decides_the_granularity(tmp_path, name):
    candidate = candidate_of(tmp_path, name)
    each = {granularity: expand(candidate, granularity).case for granularity in Granularity}
    sizes = {granularity: case.n_nodes for granularity, case in each.items()}
    for granularity, case in each.items():
        assert expand(candidate, nodes=sizes[granularity]).case.granularity is granularity
        # It decides what is not tried: it must not be far above, and is below by what replicas exchange.
        assert 0 < estimated_nodes(case.placed, granularity) <= 1.2 * sizes[granularity]
    assert expand(candidate, nodes=sizes[Granularity.LAYER] - 1).case.granularity is Granularity.STAGE
    assert expand(candidate, nodes=1).case.granularity is Granularity.STAGE


def test_the_backend_with_congestion_gets_pieces_of_a_byte_at_least(written):
    _, found = written
    assert isinstance(found, Expanded)
    assert congestion_pieces(found.case) == 16
    tiny = HandCase(cluster(dimension(2)), [[compute(1)]] * 2)
    assert congestion_pieces(tiny) == 16


def test_one_device_has_no_network(tmp_path):
    path = run_file(tmp_path, 1, {"recompute": "full"}, {"workload": "opt-1.3b", "global_batch": 4})
    with pytest.raises(ValueError, match="at least 2"):
        expand(of_plan(load_plan(path)))


def test_groups_that_straddle_nodes_are_said_to_be_approximated(tmp_path):
    # Three replicas of four devices each on nodes of eight.
    placement = {"tensor_parallel": 4, "pipeline_parallel": 2, "data_parallel": 3}
    candidate = of_plan(load_plan(run_file(tmp_path, 24, placement, {"global_batch": 24})))
    found = expand(candidate, Granularity.STAGE)
    assert len(found.replayed.actors) == 24
    assert any(team.dimension is None for team, _ in found.case.groups)
    assert any(each.startswith("Uneven groups") for each in approximations(found.case))
    members = [group.members for group in found.case.process_groups()]
    assert all(len(set(each)) == len(each) >= 2 for each in members)


def test_a_case_that_no_memory_holds_is_refused_before_it_is_made(tmp_path, monkeypatch):
    candidate = candidate_of(tmp_path, "four devices")
    monkeypatch.setattr(expand_module, "_MOST_NODES", 1000)
    with pytest.raises(ValueError, match=r"about [\d,]+ nodes at granularity operator; at most 1,000 are written"):
        expand(candidate, Granularity.OPERATOR)


def sizes_of(case):
    return [layer.size for layer in layers(case)]


def test_one_dimension_is_written_as_two_where_that_is_the_same():
    pairs = {1: (0, 1), 2: (2, 3)}
    programs = [[compute(1)]] * 8
    assert sizes_of(HandCase(cluster(dimension(8)), programs, pairs)) == [2, 4]
    # A group of all devices would run over both of them; a ring of devices is none any more; seven have no parts.
    assert sizes_of(HandCase(cluster(dimension(8)), programs, {1: tuple(range(8))})) == [8]
    assert sizes_of(HandCase(cluster(dimension(8, topology=Topology.RING)), programs, pairs)) == [8]
    assert sizes_of(HandCase(cluster(dimension(7)), programs[:7], pairs)) == [7]
    assert sizes_of(HandCase(cluster(dimension(4), dimension(2)), programs, pairs)) == [2, 4]


def test_the_backend_with_congestion_has_the_network_as_it_is(tmp_path):
    candidate = candidate_of(tmp_path, "four devices")
    write_case(candidate, expand(candidate, Granularity.STAGE), tmp_path / "case")
    plain, congested = (
        yaml.safe_load((tmp_path / "case" / name).read_text()) for name in ("network.yaml", "network-congestion.yaml")
    )
    assert (plain["npus_count"], congested["npus_count"]) == ([2, 2], [4])
    assert plain["bandwidth"] == congested["bandwidth"] * 2
    system, cut = (
        json.loads((tmp_path / "case" / f"{name}.json").read_text()) for name in ("system", "system-congestion")
    )
    assert (system["all-reduce-implementation"], cut["all-reduce-implementation"]) == (["ring", "ring"], ["ring"])
    assert cut["preferred-dataset-splits"] == 16
    document = json.loads((tmp_path / "case" / "manifest.json").read_text())
    assert document["network"] == [{"dimension": "node", "npus": 4}]
    assert any(each.startswith("Network: its one dimension is written as two") for each in document["approximations"])
