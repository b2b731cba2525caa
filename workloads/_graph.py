"""Collect the operators of one graph in topological order."""

from archplace.workloads._shard import Shard
from archplace.workloads.operators import Collective, CollectiveKind, Gemm, Operator, Phase, Unit, VectorWork

OUTSIDE = ""
"""Stands for what enters the graph from outside, where an operator's name is expected."""


class Graph:
    """An operator graph under construction; operators are added after those that they wait for.

    Every method that adds an operator returns its name.
    """

    def __init__(self, shard: Shard, phase: Phase) -> None:
        self._shard = shard
        self._phase = phase
        self._operators: dict[str, Operator] = {}

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators so far, each after its inputs."""
        return tuple(self._operators.values())

    def product(
        self,
        name: str,
        gemm: Gemm,
        *inputs: str,
        epilogue: VectorWork | None = None,
        phase: Phase | None = None,
        parameters: int = 0,
        stash_bytes: int = 0,
    ) -> str:
        """Add a matrix product, fused with the vector work ``epilogue`` if there is one."""
        return self._add(
            Operator(
                name=name,
                unit=Unit.TENSOR if epilogue is None else Unit.FUSED,
                phase=phase or self._phase,
                inputs=self._inside(inputs),
                precision=self._shard.precision,
                gemm=gemm,
                vector=epilogue,
                parameters=parameters,
                stash_bytes=stash_bytes,
            )
        )

    def linear_gradients(self, name: str, *gradients: str, k: int, n: int, rows: int) -> str:
        """Add both gradients of the linear layer ``name`` (``rows`` × k → ``rows`` × n); return the input's.

        The bias gradient, a column sum of the output's gradient, leaves the weight product as one more row.
        """
        self.product(f"{name}.weight_gradient", Gemm(m=k, n=n, k=rows), *gradients, phase=Phase.WEIGHT_GRADIENT)
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
                precision=self._shard.precision,
                vector=work,
                parameters=parameters,
                stash_bytes=stash_bytes,
            )
        )

    def collective(
        self, name: str, payload_bytes: int, *inputs: str, kind: CollectiveKind = CollectiveKind.ALL_REDUCE
    ) -> str:
        """Add a collective of the tensor-parallel group; a group of one exchanges nothing, and the input stands."""
        if self._shard.tensor_parallel == 1:
            assert len(inputs) == 1
            return inputs[0]
        return self._add(
            Operator(
                name=name,
                unit=Unit.NETWORK,
                phase=self._phase,
                inputs=self._inside(inputs),
                precision=self._shard.precision,
                collective=Collective(kind=kind, payload_bytes=payload_bytes, group_size=self._shard.tensor_parallel),
            )
        )

    @staticmethod
    def _inside(inputs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in inputs if name != OUTSIDE)

    def _add(self, operator: Operator) -> str:
        assert operator.name not in self._operators, operator.name
        assert all(name in self._operators for name in operator.inputs), operator
        self._operators[operator.name] = operator
        return operator.name
