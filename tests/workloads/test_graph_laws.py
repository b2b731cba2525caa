"""What holds for the operator graph of every layer of every model."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from workload_helpers import layer, models, operator, sharded_jobs, sharded_steps, step_macs

from archplace.workloads import (
    CollectiveKind,
    Gemm,
    Layer,
    LayerSharding,
    Model,
    Operator,
    OptimizerKind,
    Phase,
    Precision,
    TrainingStep,
    Unit,
    Workload,
    load_model,
    load_workload,
    model_names,
)


def step_of(model: Model, tensor_parallel: int, *, microbatch: int = 2, sequence_length: int = 16) -> TrainingStep:
    workload = Workload(
        name="w",
        model=model,
        sequence_length=sequence_length,
        global_batch=microbatch,
        precision=Precision.BF16,
        optimizer=OptimizerKind.ADAM,
    )
    return workload.step(LayerSharding(tensor=tensor_parallel, microbatch=microbatch))


def graphs(step: TrainingStep) -> Iterator[tuple[Operator, ...]]:
    for found, _ in step.layers:
        yield found.forward
        yield found.backward


def ancestors(operators: tuple[Operator, ...], name: str) -> set[str]:
    """The operator and all that it waits for."""
    by_name = {found.name: found for found in operators}
    found, todo = {name}, [name]
    while todo:
        new = [source for source in by_name[todo.pop()].inputs if source not in found]
        found.update(new)
        todo.extend(new)
    return found


@settings(max_examples=80, deadline=None)
@given(step=sharded_steps())
def test_every_graph_is_in_topological_order_with_unique_names(step: TrainingStep) -> None:
    for operators in graphs(step):
        seen: set[str] = set()
        for found in operators:
            assert found.name not in seen
            assert seen.issuperset(found.inputs)
            assert len(set(found.inputs)) == len(found.inputs)
            seen.add(found.name)


@settings(max_examples=80, deadline=None)
@given(step=sharded_steps())
def test_units_and_descriptions_agree_and_sizes_are_positive(step: TrainingStep) -> None:
    described = {
        Unit.TENSOR: (True, False, False),
        Unit.VECTOR: (False, True, False),
        Unit.FUSED: (True, True, False),
        Unit.NETWORK: (False, False, True),
    }
    for operators in graphs(step):
        for found in operators:
            has_product = (found.gemm is not None) != (found.attention is not None)
            present = (has_product, found.vector is not None, found.collective is not None)
            assert present == described[found.unit]
            assert found.attention is None or found.unit is Unit.FUSED
            for gemm in found.attention.products if found.attention is not None else ():
                assert min(gemm.batch, gemm.m, gemm.n, gemm.k) >= 1
            if found.gemm is not None:
                assert min(found.gemm.batch, found.gemm.m, found.gemm.n, found.gemm.k) >= 1
            if found.vector is not None:
                work = found.vector
                assert min(work.rows, work.row_length, work.operations_per_element, work.write_bytes) > 0
                assert work.read_bytes > 0 or found.unit is Unit.FUSED
                assert 0 <= work.reductions <= work.passes
            if found.collective is not None:
                assert found.collective.payload_bytes > 0
                assert found.collective.group_size == step.sharding.degree(found.collective.axis) > 1


@settings(max_examples=80, deadline=None)
@given(step=sharded_steps())
def test_data_gradients_wait_for_no_weight_gradient(step: TrainingStep) -> None:
    for operators in graphs(step):
        weights = {found.name for found in operators if found.phase is Phase.WEIGHT_GRADIENT}
        for found in operators:
            assert found.phase is Phase.WEIGHT_GRADIENT or weights.isdisjoint(found.inputs)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("sequence", [False, True])
def test_data_gradients_of_every_model_of_the_zoo_are_closed_under_inputs(name: str, sequence: bool) -> None:
    # What zero-bubble schedules need (Qi et al. 2023, arXiv:2401.10241): input gradients first, weight gradients later.
    workload = load_workload(name)
    sharding = LayerSharding(tensor=2, microbatch=1, sequence=sequence)
    if workload.refusal(sharding) is not None:
        sharding = LayerSharding(microbatch=1)
    for operators in graphs(workload.step(sharding)):
        first = {found.name for found in operators if found.phase is not Phase.WEIGHT_GRADIENT}
        assert all(first.issuperset(found.inputs) for found in operators if found.name in first)


@settings(max_examples=80, deadline=None)
@given(step=sharded_steps())
def test_all_other_work_leads_to_the_end(step: TrainingStep) -> None:
    for name in ("block", "head"):
        backward = layer(step, name).backward
        ends = [found.name for found in backward if found.phase is not Phase.WEIGHT_GRADIENT]
        assert ancestors(backward, ends[-1]) == set(ends)
    for name in ("embedding", "block"):
        forward = layer(step, name).forward
        assert ancestors(forward, forward[-1].name) == {found.name for found in forward}


@settings(max_examples=40, deadline=None)
@given(step=sharded_steps())
def test_phases_and_what_they_carry(step: TrainingStep) -> None:
    for found, _ in step.layers:
        assert {o.phase for o in found.forward} == {Phase.FORWARD}
        assert {o.phase for o in found.backward} <= {Phase.DATA_GRADIENT, Phase.WEIGHT_GRADIENT}
        assert all(o.parameters == 0 and o.stash_bytes == 0 for o in found.backward)
        assert found.parameters == sum(o.parameters for o in found.forward)
        assert found.stash_bytes == sum(o.stash_bytes for o in found.forward)
    first, block, last = (found for found, _ in step.layers)
    assert first.input_bytes == last.output_bytes == 0
    assert first.output_bytes == block.input_bytes == block.output_bytes == last.input_bytes
    share = step.sharding.context * (step.sharding.tensor if step.sharding.sequence else 1)
    assert block.input_bytes * share % (step.tokens * 2) == 0  # whole rows of two bytes


@settings(max_examples=80, deadline=None)
@given(job=sharded_jobs())
def test_no_sharding_changes_what_is_computed_in_all(job: tuple[Workload, LayerSharding]) -> None:
    workload, sharding = job
    shared, alone = workload.step(sharding), workload.step(LayerSharding(microbatch=sharding.microbatch))
    assert step_macs(shared) * sharding.stage_devices == step_macs(alone)
    for (share, count), (whole, same_count) in zip(shared.layers, alone.layers, strict=True):
        assert count == same_count
        # Nothing gets lost; in blocks nothing is kept twice where norms and sums are shared too.
        kept = share.stash_bytes * sharding.stage_devices
        assert kept >= whole.stash_bytes
        assert kept == whole.stash_bytes or sharding.tensor > 1
        assert kept == whole.stash_bytes or not sharding.sequence or share.name != "block"
        assert whole.parameters <= share.parameters * sharding.tensor <= whole.parameters * sharding.tensor


@settings(max_examples=40, deadline=None)
@given(model=models(width=4))
def test_one_device_exchanges_nothing(model: Model) -> None:
    assert not [found for operators in graphs(step_of(model, 1)) for found in operators if found.unit is Unit.NETWORK]


def all_reduces(operators: tuple[Operator, ...]) -> list[int]:
    found = [one.collective for one in operators if one.collective is not None]
    assert all(one.kind is CollectiveKind.ALL_REDUCE for one in found)
    return [one.payload_bytes for one in found]


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-70b", "opt-1.3b"])
@pytest.mark.parametrize("t", [2, 8])
def test_megatron_exchanges(name: str, t: int) -> None:
    # Shoeybi et al. 2019, section 3: two all-reduces forward and two backward per block; one behind the embedding;
    # one for the hidden gradient before the projection; three of a scalar per token in the loss.
    model = load_model(name)
    b, s = 2, 512
    step = step_of(model, t, microbatch=b, sequence_length=s)
    hidden = b * s * model.d_model * 2
    embedding, block, head = (layer(step, found) for found in ("embedding", "block", "head"))
    assert all_reduces(embedding.forward) == [hidden]
    assert all_reduces(embedding.backward) == []
    assert all_reduces(block.forward) == [hidden, hidden]
    assert all_reduces(block.backward) == [hidden, hidden]
    assert all_reduces(head.forward) == [4 * b * s] * 3
    assert all_reduces(head.backward) == [hidden]


def test_exchanges_wait_for_the_sum_of_the_gradients() -> None:
    backward = layer(step_of(load_model("llama2-7b"), 4), "block").backward
    attention = operator(backward, "attention_input.gradient_all_reduce")
    (total,) = attention.inputs
    assert set(operator(backward, total).inputs) == {
        "query.data_gradient",
        "key.data_gradient",
        "value.data_gradient",
    }


def test_queries_keys_and_values_do_not_wait_for_each_other() -> None:
    for name in ("llama2-7b", "opt-1.3b", "bert-large"):
        forward = layer(step_of(load_model(name), 1), "block").forward
        inputs = {operator(forward, found).inputs for found in ("query", "key", "value")}
        assert len(inputs) == 1
    forward = layer(step_of(load_model("gpt3-175b"), 1), "block").forward
    assert operator(forward, "scores").inputs == ("qkv",)
    assert operator(forward, "qkv").gemm == Gemm(m=32, n=3 * 12288, k=12288)


def test_swiglu_projections_do_not_wait_for_each_other() -> None:
    forward = layer(step_of(load_model("llama2-7b"), 2), "block").forward
    gate, up = operator(forward, "gate"), operator(forward, "up")
    assert gate.inputs == up.inputs == ("mlp_norm",)
    assert gate.gemm == up.gemm == Gemm(m=32, n=5504, k=4096)
    assert operator(forward, "activation").inputs == ("gate", "up")


def test_grouped_queries_share_keys_and_values() -> None:
    s, b = 128, 3
    found = layer(step_of(load_model("llama2-70b"), 4, microbatch=b, sequence_length=s), "block")
    # 64 query heads and 8 key heads on 4 devices: 2 key heads each, 8 query heads share one
    assert operator(found.forward, "scores").gemm == Gemm(batch=b * 2, m=8 * s, n=s, k=128)
    assert operator(found.forward, "context").gemm == Gemm(batch=b * 2, m=8 * s, n=128, k=s)
    assert operator(found.forward, "query").gemm == Gemm(m=b * s, n=16 * 128, k=8192)
    assert operator(found.forward, "key").gemm == Gemm(m=b * s, n=2 * 128, k=8192)
    # the gradient of a key head sums over the query heads that share it
    assert operator(found.backward, "scores.key_gradient").gemm == Gemm(batch=b * 2, m=s, n=128, k=8 * s)
    assert operator(found.backward, "context.value_gradient").gemm == Gemm(batch=b * 2, m=s, n=128, k=8 * s)


def test_gradients_of_a_linear_layer_are_two_products() -> None:
    backward = layer(step_of(load_model("gpt3-175b"), 8, sequence_length=64), "block").backward
    data, weight = operator(backward, "ffn_in.data_gradient"), operator(backward, "ffn_in.weight_gradient")
    assert data.gemm == Gemm(m=128, n=12288, k=6144)
    assert weight.gemm == Gemm(m=12288, n=6144, k=128)
    assert data.inputs == weight.inputs == ("activation.gradient",)


def test_fused_operators() -> None:
    def fused(step: TrainingStep) -> set[str]:
        return {o.name for operators in graphs(step) for o in operators if o.unit is Unit.FUSED}

    gpt, llama = load_model("gpt3-175b"), load_model("llama2-7b")
    # bias and activation; bias and dropout
    assert fused(step_of(gpt, 1)) == {"ffn_in", "projection", "ffn_out"}
    # behind an all-reduce dropout can no longer be an epilogue of the product
    assert fused(step_of(gpt, 2)) == {"ffn_in"}
    # rotary positions on the way out, and back
    assert fused(step_of(llama, 1)) == {"query", "key", "scores.query_gradient", "scores.key_gradient"}


def test_bytes_of_vector_work_by_hand() -> None:
    b, s, h, ff, a = 2, 16, 12288, 49152, 96
    found = layer(step_of(load_model("gpt3-175b"), 1), "block")

    def moved(name: str) -> tuple[int, int]:
        work = operator((*found.forward, *found.backward), name).vector
        assert work is not None
        return work.read_bytes, work.write_bytes

    hidden, scores = 2 * b * s * h, b * a * s * s
    assert moved("attention_norm") == (hidden + 2 * 2 * h, hidden)  # gain and bias too
    assert moved("softmax") == (2 * scores, 5 * scores)  # probabilities twice, a mask
    assert moved("ffn_in") == (0, 2 * 2 * b * s * ff)  # input and output of GELU
    assert moved("projection") == (0, hidden + hidden // 2)  # output and mask
    assert moved("projection.residual") == (2 * hidden, hidden)
    assert moved("projection.dropout.gradient") == (hidden + hidden // 2, hidden)
    assert moved("softmax.gradient") == (5 * scores, 2 * scores)
    assert moved("activation.gradient") == (2 * 2 * b * s * ff, 2 * b * s * ff)
    assert moved("mlp_norm.gradient") == (2 * hidden + 2 * h, hidden + 2 * 2 * h)


def test_gathering_and_scattering_move_rows_but_compute_little() -> None:
    b, s, h = 2, 16, 4096
    found = layer(step_of(load_model("llama2-7b"), 1), "embedding")
    (lookup,), (scatter,) = found.forward, found.backward
    assert lookup.vector is not None
    assert scatter.vector is not None
    rows = b * s * h * 2
    assert (lookup.vector.read_bytes, lookup.vector.write_bytes) == (rows, rows)
    assert (scatter.vector.read_bytes, scatter.vector.write_bytes) == (2 * rows, rows)  # rows are read to be added to
    assert scatter.phase is Phase.WEIGHT_GRADIENT


def test_equal_work_is_equal() -> None:
    def work(found: Layer) -> set[tuple[object, ...]]:
        return {(o.unit, o.gemm, o.vector, o.collective) for o in (*found.forward, *found.backward)}

    block = layer(step_of(load_model("gpt3-175b"), 1), "block")
    operators = len(block.forward) + len(block.backward)
    assert len(work(block)) < operators
    assert work(block) == work(layer(step_of(load_model("gpt3-175b"), 1), "block"))
    longer = replace(load_model("gpt3-175b"), n_layers=7)
    assert work(layer(step_of(longer, 1), "block")) == work(block)


@pytest.mark.parametrize("name", ["bert-large", "gpt3-175b", "llama2-70b", "opt-350m"])
@pytest.mark.parametrize("t", [1, 8])
def test_graphs_stay_small(name: str, t: int) -> None:
    block = layer(step_of(load_model(name), t), "block")
    assert len(block.forward) <= 18
    assert len(block.backward) <= 30
