"""Layers as tensor graphs, written by hand: an operator is an einsum over lettered loops."""

from dataclasses import dataclass, field, replace

from archplace.workloads.operators import Phase
from archplace.workloads.traced.tensor_graph import (
    Access,
    Atom,
    Loop,
    LoopKind,
    Symbol,
    Tensor,
    TensorLayer,
    TensorOp,
    TensorOpKind,
    TensorRole,
)

FORWARD, DATA, WEIGHT = Phase.FORWARD, Phase.DATA_GRADIENT, Phase.WEIGHT_GRADIENT


@dataclass
class LayerBuilder:
    """Tensors are written as dimensions apart by spaces, each a row of letters: "b s he" has three dimensions."""

    sizes: dict[str, int]
    symbols: dict[str, Symbol] = field(default_factory=dict)
    element_bytes: float = 2.0
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[TensorOp] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def tensor(self, name, dims, role=TensorRole.ACTIVATION, element_bytes=None):
        atoms = tuple(
            tuple(Atom(self.sizes[letter], self.symbols.get(letter, Symbol.FIXED)) for letter in dim if letter != "1")
            for dim in dims.split()
        )
        self.numbers[name] = len(self.tensors)
        self.tensors.append(Tensor(name=name, dims=atoms, element_bytes=element_bytes or self.element_bytes, role=role))
        return name

    def parameter(self, name, dims):
        return self.tensor(name, dims, TensorRole.PARAMETER)

    def gradient(self, name, dims, of):
        self.tensor(name, dims, TensorRole.GRADIENT)
        number = self.numbers[name]
        self.tensors[number] = replace(self.tensors[number], gradient_of=self.numbers[of])
        return name

    def op(self, name, kind, phase, reads, writes, *, whole="", **more):
        """``reads`` and ``writes`` map tensors to letters of loops, "_" where none runs; results are made as named."""
        letters = dict.fromkeys(
            letter for dims in (*reads.values(), *writes.values()) for dim in dims.split() for letter in dim
        )
        loops = [letter for letter in letters if letter not in "_1"]
        written = {letter for dims in writes.values() for letter in dims}

        def loop(letter):
            kind = LoopKind.FREE if letter in written else LoopKind.SUMMED
            return Loop(
                self.sizes[letter],
                LoopKind.WHOLE if letter in whole else kind,
                self.symbols.get(letter, Symbol.FIXED),
            )

        def access(tensor, dims):
            return Access(
                self.numbers[tensor],
                tuple(tuple(None if x == "_" else loops.index(x) for x in dim if x != "1") for dim in dims.split()),
            )

        for tensor, dims in writes.items():
            if tensor not in self.numbers:
                self.tensor(tensor, dims)
        self.operators.append(
            TensorOp(
                name=name,
                kind=kind,
                phase=phase,
                loops=tuple(loop(letter) for letter in loops),
                reads=tuple(access(*item) for item in reads.items()),
                writes=tuple(access(*item) for item in writes.items()),
                **more,
            )
        )

    def view(self, name, phase, reads, writes):
        self.op(name, TensorOpKind.VIEW, phase, reads, writes, linear=True)

    def product(self, name, phase, reads, writes, **more):
        self.op(name, TensorOpKind.PRODUCT, phase, reads, writes, operations_per_element=0.0, **more)

    def map(self, name, phase, reads, writes, **more):
        self.op(name, TensorOpKind.MAP, phase, reads, writes, **more)

    def layer(self, name="block", *, enters=(), leaves=(), gradients_enter=(), gradients_leave=()):
        return TensorLayer(
            name=name,
            tensors=tuple(self.tensors),
            operators=tuple(self.operators),
            enters=tuple(self.numbers[t] for t in enters),
            leaves=tuple(self.numbers[t] for t in leaves),
            gradients_enter=tuple(self.numbers[t] for t in gradients_enter),
            gradients_leave=tuple(self.numbers[t] for t in gradients_leave),
        )


