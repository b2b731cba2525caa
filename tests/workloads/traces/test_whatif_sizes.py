"""What if the model were larger? Then its trace is that of the larger model."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from today_helpers import today_models
from today_helpers import workload as today_workload
from whatif_helpers import GPT, SCALING, after, job, plain_job, ring_step, step_of

from archplace.arch_configs.errors import ConfigError
from archplace.workloads import ContextKind, LayerSharding, Recompute
from archplace.workloads.traces import Attribute, Metadata, Node, NodeKind, Trace
from archplace.workloads.traces.from_workload import StepTrace
from archplace.workloads.traces.whatif import (
    Law,
    Scale,
    Size,
    change,
    job_of,
    laws_text,
    read_assumption,
    read_laws,
)

FACTORS = st.fractions(min_value=Fraction(1, 8), max_value=8, max_denominator=8)


def scale(**factors):
    return Scale(factors=tuple((Size(name), Fraction(factor)) for name, factor in factors.items()))


def wider(model, factor):
    return replace(
        model,
        d_model=model.d_model * factor,
        head_dim=model.head_dim * factor,
        d_ff=model.d_ff * factor,
        embedding_width=model.embedding_width * factor,
    )


SHARDED = {
    "one device": {},
    "sequence parallel": {"tensor": 2, "sequence": True, "data": 2},
    "gathered context": {"context": 2, "context_kind": ContextKind.ALL_GATHER},
    "recompute": {"recompute": Recompute.FULL, "microbatches": 2},
}


@pytest.mark.parametrize("given_fields", SHARDED.values(), ids=list(SHARDED))
def test_a_scaled_trace_is_the_larger_model_s(given_fields):
    """All numbers of all nodes, laws included: FLOPs, bytes, payloads and loops."""
    small = job(step_of(**given_fields))
    expected = job(step_of(wider(GPT, 3), **given_fields))
    assert plain_job(after(small, scale(hidden=3))) == plain_job(expected)

    longer = job(step_of(replace(GPT, max_positions=64), sequence_length=64, **given_fields))
    assert plain_job(after(small, scale(sequence=2))) == plain_job(longer)

    fuller = job(step_of(**(given_fields | {"microbatch": 5, "global_batch": 100})))
    assert plain_job(after(small, scale(batch=5))) == plain_job(fuller)


def test_messages_round_a_ring_are_the_larger_model_s():
    assert plain_job(after(job(ring_step()), scale(hidden=2))) == plain_job(job(ring_step(model=wider(GPT, 2))))
    fuller = job(ring_step(microbatch=3, global_batch=96))
    assert plain_job(after(job(ring_step()), scale(batch=3))) == plain_job(fuller)


@settings(deadline=None, max_examples=5)
@given(today_models().filter(lambda model: model.experts is not None))
def test_more_experts_are_the_larger_model_s(model):
    workload, sharding = today_workload(model), LayerSharding(microbatch=1)
    more = replace(model, experts=replace(model.experts, n_experts=16))
    small, large = (StepTrace(workload=replace(workload, model=one), sharding=sharding) for one in (model, more))
    # Of vector work, whose rows are rounded up, there are numbers without a law; they are left out, not guessed.
    left_out = {"without": ("vector_ops", "loops", SCALING)}
    assert plain_job(after(job(small), scale(experts=2)), **left_out) == plain_job(job(large), **left_out)


@given(FACTORS, FACTORS, st.sampled_from(["hidden", "sequence", "batch"]))
@settings(deadline=None, max_examples=10)
def test_factors_multiply(one, other, size):
    """Laws are exact, so that rounding the numbers on the way changes nothing."""
    before = job(step_of(replace(GPT, n_layers=1)))
    twice = after(before, scale(**{size: one}), scale(**{size: other}))
    assert plain_job(twice) == plain_job(after(before, scale(**{size: one * other})))
    back = after(before, scale(**{size: one}), scale(**{size: 1 / one}))
    assert plain_job(back) == plain_job(before)


def test_factor_one_changes_nothing_but_the_record():
    before = job(step_of())
    changed = change(before, [scale(hidden=1, sequence=1)])
    assert plain_job(changed.job) == plain_job(before)
    assert changed.records == ({"step": "scale", "hidden": "1", "sequence": "1"},)


def test_durations_follow_the_work():
    """A product's its FLOPs, other computing's its bytes, a communication's its payload."""
    laws = "num_ops = 8 hidden^2; tensor_size = 40 hidden"
    nodes = (
        node(0, laws, num_ops=8, tensor_size=40),
        node(1, "tensor_size = 30 hidden + 10", tensor_size=40),
        node(2, "comm_size = 16 hidden", NodeKind.COLLECTIVE, comm_size=16, comm_type=0, pg_name=""),
        node(3, "", is_cpu_op=True),
    )
    # Nothing tells how a host's call grows: it is counted, and stays.
    before = job_of({0: Trace(metadata=Metadata(), nodes=nodes)}, n_ranks=2)
    changed = change(before, [scale(hidden=2)])
    assert changed.records == ({"step": "scale", "hidden": "2", "kept_durations": 1},)
    found = list(changed.job.traces[0].nodes())
    assert [one.duration_micros for one in found] == [400, 175, 200, 100]
    assert [one.value("duration_ns") for one in found] == [400_000, 175_000, 200_000, 100_000]
    # Starts hold no more where durations have changed, also of nodes whose own has not.
    assert not any(one.start_micros or one.value("start_ns") for one in found)


