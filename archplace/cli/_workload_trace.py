"""``archplace workload trace``: a built-in model, or any workload, as Chakra traces."""

import argparse
import sys
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, ConfigError
from archplace.cli._output import add_format, print_document
from archplace.cli._patience import patience
from archplace.cli._whatif_commands import warn_of_strangers
from archplace.workloads.layer_sharding import ContextKind, LayerSharding
from archplace.workloads.training_step import Recompute

_DEGREES = {
    "microbatch": "sequences per microbatch and replica",
    "tensor": "devices that share each layer's matrices",
    "context": "devices that share each sequence",
    "expert": "devices over which routed experts are spread",
    "expert-tensor": "devices that share one expert's matrices",
    "data": "replicas, which reduce their gradients",
    "microbatches": "microbatches that each device runs in the step",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("workload", metavar="WORKLOAD", help="a workload's name, its YAML file, or a trace that is one")
    parser.add_argument(
        "--out",
        metavar="FILE|DIR",
        required=True,
        help="where to write: one rank's trace (.et, .json, also .gz), or a folder for those of all ranks",
    )
    for name, text in _DEGREES.items():
        parser.add_argument(f"--{name}", metavar="N", type=int, default=1, help=f"{text} (default: 1)")
    parser.add_argument(
        "--sequence-parallel",
        action="store_true",
        help="share norms, dropout and residuals along the sequence, in the tensor-parallel group",
    )
    parser.add_argument(
        "--context-kind",
        choices=[kind.value for kind in ContextKind],
        default=ContextKind.RING.value,
        help="how attention meets keys and values of others (default: ring)",
    )
    parser.add_argument(
        "--recompute",
        choices=[kind.value for kind in Recompute],
        default=Recompute.NONE.value,
        help="what runs again before the backward pass (default: none)",
    )
    parser.add_argument("--rank", metavar="R", type=int, default=0, help="whose trace goes into FILE (default: 0)")
    add_format(parser)
    parser.epilog = (
        "One training step of devices that have all layers: forward and backward of each microbatch, reduction of "
        "gradients, optimizer. No durations: those depend on an accelerator. Change the traces with archplace workload "
        "what-if."
    )


def trace(arguments: argparse.Namespace) -> int:
    """Write the traces; print what is in them."""
    from archplace.workloads.job_files import load_job
    from archplace.workloads.traces import open_writer
    from archplace.workloads.traces.from_workload import StepTrace
    from archplace.workloads.traces.rank_files import is_file_name, make_folder, write_groups

    workload = load_job(arguments.workload)
    with patience(f"writing {arguments.out}"):
        try:
            step = StepTrace(
                workload=workload,
                sharding=_sharding(arguments),
                data=arguments.data,
                microbatches=arguments.microbatches,
                recompute=Recompute(arguments.recompute),
            )
            one = is_file_name(arguments.out)
            ranks = [arguments.rank] if one else range(step.groups.n_ranks)
            files = {rank: Path(arguments.out) for rank in ranks}
            if not one:
                folder = make_folder(arguments.out)
                files = {rank: folder / f"{workload.name}.{rank}.et" for rank in ranks}
            nodes = [step.nodes(rank) for rank in ranks]
        except ValueError as error:
            raise ConfigError(f"{workload.name}: {error}") from None
        counts = []
        for (rank, path), given in zip(files.items(), nodes, strict=True):
            with open_writer(path, step.metadata(rank)) as writer:
                counts.append(writer.write(given))
            print(f"{path}: {counts[-1]:,} nodes", file=sys.stderr)
        groups = step.groups.named()
        if groups and not one:
            write_groups(groups, folder)
        if not one:
            warn_of_strangers(list(files.values()))
    row = {
        "out": arguments.out,
        "ranks": step.groups.n_ranks,
        "traces": len(counts),
        "nodes": sum(counts),
        "process groups": len(groups),
    }
    print_document(row, arguments.format)
    return EXIT_DONE


def _sharding(arguments: argparse.Namespace) -> LayerSharding:
    low = [name for name in _DEGREES if getattr(arguments, name.replace("-", "_")) < 1]
    if low:
        raise ConfigError(f"--{low[0]}: found {getattr(arguments, low[0].replace('-', '_'))}, needs at least 1")
    return LayerSharding(
        microbatch=arguments.microbatch,
        tensor=arguments.tensor,
        sequence=arguments.sequence_parallel,
        context=arguments.context,
        context_kind=ContextKind(arguments.context_kind),
        expert=arguments.expert,
        expert_tensor=arguments.expert_tensor,
    )
