"""The optimizer's update of the weights: bytes kept per parameter, and work per step."""

from archplace.workloads.operators import VectorWork
from archplace.workloads.precision import Precision
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
    """Return the bytes kept per parameter, in the formats of the recipe.

    Mixed precision keeps an fp32 master weight whatever the optimizer (Micikevicius et al. 2018, arXiv:1710.03740,
    section 3.1); Adam adds two moments. With everything else in two bytes and the moments in fp32 these are
    2 + 2 + 12 = 16 bytes (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1). In fp32 the weight is its own
    master: 4 + 4 + 8 for Adam. SGD has no momentum and keeps nothing more.
    """
    formats = precision.formats
    return ParameterBytes(
        weight=formats.weights.bytes,
        weight_copies=formats.weight_copies * formats.products.bytes,
        gradient=formats.gradients.bytes,
        optimizer=(formats.master.bytes if formats.master else 0) + _MOMENTS[optimizer] * formats.moments.bytes,
    )


def optimizer_work(optimizer: OptimizerKind, precision: Precision, parameters: int) -> VectorWork:
    """Return the update of ``parameters`` parameters: one pass that reads gradient and state and writes the state.

    The master weight (the weight itself where it is its own master) and the moments are read and written, the gradient
    is read, and the rounded weight and its copies are written. Raises ``ValueError`` for a negative count.
    """
    if parameters < 0:
        raise ValueError(f"parameters is {parameters}, must not be negative")
    formats, kept = precision.formats, parameter_bytes(optimizer, precision)
    own_master = formats.master is None
    state = kept.optimizer + (kept.weight if own_master else 0)
    rounded = kept.weight_copies + (0 if own_master else kept.weight)
    return VectorWork(
        rows=parameters,
        row_length=1,
        operations_per_element=_OPERATIONS[optimizer],
        read_bytes=round(parameters * (kept.gradient + state)),
        write_bytes=round(parameters * (state + rounded)),
    )
