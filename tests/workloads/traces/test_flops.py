"""Operations of products: each counted by a loop over what a naive program would multiply."""

import pytest

from archplace.workloads.traces._flops import product_flops
from archplace.workloads.traces._op_schema import schema_arguments
from archplace.workloads.traces.host_trace import Argument, HostNode, Tensor


def tensor(*shape):
    count = 1
    for size in shape:
        count *= size
    made = Tensor(1, 1, 0, 4 * count, count, 4, "cpu", shape, "float")
    return Argument([], list(shape), "Tensor(float)", (made,))


def plain(value):
    return Argument(value, [], "Int", ())


def node(schema, *inputs, out):
    return HostNode(
        id=1,
        parent=1,
        name=schema.split("(")[0].split(".")[0],
        inputs=inputs,
        outputs=(tensor(*out),),
        op_schema=schema,
    )


CONVOLUTION = (
    "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] "
    "dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"
)
BACKWARD = (
    "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, bool[3] "
    "output_mask) -> (Tensor, Tensor, Tensor)"
)
REST = [plain(0), plain([1, 1]), plain([0, 0]), plain([1, 1])]


@pytest.mark.parametrize(
    ("call", "multiplications"),
    [
        (node("aten::mm(Tensor self, Tensor mat2) -> Tensor", tensor(3, 5), tensor(5, 7), out=(3, 7)), 3 * 5 * 7),
        (
            node(
                "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1) -> Tensor",
                tensor(7),
                tensor(3, 5),
                tensor(5, 7),
                out=(3, 7),
            ),
            3 * 5 * 7,
        ),
        (node("aten::bmm(Tensor self, Tensor mat2) -> Tensor", tensor(2, 3, 5), tensor(2, 5, 7), out=(2, 3, 7)), 210),
        (node("aten::matmul(Tensor self, Tensor other) -> Tensor", tensor(2, 3, 5), tensor(5), out=(2, 3)), 30),
        (
            node(
                "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2) -> Tensor",
                tensor(3, 7),
                tensor(2, 3, 5),
                tensor(2, 5, 7),
                out=(3, 7),
            ),
            2 * 3 * 5 * 7,
        ),
        # 3 × 3 kernels over 4 of 8 channels in two groups, to 6 channels on 5 × 5 points.
        (
            node(CONVOLUTION, tensor(2, 8, 7, 7), tensor(6, 4, 3, 3), *REST, plain(False), out=(2, 6, 5, 5)),
            2 * 6 * 25 * 4 * 9,
        ),
        # Backwards in space: each of 8 × 5 × 5 inputs goes to 6 channels and 9 points.
        (
            node(CONVOLUTION, tensor(2, 8, 5, 5), tensor(8, 6, 3, 3), *REST, plain(True), out=(2, 6, 7, 7)),
            2 * 8 * 25 * 6 * 9,
        ),
        (
            node(
                BACKWARD,
                tensor(2, 6, 5, 5),
                tensor(2, 8, 7, 7),
                tensor(6, 8, 3, 3),
                plain([6]),
                plain([True, True, True]),
                out=(2, 8, 7, 7),
            ),
            2 * 2 * 6 * 25 * 8 * 9,
        ),
        (
            node(
                BACKWARD,
                tensor(2, 6, 5, 5),
                tensor(2, 8, 7, 7),
                tensor(6, 8, 3, 3),
                plain([6]),
                plain([False, True, True]),
                out=(0,),
            ),
            2 * 6 * 25 * 8 * 9,
        ),
        # Four heads on two heads of keys: scores of 10 × 12, rows of 16 in and 8 out.
        (
            node(
                "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value) -> Tensor",
                tensor(3, 4, 10, 16),
                tensor(3, 2, 12, 16),
                tensor(3, 2, 12, 8),
                out=(3, 4, 10, 8),
            ),
            3 * 4 * 10 * 12 * (16 + 8),
        ),
    ],
)
def test_products(call, multiplications):
    assert product_flops(call) == 2 * multiplications


def test_what_is_no_product():
    assert (
        product_flops(node("aten::add.Tensor(Tensor self, Tensor other) -> Tensor", tensor(3), tensor(3), out=(3,)))
        is None
    )
    assert (
        product_flops(node("aten::conv_weird(Tensor input, Tensor weight) -> Tensor", tensor(3), tensor(3), out=(3,)))
        is None
    )
    assert (
        product_flops(node("mine::mm(Tensor self, Tensor mat2) -> Tensor", tensor(3, 3), tensor(3, 3), out=(3, 3)))
        is None
    )


def test_schemas():
    arguments = schema_arguments(
        "aten::f.x(Tensor(a!)[] self, (int, str)[2] pair=[1, 2], *, Tensor(b) other, X.Y? z=None) -> (Tensor(a!), "
        "Tensor)"
    )
    assert [(one.name, one.written, one.aliased) for one in arguments] == [
        ("self", True, True),
        ("pair", False, False),
        ("other", False, True),
        ("z", False, False),
    ]
    assert arguments[0].type == "Tensor(a!)[]"
    assert schema_arguments("") == schema_arguments("no schema") == schema_arguments("aten::f() -> ()") == ()
