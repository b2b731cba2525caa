"""One slow rank, what is said of all changes, and how a job's traces are opened and written."""

import hashlib
import json
from fractions import Fraction

import pytest
from whatif_helpers import after, job, plain_job, plain_nodes, records_of, step_of

from archplace.arch_configs.errors import ConfigError
from archplace.workloads.traces import Attribute, Metadata, Node, NodeKind, Trace, load_trace, save_trace, statistics_of
from archplace.workloads.traces.whatif import (
    WHAT_IF,
    Layers,
    Ranks,
    Scale,
    Size,
    SlowRank,
    change,
    disagreements,
    job_of,
    open_job,
    read_groups,
    read_layout,
    write_job,
    write_rank,
)


def timed(kind, parents=(), **values):
    values = {"duration_ns": 2500, "start_ns": 9} | values
    attributes = [Attribute.of(name, value) for name, value in values.items()]
    return {"kind": kind, "data_parents": parents, "duration_micros": 3, "start_micros": 1, "attributes": attributes}


def test_a_slow_rank_s_computing_lasts_longer():
    """Host calls, computing and memory; communication is what others wait for, and takes no longer itself."""
    fields = [
        timed(NodeKind.COMPUTE),
        timed(NodeKind.COMPUTE, is_cpu_op=True),
        timed(NodeKind.MEMORY_LOAD),
        timed(NodeKind.COLLECTIVE, comm_type=0, comm_size=8),
        timed(NodeKind.SEND, comm_dst=0),
    ]
    nodes = tuple(Node.build(id=i, **one) for i, one in enumerate(fields))
    before = job_of({rank: Trace(metadata=Metadata(), nodes=nodes) for rank in range(2)})
    found = after(before, SlowRank(rank=1, factor=Fraction(3, 2)))
    slow = list(found.traces[1].nodes())
    assert [node.value("duration_ns") for node in slow] == [3750, 3750, 3750, 2500, 2500]
    assert not any(node.start_micros or node.value("start_ns") for node in slow)
    assert plain_nodes(found.traces[0].nodes()) == plain_nodes(nodes)


def test_factors_of_a_slow_rank_multiply():
    before = job(step_of(data=2))
    twice = after(before, SlowRank(rank=1, factor=Fraction(2)), SlowRank(rank=1, factor=Fraction(3)))
    once = after(before, SlowRank(rank=1, factor=Fraction(6)))
    assert plain_job(twice) == plain_job(once)
    figures = [statistics_of(found.traces[1].nodes()) for found in (before, once)]
    assert figures[1].flops == 6 * figures[0].flops
    assert figures[1].communicated_bytes == figures[0].communicated_bytes
    assert plain_job(after(before, SlowRank(rank=1))) == plain_job(before)


def test_a_delay_is_ahead_of_everything():
    before = job(step_of(data=2))
    found = after(before, SlowRank(rank=0, delay_s=Fraction(3, 1000)))
    nodes = list(found.traces[0].nodes())
    delay = nodes[0]
    assert (delay.duration_micros, delay.value("duration_ns")) == (3000, 3_000_000)
    assert [node.id for node in nodes if not node.data_parents and not node.control_parents] == [delay.id]
    figures = statistics_of(nodes)
    assert figures.critical_path_ns == 3_000_000
    assert figures.n_nodes == len(list(before.traces[0].nodes())) + 1


@pytest.mark.parametrize("fields", [{"factor": Fraction(0)}, {"delay_s": Fraction(-1)}])
def test_no_rank_is_infinitely_fast(fields):
    with pytest.raises(ValueError, match="slower by a factor above 0 and a delay from 0 s"):
        SlowRank(rank=0, **fields)


def test_a_rank_without_a_trace_cannot_be_slow():
    with pytest.raises(ConfigError, match="--slow: rank 5 has no trace here; there are those of 0, 1"):
        after(job(step_of(data=2)), SlowRank(rank=5))


STEPS = [
    Scale(factors=((Size.HIDDEN, Fraction(3, 2)),)),
    Layers(count=2),
    Ranks(count=4),
    read_layout("tensor2,data2=data,tensor"),
    SlowRank(rank=3, factor=Fraction(2)),
]