def node(number, laws, kind=NodeKind.COMPUTE, **values):
    values = {"duration_ns": 100_000, "start_ns": 5} | values | ({SCALING: laws} if laws else {})
    attributes = [Attribute.of(name, value) for name, value in values.items()]
    return Node.build(id=number, kind=kind, start_micros=7, duration_micros=100, attributes=attributes)


def test_nodes_without_laws_are_counted_and_an_assumption_helps():
    values = [{"num_ops": 80, "tensor_size": 6}, {"tensor_size": 40}, {"comm_size": 4, "comm_type": 0, "pg_name": ""}]
    kinds = [NodeKind.COMPUTE, NodeKind.COMPUTE, NodeKind.COLLECTIVE]
    nodes = tuple(node(i, "", kinds[i], **values[i]) for i in range(3))
    before = job_of({0: Trace(metadata=Metadata(), nodes=nodes)}, n_ranks=2)
    with pytest.raises(ConfigError, match=r"3 of 3 working nodes do not say .* node 0 \(''\) has num_ops, tensor_size"):
        after(before, scale(hidden=2))
    assumed = read_assumption("product: 3 hidden^2 + 1 hidden; other: hidden; exchange: hidden")
    found = list(after(before, assumed, scale(hidden=2)).traces[0].nodes())
    assert [found[0].value(name) for name in ("num_ops", "tensor_size")] == [80 * 14 // 4, 6 * 14 // 4]
    assert [found[1].value("tensor_size"), found[2].value("comm_size")] == [80, 8]
    # Where a trace says nothing but how long, that is what follows; calls on the host last as long as before.
    bare = job_of({0: Trace(metadata=Metadata(), nodes=(node(0, ""), node(1, "", is_cpu_op=True)))})
    for steps in ([scale(hidden=6)], [scale(hidden=2), scale(hidden=3)]):
        found = list(after(bare, read_assumption("other: hidden"), *steps).traces[0].nodes())
        assert [one.duration_micros for one in found] == [600, 100]
    with pytest.raises(ConfigError, match="nothing in these traces follows the size batch; there are: hidden"):
        after(before, assumed, scale(batch=2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden^2", "expected laws by kind of work"),
        ("gemm: hidden", "kinds of work are product, other, exchange, found 'gemm'"),
        ("product: width", "sizes are batch, sequence, hidden, experts"),
        ("product: 0", "one term at least"),
        ("product: hidden * 2", "a term reads '12 batch hidden\\^2'"),
    ],
)
def test_assumptions_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        read_assumption(text)


LAWS = st.dictionaries(st.tuples(*[st.integers(-1, 3)] * 4), st.fractions(min_value=0, max_value=1000), max_size=4).map(
    Law.of
)


@given(st.dictionaries(st.sampled_from(["num_ops", "tensor_size", "loops[2]"]), LAWS))
def test_laws_are_written_and_read(laws):
    stated = tuple(laws.items())
    assert read_laws(laws_text(stated)) == stated


@given(LAWS, FACTORS, st.sampled_from(Size))
def test_a_law_scales_each_term_by_its_power(law, factor, size):
    place = list(Size).index(size)
    assert law.scaled(size, factor).value == sum(c * factor ** powers[place] for powers, c in law.terms)
    assert law.follows(size) == any(powers[place] for powers, _ in law.terms)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_ops", "a scaling law reads"),
        ("num_ops = 1/0 hidden", "divides by zero"),
        ("num_ops = -1 hidden", "a term reads"),
        ("num_ops = 1 hidden^99999", "a term reads"),
        ("Num = 1", "a scaling law reads"),
        ("x = " + "1 hidden + " * 1000 + "1", "at most 4,000 are read"),
    ],
)
def test_laws_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        read_laws(text)
    before = job_of({0: Trace(metadata=Metadata(), nodes=(node(7, text, num_ops=3),))})
    with pytest.raises(ConfigError, match=f"node 7 .*: scaling: .*{message}"):
        after(before, scale(hidden=2))


def test_a_law_that_gives_nothing_is_none():
    before = job_of({0: Trace(metadata=Metadata(), nodes=(node(7, "num_ops = 0; tensor_size = 1 hidden", num_ops=3),))})
    with pytest.raises(ConfigError, match=r"node 7 \(''\) has num_ops and no law"):
        after(before, scale(hidden=2))


@pytest.mark.parametrize("before", [8, 1e308])
def test_numbers_beyond_their_field_are_refused(before):
    """Whole numbers of 64 bits, and floating-point numbers."""
    job = job_of({0: Trace(metadata=Metadata(), nodes=(node(7, "num_ops = 8 hidden^2", num_ops=before),))})
    with pytest.raises(ConfigError, match=r"rank\.0\.et: node 7: num_ops cannot be \d+.* as (int64|double)_val"):
        list(after(job, scale(hidden=10**10)).traces[0].nodes())
