"""Placement: layers on pipeline stages, and the parallel degrees, exactly.

:func:`place` takes the prices of all stages, whatever formulas filled them; :func:`place_instance` fills them with
PHAZE's for an instance that :func:`read_instances` read.
"""

from archplace.search.placement.chain import bottleneck_load_s, cuts
from archplace.search.placement.dp import PlacementResult, Stage, place
from archplace.search.placement.instance_file import read_instances
from archplace.search.placement.instances import LayerChain, Optimizer, PlacementInstance
from archplace.search.placement.phaze import phaze_prices, place_instance
from archplace.search.placement.prices import StagePrices, Synchronisation

__all__ = [
    "LayerChain",
    "Optimizer",
    "PlacementInstance",
    "PlacementResult",
    "Stage",
    "StagePrices",
    "Synchronisation",
    "bottleneck_load_s",
    "cuts",
    "phaze_prices",
    "place",
    "place_instance",
    "read_instances",
]