def written(step, folder):
    folder.mkdir()
    for rank in range(step.groups.n_ranks):
        save_trace(step.trace(rank), folder / f"job.{rank}.et")
    return sorted(folder.glob("*.et"))


def test_all_steps_are_on_record_with_the_input_s_hash(tmp_path):
    step = step_of(tensor=2, data=4)
    paths = written(step, tmp_path / "in")
    said = []
    out = write_job(change(open_job(paths), STEPS), tmp_path / "out", said=said.append)
    assert [path.name for path in out] == ["job.0.et", "job.1.et", "job.2.et", "job.3.et", "groups.json"]
    assert len(said) == 4
    first = load_trace(out[0])
    records = records_of(first.metadata)
    # The file's own bytes, as records: what any tool can compute.
    assert {record.pop("input") for record in records} == {
        f"sha256:{hashlib.sha256(paths[0].read_bytes()).hexdigest()}"
    }
    assert records == [
        {"step": "scale", "hidden": "3/2"},
        {"step": "layers", "kind": "block", "from": 3, "to": 2},
        {"step": "ranks", "from": 8, "to": 4, "data_parallel": 4, "distance": 2},
        {"step": "layout", "axes": {"tensor": 2, "data": 2}, "to": ["data", "tensor"]},
        {"step": "slow", "rank": 3, "factor": "2", "changed": "work"},
    ]
    assert (first.metadata.value("rank"), first.metadata.value("world_size")) == (0, 4)
    groups = json.loads((tmp_path / "out" / "groups.json").read_text())
    assert groups == json.loads(first.metadata.value("process_groups"))

    again = open_job([path for path in out if path.suffix == ".et"])
    assert disagreements(again) == []
    assert again.n_ranks == 4
    assert set(again.groups.values()) == {(0, 2), (1, 3), (0, 1), (2, 3)}
    further = change(again, [Layers(count=3)])
    assert [record["step"] for record in records_of(further.metadata(0))] == [
        *("scale", "layers", "ranks", "layout", "slow"),
        "layers",
    ]


def test_steps_that_change_nothing_leave_the_nodes_bytes(tmp_path):
    paths = written(step_of(data=2), tmp_path / "in")
    nothing = [Scale(factors=((Size.HIDDEN, Fraction(1)),)), Layers(count=3), Ranks(count=2), SlowRank(rank=0)]
    write_job(change(open_job(paths), [*nothing, read_layout("data2=data")]), tmp_path / "out")
    for path in paths:
        before, now = load_trace(path), load_trace(tmp_path / "out" / path.name)
        assert [node.message.SerializeToString() for node in now.nodes] == [
            node.message.SerializeToString() for node in before.nodes
        ]
        kept = tuple(one for one in now.metadata.attributes if one.name != WHAT_IF)
        assert kept == before.metadata.attributes


def test_one_rank_of_many(tmp_path):
    step = step_of(data=4)
    save_trace(step.trace(2), tmp_path / "alone.et")
    found = open_job([tmp_path / "alone.et"])
    assert (found.n_ranks, list(found.traces)) == (4, [2])
    write_rank(change(found, [Layers(count=5)]), 2, tmp_path / "out.json.gz")
    assert load_trace(tmp_path / "out.json.gz").metadata.value("rank") == 2


def test_a_trace_is_not_written_over_itself(tmp_path):
    paths = written(step_of(data=2), tmp_path / "in")
    before = paths[0].read_bytes()
    with pytest.raises(ConfigError, match=r"job\.0\.et: is a trace that is read"):
        write_job(change(open_job(paths), [Layers(count=2)]), tmp_path / "in")
    assert paths[0].read_bytes() == before


