"""Which loops an operator runs: rules by name, and one for all that have none.

An operator without a rule is still a node of the graph: it moves its bytes, and no loop of it can be cut. Dimensions
of equal size at the same place of operands and results are taken for the same, so that a batch stays known.
"""

from archplace.workloads.traced import _rules_indices, _rules_maps, _rules_products, _rules_rows, _rules_views
from archplace.workloads.traced.nests import MisfitError, Nest, Operation, words
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

_COMPOSITES = words(
    "linear matmul softmax log_softmax layer_norm rms_norm batch_norm max_pool2d max_pool1d adaptive_avg_pool2d "
    "cross_entropy_loss reshape contiguous to flatten dropout embedding_backward scaled_dot_product_attention "
    "type_as float half bfloat16 expand_as view_as take_along_dim chunk broadcast_to movedim norm"
)
"""Operators that are made of others: their own rule holds only where nothing is seen inside."""


def base_name(name: str) -> str:
    """Return an operator's name without ATen's namespace and without the mark of in-place forms."""
    name = name.removeprefix("aten::")
    return name[:-1] if name.endswith("_") and not name.startswith("_") and len(name) > 1 else name


def is_followed_no_further(name: str) -> bool:
    """Whether an operator's work is known, so that nothing inside needs to be looked at."""
    name = base_name(name)
    return name not in _COMPOSITES and _has_rule(name)


def nests_of(operation: Operation) -> tuple[list[Nest], bool]:
    """Return an operator's nests, and whether it is one whose work is known."""
    if not operation.results:
        return [], True
    try:
        found = _by_rule(base_name(operation.name), operation)
    except (MisfitError, IndexError, ZeroDivisionError):
        # A trace that contradicts itself, or a form of the operator with other operands.
        found = []
    return (found, True) if found else ([whole_nest(operation)], False)


def _by_rule(name: str, operation: Operation) -> list[Nest]:
    if name in _rules_maps.names():
        return _rules_maps.nests(name, operation)
    if _rules_products.known(name) or name == "scaled_dot_product_attention":
        return _rules_products.nests(name, operation)
    if _rules_rows.known(name):
        return _rules_rows.nests(name, operation)
    if name in _rules_indices.NAMES:
        return _rules_indices.nests(name, operation)
    return _rules_views.nests(name, operation) if _rules_views.known(name) else []


def _has_rule(name: str) -> bool:
    return (
        name in _rules_maps.names()
        or _rules_products.known(name)
        or _rules_rows.known(name)
        or name in _rules_indices.NAMES
        or _rules_views.known(name)
    )


def whole_nest(operation: Operation) -> Nest:
    """Return the nest of an operator of which nothing is known but its operands."""
    nest = Nest(TensorOpKind.MOVE if operation.moves else TensorOpKind.VIEW)
    loops: dict[tuple[int, int], int] = {}
    for write, operands in ((False, operation.operands()), (True, operation.results)):
        for operand in operands:
            index: list[int | None] = []
            for dim, size in enumerate(operand.shape):
                if (dim, size) not in loops:
                    loops[dim, size] = nest.loop(size, LoopKind.WHOLE)
                index.append(loops[dim, size])
            (nest.write if write else nest.read)(operand, index)
    return nest
