"""Vector work of a transformer: lane operations, passes and bytes of norms, softmax, activations, dropout, sums.

How operations are counted. A lane does one addition, multiplication, fused multiply-add, comparison or selection per
operation. A special function (exp2, reciprocal, reciprocal square root, tanh) takes four: vendors build one special
function unit per four fp32 lanes (CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions",
compute capability 8.0: 64 against 16 results per cycle). What happens once per row (a reciprocal of a sum) is not
counted per element. Random numbers for dropout come from hardware. Row statistics of norms, fp32 scalars, move no
bytes worth counting. Bytes are those of distinct operands; a row that takes several passes is read once.
"""

from dataclasses import replace

from archplace.workloads.model import Activation, Norm
from archplace.workloads.operators import Gemm, VectorWork
from archplace.workloads.precision import FP32_BYTES, MASK_BYTES, Format

SPECIAL = 4
"""Lane operations of one special function."""
EXPONENTIAL = 1 + SPECIAL
"""exp(x − c) = exp2(x · log2(e) − c'): one fused multiply-add, one special function."""
DROPOUT = 2
"""Compare the random number, select the scaled element or 0."""
DROPOUT_GRADIENT = 1
"""Select the scaled gradient or 0."""
ROTATION = 3
"""x · cos ± partner · sin: fetch the partner with its sign, multiply, fused multiply-add."""

_ACTIVATION = {
    # x/2 · (1 + tanh(x · (c1 + c2 · x²))): x², its fma, · x, tanh, x/2, fma
    Activation.GELU: 5 + SPECIAL,
    Activation.RELU: 1,
    # x/2 · (1 + tanh(x/2)): x/2, tanh, fma
    Activation.SILU: 2 + SPECIAL,
}
_ACTIVATION_GRADIENT = {
    # with t = tanh(u): u again (3), t, 1 − t², u' (1), x/2, two products, (1 + t)/2 by fma, their sum, · gradient
    Activation.GELU: 11 + SPECIAL,
    Activation.RELU: 1,
    # σ = 1/2 + tanh(x/2)/2 (2 + SPECIAL), then σ · (1 + x · (1 − σ)) (3), · gradient
    Activation.SILU: 6 + SPECIAL,
}


def activation_operations(activation: Activation) -> int:
    """Lane operations per element of an activation."""
    return _ACTIVATION[activation]


def keeps_input(activation: Activation) -> bool:
    """Whether the gradient needs the activation's input: not ReLU's, which the sign of its output tells."""
    return activation is not Activation.RELU


def elementwise(
    rows: int, row_length: int, operations: float, *, read_bytes_per_element: int, write_bytes_per_element: int
) -> VectorWork:
    """One pass over the elements."""
    elements = rows * row_length
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=operations,
        read_bytes=elements * read_bytes_per_element,
        write_bytes=elements * write_bytes_per_element,
    )


def part(work: VectorWork, pieces: int) -> VectorWork:
    """One of ``pieces`` equal parts of the rows; what does not divide is rounded up."""
    return replace(
        work,
        rows=-(-work.rows // pieces),
        read_bytes=-(-work.read_bytes // pieces),
        write_bytes=-(-work.write_bytes // pieces),
    )


def addition(rows: int, row_length: int, element_bytes: int, *, addends: int = 2) -> VectorWork:
    """The sum of several tensors."""
    return elementwise(
        rows,
        row_length,
        addends - 1,
        read_bytes_per_element=addends * element_bytes,
        write_bytes_per_element=element_bytes,
    )


def norm(kind: Norm, rows: int, row_length: int, element_bytes: int, *, dropout: bool = False) -> VectorWork:
    """A norm of each row: statistics, then scaling.

    Layer norm takes three passes: sum (1); difference and square (2); (x − mean) · rstd and · gain + bias, two fused
    multiply-adds (2). RMS norm takes two: sum of squares (1); two products (2).
    """
    layer_norm = kind is Norm.LAYER_NORM
    elements = rows * row_length
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=(5 if layer_norm else 3) + (DROPOUT if dropout else 0),
        passes=3 if layer_norm else 2,
        reductions=2 if layer_norm else 1,
        read_bytes=(elements + row_length * (2 if layer_norm else 1)) * element_bytes,
        write_bytes=elements * (element_bytes + (MASK_BYTES if dropout else 0)),
    )


def norm_gradient(kind: Norm, rows: int, row_length: int, element_bytes: int, *, dropout: bool = False) -> VectorWork:
    """The gradients of a norm's input and of its gain and bias, from the output's gradient and the input.

    Layer norm: normalised x (1), gradient · gain (1), their two row sums (2); then rstd · (g − c1 − x · c2) (3), and
    the sums over rows for gain (1) and bias (1). RMS norm: no mean, so one row sum (1), two operations in the second
    pass, and no bias.
    """
    layer_norm = kind is Norm.LAYER_NORM
    elements, gains = rows * row_length, row_length * (2 if layer_norm else 1)
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=(9 if layer_norm else 6) + (DROPOUT_GRADIENT if dropout else 0),
        passes=2,
        reductions=1,
        read_bytes=(2 * elements + row_length) * element_bytes + (elements * MASK_BYTES if dropout else 0),
        write_bytes=(elements + gains) * element_bytes,
    )


def softmax(rows: int, row_length: int, element_bytes: int, *, dropout: bool) -> VectorWork:
    """Masked, scaled softmax of each row, and dropout.

    Three passes: mask (1) and maximum (1); exponential with the scale folded in, and sum (1); the exponential again and
    its product with the reciprocal of the sum (1), as keeping it would take a row in fp32 (Milakov and Gimelshein 2018,
    arXiv:1805.02867, algorithm 2). With dropout, the probabilities before and after it are written, and the mask.
    """
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=4 + 2 * EXPONENTIAL + (DROPOUT if dropout else 0),
        passes=3,
        reductions=2,
        read_bytes=rows * row_length * element_bytes,
        write_bytes=rows * row_length * (2 * element_bytes + MASK_BYTES if dropout else element_bytes),
    )