class _Gpt(LayerBuilder):
    """The parts of a GPT block as PyTorch executes them."""

    def norm(self, name, source, result):
        gain, shift = self.parameter(f"{name}.gain", "d"), self.parameter(f"{name}.bias", "d")
        self.tensor(f"{name}.mean", "b s", element_bytes=4.0)
        self.tensor(f"{name}.rstd", "b s", element_bytes=4.0)
        self.op(
            name,
            TensorOpKind.ROWS,
            FORWARD,
            {source: "b s d", gain: "d", shift: "d"},
            {result: "b s d", f"{name}.mean": "b s", f"{name}.rstd": "b s"},
            whole="d",
            operations_per_element=5.0,
            passes=3,
            reductions=2,
        )

    def norm_gradient(self, name, gradient, source, result):
        gains = self.gradient(f"{name}.gain.gradient", "d", f"{name}.gain")
        shifts = self.gradient(f"{name}.bias.gradient", "d", f"{name}.bias")
        self.op(
            f"{name}.backward",
            TensorOpKind.ROWS,
            DATA,
            {gradient: "b s d", source: "b s d", f"{name}.mean": "b s", f"{name}.rstd": "b s", f"{name}.gain": "d"},
            {result: "b s d", gains: "d", shifts: "d"},
            whole="d",
            operations_per_element=9.0,
            passes=2,
            reductions=1,
        )

    def linear(self, name, source, inner, result, outer):
        """``inner`` and ``outer`` are the letters of the features before and behind."""
        weight, bias = self.parameter(f"{name}.weight", f"{outer} {inner}"), self.parameter(f"{name}.bias", outer)
        rows, columns = f"bs {inner}", f"bs {outer}"
        self.view(f"{name}.rows", FORWARD, {source: f"b s {inner}"}, {f"{name}.in": rows})
        self.view(f"{name}.t", FORWARD, {weight: f"{outer} {inner}"}, {f"{name}.weight.t": f"{inner} {outer}"})
        self.product(
            name,
            FORWARD,
            {bias: outer, f"{name}.in": rows, f"{name}.weight.t": f"{inner} {outer}"},
            {f"{name}.out": columns},
            linear=True,
        )
        self.view(f"{name}.unrow", FORWARD, {f"{name}.out": columns}, {result: f"b s {outer}"})

    def linear_gradient(self, name, gradient, inner, result, outer):
        rows, columns = f"bs {inner}", f"bs {outer}"
        weight = self.gradient(f"{name}.weight.gradient", f"{outer} {inner}", f"{name}.weight")
        bias = self.gradient(f"{name}.bias.gradient", outer, f"{name}.bias")
        self.view(f"{name}.gradient_rows", DATA, {gradient: f"b s {outer}"}, {f"{name}.dout": columns})
        self.product(
            f"{name}.data_gradient",
            DATA,
            {f"{name}.dout": columns, f"{name}.weight": f"{outer} {inner}"},
            {f"{name}.din": rows},
            linear=True,
        )
        self.product(
            f"{name}.weight_gradient",
            WEIGHT,
            {f"{name}.dout": columns, f"{name}.in": rows},
            {weight: f"{outer} {inner}"},
        )
        self.op(
            f"{name}.bias_gradient",
            TensorOpKind.REDUCTION,
            WEIGHT,
            {f"{name}.dout": columns},
            {bias: outer},
            linear=True,
        )
        self.view(f"{name}.gradient_unrow", DATA, {f"{name}.din": rows}, {result: f"b s {inner}"})


