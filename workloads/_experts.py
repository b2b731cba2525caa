"""The feed-forward part with routed and shared experts on one device, as Megatron-Core executes it.

Each device routes its own tokens (Megatron-Core's all-to-all dispatcher; Lepikhin et al. 2020, arXiv:2006.16668,
section 3.3): router, copies of each token for its ``top_k`` experts, an all-to-all of the copies inside the expert
parallel group, the experts' products, the all-to-all back, and the sum of a token's copies. With expert-tensor
parallelism the copies of the group are gathered behind the first all-to-all, each device computes its columns of the
experts, and a reduce-scatter stands before the second. Loads are equal, rounded up where they are not whole. Shared
experts are one dense part beside all that, which the tensor-parallel group shares.

The router multiplies operands of the activations' format, accumulates in fp32, and takes the softmax of fp32 logits.
The weight of a copy travels with it, 4 bytes beside a token's ``d_model`` elements, and is not counted; it multiplies
what the activation gives, so that the experts' outputs are not kept. Router weights are whole on every device, and the
sum of their gradients over the tensor-parallel group, once per step, is not counted either.
"""

from dataclasses import dataclass, replace

from archplace.workloads import _vector
from archplace.workloads._feed_forward import feed_forward_backward, feed_forward_forward
from archplace.workloads._graph import Graph
from archplace.workloads._shard import Shard
from archplace.workloads.model_parts import Experts
from archplace.workloads.operators import Axis, CollectiveKind, Gemm, Phase, VectorWork
from archplace.workloads.precision import FP32_BYTES

