"""Rows of published steps become the strategies that they describe."""

from dataclasses import replace

import pytest
from accuracy_helpers import BLOOM_LIKE, LLAMA_LIKE, step

from archplace.arch_configs.errors import ConfigError
from archplace.costmodel import SharedStates
from archplace.search.accuracy.jobs import hardware_of, job_of
from archplace.search.pipeline import PipelineSchedule
from archplace.workloads import Activation, Norm, Positions, Recompute


def job(**values):
    row = step(**values)
    return job_of(row, *hardware_of(row.hardware))


def test_degrees_are_those_of_the_row():
    found = job(n_devices=64, tp=8, pp=4, dp=2, micro_batch=2, global_batch=64, recompute=Recompute.FULL)
    strategy = found.strategy
    assert (strategy.sharding.tensor, strategy.stages, strategy.data) == (8, 4, 2)
    assert (strategy.schedule, strategy.policies) == (PipelineSchedule.ONE_F_ONE_B, (Recompute.FULL,))
    assert strategy.microbatches(found.problem.workload) == 16
    assert found.problem.accelerators == 64


def test_stages_hold_equal_numbers_of_blocks_with_embedding_and_head_on_the_ends():
    assert job(n_devices=32, tp=8, pp=4, dp=1).held == ((1, 6, 0), (0, 6, 0), (0, 6, 0), (0, 6, 1))
    # Where they do not divide, the first stages hold one more.
    assert job(n_devices=40, tp=8, pp=5, dp=1).held == ((1, 5, 0), (0, 5, 0), (0, 5, 0), (0, 5, 0), (0, 4, 1))


def test_virtual_stages_are_interleaved():
    found = job(n_devices=32, tp=8, pp=4, vpp=3, dp=1)
    assert (found.strategy.schedule, found.strategy.virtual, found.held) == (PipelineSchedule.INTERLEAVED, 3, None)
    alone = job(vpp=3)
    assert (alone.strategy.schedule, alone.strategy.virtual) == (PipelineSchedule.ONE_F_ONE_B, 1)


@pytest.mark.parametrize(("stage", "states"), [(0, "none"), (1, "optimizer"), (2, "gradients"), (3, "parameters")])
def test_zero_stages_share_states(stage, states):
    assert job(zero_stage=stage).strategy.states.states is SharedStates(states)


def test_alone_there_is_nobody_to_share_states_with():
    found = job(n_devices=8, tp=8, dp=1, zero_stage=1)
    assert found.strategy.states.states is SharedStates.NONE


def test_models_with_a_gated_feed_forward_part_are_like_llama_and_others_like_gpt3():
    llama, gpt = job(**LLAMA_LIKE).problem.workload.model, job(**BLOOM_LIKE).problem.workload.model
    assert (llama.activation, llama.norm, llama.positions) == (Activation.SILU, Norm.RMS_NORM, Positions.ROPE)
    assert (llama.bias, llama.tied_head) == (False, False)
    assert (gpt.activation, gpt.norm, gpt.positions) == (Activation.GELU, Norm.LAYER_NORM, Positions.LEARNED)
    assert (gpt.bias, gpt.tied_head) == (True, True)


def test_dropout_is_of_the_time_before_fused_attention():
    assert job(fused_attention=False).problem.workload.model.dropout == 0.1
    assert job(fused_attention=True).problem.workload.model.dropout == 0.0


def test_vocabularies_are_padded_for_every_tensor_parallel_device():
    assert job(vocab=50257, n_devices=8, tp=8, dp=1).problem.workload.model.padded_vocabulary == 51200


def test_experts_are_spread_as_wide_as_other_layers_where_there_is_room():
    moe = {**LLAMA_LIKE, "n_experts": 8, "top_k": 2, "moe_d_ff": 4096, "n_devices": 64}
    narrow = job(**moe, tp=8, dp=8, ep=8).strategy.sharding
    assert (narrow.expert, narrow.expert_tensor) == (8, 8)
    wide = job(**moe, tp=8, dp=2, pp=4, ep=8).strategy.sharding
    assert (wide.expert, wide.expert_tensor) == (8, 1)


def test_pods_share_states_inside_and_meet_over_the_slow_network():
    found = job(hardware="tpu-v5p", n_devices=128, tp=4, dp=32, zero_stage=3, global_batch=768, note="slices=2")
    assert found.strategy.states.group == 16
    dimensions = found.problem.cluster.dimensions
    assert (dimensions[-1].name, dimensions[-1].size) == ("pods", 2)
    assert dimensions[0].size == 4