def gpt_block(*, batch=1, sequence=2048, d_model=4096, heads=32, d_ff=None, fused_qkv=True, element_bytes=2.0):
    """A pre-norm block of GPT with its gradients, attention as two products and a softmax, without dropout."""
    sizes = {"b": batch, "s": sequence, "t": sequence, "d": d_model, "h": heads, "e": d_model // heads, "c": 3}
    sizes["f"] = d_ff or 4 * d_model
    symbols = {"b": Symbol.BATCH, "s": Symbol.SEQUENCE, "t": Symbol.SEQUENCE}
    g = _Gpt(sizes, symbols, element_bytes)
    g.tensor("x", "b s d")
    g.norm("norm1", "x", "normed1")
    if fused_qkv:
        g.linear("qkv", "normed1", "d", "mixed", "che")
        for part in "qkv":
            g.view(f"{part}.split", FORWARD, {"mixed": "b s _he"}, {f"{part}.rows": "b s he"})
    else:
        for part in "qkv":
            g.linear(part, "normed1", "d", f"{part}.rows", "he")
    for part in "qkv":
        g.view(f"{part}.heads", FORWARD, {f"{part}.rows": "b s he"}, {part: "b h s e"})
    g.product("scores", FORWARD, {"q": "b h s e", "k": "b h t e"}, {"scored": "b h s t"})
    g.op(
        "softmax",
        TensorOpKind.ROWS,
        FORWARD,
        {"scored": "b h s t"},
        {"probabilities": "b h s t"},
        whole="t",
        operations_per_element=14.0,
        passes=3,
        reductions=2,
    )
    g.product("context", FORWARD, {"probabilities": "b h s t", "v": "b h t e"}, {"attended": "b h s e"})
    g.view("merge", FORWARD, {"attended": "b h s e"}, {"merged": "b s he"})
    g.linear("projection", "merged", "he", "projected", "d")
    g.map("residual1", FORWARD, {"x": "b s d", "projected": "b s d"}, {"x1": "b s d"}, linear=True)
    g.norm("norm2", "x1", "normed2")
    g.linear("ffn_in", "normed2", "d", "inner", "f")
    g.map("gelu", FORWARD, {"inner": "b s f"}, {"activated": "b s f"}, operations_per_element=9.0)
    g.linear("ffn_out", "activated", "f", "fed", "d")
    g.map("residual2", FORWARD, {"x1": "b s d", "fed": "b s d"}, {"y": "b s d"}, linear=True)

    g.tensor("dy", "b s d")
    g.linear_gradient("ffn_out", "dy", "f", "dactivated", "d")
    g.map(
        "gelu.backward",
        DATA,
        {"dactivated": "b s f", "inner": "b s f"},
        {"dinner": "b s f"},
        operations_per_element=15.0,
    )
    g.linear_gradient("ffn_in", "dinner", "d", "dnormed2", "f")
    g.norm_gradient("norm2", "dnormed2", "x1", "dx1.inner")
    g.map("residual2.backward", DATA, {"dy": "b s d", "dx1.inner": "b s d"}, {"dx1": "b s d"}, linear=True)
    g.linear_gradient("projection", "dx1", "he", "dmerged", "d")
    g.view("merge.backward", DATA, {"dmerged": "b s he"}, {"dattended": "b h s e"})
    g.product(
        "context.probability_gradient", DATA, {"dattended": "b h s e", "v": "b h t e"}, {"dprobabilities": "b h s t"}
    )
    g.product("context.value_gradient", DATA, {"dattended": "b h s e", "probabilities": "b h s t"}, {"dv": "b h t e"})
    g.op(
        "softmax.backward",
        TensorOpKind.ROWS,
        DATA,
        {"dprobabilities": "b h s t", "probabilities": "b h s t"},
        {"dscored": "b h s t"},
        whole="t",
        operations_per_element=4.0,
        passes=2,
        reductions=1,
    )
    g.product("scores.query_gradient", DATA, {"dscored": "b h s t", "k": "b h t e"}, {"dq": "b h s e"})
    g.product("scores.key_gradient", DATA, {"dscored": "b h s t", "q": "b h s e"}, {"dk": "b h t e"})
    for part in "qkv":
        g.view(f"{part}.heads.backward", DATA, {f"d{part}": "b h s e"}, {f"d{part}.rows": "b s he"})
    if fused_qkv:
        g.tensor("dmixed", "b s che")
        g.op(
            "qkv.join",
            TensorOpKind.MOVE,
            DATA,
            {f"d{part}.rows": "b s he" for part in "qkv"},
            {"dmixed": "b s _he"},
            linear=True,
        )
        g.linear_gradient("qkv", "dmixed", "d", "dnormed1", "che")
    else:
        for part in "qkv":
            g.linear_gradient(part, f"d{part}.rows", "d", f"dnormed1.{part}", "he")
        parts = {f"dnormed1.{part}": "b s d" for part in "qkv"}
        g.map("qkv.sum", DATA, parts, {"dnormed1": "b s d"}, linear=True, operations_per_element=2.0)
    g.norm_gradient("norm1", "dnormed1", "x", "dx.inner")
    g.map("residual1.backward", DATA, {"dx1": "b s d", "dx.inner": "b s d"}, {"dx": "b s d"}, linear=True)
    return g.layer(enters=["x"], leaves=["y"], gradients_enter=["dy"], gradients_leave=["dx"])
