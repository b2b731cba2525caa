"""Rules of rows by number, and of what puts rows where numbers say."""

from collections.abc import Sequence

from archplace.workloads.traced.nests import Dim, Nest, Operand, Operation, words
from archplace.workloads.traced.tensor_graph import LoopKind, TensorOpKind

_FREE, _SUMMED, _WHOLE = LoopKind.FREE, LoopKind.SUMMED, LoopKind.WHOLE
_ALONG = words("gather take_along_dim scatter scatter_add")
"""Of each row along one dimension elements by numbers of its own."""
_PUTS = words("index_add index_put _index_put_impl index_copy")
NAMES = _ALONG | _PUTS | words("embedding index_select index embedding_dense_backward embedding_backward")


def nests(name: str, operation: Operation) -> list[Nest]:
    """Return the nest of an operator; none where it lacks an operand or its numbers are of another kind."""
    if name in _ALONG:
        return _along(name, operation)
    if name in _PUTS:
        return _put(operation)
    if name.startswith("embedding_"):
        return _scattered_rows(operation)
    table, result = operation.operand("weight", "self", "input"), operation.result()
    found = _numbers(operation)
    if table is None or result is None or found is None:
        return []
    dim, numbers = found
    if dim + len(numbers) > len(table.shape):
        return []
    nest = Nest(TensorOpKind.LOOKUP)
    rows = nest.over(table.shape[dim : dim + len(numbers)], _SUMMED)
    ahead, asked, behind = _around(nest, table, dim, len(numbers), numbers[0].shape, _FREE)
    if tuple(nest.sizes[loop] for loop in (*ahead, *asked, *behind)) != result.shape:
        return []
    nest.read(table, [*ahead, *rows, *behind])
    for one in numbers:
        nest.read(one, list(asked))
    nest.write(result, [*ahead, *asked, *behind])
    return [nest]


def _numbers(operation: Operation) -> tuple[int, tuple[Operand, ...]] | None:
    """Return the first dimension that numbers are for, and the numbers of it and those behind it.

    None where truth values choose, or numbers of different shape, or of dimensions that are apart.
    """
    numbers, dim = operation.operand("indices", "index"), operation.number("dim")
    if numbers is None:
        return None
    if operation.name == "embedding":
        return 0, (numbers,)
    several, places = operation.operands_of("indices"), operation.places_of("indices")
    if not places:
        rank = len((operation.operand("self", "input") or numbers).shape)
        return dim % max(1, rank), (numbers,)
    together = places == tuple(range(places[0], places[0] + len(places)))
    if not together or len(several) != len(places) or any(one.shape != numbers.shape for one in several):
        return None
    return places[0], several


def _around(
    nest: Nest, table: Operand, dim: int, count: int, asked: Sequence[int], kind: LoopKind
) -> tuple[list[int], list[int], list[int]]:
    """Add loops over a table's dimensions before and behind those that numbers are for, and over the numbers."""
    return nest.over(table.shape[:dim]), nest.over(asked, kind), nest.over(table.shape[dim + count :])


def _put(operation: Operation) -> list[Nest]:
    """Rows added to a table, or put over it. Onto nothing but zeros it is a sum that can be made in parts."""
    table, rows, result = operation.operand("self"), operation.operand("source", "values"), operation.result()
    found = _numbers(operation)
    if table is None or rows is None or result is None or found is None:
        return []
    dim, numbers = found
    nest = Nest(TensorOpKind.LOOKUP)
    target = nest.over(table.shape[dim : dim + len(numbers)])
    onto_zeros = operation.is_zero(table)
    ahead, asked, behind = _around(nest, table, dim, len(numbers), numbers[0].shape, _SUMMED if onto_zeros else _WHOLE)
    if tuple(nest.sizes[loop] for loop in (*ahead, *asked, *behind)) != rows.shape:
        return []
    if not onto_zeros:
        nest.read(table, [*ahead, *target, *behind])
    nest.read(rows, [*ahead, *asked, *behind])
    for one in numbers:
        nest.read(one, list(asked))
    nest.write(result, [*ahead, *target, *behind])
    return [nest]


def _along(name: str, operation: Operation) -> list[Nest]:
    table, numbers, result = operation.operand("self", "input"), operation.operand("index"), operation.result()
    if table is None or numbers is None or result is None or len(table.shape) != len(numbers.shape):
        return []
    puts = name.startswith("scatter")
    rank = len(table.shape)
    dim = operation.number("dim") % max(1, rank)
    if any(table.shape[at] != numbers.shape[at] for at in range(rank) if at != dim):
        return []
    onto_zeros = puts and operation.is_zero(table)
    nest = Nest(TensorOpKind.LOOKUP)
    kind = _FREE if not puts else _SUMMED if onto_zeros else _WHOLE
    asked = [nest.loop(size, kind if at == dim else _FREE) for at, size in enumerate(numbers.shape)]
    rows: list[Dim] = list(asked)
    rows[dim] = nest.loop(table.shape[dim], _FREE if puts else _SUMMED)
    if not onto_zeros:
        nest.read(table, rows)
    source = operation.operand("src") if puts else None
    if source is not None and source.shape == numbers.shape:
        nest.read(source, list(asked))
    nest.read(numbers, list(asked))
    nest.write(result, rows if puts else list(asked))
    return [nest]


def _scattered_rows(operation: Operation) -> list[Nest]:
    gradient, numbers = operation.operand("grad_output", "grad"), operation.operand("indices")
    result = operation.result()
    if gradient is None or numbers is None or result is None or len(result.shape) != 2:
        return []
    nest = Nest(TensorOpKind.LOOKUP)
    rows, asked, columns = nest.loop(result.shape[0]), nest.over(numbers.shape, _SUMMED), nest.loop(result.shape[1])
    nest.read(gradient, [*asked, columns])
    nest.read(numbers, list(asked))
    nest.write(result, [rows, columns])
    return [nest]
