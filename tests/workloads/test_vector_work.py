"""Lane operations and bytes of vector work: counted by hand, and laws that any count must keep."""

from hypothesis import given
from hypothesis import strategies as st

from archplace.workloads import Activation, Norm, VectorWork, _vector

rows = st.integers(1, 100)
lengths = st.integers(1, 5000)
element_bytes = st.sampled_from([2, 4])


def test_operations_by_hand() -> None:
    # An exponential: multiply by log2(e) and subtract the maximum in one fused operation, then a special function of 4.
    assert _vector.EXPONENTIAL == 5
    # mask, maximum | exponential, sum | exponential again, product
    assert _vector.softmax(8, 8, 2, dropout=False).operations_per_element == (1 + 1) + (5 + 1) + (5 + 1)
    # sum | subtract, square and add | normalise, scale and shift
    assert _vector.norm(Norm.LAYER_NORM, 8, 8, 2).operations_per_element == 1 + 2 + 2
    # square and add | two products
    assert _vector.norm(Norm.RMS_NORM, 8, 8, 2).operations_per_element == 1 + 2
    # multiply and add | subtract, multiply, scale
    assert _vector.softmax_gradient(8, 8, 2, dropout=False).operations_per_element == 1 + 3
    # x², fma, · x | tanh | x/2, fma
    assert _vector.activation_operations(Activation.GELU) == 3 + 4 + 2
    # x/2 | tanh | fma | · up
    assert _vector.gated_activation(Activation.SILU, 8, 8, 2).operations_per_element == 1 + 4 + 1 + 1
    # maximum | exponential, sum | product
    assert _vector.cross_entropy(8, 8, 2).operations_per_element == 1 + (5 + 1) + 1


def test_passes_and_reductions() -> None:
    def shape(work: VectorWork) -> tuple[int, int]:
        return work.passes, work.reductions

    assert shape(_vector.softmax(8, 8, 2, dropout=True)) == (3, 2)
    assert shape(_vector.norm(Norm.LAYER_NORM, 8, 8, 2)) == (3, 2)
    assert shape(_vector.norm(Norm.RMS_NORM, 8, 8, 2)) == (2, 1)
    assert shape(_vector.norm_gradient(Norm.LAYER_NORM, 8, 8, 2)) == (2, 1)
    assert shape(_vector.softmax_gradient(8, 8, 2, dropout=True)) == (2, 1)
    assert shape(_vector.cross_entropy(8, 8, 2)) == (3, 2)
    assert shape(_vector.addition(8, 8, 2)) == (1, 0)


@given(rows=rows, length=lengths, size=element_bytes)
def test_dropout_writes_a_byte_per_element_and_reads_it_back(rows: int, length: int, size: int) -> None:
    elements = rows * length
    plain, dropped = (_vector.softmax(rows, length, size, dropout=dropout) for dropout in (False, True))
    assert dropped.write_bytes - plain.write_bytes == elements * (size + 1)  # what is dropped out of, and the mask
    assert dropped.operations_per_element > plain.operations_per_element
    plain, dropped = (_vector.softmax_gradient(rows, length, size, dropout=dropout) for dropout in (False, True))
    assert dropped.read_bytes - plain.read_bytes == elements
    plain, dropped = (_vector.norm(Norm.LAYER_NORM, rows, length, size, dropout=dropout) for dropout in (False, True))
    assert dropped.write_bytes - plain.write_bytes == elements


@given(rows=rows, length=lengths, size=element_bytes, addends=st.integers(2, 5))
def test_sums_read_every_addend_once(rows: int, length: int, size: int, addends: int) -> None:
    work = _vector.addition(rows, length, size, addends=addends)
    assert work.read_bytes == addends * work.write_bytes == addends * rows * length * size
    assert work.operations_per_element == addends - 1


@given(rows=rows, length=lengths, size=element_bytes, activation=st.sampled_from(Activation))
def test_a_gated_activation_moves_three_tensors_and_its_gradient_five(
    rows: int, length: int, size: int, activation: Activation
) -> None:
    tensor = rows * length * size
    forward = _vector.gated_activation(activation, rows, length, size)
    backward = _vector.gated_activation_gradient(activation, rows, length, size)
    assert forward.read_bytes + forward.write_bytes == 3 * tensor
    assert backward.read_bytes + backward.write_bytes == 5 * tensor
    assert backward.operations_per_element > forward.operations_per_element
