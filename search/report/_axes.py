"""What a run lets placements choose along each axis, as columns and in words."""

from archplace.costmodel import Offload, StateSharding
from archplace.search.points import Row
from archplace.search.strategy.axes import Axes


def axes_row(axes: Axes) -> Row:
    """Return the values offered along each axis."""
    return {
        "tensor_parallel": list(axes.tensor),
        "sequence_parallel": list(axes.sequence),
        "context_parallel": list(axes.context),
        "context_exchange": [str(kind) for kind in axes.context_kind],
        "expert_parallel": list(axes.expert),
        "expert_tensor_parallel": list(axes.expert_tensor),
        "tensor_overlap_pieces": list(axes.overlap_pieces),
        "microbatch": list(axes.microbatch),
        "pipeline_parallel": None if axes.stages is None else list(axes.stages),
        "data_parallel": None if axes.data is None else list(axes.data),
        "schedule": [str(schedule) for schedule in axes.schedules],
        "virtual_stages": list(axes.virtual),
        "recompute": [str(policy) for policy in axes.policies],
        "state_sharding": [_states(states) for states in axes.states],
        "offload": [_offload(offload) for offload in axes.offload],
        "overlap": [str(overlap) for overlap in axes.overlap],
        "device_order": None if axes.orders is None else [" ".join(order) for order in axes.orders],
    }


def axes_words(axes: Axes) -> list[tuple[str, str]]:
    """Return name and values of the axes that the run chooses along, or that are not at their plainest."""
    plain = {
        "sequence_parallel": [False],
        "context_parallel": [1],
        "expert_parallel": [1],
        "expert_tensor_parallel": [1],
        "tensor_overlap_pieces": [1],
        "state_sharding": ["none"],
        "offload": ["none"],
        "overlap": ["data and pipeline"],
    }
    row = axes_row(axes)
    if "interleaved" not in map(str, axes.schedules):
        del row["virtual_stages"]
    if axes.context == (1,):
        del row["context_exchange"]
    found = []
    for name, values in row.items():
        if name in plain and values == plain[name]:
            continue
        words = "whatever fits" if values is None else ", ".join(map(_word, values)) if isinstance(values, list) else ""
        found.append((name.replace("_", " ").capitalize(), words))
    return found


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _states(states: StateSharding) -> str:
    return str(states.states) + (f" in groups of {states.group}" if states.group else "")


def _offload(offload: Offload) -> str:
    names = [name for name in ("activations", "optimizer") if getattr(offload, name)]
    return " and ".join(names) or "none"
