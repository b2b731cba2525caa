"""What selective recomputation drops of a traced layer, and which operators bring it back.

Dropped is what grows with the square of the sequence: scores and probabilities of attention that is not fused
(Korthikanti et al. 2022, arXiv:2205.05198, section 5). Run again are the operators that wrote it, and those before
whose results are not kept.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from archplace.workloads.traced.tensor_graph import Symbol, Tensor


def grows_with_square(tensor: Tensor) -> bool:
    """Whether two dimensions of a tensor follow the sequence."""
    return sum(any(atom.symbol is Symbol.SEQUENCE for atom in dim) for dim in tensor.dims) > 1


def replay(
    dropped: Iterable[int],
    written_by: Mapping[int, str],
    reads: Mapping[str, AbstractSet[int]],
    there: AbstractSet[int],
) -> frozenset[str] | None:
    """Return the operators that bring ``dropped`` tensors back.

    ``written_by`` says which operator of the forward pass writes a tensor, ``reads`` what each reads, and ``there``
    what is kept or can be had anytime. None where something is needed that is not there and that no operator writes.
    """
    found: set[str] = set()
    wanted = list(dropped)
    while wanted:
        name = written_by.get(wanted.pop())
        if name is None:
            return None
        if name not in found:
            found.add(name)
            wanted += reads[name] - there
    return frozenset(found)
