"""The optimizer's update of the weights: bytes kept per parameter, and work per step."""

from archplace.workloads.operators import VectorWork
from archplace.workloads.precision import FP32_BYTES, Precision
from archplace.workloads.training_step import OptimizerKind, ParameterBytes

_MOMENTS = {OptimizerKind.SGD: 0, OptimizerKind.ADAM: 2}
_OPERATIONS = {
    # undo the loss scale (1), w − rate · g (1)
    OptimizerKind.SGD: 2,
    # undo the loss scale (1); first moment (2); second moment (3); root (4); + epsilon with the bias correction (1);
    # reciprocal (4); product (1); weight decay (1); w − rate · update (1): Kingma and Ba 2015, algorithm 1, with
    # decoupled decay; special functions count four
    OptimizerKind.ADAM: 18,
}


def parameter_bytes(optimizer: OptimizerKind, precision: Precision) -> ParameterBytes:
    """Return the bytes kept per parameter.

    Below fp32, weight and gradient are in ``precision`` and the optimizer keeps an fp32 master weight whatever its kind
    (Micikevicius et al. 2018, arXiv:1710.03740, section 3.1); Adam adds two fp32 moments, 2 + 2 + 12 = 16 bytes
    altogether (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1). In fp32 the weight is its own master:
    4 + 4 + 8 for Adam. SGD has no momentum and keeps nothing more.
    """
    master = 0 if precision is Precision.FP32 else FP32_BYTES
    return ParameterBytes(
        weight=precision.element_bytes,
        gradient=precision.element_bytes,
        optimizer=master + _MOMENTS[optimizer] * FP32_BYTES,
    )


def optimizer_work(optimizer: OptimizerKind, precision: Precision, parameters: int) -> VectorWork:
    """Return the update of ``parameters`` parameters: one pass that reads gradient and state and writes the state.

    The master weight (the weight itself in fp32) and the moments are read and written, the gradient is read, and below
    fp32 the rounded weight is written. Raises ``ValueError`` for a negative count.
    """
    if parameters < 0:
        raise ValueError(f"parameters is {parameters}, must not be negative")
    state = (1 + _MOMENTS[optimizer]) * FP32_BYTES
    rounded = 0 if precision is Precision.FP32 else precision.element_bytes
    return VectorWork(
        rows=parameters,
        row_length=1,
        operations_per_element=_OPERATIONS[optimizer],
        read_bytes=parameters * (precision.element_bytes + state),
        write_bytes=parameters * (state + rounded),
    )
