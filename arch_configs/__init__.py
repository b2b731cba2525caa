"""What may the hardware be? Accelerator and cluster descriptions, technology tables, presets, design spaces.

The names below load their modules when they are first used: importing the room's errors, as the command line does
before it knows what is asked, imports neither NumPy nor pydantic.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from archplace.arch_configs._suggest import choose, unknown_name
    from archplace.arch_configs.accelerator import Accelerator, GlobalBuffer, Hbm, TensorUnits, VectorUnits
    from archplace.arch_configs.accelerator_files import accelerator_names, load_accelerator
    from archplace.arch_configs.architectures import Architectures
    from archplace.arch_configs.area import AreaBreakdown, Resources, area_breakdown, area_mm2, price_accelerator_area
    from archplace.arch_configs.calibration import NOMINAL, Blocks, Calibration
    from archplace.arch_configs.cluster import Cluster, Endpoint, Host, NetworkDimension, Topology
    from archplace.arch_configs.cluster_files import cluster_names, load_cluster
    from archplace.arch_configs.die import Die
    from archplace.arch_configs.errors import ArchplaceError, ConfigError, InfeasibleError, Problem, StoreError
    from archplace.arch_configs.space import DesignSpace, Parameter
    from archplace.arch_configs.space_files import load_space, space_names
    from archplace.arch_configs.technology import Sram, Technology, load_technology, technology_names
else:
    import importlib

    _MODULES = {
        "_suggest": (
            "choose",
            "unknown_name",
        ),
        "accelerator": (
            "Accelerator",
            "GlobalBuffer",
            "Hbm",
            "TensorUnits",
            "VectorUnits",
        ),
        "accelerator_files": (
            "accelerator_names",
            "load_accelerator",
        ),
        "architectures": ("Architectures",),
        "area": (
            "AreaBreakdown",
            "Resources",
            "area_breakdown",
            "area_mm2",
            "price_accelerator_area",
        ),
        "calibration": (
            "NOMINAL",
            "Blocks",
            "Calibration",
        ),
        "cluster": (
            "Cluster",
            "Endpoint",
            "Host",
            "NetworkDimension",
            "Topology",
        ),
        "cluster_files": (
            "cluster_names",
            "load_cluster",
        ),
        "die": ("Die",),
        "errors": (
            "ArchplaceError",
            "ConfigError",
            "InfeasibleError",
            "Problem",
            "StoreError",
        ),
        "space": (
            "DesignSpace",
            "Parameter",
        ),
        "space_files": (
            "load_space",
            "space_names",
        ),
        "technology": (
            "Sram",
            "Technology",
            "load_technology",
            "technology_names",
        ),
    }

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name in names:
                value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "NOMINAL",
    "Accelerator",
    "Architectures",
    "ArchplaceError",
    "AreaBreakdown",
    "Blocks",
    "Calibration",
    "Cluster",
    "ConfigError",
    "DesignSpace",
    "Die",
    "Endpoint",
    "GlobalBuffer",
    "Hbm",
    "Host",
    "InfeasibleError",
    "NetworkDimension",
    "Parameter",
    "Problem",
    "Resources",
    "Sram",
    "StoreError",
    "Technology",
    "TensorUnits",
    "Topology",
    "VectorUnits",
    "accelerator_names",
    "area_breakdown",
    "area_mm2",
    "choose",
    "cluster_names",
    "load_accelerator",
    "load_cluster",
    "load_space",
    "load_technology",
    "price_accelerator_area",
    "space_names",
    "technology_names",
    "unknown_name",
]
