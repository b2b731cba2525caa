"""archplace searches an AI-training accelerator and the placement of the job on it together.

The rooms: :mod:`archplace.arch_configs` (what the hardware may be), :mod:`archplace.workloads` (what must run),
:mod:`archplace.costmodel` (what it costs) and :mod:`archplace.search` (what is best).
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
