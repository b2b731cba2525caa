"""Collect the operators of one graph in topological order."""

from archplace.workloads import _vector
from archplace.workloads._shard import Shard
from archplace.workloads.operators import (
    Axis,
    Collective,
    CollectiveKind,
    FusedAttention,
    Gemm,
    Operator,
    Phase,
    Unit,
    VectorWork,
)
from archplace.workloads.precision import Format

OUTSIDE = ""
"""Stands for what enters the graph from outside, where an operator's name is expected."""


def piece_names(name: str, pieces: int) -> tuple[str, ...]:
    """The names of an operator's pieces: its own name where it is whole."""
    return (name,) if pieces == 1 else tuple(f"{name}.{i}" for i in range(pieces))


class Graph:
    """An operator graph under construction; operators are added after those that they wait for.

    Every method that adds an operator returns its name.
    """

    def __init__(self, shard: Shard, phase: Phase) -> None:
        self._shard = shard
        self._phase = phase
        self._operators: dict[str, Operator] = {}
        self._activations = shard.precision.formats.activations
        self._replay: list[str] = []
        self._dropped_bytes = 0

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators so far, each after its inputs."""
        return tuple(self._operators.values())

    @property
    def replay(self) -> tuple[str, ...]:
        """The operators that selective recomputation runs again."""
        return tuple(self._replay)

    @property
    def dropped_bytes(self) -> int:
        """Bytes of the stash that selective recomputation does not keep."""
        return self._dropped_bytes

    def recomputed(self, name: str, *, dropped_bytes: int = 0) -> str:
        """Mark the operator ``name`` as one that selective recomputation runs again; return the name.

        ``dropped_bytes`` of its stash are then not kept.
        """
        assert dropped_bytes <= self._operators[name].stash_bytes
        self._replay.append(name)
        self._dropped_bytes += dropped_bytes
        return name

    def product(
        self,
        name: str,
        gemm: Gemm,
        *inputs: str,
        epilogue: VectorWork | None = None,
        phase: Phase | None = None,
        precision: Format | None = None,
        parameters: int = 0,
        stash_bytes: int = 0,
    ) -> str:
        """Add a matrix product, fused with the vector work ``epilogue`` if there is one.

        Its operands are of the activations' format unless ``precision`` says otherwise; a product with a block's
        weights is a :meth:`linear` one.
        """
        return self._add(
            Operator(
                name=name,
                unit=Unit.TENSOR if epilogue is None else Unit.FUSED,
                phase=phase or self._phase,
                inputs=self._inside(inputs),
                precision=precision or self._activations,
                gemm=gemm,
                vector=epilogue,
                parameters=parameters,
                stash_bytes=stash_bytes,
            )
        )

    def linear(
        self,
        name: str,
        gemm: Gemm,
        *inputs: str,
        epilogue: VectorWork | None = None,
        phase: Phase | None = None,
        parameters: int = 0,
        stash_bytes: int = 0,
    ) -> str:
        """Add a product of a block's linear layer, in the recipe's format for these.

        Where that is narrower than the activations', the lanes scale what leaves the array, block by block of the
        summed dimension, and write it in the format of activations, or of gradients for a weight's.
        """
        formats = self._shard.precision.formats
        if formats.casts:
            scaling = 1 if formats.block_length is None else -(-gemm.k // formats.block_length)
            weight = (phase or self._phase) is Phase.WEIGHT_GRADIENT
            epilogue = _vector.scaled(gemm, scaling, (formats.gradients if weight else formats.activations), epilogue)
        return self.product(
            name,
            gemm,
            *inputs,
            epilogue=epilogue,
            phase=phase,
            precision=formats.products,
            parameters=parameters,
            stash_bytes=stash_bytes,
        )

    def cast(self, name: str, rows: int, row_length: int, *inputs: str, kept: bool = False) -> str:
        """Add the cast of a linear layer's operand, which is ``kept`` for the weight gradient; nothing without casts.

        Without casts the one input stands.
        """
        formats = self._shard.precision.formats
        if not formats.casts:
            assert len(inputs) == 1
            return inputs[0]
        work = _vector.cast(rows, row_length, self._shard.element_bytes, formats.products, blocks=formats.casts_blocks)
        return self.vector(name, work, *inputs, stash_bytes=formats.products.bytes_of(rows * row_length) if kept else 0)

    def fused_attention(
        self, name: str, attention: FusedAttention, work: VectorWork, *inputs: str, stash_bytes: int = 0
    ) -> str:
        """Add attention, or its gradients, whose scores stay on chip; ``work`` is what the lanes do and all bytes."""
        return self._add(
            Operator(
                name=name,
                unit=Unit.FUSED,
                phase=self._phase,
                inputs=self._inside(inputs),
                precision=self._activations,
                attention=attention,
                vector=work,
                stash_bytes=stash_bytes,
            )
        )

    def linear_gradients(self, name: str, *gradients: str, k: int, n: int, rows: int, saved: str = OUTSIDE) -> str:
        """Add both gradients of the linear layer ``name`` (``rows`` × k → ``rows`` × n); return the input's.

        The bias gradient, a column sum of the output's gradient, leaves the weight product as one more row. The weight
        product reads the layer's input, which ``saved`` brings if that is not at hand.
        """
        self.product(f"{name}.weight_gradient", Gemm(m=k, n=n, k=rows), *gradients, saved, phase=Phase.WEIGHT_GRADIENT)
        return self.product(f"{name}.data_gradient", Gemm(m=rows, n=k, k=n), *gradients)

    def vector(
        self,
        name: str,
        work: VectorWork,
        *inputs: str,
        phase: Phase | None = None,
        parameters: int = 0,
        stash_bytes: int = 0,
    ) -> str:
        """Add vector work."""
        return self._add(
            Operator(
                name=name,
                unit=Unit.VECTOR,
                phase=phase or self._phase,
                inputs=self._inside(inputs),
                precision=self._activations,
                vector=work,
                parameters=parameters,
                stash_bytes=stash_bytes,
            )
        )

    def collective(
        self,
        name: str,
        payload_bytes: int,
        *inputs: str,
        kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
        axis: Axis = Axis.TENSOR,
        phase: Phase | None = None,
    ) -> str:
        """Add a collective of the group of ``axis``; a group of one exchanges nothing, and the input stands."""
        size = self._shard.sharding.degree(axis)
        if size == 1:
            assert len(inputs) == 1
            return inputs[0]
        return self._add(
            Operator(
                name=name,
                unit=Unit.NETWORK,
                phase=phase or self._phase,
                inputs=self._inside(inputs),
                precision=self._activations,
                collective=Collective(kind=kind, payload_bytes=payload_bytes, group_size=size, axis=axis),
            )
        )

    def gather_rows(self, stem: str, payload_bytes: int, source: str, *, phase: Phase | None = None) -> str:
        """Bring all tokens of the tensor-parallel group to each device (Megatron's g); nothing where they are there.

        ``payload_bytes`` are those of all tokens. The name is the stem and the collective's kind.
        """
        if not self._shard.sharding.sequence:
            return source
        kind = CollectiveKind.ALL_GATHER
        return self.collective(f"{stem}{kind}", payload_bytes, source, kind=kind, phase=phase)

    def reduce_rows(self, stem: str, payload_bytes: int, source: str) -> str:
        """Sum the partial results of the tensor-parallel group.

        With sequence parallelism each device gets the sum of its own tokens (Megatron's ḡ), otherwise all of it.
        """
        kind = CollectiveKind.REDUCE_SCATTER if self._shard.sharding.sequence else CollectiveKind.ALL_REDUCE
        return self.collective(f"{stem}{kind}", payload_bytes, source, kind=kind)

    @staticmethod
    def _inside(inputs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in inputs if name != OUTSIDE))

    def _add(self, operator: Operator) -> str:
        assert operator.name not in self._operators, operator.name
        assert all(name in self._operators for name in operator.inputs), operator
        self._operators[operator.name] = operator
        return operator.name
