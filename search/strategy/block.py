"""All strategies that share their layers' operator graphs and the places of their groups, priced as arrays.

What differs inside a block: lengths and numbers of pipelines, schedules, sharing of states, offload and overlap. Every
part of the price is worked out once for each combination of what it depends on, and rows gather the parts.

Communication behind computing is taken as follows. Layer by layer and microbatch by microbatch, parameters are
gathered for the next layer and gradients reduced of the layer before while a layer computes, and activations travel to
and from the host; of the three the slowest counts (Zhao et al. 2023, arXiv:2304.11277, section 4; Ren et al. 2021,
arXiv:2101.06840, section 4.1). What is exchanged once per step follows the backward pass of the last microbatch, or
precedes the forward pass of the next step's first, on the first stage: exposed is what outlasts the other layers of
the stage, and at least the exchange of the layer that has nothing left to hide behind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from archplace.costmodel import (
    POLICIES,
    Allowance,
    MemoryCoefficients,
    Replicas,
    StateSharding,
    memory_coefficients,
    policy_of,
    updated_parameters,
)
from archplace.costmodel.network import NetworkPricer
from archplace.search.pipeline import (
    SPLIT_BACKWARD,
    PipelineCoefficients,
    PipelineSchedule,
    coefficients,
    in_flight,
)
from archplace.search.strategy.chain import BoolArray, ChainRows, ChainTimes, FloatArray, IntArray
from archplace.search.strategy.combinations import Choices, Combinations, Entry
from archplace.search.strategy.exchanges import ExchangeSeconds, exchange_seconds
from archplace.search.strategy.layers import Pass
from archplace.search.strategy.overlap import LayerPasses, behind, hidden, paced
from archplace.search.strategy.strategy import Strategy
from archplace.workloads import Axis, Recompute, TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a block must know of the accelerator and its host."""

    hbm_bytes: float
    optimizer_s_per_parameter: float
    host_bytes_per_s: float | None = None
    """Per device and direction; None where nothing can be offloaded."""
    allowance: Allowance = field(default_factory=Allowance)