def test_what_does_not_fit_together_is_said(tmp_path):
    (tmp_path / "in").mkdir()
    one, other = step_of(data=2), step_of(data=2, microbatches=2, tensor=2)
    save_trace(one.trace(0), tmp_path / "in" / "a.0.et")
    save_trace(other.trace(2), tmp_path / "in" / "a.2.et")
    found = open_job([tmp_path / "in" / "a.0.et", tmp_path / "in" / "a.2.et"])
    assert disagreements(found)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.0.et", "b.0.et"], r"b\.0\.et: rank 0 is also that of .*a\.0\.et: name the files NAME\.RANK\.et"),
        (["a.et", "b.et"], "which rank is this"),
    ],
)
def test_which_rank_is_which(tmp_path, names, text):
    for name in names:
        save_trace(Trace(metadata=Metadata(), nodes=(Node.build(id=0, kind=NodeKind.COMPUTE),)), tmp_path / name)
    with pytest.raises(ConfigError, match=text):
        open_job([tmp_path / name for name in names])


def test_a_name_and_metadata_that_contradict(tmp_path):
    save_trace(step_of(data=2).trace(1), tmp_path / "a.0.et")
    with pytest.raises(ConfigError, match="the name says rank 0, and the metadata say rank 1"):
        open_job([tmp_path / "a.0.et"])


def test_more_ranks_than_there_are_said_to_be(tmp_path):
    save_trace(step_of(data=4).trace(1), tmp_path / "a.1.et")
    with pytest.raises(ConfigError, match=r"4 ranks are known of, .* and 2 are said to be all"):
        open_job([tmp_path / "a.1.et"], n_ranks=2)


def test_a_group_that_nobody_knows():
    attributes = [Attribute.of("comm_type", 0), Attribute.of("comm_size", 8), Attribute.of("pg_name", "9")]
    node = Node.build(id=0, kind=NodeKind.COLLECTIVE, attributes=attributes)
    before = job_of({rank: Trace(metadata=Metadata(), nodes=(node,)) for rank in range(2)})
    with pytest.raises(ConfigError, match="process group '9' has collectives, and nothing says which ranks"):
        [list(trace.nodes()) for trace in after(before, Ranks(count=4)).traces.values()]
    known = job_of(dict(enumerate([Trace(metadata=Metadata(), nodes=(node,))] * 2)), groups={"9": (0, 1)})
    assert after(known, Ranks(count=4)).groups == {"9": (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "no JSON"),
        ("[1]", r"expected \{name: \[ranks\]\}"),
        ('{"1": [0, 0]}', "group '1': expected a list of different ranks from 0"),
        ('{"1": [-1]}', "group '1'"),
        ('{"1": [true]}', "group '1'"),
        ('{"1": 3}', "group '1'"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_groups_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        read_groups(text)


def test_no_traces_are_no_job():
    with pytest.raises(ConfigError, match="one trace at least"):
        job_of({})


def test_groups_in_three_numbers_do_not_fill_the_memory():
    """A node may state a group of any size; what it would take to list it is not spent."""
    nodes = tuple(
        Node.build(
            id=number,
            kind=NodeKind.COLLECTIVE,
            attributes=[
                *(Attribute.of("comm_type", 0), Attribute.of("comm_size", 8), Attribute.of("pg_name", f"g{number}")),
                *(Attribute.of("pg_size", size), Attribute.of("pg_first_rank", 0), Attribute.of("pg_rank_stride", 1)),
            ],
        )
        for number, size in enumerate([*[1 << 20] * 40, 1 << 62])
    )
    for some in (nodes[:40], nodes[-1:]):
        with pytest.raises(ConfigError, match=r"group 'g\d+' has rank [\d,]+: too many ranks"):
            job_of({0: Trace(metadata=Metadata(), nodes=some)})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "long", (1, 2), b"x"])
def test_durations_that_are_no_numbers_stay(value):
    node = Node.build(id=0, kind=NodeKind.COMPUTE, duration_micros=4, attributes=[Attribute.of("duration_ns", value)])
    found = after(job_of({0: Trace(metadata=Metadata(), nodes=(node,))}), SlowRank(rank=0, factor=Fraction(2)))
    slow = next(found.traces[0].nodes())
    assert slow.duration_micros == 8
    assert repr(slow.value("duration_ns")) == repr(value)