def online_softmax(rows: int, row_length: int, *, dropout: bool, read_bytes: int, write_bytes: int) -> VectorWork:
    """Softmax of scores as they come, tile by tile, in attention that keeps them on chip.

    Two passes over a tile: mask (1), running maximum (1); exponential with the scale folded in, and sum (1) (Dao 2023,
    arXiv:2307.08691, algorithm 1). The outputs are rescaled once per tile, which is not counted per element.
    """
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=3 + EXPONENTIAL + (DROPOUT if dropout else 0),
        passes=2,
        reductions=2,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
    )


def online_softmax_gradient(
    rows: int, row_length: int, value_dim: int, *, dropout: bool, read_bytes: int, write_bytes: int
) -> VectorWork:
    """Probabilities again and the gradients of the scores, tile by tile (Dao 2023, arXiv:2307.08691, algorithm 2).

    Mask (1), exponential less the kept statistic; difference, product, scale (3); dropout again and its gradient. The
    row sums of output · gradient, two operations on each of ``value_dim`` elements of a row, are spread over the row.
    """
    per_score = 4 + EXPONENTIAL + (DROPOUT + DROPOUT_GRADIENT if dropout else 0)
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=per_score + 2 * value_dim / row_length,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
    )


def cast(rows: int, row_length: int, element_bytes: int, narrow: Format, *, blocks: bool) -> VectorWork:
    """Elements in a narrower format, row-wise and column-wise for the two products that read them: magnitude (1), scale
    (1). The largest magnitude is that of each block, or is taken along for the scale of a later step."""
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=2,
        reductions=1 if blocks else 0,
        read_bytes=rows * row_length * element_bytes,
        write_bytes=2 * narrow.bytes_of(rows * row_length),
    )


def scaled(gemm: Gemm, scalings: int, result: Format, epilogue: VectorWork | None) -> VectorWork:
    """The epilogue that scales a product's partial sums, ``scalings`` for each element, before any other."""
    rows, columns = gemm.batch * gemm.m, gemm.n
    if epilogue is not None:
        return replace(epilogue, operations_per_element=epilogue.operations_per_element + scalings)
    return elementwise(rows, columns, scalings, read_bytes_per_element=0, write_bytes_per_element=int(result.bytes))


def alone(epilogue: VectorWork) -> VectorWork:
    """An epilogue as work of its own, which first reads what it would have found on chip: as much as it writes."""
    return replace(epilogue, read_bytes=epilogue.read_bytes + epilogue.write_bytes)


def softmax_gradient(rows: int, row_length: int, element_bytes: int, *, dropout: bool) -> VectorWork:
    """scale · p · (g − Σ g · p): product and row sum (1); difference, product, scale (3)."""
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=4 + (DROPOUT_GRADIENT if dropout else 0),
        passes=2,
        reductions=1,
        read_bytes=rows * row_length * (2 * element_bytes + (MASK_BYTES if dropout else 0)),
        write_bytes=rows * row_length * element_bytes,
    )


def activation_gradient(activation: Activation, rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """The gradient of the activation's input, from the output's gradient and what was kept."""
    return elementwise(
        rows,
        row_length,
        _ACTIVATION_GRADIENT[activation],
        read_bytes_per_element=2 * element_bytes,
        write_bytes_per_element=element_bytes,
    )


def gated_activation(activation: Activation, rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """activation(gate) · up."""
    return elementwise(
        rows,
        row_length,
        _ACTIVATION[activation] + 1,
        read_bytes_per_element=2 * element_bytes,
        write_bytes_per_element=element_bytes,
    )


def gated_activation_gradient(activation: Activation, rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """The gradients of gate and up, from the output's gradient, gate and up.

    The gradient times up enters the activation's gradient (1 more); up's is the gradient times the activation, whose
    special function is there already (2 more).
    """
    return elementwise(
        rows,
        row_length,
        _ACTIVATION_GRADIENT[activation] + 3,
        read_bytes_per_element=3 * element_bytes,
        write_bytes_per_element=2 * element_bytes,
    )


def cross_entropy(rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """Softmax of the logits in fp32, kept for the gradient: maximum (1), exponential and sum (1), product (1)."""
    return VectorWork(
        rows=rows,
        row_length=row_length,
        operations_per_element=3 + EXPONENTIAL,
        passes=3,
        reductions=2,
        read_bytes=rows * row_length * element_bytes,
        write_bytes=rows * row_length * FP32_BYTES,
    )


def cross_entropy_gradient(rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """(softmax − target) · scale: one comparison, one fused multiply-add."""
    return elementwise(rows, row_length, 2, read_bytes_per_element=FP32_BYTES, write_bytes_per_element=element_bytes)


def dropout_gradient(rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """The gradient before a dropout, from the gradient behind it and the mask."""
    return elementwise(
        rows,
        row_length,
        DROPOUT_GRADIENT,
        read_bytes_per_element=element_bytes + MASK_BYTES,
        write_bytes_per_element=element_bytes,
    )