class StrategyBlock:
    """The strategies of one sharding of the layers whose groups lie alike in the network.

    ``seconds`` are those of every pass, by kind of layer, ``(S,)`` each. Combinations that are not possible have no
    row.
    """

    def __init__(
        self,
        step: TrainingStep,
        seconds: Mapping[Pass, FloatArray],
        entries: Sequence[Entry],
        choices: Choices,
        device: Device,
        network: NetworkPricer,
    ) -> None:
        self.step = step
        self.entries = tuple(entries)
        self.choices = choices
        self.device = device
        self.seconds = seconds
        self._policies = np.array([POLICIES.index(policy) for policy in choices.policies])
        self.counts = tuple(count for _, count in step.layers)
        self._microbatches = np.array([entry.microbatches for entry in entries], dtype=np.int64)
        self._replay_s = np.array([self._replayed_s(policy) for policy in choices.policies])
        self.combinations = Combinations(step.sharding, self.counts, entries, choices)
        valid = self.combinations.possible
        grid = np.broadcast_to(
            valid[:, :, :, None, None],
            (*valid.shape, len(choices.offload), len(choices.overlap)),
        )
        self.entry, self.schedule, self.states, self.offload, self.overlap = np.nonzero(grid)
        self.stages: IntArray = np.array([entry.stages for entry in entries], dtype=np.int64)[self.entry]
        boundary = max((layer.input_bytes for layer, _ in step.layers), default=0)
        self.boundary_bytes = float(boundary)
        self.transfer_s = np.array(
            [float(network.transfer_s(float(boundary), entry.order.group(Axis.PIPELINE))) for entry in entries]
        )
        self._exchanges = self._exchange_table(valid, network)
        self._memory = self._memory_table(valid)
        self.times = self._times()

    def __len__(self) -> int:
        return len(self.entry)

    def strategy(self, row: int) -> Strategy:
        """Return one row's strategy."""
        entry = self.entries[self.entry[row]]
        schedule, virtual = self.choices.schedules[self.schedule[row]]
        return Strategy(
            sharding=self.step.sharding,
            stages=entry.stages,
            data=entry.data,
            schedule=schedule,
            virtual=virtual,
            states=self.choices.states[self.states[row]],
            offload=self.choices.offload[self.offload[row]],
            overlap=self.choices.overlap[self.overlap[row]],
            order=tuple(axis for axis, _ in entry.order.degrees),
            policies=self.choices.policies,
        )

    def _replayed_s(self, policy: Recompute) -> FloatArray:
        """Return what recomputation adds to a layer's backward pass, ``(S,)``."""
        again = {Recompute.NONE: None, Recompute.SELECTIVE: Pass.SELECTIVE_REPLAY, Recompute.FULL: Pass.FORWARD}
        does = [again[policy_of(layer, policy)] for layer, _ in self.step.layers]
        return np.array([0.0 if which is None else self.seconds[which][i] for i, which in enumerate(does)])

    def _replicas(self, states: StateSharding, entries: IntArray) -> Replicas:
        data = np.array([self.entries[e].data for e in entries.tolist()], dtype=np.int64)
        return Replicas.of(self.step.sharding, states, data)

    def _exchange_table(self, valid: BoolArray, network: NetworkPricer) -> ExchangeSeconds:
        """Return the exchanges of every entry and sharing of states, ``(D · len(states), S)``; zero where invalid."""
        n_states, n_segments = len(self.choices.states), len(self.step.layers)
        table = {field.name: np.zeros((len(self.entries), n_states, n_segments)) for field in fields(ExchangeSeconds)}
        for s, states in enumerate(self.choices.states):
            entries = np.flatnonzero(valid[:, :, s].any(axis=1))
            if len(entries):
                orders = [self.entries[e].order for e in entries.tolist()]
                found = exchange_seconds(self.step, states, self._replicas(states, entries), orders, network)
                for name, values in table.items():
                    values[entries, s] = getattr(found, name)
        return ExchangeSeconds(**{name: values.reshape(-1, n_segments) for name, values in table.items()})

    def _memory_table(self, valid: BoolArray) -> "dict[tuple[int, int], _Memory]":
        """Return the memory of each sharing of states and offload."""
        table = {}
        for s, states in enumerate(self.choices.states):
            entries = np.flatnonzero(valid[:, :, s].any(axis=1))
            place = np.zeros(len(self.entries), dtype=np.int64)
            place[entries] = np.arange(len(entries))
            for o, offload in enumerate(self.choices.offload):
                replicas = self._replicas(states, entries)
                found = memory_coefficients(
                    self.step.layers,
                    self.step.parameter_bytes,
                    states=states,
                    replicas=replicas,
                    offload=offload,
                    allowance=self.device.allowance,
                )
                updated = updated_parameters(self.step.layers, states, replicas)
                table[s, o] = _Memory(place=place, coefficients=found, updated=updated)
        return table

    def _of_memory(
        self, take: "Callable[[_Memory], FloatArray]", *, by_entry: bool, rows: IntArray | None = None
    ) -> FloatArray:
        """Return a coefficient for all or some rows: ``take`` gives ``(D, …)`` arrays, or the same for all entries."""
        wanted = np.arange(len(self)) if rows is None else rows
        states, offload, entry = self.states[wanted], self.offload[wanted], self.entry[wanted]
        found: FloatArray | None = None
        for (s, o), memory in self._memory.items():
            here = np.flatnonzero((states == s) & (offload == o))
            values = take(memory)
            if found is None:
                found = np.zeros((len(wanted), *values.shape[1 if by_entry else 0 :]))
            found[here] = values[memory.place[entry[here]]] if by_entry else values
        assert found is not None
        return found

    def _times(self) -> ChainTimes:
        """Return what the rows' times are made of."""
        segments = len(self.step.layers)
        hide = np.array([overlap.data for overlap in self.choices.overlap])[self.overlap]
        wait = ~np.array([overlap.pipeline for overlap in self.choices.overlap])[self.overlap]
        pair = self.entry * len(self.choices.states) + self.states
        transfer_s = self.transfer_s[self.entry]
        shape = (len(self), len(self._policies), segments)
        load_s, fill_s = np.empty(shape), np.empty(shape)
        pace, constant_s, boundary_s = (np.empty(len(self)) for _ in range(3))
        host_s = self._host_s()
        for c, (schedule, virtual) in enumerate(self.choices.schedules):
            rows = np.flatnonzero(self.schedule == c)
            passes = self._passes(schedule, pair[rows], host_s[rows], hide[rows])
            microbatches = self._microbatches[self.entry[rows]]
            terms = coefficients(schedule, self.stages[rows], virtual, microbatches)
            each = coefficients(schedule, self.stages[rows, None, None], virtual, microbatches[:, None, None])
            pace[rows], load_s[rows] = paced(each, passes)
            fill_s[rows] = each.fill_s(passes.forward_s, passes.inputs_s, passes.weights_s)
            behind_s = self._transfers_s(terms, passes, transfer_s[rows])
            # Senders that wait are busy for as long: a message a microbatch to either side, from each part they hold.
            sent = 2 * virtual * self.stages[rows] - 2
            constant_s[rows] = np.where(
                wait[rows], sent / (2 * virtual if virtual > 1 else 1) * transfer_s[rows], behind_s
            )
            # Of two stages each sends one way; under GPipe both ways pace the pipeline, one after the other.
            of_two = 2 if schedule is PipelineSchedule.GPIPE else 2 * virtual - 1
            each_side = np.where(self.stages[rows] == 2, of_two, virtual)
            boundary_s[rows] = np.where(wait[rows], each_side * transfer_s[rows], 0.0)
        reduction, gathering = self._exchanges.reduction_s[pair], self._exchanges.gathering_s[pair]
        hidden_ones = (
            hidden(reduction, self.seconds[Pass.BACKWARD], hide),
            hidden(gathering, self.seconds[Pass.FORWARD], hide),
        )
        return ChainTimes(
            counts=self.counts,
            stages=self.stages,
            load_s=load_s,
            fill_s=fill_s,
            boundary_s=boundary_s,
            pace=pace,
            constant_s=constant_s,
            tail_s=self._all_updates_s() + np.where(hide[:, None], 0.0, reduction + gathering),
            hidden_base_s=np.stack([each.base_s for each in hidden_ones], axis=1),
            hidden_slope_s=np.stack([each.slope_s for each in hidden_ones], axis=1),
            hidden_floor_s=np.stack([each.floor_s for each in hidden_ones], axis=1),
        )

    def _passes(self, schedule: PipelineSchedule, pair: IntArray, host_s: FloatArray, hide: BoolArray) -> LayerPasses:
        """Return the seconds of a layer's passes with what runs behind them, for rows of one schedule."""
        seconds, zero = self.seconds, np.zeros(len(self.counts))
        forward = seconds[Pass.FORWARD]
        split = schedule in SPLIT_BACKWARD
        weights = seconds[Pass.WEIGHT_GRADIENT] if split else zero
        inputs = seconds[Pass.INPUT_GRADIENT] if split else seconds[Pass.BACKWARD]
        gathered = self._exchanges.before_forward_s[pair][:, None]
        exchanged = (self._exchanges.before_backward_s + self._exchanges.after_backward_s)[pair][:, None]
        backward = inputs + weights + self._replay_s
        forward_s = behind(np.broadcast_to(forward, host_s.shape), gathered, host_s, hide)
        backward_s = behind(np.broadcast_to(backward, host_s.shape), exchanged, host_s, hide)
        gain = zero
        if schedule is PipelineSchedule.DUALPIPE:
            # What the operators of a forward and a backward pass gain by running together.
            gain = np.maximum(forward + seconds[Pass.BACKWARD] - seconds[Pass.PAIR], 0.0)
        return LayerPasses(
            forward_s=forward_s,
            inputs_s=backward_s - weights,
            weights_s=np.broadcast_to(weights, host_s.shape),
            pair_s=np.maximum(forward_s + backward_s - gain, 0.0),
            forward_waits_s=forward_s - forward,
            backward_waits_s=backward_s - backward,
        )

    def passes(self, row: int) -> LayerPasses:
        """Return the passes over the layers of one row."""
        rows = np.array([row])
        schedule, _ = self.choices.schedules[self.schedule[row]]
        pair = self.entry[rows] * len(self.choices.states) + self.states[rows]
        hide = np.array([self.choices.overlap[self.overlap[row]].data])
        return self._passes(schedule, pair, self._host_s()[rows], hide)

    def splits(self, row: int) -> bool:
        """Return whether the row's schedule runs weight gradients apart."""
        return self.choices.schedules[self.schedule[row]][0] in SPLIT_BACKWARD

    def updates_s(self, row: int) -> FloatArray:
        """Return the seconds of the optimizer step of one layer, ``(S,)``."""
        updates: FloatArray = self._all_updates_s()[row]
        return updates

    def exposed_s(self, row: int, first: FloatArray) -> tuple[float, float]:
        """Return what is exposed of reducing gradients and of gathering parameters once per step.

        ``first``, ``(S,)``, are the layers of the first stage.
        """
        pair = self.entry[row] * len(self.choices.states) + self.states[row]
        tables = (self._exchanges.reduction_s[pair], self._exchanges.gathering_s[pair])
        times = self.times.take(slice(row, row + 1))
        if not self.choices.overlap[self.overlap[row]].data:
            return float(tables[0] @ first), float(tables[1] @ first)
        exposed = np.maximum(times.hidden_floor_s[0], times.hidden_base_s[0] + times.hidden_slope_s[0] @ first)
        return float(exposed[0]), float(exposed[1])

    def replay_s(self, number: int) -> FloatArray:
        """Return what the policy ``number`` repeats of each layer's forward pass, ``(S,)``."""
        replayed: FloatArray = self._replay_s[number]
        return replayed

    def _host_s(self) -> FloatArray:
        """Return the seconds that a layer's activations take to the host, and again from it, ``(R, P, S)``."""
        shape = (len(self), len(self._policies), len(self.counts))
        if self.device.host_bytes_per_s is None:
            return np.zeros(shape)
        bytes_out = self._of_memory(lambda found: found.coefficients.activation_traffic.out_bytes, by_entry=False)
        return bytes_out[:, self._policies] / self.device.host_bytes_per_s

    def _all_updates_s(self) -> FloatArray:
        """Return the seconds of the optimizer step of one layer, ``(R, S)``: on the device, and to the host and back.

        What the host updates is taken to keep up with the link.
        """
        here = self._of_memory(lambda found: found.updated, by_entry=True)
        share = np.array([1.0 - offload.optimizer for offload in self.choices.offload])[self.offload]
        seconds: FloatArray = here * share[:, None] * self.device.optimizer_s_per_parameter
        bandwidth = self.device.host_bytes_per_s
        if bandwidth is not None:
            seconds = seconds + self._of_memory(
                lambda found: found.coefficients.update_traffic.seconds(bandwidth), by_entry=True
            )
        return seconds

    def _transfers_s(self, terms: PipelineCoefficients, passes: LayerPasses, transfer_s: FloatArray) -> FloatArray:
        """Return what messages behind computing add, for stages that hold their even share of the layers."""
        counts = np.array(self.counts, dtype=np.float64)
        parts = terms.stages * terms.virtual
        forward, inputs, weights = (
            (values[:, 0] @ counts) / parts for values in (passes.forward_s, passes.inputs_s, passes.weights_s)
        )
        return np.where(terms.stages > 1, terms.transfers_s(transfer_s, forward, inputs, weights), 0.0)

    def chain_rows(self, rows: IntArray) -> ChainRows:
        """Return some rows, all of one number of stages, with what memory allows."""
        times = self.times.take(rows)
        stages = int(times.stages[0])
        crossing = self.boundary_bytes if stages > 1 else 0.0
        capacity = self.device.hbm_bytes - float(self.device.allowance.constant_bytes(crossing, crossing))
        flight = np.empty((len(rows), stages))
        for c in np.unique(self.schedule[rows]).tolist():
            here = np.flatnonzero(self.schedule[rows] == c)
            schedule, virtual = self.choices.schedules[c]
            microbatches = self._microbatches[self.entry[rows[here]]]
            held = in_flight(schedule, stages, virtual, microbatches[:, None], np.arange(stages))
            # What waits for weight gradients is part of a microbatch's activations; here it counts as all of them.
            flight[here] = held.activations + held.weight_inputs
        states = self._of_memory(lambda found: found.coefficients.state_bytes, by_entry=True, rows=rows)
        kept = self._of_memory(lambda found: found.coefficients.in_flight_bytes, by_entry=False, rows=rows)
        working = self._of_memory(lambda found: found.coefficients.working_bytes, by_entry=True, rows=rows)
        return ChainRows(
            **{field.name: getattr(times, field.name) for field in fields(ChainTimes)},
            capacity_bytes=np.full(len(rows), capacity),
            state_bytes=states,
            flight_bytes=kept[:, self._policies],
            working_bytes=working[:, self._policies],
            in_flight=flight,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Memory:
    """The memory of one sharing of states and offload."""

    place: IntArray
    """``(D,)``: where each entry stands in the arrays."""
    coefficients: MemoryCoefficients
    updated: FloatArray
    """Parameters of a layer that the device, or its host, updates; ``(…, S)``."""
