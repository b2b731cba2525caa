"""What ``archplace workload info`` says of the model that a PyTorch trace ran."""

from typing import TYPE_CHECKING

from archplace.arch_configs.errors import ConfigError
from archplace.cli._output import Row

if TYPE_CHECKING:
    from archplace.workloads.traced.lift import Lifted


def lifted(path: str, profiles: list[str]) -> "Lifted | str":
    """Return the model in a trace, or why there is none."""
    from archplace.workloads.traced.lift import lift
    from archplace.workloads.traces.host_trace import load_host_trace
    from archplace.workloads.traces.kineto import load_kineto_trace
    from archplace.workloads.traces.matching import match

    host = load_host_trace(path)
    found = (match(host, load_kineto_trace(profile)) for profile in profiles)
    callers = next((one.callers for one in found if one.callers is not None), None)
    try:
        return lift(host, callers=callers)
    except ConfigError as error:
        return str(error)


def figures(found: "Lifted") -> dict[str, object]:
    """Return what holds for the whole model."""
    from archplace.workloads.traced.calls import Pass
    from archplace.workloads.traced.scaling import follows
    from archplace.workloads.traced.tensor_graph import Symbol

    model, coverage = found.model, found.coverage
    shared = {layer.tensors[one].elements for layer, _ in model.layers for one in layer.shared_parameters}
    result: dict[str, object] = {
        "batch": model.batch,
        "sequence length": model.sequence_length,
        "parameters": sum(layer.parameters * count for layer, count in model.layers) - sum(shared),
        "model flops": round(model.model_flops),
        "optimizer": found.optimizer or None,
    }
    result |= {f"{part.value} calls": coverage.n_calls[part] for part in Pass if part in coverage.n_calls}
    result |= {
        "known operators": f"{coverage.n_known} of {coverage.n_operators}",
        "known bytes share": coverage.share,
        "activations that follow the batch": follows(model, Symbol.BATCH),
    }
    if model.sequence_length is not None:
        result["activations that follow the sequence"] = follows(model, Symbol.SEQUENCE)
    return result


def layers(found: "Lifted") -> list[Row]:
    """Return a row for each distinct layer, in order."""
    from archplace.workloads.operators import Phase
    from archplace.workloads.traced.layers import model_flops
    from archplace.workloads.traced.tensor_graph import TensorRole

    rows: list[Row] = []
    for layer, count in found.model.layers:
        forward = {access.tensor for op in layer.operators if op.phase is Phase.FORWARD for access in op.writes}
        backward = {access.tensor for op in layer.operators if op.phase is not Phase.FORWARD for access in op.reads}
        kept = ({*forward, *layer.enters} & backward) - set(layer.leaves)
        rows.append(
            {
                "layer": layer.name,
                "count": count,
                "parameters": layer.parameters,
                "forward operators": sum(op.phase is Phase.FORWARD for op in layer.operators),
                "backward operators": sum(op.phase is not Phase.FORWARD for op in layer.operators),
                "flops": round(model_flops([(layer, 1)])),
                "kept bytes": round(
                    sum(layer.tensors[one].bytes for one in kept if layer.tensors[one].role is TensorRole.ACTIVATION)
                ),
                "leaving bytes": round(sum(layer.tensors[one].bytes for one in layer.leaves)),
            }
        )
    return rows


def unknown(found: "Lifted") -> list[Row]:
    """Return a row for each kind of operator whose work is not known."""
    return [{"operator": name, "count": count} for name, count in found.coverage.unknown]