SHARED = "shared_"
"""Stands before the names of the shared experts' operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loads:
    """How many rows pass where, on one device."""

    tokens: int
    """Tokens that the device routes."""
    sent: int
    """Copies that it sends, those to itself included."""
    gathered: int
    """Copies that meet on it: those of its expert-tensor group."""
    local_experts: int
    """Experts of which it has the columns."""
    rows: int
    """Copies that each of them computes."""
    width: int
    """Columns of each that the device has."""

    @property
    def computed(self) -> int:
        """Copies that the device computes."""
        return self.local_experts * self.rows


def experts_of(shard: Shard) -> Experts:
    """The experts of a model that has some."""
    experts = shard.model.experts
    assert experts is not None
    return experts


def expert_parameters(shard: Shard) -> int:
    """Parameters of routed experts that one device has of one block."""
    loads = _loads(shard)
    return loads.local_experts * (3 if shard.model.gated_mlp else 2) * shard.model.d_model * loads.width


def experts_forward(graph: Graph, shard: Shard, source: str, residual: str, *, sum_stash_bytes: int) -> str:
    """Add routed and shared experts on ``source``, which is kept elsewhere, and their sum with ``residual``."""
    model, e, d = shard.model, shard.element_bytes, shard.model.d_model
    experts, loads = experts_of(shard), _loads(shard)
    around = residual
    if experts.shared_width:
        around = feed_forward_forward(
            graph, shard, source, residual, sum_stash_bytes=0, width=shard.shared_width, prefix=SHARED
        )
    logits = graph.product(
        "router",
        Gemm(m=loads.tokens, n=experts.n_experts, k=d),
        source,
        parameters=d * experts.n_experts,
    )
    routed = graph.vector(
        "router.softmax",
        _route(loads.tokens, experts),
        logits,
        stash_bytes=loads.tokens * (experts.n_experts * FP32_BYTES + experts.top_k * _PER_COPY_BYTES),
    )
    copies = graph.vector("dispatch.permute", _copy(loads.tokens, loads.sent, d, e), source, routed)
    copies = _dispatch(
        graph, shard, "dispatch", loads, copies, sort="dispatch.sort", cast="expert_input.cast", kept=True
    )
    # the copies as they enter the products are kept; they take no operator of their own where nothing moves
    formats = shard.precision.formats
    entered = loads.computed * d * (int(formats.dispatch.bytes) if _sends_casts(shard) else shard.kept_element_bytes)
    activated_bytes = loads.computed * loads.width * shard.kept_element_bytes
    inner = loads.computed * loads.width * e
    inward = Gemm(batch=loads.local_experts, m=loads.rows, n=loads.width, k=d)
    weights = loads.local_experts * d * loads.width
    if model.gated_mlp:
        gate = graph.linear("expert_gate", inward, copies, parameters=weights, stash_bytes=inner + entered)
        up = graph.linear("expert_up", inward, copies, parameters=weights, stash_bytes=inner)
        work = _vector.gated_activation(model.activation, loads.computed, loads.width, e)
        work = replace(work, operations_per_element=work.operations_per_element + 1)  # the copy's weight
        activated = graph.vector("expert_activation", work, gate, up, stash_bytes=activated_bytes)
    else:
        epilogue = _vector.elementwise(
            loads.computed,
            loads.width,
            _vector.activation_operations(model.activation) + 1,
            read_bytes_per_element=0,
            write_bytes_per_element=2 * e,  # the gradient of a copy's weight needs the activation's input, ReLU's too
        )
        kept = inner + activated_bytes + entered
        activated = graph.linear("expert_in", inward, copies, epilogue=epilogue, parameters=weights, stash_bytes=kept)
    activated = graph.cast("expert_output.cast", loads.computed, loads.width, activated, kept=True)
    outward = Gemm(batch=loads.local_experts, m=loads.rows, n=d, k=loads.width)
    copies = graph.linear("expert_out", outward, activated, parameters=weights)
    if _sorts(shard):
        copies = graph.vector("combine.sort", _copy(loads.computed, loads.gathered, d, e), copies)
    copies = _exchange_back(graph, shard, "combine", loads.sent * d * e, copies)
    combined = graph.vector("combine.sum", _sum_copies(loads.tokens, loads.sent, experts.top_k, d, e), copies)
    work = _vector.addition(loads.tokens, d, e)
    return graph.vector("experts.residual", work, combined, around, stash_bytes=sum_stash_bytes)


def experts_backward(graph: Graph, shard: Shard, gradient: str) -> tuple[str, ...]:
    """Add the gradients of the experts and the router, from that of the sum; return the gradient of their source."""
    model, e, d = shard.model, shard.element_bytes, shard.model.d_model
    experts, loads = experts_of(shard), _loads(shard)
    parts: tuple[str, ...] = ()
    if experts.shared_width:
        parts = feed_forward_backward(graph, shard, gradient, width=shard.shared_width, prefix=SHARED)
    copies = graph.vector("combine.sum.gradient", _copy(loads.tokens, loads.sent, d, e), gradient)
    copies = _dispatch(
        graph, shard, "combine.gradient", loads, copies, sort="combine.sort.gradient", cast="expert_out.gradient_cast"
    )
    n, rows, width = loads.local_experts, loads.rows, loads.width
    graph.linear("expert_out.weight_gradient", Gemm(batch=n, m=width, n=d, k=rows), copies, phase=Phase.WEIGHT_GRADIENT)
    inner = graph.linear("expert_out.data_gradient", Gemm(batch=n, m=rows, n=width, k=d), copies)
    if model.gated_mlp:
        work = _vector.gated_activation_gradient(model.activation, loads.computed, width, e)
        names = ["expert_gate", "expert_up"]
    else:
        work = _vector.activation_gradient(model.activation, loads.computed, width, e)
        names = ["expert_in"]
    # the copy's weight multiplies the gradient (1), and its own gradient is a row sum of products (1)
    work = replace(work, operations_per_element=work.operations_per_element + 2, reductions=1)
    inner = graph.vector("expert_activation.gradient", work, inner)
    inputs = []
    for name in names:
        weight = Gemm(batch=n, m=d, n=width, k=rows)
        output = graph.cast(f"{name}.gradient_cast", loads.computed, width, inner)
        graph.linear(f"{name}.weight_gradient", weight, output, phase=Phase.WEIGHT_GRADIENT)
        inputs.append(graph.linear(f"{name}.data_gradient", Gemm(batch=n, m=rows, n=d, k=width), output))
    if len(inputs) > 1:
        work = _vector.addition(loads.computed, d, e, addends=len(inputs))
        inputs = [graph.vector("expert_input.gradient_sum", work, *inputs)]
    copies = inputs[0]
    if _sorts(shard):
        copies = graph.vector("dispatch.sort.gradient", _copy(loads.computed, loads.gathered, d, e), copies)
    copies = _exchange_back(graph, shard, "dispatch.gradient", loads.sent * d * e, copies)
    summed = graph.vector(
        "dispatch.permute.gradient", _sum_copies(loads.tokens, loads.sent, experts.top_k, d, e), copies
    )
    # the gradients of a token's weights come back with its copies
    router = graph.vector("router.softmax.gradient", _route_gradient(loads.tokens, experts, e), copies)
    router = graph.linear_gradients("router", router, k=d, n=experts.n_experts, rows=loads.tokens)
    addends = 2 + (1 if parts else 0)
    work = _vector.addition(loads.tokens, d, e, addends=addends)
    return (graph.vector("experts.gradient_sum", work, summed, router, *parts),)


_PER_COPY_BYTES = 2 * FP32_BYTES
"""Of each copy are kept its expert's number and its weight."""


