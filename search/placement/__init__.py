"""Placement: layers on pipeline stages, and the parallel degrees, exactly.

:func:`place` takes the prices of all stages, whatever formulas filled them; :func:`place_instance` fills them
with the formulas of the solver in whose terms an instance is asked: PHAZE's or NEST's (:mod:`.profiles`).
"""

from archplace.search.placement.dp import PlacementResult, Stage, place
from archplace.search.placement.instance_file import read_instances
from archplace.search.placement.instances import LayerChain, NestInstance, NetworkLevel, Optimizer, PlacementInstance
from archplace.search.placement.nest import nest_prices
from archplace.search.placement.phaze import phaze_prices
from archplace.search.placement.prices import StagePrices, Synchronisation
from archplace.search.placement.profiles import place_instance

__all__ = [
    "LayerChain",
    "NestInstance",
    "NetworkLevel",
    "Optimizer",
    "PlacementInstance",
    "PlacementResult",
    "Stage",
    "StagePrices",
    "Synchronisation",
    "nest_prices",
    "phaze_prices",
    "place",
    "place_instance",
    "read_instances",
]
