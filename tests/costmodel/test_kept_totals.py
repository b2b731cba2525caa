"""A pricer keeps the seconds of operators that it has priced: graphs repeat most of theirs."""

import numpy as np
import pytest

from archplace.arch_configs import load_cluster, load_space
from archplace.costmodel import Pricer, operators
from archplace.workloads import LayerSharding, load_workload

CLUSTER = load_cluster("tpu-v4-pod").sized(64)


@pytest.mark.parametrize("kept", [0, 500, 1 << 22], ids=["none", "some", "all"])
def test_prices_do_not_depend_on_what_was_priced_before(monkeypatch, kept):
    monkeypatch.setattr(operators, "_KEPT_TOTALS", kept)
    space = load_space("phaze").enumerate()
    archs = space.take(np.arange(7, len(space), len(space) // 50))
    step = load_workload("gpt2-xl").step(LayerSharding(tensor=1, microbatch=2))
    listed = [operator for layer, _ in step.layers for operator in (*layer.forward, *layer.backward)]
    pricer = Pricer(archs, CLUSTER)
    together, again = pricer.price(listed), pricer.price(listed[::-1])
    part = pricer.subset(np.arange(5)).price(listed)
    for i, operator in enumerate(listed):
        alone = Pricer(archs, CLUSTER).price([operator])
        for mode in ("one_s", "all_s"):
            expected = getattr(alone, mode)[:, 0]
            np.testing.assert_array_equal(getattr(together, mode)[:, i], expected)
            np.testing.assert_array_equal(getattr(again, mode)[:, -1 - i], expected)
            np.testing.assert_array_equal(getattr(part, mode)[:, i], expected[:5])