def test_jobs_larger_than_a_pod_are_on_several():
    found = job(hardware="tpu-v5e", n_devices=1024, dp=1024, zero_stage=3, global_batch=1024)
    assert [dimension.size for dimension in found.problem.cluster.dimensions] == [16, 16, 4]
    assert found.strategy.states.group == 256


def test_batches_that_do_not_divide_are_rounded_up_to_whole_microbatches():
    found = job(micro_batch=3, global_batch=100)
    assert found.problem.workload.global_batch == 120
    assert found.flops == job(micro_batch=1, global_batch=100, dp=4, tp=2).flops


def test_blocks_that_do_not_divide_over_virtual_stages_are_rounded_up():
    # Llama 3 405B: 126 blocks on 16 stages.
    found = job(n_layers=126, n_devices=128, tp=8, pp=16, vpp=8, dp=1)
    assert found.problem.workload.model.n_layers == 128
    assert found.flops == pytest.approx(job(n_layers=126).flops, rel=1e-12)


def test_key_and_value_heads_are_copied_for_more_tensor_parallel_devices():
    found = job(**{**LLAMA_LIKE, "n_kv_heads": 4}, n_devices=8, tp=8, dp=1)
    assert found.problem.workload.model.n_kv_heads == 8
    assert job(**{**LLAMA_LIKE, "n_kv_heads": 8}, n_devices=8, tp=4, dp=2).problem.workload.model.n_kv_heads == 8


def test_microbatches_that_do_not_divide_over_the_stages_run_without_interleaving():
    found = job(n_devices=32, tp=8, pp=4, vpp=3, dp=1, global_batch=10)
    assert found.strategy.schedule is PipelineSchedule.ONE_F_ONE_B
    assert found.held is not None


def test_software_of_the_cluster_says_how_jobs_run():
    _, cluster = hardware_of("h100-sxm-dgx")
    accelerator, _ = hardware_of("h100-sxm-dgx")
    row = step(hardware="h100-sxm-dgx", n_devices=32, tp=8, dp=4, sequence_parallel=True)
    software = replace(cluster.software, tensor_pieces=4, data_overlap=False, early_stop=True)
    found = job_of(row, accelerator, cluster.under(software))
    assert found.strategy.sharding.overlap_pieces == 4
    assert not found.strategy.overlap.data
    assert found.problem.workload.early_stop
    whole = job_of(replace(row, sequence_parallel=False), accelerator, cluster.under(software))
    assert whole.strategy.sharding.overlap_pieces == 1


def test_degrees_that_contradict_the_devices_are_refused():
    with pytest.raises(ValueError, match="tp 8 x cp 1 x dp 2 x pp 1 = 16 devices, but n_devices is 32"):
        job(n_devices=32, tp=8, dp=2)


def test_hardware_must_name_its_accelerator():
    with pytest.raises(ConfigError, match="'flat-4gib' does not say of which accelerators"):
        hardware_of("flat-4gib")
    with pytest.raises(ConfigError, match="did you mean 'tpu-v5p'"):
        hardware_of("tpu-v5pp")


def test_hardware_may_be_an_accelerator_alone_or_with_a_cluster():
    accelerator, cluster = hardware_of("tpu-v6e@a100-superpod")
    assert (accelerator.name, cluster.name) == ("tpu-v6e", "a100-superpod")
    assert [part.name for part in hardware_of("mi300x")] == ["mi300x", "mi300x-node"]
    # Of several clusters that of the most published steps.
    assert [part.name for part in hardware_of("a100-80gb")] == ["a100-80gb", "a100-80gb-mosaic"]
    # A cluster comes first where an accelerator has the same name.
    assert hardware_of("tpu-v5p")[1].name == "tpu-v5p"
    with pytest.raises(ConfigError, match="put it in: mi210@CLUSTER"):
        hardware_of("mi210")


def test_virtual_stages_that_do_not_divide_the_fullest_device_are_fewer():
    # 96 blocks on 8 stages are 12 each, which 5 does not divide.
    found = job(n_layers=96, n_devices=64, tp=8, pp=8, vpp=5, dp=1, global_batch=16)
    assert (found.strategy.virtual, found.problem.workload.model.n_layers) == (4, 96)


def test_sequences_that_do_not_divide_over_tensor_parallel_devices_are_whole():
    # PaLM on TPU v4 (Chowdhery et al. 2022, arXiv:2204.02311): sequences of 2,048 tokens on 12 devices.
    values = {"n_heads": 48, "n_kv_heads": 48, "n_devices": 24, "tp": 12, "dp": 2, "zero_stage": 3}
    assert not job(**values, seq_len=2048).strategy.sharding.sequence
    assert job(**values, seq_len=2052).strategy.sharding.sequence
