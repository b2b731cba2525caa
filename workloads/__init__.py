"""What must run? Operator graphs of training steps."""

from archplace.workloads.graphs import build_layers
from archplace.workloads.job_files import is_trace, load_job
from archplace.workloads.layer_sharding import ContextKind, LayerSharding
from archplace.workloads.model import Activation, Model, ModelKind, Norm, Positions
from archplace.workloads.model_files import load_model, model_names
from archplace.workloads.model_parts import Block, Experts, LatentAttention, Patches
from archplace.workloads.operators import (
    Axis,
    Collective,
    CollectiveKind,
    FusedAttention,
    Gemm,
    Operator,
    Phase,
    Unit,
    VectorWork,
)
from archplace.workloads.optimizer import optimizer_work, parameter_bytes
from archplace.workloads.precision import Format, Formats, Precision
from archplace.workloads.training_job import TrainingJob
from archplace.workloads.training_step import Layer, OptimizerKind, ParameterBytes, Recompute, TrainingStep
from archplace.workloads.workload import Workload
from archplace.workloads.workload_files import WorkloadFields, build_workload, load_workload, workload_names

__all__ = [
    "Activation",
    "Axis",
    "Block",
    "Collective",
    "CollectiveKind",
    "ContextKind",
    "Experts",
    "Format",
    "Formats",
    "FusedAttention",
    "Gemm",
    "LatentAttention",
    "Layer",
    "LayerSharding",
    "Model",
    "ModelKind",
    "Norm",
    "Operator",
    "OptimizerKind",
    "ParameterBytes",
    "Patches",
    "Phase",
    "Positions",
    "Precision",
    "Recompute",
    "TrainingJob",
    "TrainingStep",
    "Unit",
    "VectorWork",
    "Workload",
    "WorkloadFields",
    "build_layers",
    "build_workload",
    "is_trace",
    "load_job",
    "load_model",
    "load_workload",
    "model_names",
    "optimizer_work",
    "parameter_bytes",
    "workload_names",
]
