"""Which cost formulas price an instance: those of the solver in whose terms it is asked."""

from archplace.search.placement.dp import PlacementResult, place
from archplace.search.placement.instances import NestInstance, PlacementInstance
from archplace.search.placement.nest import nest_prices
from archplace.search.placement.phaze import phaze_prices
from archplace.search.placement.prices import StagePrices


def stage_prices(instance: PlacementInstance | NestInstance, tensor_parallel: int) -> StagePrices:
    """Return the prices of ``instance``'s chain at one tensor-parallel width."""
    if isinstance(instance, NestInstance):
        return nest_prices(instance, tensor_parallel)
    return phaze_prices(instance, tensor_parallel)


def place_instance(instance: PlacementInstance | NestInstance) -> PlacementResult:
    """Return the optimal placement of ``instance`` over all its tensor-parallel widths."""
    return place(
        [stage_prices(instance, width) for width in sorted(instance.chains)],
        max_devices=instance.max_devices,
        microbatches=instance.microbatches,
        memory_bytes=instance.memory_bytes,
    )
