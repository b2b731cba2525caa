"""``archplace place``: place layer chains on pipeline stages, to proven optimality."""

import argparse
import time
from pathlib import Path

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE
from archplace.cli._output import Row, add_format, print_rows
from archplace.search.placement import NestInstance, PlacementInstance, PlacementResult, place_instance, read_instances


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="placement instances as JSON, plain or gzipped, one or a list of them, in PHAZE's or NEST's terms",
    )
    add_format(parser)
    parser.epilog = (
        "Prints per instance: feasible, time_per_batch (seconds; where the file does not name its unit, that of its "
        "latencies), degrees, stages (first and last layer by the file's ids), seconds taken, and the reason where "
        "nothing fits. JSON and YAML carry each stage's load, memory and devices. Exit code 0 if any instance is "
        "feasible, 3 if none is."
    )


def _stages(instance: PlacementInstance | NestInstance, result: PlacementResult, style: str) -> list[object]:
    stages: list[object] = []
    for index, stage in enumerate(result.stages):
        ids = instance.chains[result.tensor_parallel].layer_ids
        first, last = ids[stage.first_layer], ids[stage.end_layer - 1]
        if style in ("table", "csv"):
            stages.append(f"{first}..{last}")
        else:
            detail = {
                "first_layer": first,
                "last_layer": last,
                "load_s": stage.load_s,
                "memory_bytes": stage.memory_bytes,
                "devices": stage.devices,
                "bottleneck": index == result.bottleneck,
            }
            stages.append(detail)
    return stages


def _row(instance: PlacementInstance | NestInstance, style: str) -> Row:
    started = time.perf_counter()
    result = place_instance(instance)
    seconds = time.perf_counter() - started
    return {
        "name": instance.name,
        "feasible": result.feasible,
        "time_per_batch": result.time_per_batch_s if result.feasible else None,
        "tensor_parallel": result.tensor_parallel if result.feasible else None,
        "data_parallel": result.data_parallel if result.feasible else None,
        "pipeline_parallel": result.pipeline_parallel if result.feasible else None,
        "stages": _stages(instance, result, style),
        "seconds": seconds,
        "reason": result.reason,
    }


def run(arguments: argparse.Namespace) -> int:
    """Solve every instance of the file and print one row each."""
    rows = [_row(instance, arguments.format) for instance in read_instances(arguments.file)]
    print_rows(rows, arguments.format)
    return EXIT_DONE if any(row["feasible"] for row in rows) else EXIT_INFEASIBLE
