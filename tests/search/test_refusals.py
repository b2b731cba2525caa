"""What the search of accelerators refuses before it places anything."""

from archplace.search.steptimes import refusals
from archplace.workloads import load_workload


def test_models_of_several_kinds_of_blocks() -> None:
    reasons = refusals(load_workload("deepseek-v3"), (1, 2), (1, 4))
    assert set(reasons) == {(1, 1), (1, 4), (2, 1), (2, 4)}
    assert set(reasons.values()) == {
        "deepseek-v3 has 3 kinds of blocks (3 × dense_block, 58 × expert_block, 1 × prediction_block); the search of "
        "accelerators places models of one kind"
    }


def test_models_of_one_kind_are_refused_for_their_own_reasons_only() -> None:
    reasons = refusals(load_workload("mixtral-8x7b"), (1, 2), (1,))
    assert set(reasons) == {(2, 1)}
    assert "without sequence parallelism" in reasons[2, 1]
    assert refusals(load_workload("vit-huge"), (1, 2), (1, 4)) == {}
