"""Design points as rows: what listings, CSV, JSON and the report's table show."""

from dataclasses import dataclass
from functools import cached_property

from archplace.arch_configs.architectures import Architectures
from archplace.search.explain import Explanation, explain
from archplace.search.explore import Evaluated
from archplace.search.run import RunResult

Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class PointView:
    """One evaluated design point with its explanations, one per workload (computed when first asked for)."""

    result: RunResult
    point: Evaluated
    architectures: Architectures
    """One row: the architecture."""
    label: str

    @property
    def area_mm2(self) -> float:
        """Area by the space's technology table."""
        return float(self.architectures.area_mm2[0])

    @property
    def samples_per_s(self) -> float:
        """Sequences per second; with several workloads their geometric mean."""
        return 1 / self.point.seconds_per_sample

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        """Why each workload takes the time it does."""
        run = self.result.run
        return tuple(
            explain(
                found,
                workload,
                self.architectures,
                run.cluster,
                self.result.cache,
                accelerators=run.choices.accelerators,
            )
            for found, workload in zip(self.point.results, run.workloads, strict=True)
        )

    def architecture(self) -> Row:
        """Return the architecture's parameters."""
        archs = self.architectures
        return {
            "clock_hz": float(archs.clock_hz[0]),
            "tensor_units": int(archs.tensor_count[0]),
            "tensor_rows": int(archs.tensor_rows[0]),
            "tensor_cols": int(archs.tensor_cols[0]),
            "vector_units": int(archs.vector_count[0]),
            "vector_lanes": int(archs.vector_lanes[0]),
            "global_buffer_bytes": int(archs.global_buffer_bytes[0]),
            "global_buffer_bytes_per_s": float(archs.global_buffer_bytes_per_s[0]),
            "hbm_bytes_per_s": float(archs.hbm_bytes_per_s[0]),
            "hbm_stacks": int(archs.hbm_stacks[0]),
        }

    def row(self) -> Row:
        """Return the whole design point in one flat row, SI units; several workloads' columns carry their names."""
        row: Row = {
            "id": self.point.architecture,
            "throughput_samples_per_s": self.samples_per_s,
            "area_mm2": self.area_mm2,
            "samples_per_s_per_mm2": self.samples_per_s / self.area_mm2,
            **self.architecture(),
        }
        workloads = self.result.run.workloads
        for workload, found, why in zip(workloads, self.point.results, self.explanations, strict=True):
            memory = max(stage.memory.total_bytes for stage in why.stages)
            columns: Row = {
                "step_s": found.placement.step_s,
                "tokens_per_s": workload.tokens_per_step / found.placement.step_s,
                "mfu": why.mfu,
                "tensor_parallel": found.option.tensor_parallel,
                "data_parallel": found.placement.degrees.replicas,
                "pipeline_stages": found.placement.degrees.stages,
                "microbatch": found.option.microbatch,
                "microbatches_per_replica": found.placement.degrees.microbatches,
                "recompute": found.option.recompute,
                "hbm_bytes": found.option.hbm_bytes,
                "memory_bytes": memory,
                "memory_slack_bytes": found.option.hbm_bytes - memory,
                "bottleneck": why.bottleneck,
                "proven_optimal": found.proven,
            }
            columns.update({f"{part.replace(' ', '_')}_s": seconds for part, seconds in why.parts_s.items()})
            prefix = f"{workload.name}." if len(workloads) > 1 else ""
            row.update({prefix + key: value for key, value in columns.items()})
        return row


def point_views(result: RunResult) -> list[PointView]:
    """Return the front, fastest first."""
    return [view(result, point) for point in result.outcome.front]


def view(result: RunResult, point: Evaluated) -> PointView:
    """Return one evaluated point of the run's space."""
    return PointView(
        result=result,
        point=point,
        architectures=result.architectures.take(slice(point.architecture, point.architecture + 1)),
        label=f"design {point.architecture}",
    )


def baseline_view(result: RunResult) -> PointView | None:
    """Return the baseline as a point, or None where there is none or nothing fits on it."""
    baseline = result.baseline
    if baseline is None or baseline.point is None:
        return None
    return PointView(result=result, point=baseline.point, architectures=baseline.architectures, label=baseline.name)


def short_row(row: Row) -> Row:
    """Return the columns that fit a terminal, in human units."""

    def number(key: str) -> float:
        value = row[key]
        assert isinstance(value, int | float)
        return float(value)

    short: Row = {
        "id": row["id"],
        "samples/s": round(number("throughput_samples_per_s"), 2),
        "area_mm2": round(number("area_mm2"), 2),
        "tensor": f"{row['tensor_units']}×{row['tensor_rows']}×{row['tensor_cols']}",
        "vector": f"{row['vector_units']}×{row['vector_lanes']}",
        "buffer_MiB": round(number("global_buffer_bytes") / 2**20, 2),
    }
    if "step_s" in row:
        short |= {
            "HBM_GB": round(number("hbm_bytes") / 1e9, 1),
            "t": row["tensor_parallel"],
            "d": row["data_parallel"],
            "p": row["pipeline_stages"],
            "microbatch": row["microbatch"],
            "recompute": row["recompute"],
            "MFU": f"{number('mfu'):.1%}",
            "proven": row["proven_optimal"],
        }
    return short