def _loads(shard: Shard) -> _Loads:
    experts, sharding, tokens = experts_of(shard), shard.sharding, shard.row_tokens
    n = experts.n_experts
    sent = tokens * experts.top_k
    if experts.capacity_factor is not None:
        sent = n * max(1, _ceil(experts.capacity_factor * sent / n))
    gathered = sent * sharding.expert_tensor
    local = n // sharding.expert
    return _Loads(
        tokens=tokens,
        sent=sent,
        gathered=gathered,
        local_experts=local,
        rows=-(-gathered // local),
        width=experts.d_ff // sharding.expert_tensor,
    )


def _ceil(value: float) -> int:
    return -int(-value // 1)


def _sorts(shard: Shard) -> bool:
    """Whether copies that come from several devices are put in order by expert."""
    sharding = shard.sharding
    return sharding.expert * sharding.expert_tensor > 1 and experts_of(shard).n_experts > sharding.expert


def _sends_casts(shard: Shard) -> bool:
    """Whether copies are cast before they are sent to experts, and not behind."""
    return shard.precision.formats.dispatch.bytes < shard.element_bytes


def _dispatch(
    graph: Graph, shard: Shard, stem: str, loads: _Loads, copies: str, *, sort: str, cast: str, kept: bool = False
) -> str:
    """Send copies to the devices that have their experts, in order by expert, in the format that products read.

    They are cast before, where they travel in that format, or behind by the operator ``cast``, which may keep them.
    ``sort`` names the operator that puts them in order.
    """
    d, size = shard.model.d_model, int(shard.precision.formats.dispatch.bytes)
    if _sends_casts(shard):
        copies = graph.cast(f"{stem}.cast", loads.sent, d, copies)
    copies = _exchange(graph, shard, stem, loads.sent * d * size, copies)
    if _sorts(shard):
        copies = graph.vector(sort, _copy(loads.gathered, loads.computed, d, size), copies)
    if not _sends_casts(shard):
        copies = graph.cast(cast, loads.computed, d, copies, kept=kept)
    return copies


def _exchange(graph: Graph, shard: Shard, stem: str, sent_bytes: int, source: str) -> str:
    """Send the copies to the devices that have their experts."""
    kind = CollectiveKind.ALL_TO_ALL
    source = graph.collective(f"{stem}.{kind}", sent_bytes, source, kind=kind, axis=Axis.EXPERT)
    kind, payload = CollectiveKind.ALL_GATHER, sent_bytes * shard.sharding.expert_tensor
    return graph.collective(f"{stem}.{kind}", payload, source, kind=kind, axis=Axis.EXPERT_TENSOR)


def _exchange_back(graph: Graph, shard: Shard, stem: str, sent_bytes: int, source: str) -> str:
    """Sum what the devices of an expert-tensor group have, and send the copies home."""
    kind, payload = CollectiveKind.REDUCE_SCATTER, sent_bytes * shard.sharding.expert_tensor
    source = graph.collective(f"{stem}.{kind}", payload, source, kind=kind, axis=Axis.EXPERT_TENSOR)
    kind = CollectiveKind.ALL_TO_ALL
    return graph.collective(f"{stem}.{kind}", sent_bytes, source, kind=kind, axis=Axis.EXPERT)


def _copy(read_rows: int, written_rows: int, row_length: int, element_bytes: int) -> VectorWork:
    """Rows written in another order, or several times."""
    return VectorWork(
        rows=written_rows,
        row_length=row_length,
        operations_per_element=1,
        read_bytes=read_rows * row_length * element_bytes,
        write_bytes=written_rows * row_length * element_bytes,
    )


def _sum_copies(tokens: int, sent: int, top_k: int, row_length: int, element_bytes: int) -> VectorWork:
    """Each token's copies summed, one operation per copy and element."""
    return VectorWork(
        rows=tokens,
        row_length=row_length,
        operations_per_element=top_k,
        read_bytes=sent * row_length * element_bytes,
        write_bytes=tokens * row_length * element_bytes,
    )


def _route(tokens: int, experts: Experts) -> VectorWork:
    """Softmax of the logits in fp32 (maximum, exponential and sum, product), and ``top_k`` passes for the largest."""
    n, k = experts.n_experts, experts.top_k
    return VectorWork(
        rows=tokens,
        row_length=n,
        operations_per_element=3 + _vector.EXPONENTIAL + k,
        passes=3 + k,
        reductions=2 + k,
        read_bytes=tokens * n * FP32_BYTES,
        write_bytes=tokens * (n * FP32_BYTES + k * _PER_COPY_BYTES),
    )


def _route_gradient(tokens: int, experts: Experts, element_bytes: int) -> VectorWork:
    """p · (g − Σ g · p) in fp32, from the gradients of the chosen experts' weights."""
    n, k = experts.n_experts, experts.top_k
    return VectorWork(
        rows=tokens,
        row_length=n,
        operations_per_element=3,
        passes=2,
        reductions=1,
        read_bytes=tokens * (n * FP32_BYTES + k * _PER_COPY_BYTES),
        write_bytes=tokens * n * element_bytes,
    )
