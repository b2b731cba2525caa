"""Layers executed by numbers: whole, and on the devices of a group as a sharded layer says.

Products multiply, reductions add up, linear maps add their operands, other maps square the sum. Passes over rows are
not executed. Groups are given by their degrees, in the order in which they share the layer; these have no common
divisor, so that sizes say which group has cut them.
"""

import itertools

import numpy as np

from archplace.workloads.operators import CollectiveKind
from archplace.workloads.traced.tensor_graph import TensorOpKind, TensorRole


def shape(tensor):
    return tuple(atom.size for dim in tensor.dims for atom in dim)


def _indices(access):
    return [index for dim in access.loops for index in dim]


def _letters(access):
    return "".join(chr(ord("a") + index) for index in _indices(access))


def _executed(op, operands):
    reads, (write,) = [_letters(access) for access in op.reads], op.writes
    written = _letters(write)
    if op.kind is TensorOpKind.PRODUCT:
        return np.einsum(f"{','.join(reads)}->{written}", *operands)
    if op.kind is TensorOpKind.REDUCTION:
        return np.einsum(f"{reads[0]}->{written}", operands[0])
    assert op.kind is TensorOpKind.MAP, op.name
    total = np.zeros([op.loops[index].size for index in _indices(write)])
    for letters, operand in zip(reads, operands, strict=True):
        ordered = [letter for letter in written if letter in letters]
        aligned = np.einsum(f"{letters}->{''.join(ordered)}", operand)
        total = total + aligned.reshape(
            [size if x in letters else 1 for x, size in zip(written, total.shape, strict=True)]
        )
    return total if op.linear else total**2


def run_whole(layer, values):
    """Return all tensors of a layer; ``values`` gives those that no operator writes."""
    values = dict(values)
    for op in layer.operators:
        values[op.writes[0].tensor] = _executed(op, [values[access.tensor] for access in op.reads])
    return values


def all_devices(degrees):
    """The coordinates of all devices: which member each is of a group along each axis."""
    return list(itertools.product(*(range(degree) for degree in degrees.values())))


def part_of(array, local, degrees, device):
    """The part of an array that ``device`` holds in a tensor of ``local`` shape."""
    for axis, wanted in enumerate(local):
        for degree, member in zip(degrees.values(), device, strict=True):
            if (array.shape[axis] // wanted) % degree == 0:
                array = np.split(array, degree, axis=axis)[member]
    assert array.shape == tuple(local)
    return array


def _exchanged(kind, arrays, wanted):
    """The results of a collective on each device of a group, of the shape ``wanted``."""
    degree = len(arrays)
    here = arrays[0].shape
    if kind is CollectiveKind.ALL_REDUCE:
        return [sum(arrays)] * degree
    if kind is CollectiveKind.REDUCE_SCATTER:
        return _scattered(sum(arrays), wanted, degree)
    (axis,) = [i for i, (size, other) in enumerate(zip(here, wanted, strict=True)) if other == size * degree]
    gathered = np.concatenate(arrays, axis=axis)
    if kind is CollectiveKind.ALL_GATHER:
        return [gathered] * degree
    assert kind is CollectiveKind.ALL_TO_ALL
    return _scattered(gathered, wanted, degree)


def _scattered(array, wanted, degree):
    return [part_of(array, wanted, {"": degree}, (member,)) for member in range(degree)]


def _groups(axis, degrees):
    """The devices of each group along an axis."""
    place = list(degrees).index(axis)
    groups = {}
    for device in all_devices(degrees):
        groups.setdefault(device[:place] + device[place + 1 :], []).append(device)
    return groups.values()


def run_shared(sharded, degrees, values):
    """Return the tensors of each device; ``values`` gives for each device those that no operator writes."""
    layer, held = sharded.layer, {device: dict(each) for device, each in values.items()}
    for op in layer.operators:
        (write,) = op.writes
        wanted = shape(layer.tensors[write.tensor])
        read = [access.tensor for access in op.reads]
        found = {}
        if op.name in sharded.exchanges:
            exchange = sharded.exchanges[op.name]
            assert exchange.group_size == degrees[exchange.axis]
            for group in _groups(exchange.axis, degrees):
                results = _exchanged(exchange.kind, [held[device][read[0]] for device in group], wanted)
                found |= dict(zip(group, results, strict=True))
        elif op.kind is TensorOpKind.VIEW:
            found = {device: part_of(each[read[0]], wanted, degrees, device) for device, each in held.items()}
        else:
            found = {device: _executed(op, [each[t] for t in read]) for device, each in held.items()}
        for device, result in found.items():
            held[device][write.tensor] = result
            assert result.shape == wanted, op.name
    return held


def inputs_of(sharded, layer, values, degrees):
    """Return what each device has of the whole layer's ``values`` before its first operator."""
    local = sharded.layer
    written = {access.tensor for op in local.operators for access in op.writes}
    whole_of = dict(zip((*local.enters, *local.gradients_enter), (*layer.enters, *layer.gradients_enter), strict=True))
    named = {tensor.name: t for t, tensor in enumerate(layer.tensors)}
    for t, tensor in enumerate(local.tensors):
        if t not in written and tensor.role in (TensorRole.PARAMETER, TensorRole.CONSTANT):
            whole_of[t] = named[tensor.name]
    return {
        device: {t: part_of(values[whole], shape(local.tensors[t]), degrees, device) for t, whole in whole_of.items()}
        for device in all_devices(degrees)
    }
