"""One strategy in full: where its step time and memory go.

MFU, model FLOPs utilisation, is the model FLOPs of a step over what the devices could compute in its time (Chowdhery
et al. 2022, arXiv:2204.02311, appendix B); HFU, hardware FLOPs utilisation, counts the FLOPs that the tensor units
really execute instead: with recomputation, and without what a causal kernel skips.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from archplace.costmodel import Allowance, MemoryItems, Pricer, Replicas, memory_coefficients, memory_items, policy_of
from archplace.search.attribution import COMPUTE_PARTS, EXCHANGE_PARTS, attribute, bars_of
from archplace.search.pipeline import SPLIT_BACKWARD, ScheduleShape, StageSeconds, makespan_s
from archplace.search.schedule import ScheduleCache, ScheduleGraph
from archplace.search.strategy.block import StrategyBlock
from archplace.search.strategy.blocks import BlockMaker
from archplace.search.strategy.chain import BoolArray, ChainRows, FloatArray
from archplace.search.strategy.cuts import Cut, best_cuts
from archplace.search.strategy.families import Families
from archplace.search.strategy.fixed import Deal, even_deal, even_parts, price_deal
from archplace.search.strategy.layers import Pass, operators_of, replay_of
from archplace.search.strategy.packing import packed_loads
from archplace.search.strategy.problem import PlanProblem
from archplace.search.strategy.single import axes_of
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy, refusal
from archplace.workloads import Layer, Recompute, TrainingJob

_ROUNDING = 1e-12
"""Share of the step that sums in another order may differ by."""

EXCHANGES = tuple(dict.fromkeys(EXCHANGE_PARTS.values()))
STEP_PARTS = (
    *COMPUTE_PARTS,
    "recomputation",
    *EXCHANGES,
    "state exchange",
    "host transfers",
    "pipeline transfers",
    "pipeline bubble",
    "gradient reduction",
    "parameter gathering",
    "optimizer step",
)
"""What a step's seconds are split into, in the order in which they are shown. Communication is what is exposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One device of a pipeline."""

    layers: tuple[tuple[str, int], ...]
    """Kind of layer and how many, those that it holds."""
    recompute: Recompute
    load_s: float
    """Seconds of computing per microbatch, with exposed exchanges."""
    memory: MemoryItems
    capacity_bytes: float

    @property
    def fits(self) -> bool:
        """Whether its memory suffices."""
        return self.memory.total_bytes <= self.capacity_bytes * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one strategy costs, and why."""

    strategy: Strategy
    feasible: bool
    """Whether every stage fits; the times are those that it would take."""
    step_s: float
    parts_s: dict[str, float]
    """Seconds by :data:`STEP_PARTS`; they add up to ``step_s``."""
    mfu: float
    hfu: float
    stages: tuple[StageView, ...]
    microbatches: int
    simulated_step_s: float
    """The step with the pipeline's exact time for these stages in place of the closed form that the search uses; NaN
    where it was not asked for."""
    samples_per_s: float
    tokens_per_s: float
    """Over all devices."""
    shape: ScheduleShape
    """With ``stage_seconds``: what :func:`archplace.search.pipeline.simulation.simulate` takes."""
    stage_seconds: StageSeconds = field(repr=False, compare=False)


def evaluate(
    problem: PlanProblem,
    strategy: Strategy,
    *,
    held: Sequence[Sequence[int]] | None = None,
    recompute: Sequence[Recompute] | None = None,
    cache: ScheduleCache | None = None,
) -> Evaluation:
    """Return what ``strategy`` costs with the layers cut as ``held`` has them, or else in the best way.

    ``held`` has for each stage the layers of each kind of the chain; ``recompute`` what each stage recomputes, by
    default the least of the strategy's policies that fits. Where nothing fits, the stages are those of an even cut with
    the policy that keeps least, and the result says that it is not feasible. Raises ``ValueError`` with the reason
    where the strategy is refused, where the layers do not add up, or where ``held`` is given for a schedule that deals
    them out evenly.
    """
    reason = refusal(strategy, problem.workload, problem.accelerators)
    if reason is not None:
        raise ValueError(reason)
    cache = ScheduleCache() if cache is None else cache
    axes = axes_of(strategy, recompute or ())
    families = Families(problem.workload, problem.cluster, axes, problem.network())
    maker = BlockMaker(problem, axes, cache)
    found = tuple(families)
    refused = [*families.refused, *maker.refused]
    if found and not maker.refused:
        block = maker.block(found[0])
        if len(block):
            job = Job.of(problem)
            stages = StageChoice(block, held, recompute)
            return Dissection(job, block, splitter(block, maker.pricer(block.table.entries[0].order), cache)).run(
                stages
            )
        refused += block.table.combinations.refused
    raise ValueError(refused[0])


Split = Callable[[int, Pass], Mapping[str, float]]
"""Says of a kind of layer and a pass what its seconds are spent on."""


def splitter(block: StrategyBlock, pricer: Pricer, cache: ScheduleCache) -> Split:
    """Return what splits the passes of a block's layers, on the one architecture of ``pricer``."""

    def split(kind: int, which: Pass) -> Mapping[str, float]:
        operators = operators_of(block.table.step.layers[kind][0], which)
        if not operators:
            return {}
        return attribute(bars_of(ScheduleGraph.of_operators(operators), operators, pricer, cache)[0])

    return split


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is run, on what."""

    workload: TrainingJob
    accelerators: int
    peak_flops_per_s: float
    """Of one device."""
    hbm_bytes: float
    allowance: Allowance

    @classmethod
    def of(cls, problem: PlanProblem) -> "Job":
        """Return the job of a plan."""
        return cls(
            workload=problem.workload,
            accelerators=problem.accelerators,
            peak_flops_per_s=problem.peak_flops_per_s,
            hbm_bytes=float(problem.accelerator.hbm.capacity_bytes),
            allowance=problem.allowance,
        )


class StageChoice:
    """The layers and the recomputation of each stage of a block's only strategy: as asked for, or the best."""

    def __init__(
        self,
        block: StrategyBlock,
        held: Sequence[Sequence[int]] | None = None,
        recompute: Sequence[Recompute] | None = None,
    ) -> None:
        """Choose; ``held`` and ``recompute`` as :func:`evaluate` takes them."""
        self._block, self._strategy = block, block.strategy(0)
        self._layers = [layer for layer, _ in block.table.step.layers]
        self._rows: ChainRows = block.chain_rows(np.array([0]))
        self.deal, self.cut = self._stages(held, recompute)

    def _stages(self, held: Sequence[Sequence[int]] | None, recompute: Sequence[Recompute] | None) -> tuple[Deal, Cut]:
        """Return the layers of each stage and their price: as asked for, or the best."""
        block, strategy, rows = self._block, self._strategy, self._rows
        equal = strategy.schedule in DEALT_EVENLY
        allowed = self._allowed(recompute)
        if held is not None:
            if equal:
                raise ValueError(
                    f"stages: {strategy.schedule} deals the layers out evenly; leave the layers of the stages out"
                )
            deal = Deal.of(self._checked(held))
        elif equal:
            deal = even_deal(block.counts, strategy.schedule, strategy.stages, strategy.virtual)
        else:
            cut = None if recompute is not None else best_cuts(rows, packed_loads(rows)).at(0)
            if cut is not None:
                return Deal.of(cut.held), cut
            deal = Deal.of(_even(block.counts, strategy.stages))
        return deal, self._dealt(deal, allowed)

    def _dealt(self, deal: Deal, allowed: BoolArray | None) -> Cut:
        """Return the price of a deal; where a stage does not fit, with the last policy that it may choose."""
        dealt = price_deal(self._rows, deal, allowed)
        if np.isfinite(dealt.time_s[0]):
            return dealt.cut(0)
        stages, policies = self._rows.n_stages, self._rows.load_s.shape[1]
        able = np.ones((policies, stages), dtype=np.bool_) if allowed is None else allowed
        chosen = np.where(dealt.policies[0] >= 0, dealt.policies[0], policies - 1 - able[::-1].argmax(axis=0))
        forced = np.arange(policies)[:, None] == chosen
        return price_deal(self._rows.with_capacity(np.inf), deal, forced).cut(0)

    def _allowed(self, recompute: Sequence[Recompute] | None) -> BoolArray | None:
        """Return which policies each stage may choose, ``(P, J)``; None where all may."""
        if recompute is None:
            return None
        if len(recompute) != self._strategy.stages:
            raise ValueError(
                f"recompute: found {len(recompute)} entries for {self._strategy.stages} stages; give one for each"
            )
        policies = self._block.choices.policies
        return np.array([[asked is policy for asked in recompute] for policy in policies])

    def _checked(self, held: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """Return the layers of the stages, if they are the chain cut into runs; raises ``ValueError`` otherwise."""
        counts, stages = self._block.counts, self._strategy.stages
        names = [layer.name for layer in self._layers]
        if len(held) != stages or any(len(layers) != len(counts) for layers in held):
            raise ValueError(f"stages: give {stages} stages with a count for each of {', '.join(names)}")
        kinds = np.repeat(np.arange(len(counts)), counts)
        sizes = [sum(layers) for layers in held]
        ends = np.cumsum(sizes)
        runs = [np.bincount(part, minlength=len(counts)).tolist() for part in np.split(kinds, ends[:-1])]
        if min(sizes) < 1 or ends[-1] != len(kinds) or runs != [list(layers) for layers in held]:
            wanted = " + ".join(f"{count} {name}" for count, name in zip(counts, names, strict=True))
            raise ValueError(f"stages: found {list(map(list, held))}, which are not runs of {wanted} in this order")
        return held


class Dissection:
    """The only strategy of a block with its stages, taken apart."""

    def __init__(self, job: Job, block: StrategyBlock, split: Split) -> None:
        self._job, self._block, self._split = job, block, split
        self._strategy = block.strategy(0)
        self._layers = [layer for layer, _ in block.table.step.layers]
        self._rows: ChainRows = block.chain_rows(np.array([0]))
        self._microbatches = block.table.entries[0].microbatches

    def run(self, chosen: StageChoice, *, exact: bool = True) -> Evaluation:
        """Return the evaluation; without ``exact`` the pipeline's exact time is left out."""
        strategy, workload = self._strategy, self._job.workload
        deal, cut = chosen.deal, chosen.cut
        stages = self._views(deal, cut)
        step_s = cut.time_s
        peak = self._job.peak_flops_per_s * self._job.accelerators
        shape, seconds = strategy.shape(workload), self._stage_seconds(cut)
        pipeline_s = None
        if exact:
            pipeline_s = float(makespan_s(shape, seconds, overlap_transfers=strategy.overlap.pipeline))
        return Evaluation(
            strategy=strategy,
            feasible=all(stage.fits for stage in stages),
            step_s=step_s,
            parts_s=self._parts_s(deal, cut),
            mfu=workload.flops_per_step / (step_s * peak),
            hfu=self._executed_flops(deal, cut) / (step_s * peak),
            stages=stages,
            microbatches=self._microbatches,
            simulated_step_s=np.nan if pipeline_s is None else pipeline_s + cut.tail_s,
            samples_per_s=workload.global_batch / step_s,
            tokens_per_s=workload.tokens_per_step / step_s,
            shape=shape,
            stage_seconds=seconds,
        )

    def _parts_s(self, deal: Deal, cut: Cut) -> dict[str, float]:
        """Split the step of the slowest stage; what the closed form adds to its work is the bubble."""
        parts = dict.fromkeys(STEP_PARTS, 0.0)
        slowest = int(np.argmax(cut.loads_s))
        worked, policy = deal.worked[slowest], cut.policies[slowest]
        for segment, count in enumerate(worked.tolist()):
            if count:
                for part, seconds in self._layer_parts(segment, policy).items():
                    parts[part] += self._microbatches * count * seconds
        rows = self._rows
        neighbours = int(rows.neighbours()[slowest])
        # Waiting for messages passes with the load; what passes once is counted where nobody waits.
        behind = self._strategy.overlap.pipeline
        times = float(rows.pace[0]) if behind else self._microbatches
        parts["pipeline transfers"] = times * neighbours * float(rows.boundary_s[0])
        parts["pipeline transfers"] += float(rows.constant_s[0]) if behind else 0.0
        work = sum(parts.values())
        bubble_s = cut.time_s - cut.tail_s - work
        # What rounding leaves of none is none.
        parts["pipeline bubble"] = bubble_s if abs(bubble_s) > _ROUNDING * cut.time_s else 0.0
        first = deal.held[0]
        updates = self._block.updates_s(0) @ first
        parts["optimizer step"] = float(updates)
        exposed = self._block.exposed_s(0, first)
        parts["gradient reduction"], parts["parameter gathering"] = exposed
        return parts

    def _layer_parts(self, segment: int, policy: int) -> dict[str, float]:
        """Return the seconds of one layer and microbatch by part."""
        parts: dict[str, float] = {}
        passes, seconds = self._block.passes(0), self._block.seconds
        together = float(passes.pair_s[0, policy, segment])
        apart = float((passes.forward_s + passes.inputs_s + passes.weights_s)[0, policy, segment])
        paired = self._strategy.schedule.value == "dualpipe"
        for which in (Pass.FORWARD, *self._backward_passes()):
            split = self._split(segment, which)
            total = sum(split.values())
            for part, value in split.items():
                # What the bars add up to can differ from the seconds of the search in the last digits.
                parts[part] = parts.get(part, 0.0) + value * (
                    float(seconds[which][0, segment]) / total if total else 0.0
                )
        parts["recomputation"] = float(self._block.replay_s(policy)[segment])
        waits = float((passes.forward_waits_s + passes.backward_waits_s)[0, policy, segment])
        hosted = self._strategy.offload.activations > 0
        parts["host transfers" if hosted else "state exchange"] = waits
        if paired:
            # Running together hides exchanges first, then whatever computing overlaps.
            self._hide(parts, apart - together)
        return parts

    @staticmethod
    def _hide(parts: dict[str, float], gain_s: float) -> None:
        for part in (*EXCHANGES, *(part for part in parts if part not in EXCHANGES)):
            taken = min(gain_s, parts.get(part, 0.0))
            if taken > 0:
                parts[part] -= taken
                gain_s -= taken

    def _backward_passes(self) -> tuple[Pass, ...]:
        apart = self._strategy.schedule in SPLIT_BACKWARD
        return (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if apart else (Pass.BACKWARD,)

    def _views(self, deal: Deal, cut: Cut) -> tuple[StageView, ...]:
        strategy, step = self._strategy, self._block.table.step
        replicas = Replicas.of(strategy.sharding, strategy.states, strategy.data)
        coefficients = memory_coefficients(
            step.layers,
            step.parameter_bytes,
            states=strategy.states,
            replicas=replicas,
            offload=strategy.offload,
            allowance=self._job.allowance,
        )
        crossing = self._block.table.boundary_bytes if strategy.stages > 1 else 0.0
        views = []
        for j, number in enumerate(cut.policies):
            policy = self._block.choices.policies[number]
            memory = memory_items(
                coefficients,
                [int(n) for n in deal.held[j]],
                policy,
                self._in_flight(deal, j, number),
                entering_bytes=crossing,
                leaving_bytes=crossing,
            )
            layers = tuple(
                (layer.name, int(count)) for layer, count in zip(self._layers, deal.held[j], strict=True) if count
            )
            views.append(
                StageView(
                    layers=layers,
                    recompute=policy,
                    load_s=cut.loads_s[j],
                    memory=memory,
                    capacity_bytes=self._job.hbm_bytes,
                )
            )
        return tuple(views)

    def _in_flight(self, deal: Deal, stage: int, policy: int) -> float:
        """Return the microbatches in flight, of two directions the mean by bytes."""
        flight = self._rows.flight_bytes[0, policy]
        both = float(deal.held[stage] @ flight)
        own = float(self._rows.in_flight[0, stage])
        if not deal.mirrored[stage].any() or not both:
            return own
        mirrored = float(deal.mirrored_in_flight[stage]) * float(deal.mirrored[stage] @ flight)
        return (own * float(deal.own[stage] @ flight) + mirrored) / both

    def _executed_flops(self, deal: Deal, cut: Cut) -> float:
        """Return the FLOPs of all matrix products of a step on all devices, with those that recomputation repeats."""
        strategy = self._strategy
        total = 0.0
        for j, number in enumerate(cut.policies):
            policy = self._block.choices.policies[number]
            for layer, count in zip(self._layers, deal.worked[j].tolist(), strict=True):
                total += count * _layer_flops(layer, policy)
        return total * self._microbatches * strategy.data * strategy.sharding.stage_devices

    def _stage_seconds(self, cut: Cut) -> StageSeconds:
        """Return the seconds of the pipeline's stages."""
        strategy, block = self._strategy, self._block
        shape: ScheduleShape = strategy.shape(self._job.workload)
        if strategy.schedule in DEALT_EVENLY:
            parts = even_parts(block.counts, shape.virtual_stages)
        else:
            parts = np.array(cut.held, dtype=np.float64)
        policies = np.array([cut.policies[shape.device_of(stage)] for stage in range(shape.virtual_stages)])
        passes = block.passes(0)

        def by_stage(values: FloatArray) -> FloatArray:
            total: FloatArray = (parts * values[0][policies]).sum(axis=1)
            return total

        forward, inputs, weights = (
            by_stage(values) for values in (passes.forward_s, passes.inputs_s, passes.weights_s)
        )
        overlapped = None
        if strategy.schedule.value == "dualpipe":
            pair, backward = by_stage(passes.pair_s), (inputs + weights)[::-1]
            # A part may meet a larger one: no sooner than the longer pass, no later than one after the other.
            overlapped = np.clip((pair + pair[::-1]) / 2, np.maximum(forward, backward), forward + backward)
        transfer_s = float(block.table.transfer_s[0]) if strategy.stages > 1 else 0.0
        return StageSeconds.of(forward, inputs, weights, transfer_s, overlapped)


def _even(counts: Sequence[int], stages: int) -> list[list[int]]:
    """Return the chain cut into runs that differ by at most one layer."""
    kinds = np.repeat(np.arange(len(counts)), counts)
    return [np.bincount(part, minlength=len(counts)).tolist() for part in np.array_split(kinds, stages)]


def _layer_flops(layer: Layer, policy: Recompute) -> float:
    again = replay_of(policy_of(layer, policy), layer)
    executed = (*layer.forward, *layer.backward, *(() if again is None else operators_of(layer, again)))
    return sum(2.0 * operator.macs for operator in executed)
