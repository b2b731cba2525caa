"""Full recomputation that stops as soon as the backward pass has what it needs."""

from collections.abc import Sequence
from dataclasses import replace

from archplace.workloads.operators import Operator
from archplace.workloads.training_step import Layer


def needed_again(forward: Sequence[Operator]) -> tuple[str, ...]:
    """Return the operators of a forward graph that leave something for the backward pass, and all that they wait for.

    In the order of the graph. A transformer block's last product is not among them where nothing of its result is kept:
    the next block keeps its own input. Compilers remove what is not needed (JAX's ``jax.checkpoint`` under XLA), and
    PyTorch's checkpoints stop there since version 2.1 (``early_stop`` of ``torch.utils.checkpoint``); Megatron-LM runs
    the whole block again.
    """
    needed: set[str] = set()
    for operator in reversed(forward):
        if operator.stash_bytes or operator.name in needed:
            needed |= {operator.name, *operator.inputs}
    return tuple(operator.name for operator in forward if operator.name in needed)


def stop_early(layers: Sequence[tuple[Layer, int]]) -> tuple[tuple[Layer, int], ...]:
    """Return the layers with full recomputation that stops early."""
    return tuple((replace(layer, full_replay=needed_again(layer.forward)), count) for layer, count in layers)
