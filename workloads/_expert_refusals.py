"""Why the experts of a model cannot be shared as asked."""

from archplace.workloads.layer_sharding import LayerSharding
from archplace.workloads.model import Model


def experts_refusal(model: Model, sharding: LayerSharding) -> str | None:
    """Return why the model's experts cannot be shared this way, with the numbers, or None.

    Whether ``expert · expert_tensor`` devices exist in a stage is decided where the data-parallel width is known.
    """
    expert, columns = sharding.expert, sharding.expert_tensor
    for name, degree in (("expert", expert), ("expert-tensor", columns)):
        if degree < 1:
            return f"{name} parallel width {degree}: must be at least 1"
    experts = model.experts
    if experts is None:
        if expert > 1 or columns > 1:
            return (
                f"expert parallel width {expert} and expert-tensor parallel width {columns}: {model.name} has no "
                "experts, so that both must be 1"
            )
        return None
    if experts.n_experts % expert:
        return f"expert parallel width {expert} does not divide the {experts.n_experts} experts of {model.name}"
    if experts.d_ff % columns:
        return (
            f"expert-tensor parallel width {columns} does not divide the {experts.d_ff} columns of an expert of "
            f"{model.name}"
        )
    if sharding.tensor > 1 and not sharding.sequence:
        # As in Megatron-Core, which stops with an error: each device would route all tokens of its group.
        return (
            f"tensor parallel width {sharding.tensor} without sequence parallelism: the devices of a group would all "
            f"route the same tokens to the {experts.n_experts} experts of {model.name}; turn sequence parallelism on"
        )
    return None
