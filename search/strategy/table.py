"""All strategies that share their layers' operator graphs and the places of their groups, as arrays.

They differ in lengths and numbers of pipelines, schedules, sharing of states, offload and overlap. What no architecture
changes is worked out once for each combination of what it depends on; with the seconds of layers on architectures it
gives the times of any pairs of strategy and architecture.

Communication behind computing is taken as follows. Layer by layer and microbatch by microbatch, parameters are
gathered for the next layer and gradients reduced of the layer before while a layer computes, and activations travel to
and from the host; of the three the slowest counts (Zhao et al. 2023, arXiv:2304.11277, section 4; Ren et al. 2021,
arXiv:2101.06840, section 4.1). What is exchanged once per step follows the backward pass of the last microbatch, or
precedes the forward pass of the next step's first, on the first stage: exposed is what outlasts the other layers of
the stage, and at least the exchange of the layer that has nothing left to hide behind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np

from archplace.costmodel import (
    POLICIES,
    Allowance,
    Footprint,
    Replicas,
    StateSharding,
    chain_exchanges,
    memory_coefficients,
    policy_of,
    updated_parameters,
)
from archplace.costmodel.network import DeviceOrder, NetworkPricer
from archplace.search.pipeline import (
    SPLIT_BACKWARD,
    PipelineCoefficients,
    PipelineSchedule,
    coefficients,
    in_flight,
)
from archplace.search.strategy.bounds import ROUNDING
from archplace.search.strategy.chain import BoolArray, ChainRows, ChainTimes, FloatArray, IntArray, of_layers
from archplace.search.strategy.combinations import Choices, Combinations, Entry
from archplace.search.strategy.exchanges import ExchangeSeconds, boundary_s, exchange_seconds
from archplace.search.strategy.layer_seconds import LayerSeconds
from archplace.search.strategy.layers import Pass, replay_of
from archplace.search.strategy.overlap import LayerPasses, behind, hidden, paced
from archplace.search.strategy.strategy import DEALT_EVENLY, Strategy
from archplace.workloads import CollectiveKind, TrainingJob, TrainingStep

_FILLED_WHOLE = frozenset((PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B))
"""Schedules that each stage fills with all its passes."""


class StrategyTable:
    """The strategies of one sharding of the layers whose groups lie alike in the network.

    Combinations that are not possible have no row. ``R`` rows, ``P`` policies, ``S`` kinds of layers.
    """

    def __init__(
        self,
        step: TrainingStep,
        entries: Sequence[Entry],
        choices: Choices,
        network: NetworkPricer,
        *,
        allowance: Allowance,
        host_bytes_per_s: float | None = None,
    ) -> None:
        """Lay out the rows. ``host_bytes_per_s`` per device and direction; None where nothing can be offloaded."""
        self.step = step
        self.entries = tuple(entries)
        self.choices = choices
        self.allowance = allowance
        self.counts = tuple(count for _, count in step.layers)
        self.combinations = Combinations(step.sharding, self.counts, entries, choices)
        possible = self.combinations.possible
        grid = np.broadcast_to(
            possible[:, :, :, None, None], (*possible.shape, len(choices.offload), len(choices.overlap))
        )
        self.entry, self.schedule, self.states, self.offload, self.overlap = np.nonzero(grid)
        self.stages: IntArray = np.array([entry.stages for entry in entries], dtype=np.int64)[self.entry]
        self.microbatches: IntArray = np.array([entry.microbatches for entry in entries], dtype=np.int64)[self.entry]
        self.boundary_bytes = float(max((layer.input_bytes for layer, _ in step.layers), default=0))
        by_entry = [boundary_s(step, self.boundary_bytes, entry.order, network) for entry in entries]
        self.transfer_s: FloatArray = np.array(by_entry, dtype=np.float64)[self.entry]
        self.hides: BoolArray = np.array([overlap.data for overlap in choices.overlap])[self.overlap]
        self.waits: BoolArray = ~np.array([overlap.pipeline for overlap in choices.overlap])[self.overlap]
        self.exchanges = self._exchanges(possible, network)
        """Of the rows, ``(R, S)`` each."""
        self._fill_memory(possible, host_bytes_per_s)
        self._fill_traffic(possible)

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

    def _replicas(self, states: StateSharding, entries: IntArray) -> Replicas:
        data = np.array([self.entries[e].data for e in entries.tolist()], dtype=np.int64)
        return Replicas.of(self.step.sharding, states, data)

    def _exchanges(self, possible: BoolArray, network: NetworkPricer) -> ExchangeSeconds:
        """Return the exchanges of each row."""
        names = [field.name for field in fields(ExchangeSeconds)]
        table = {name: np.zeros((len(self), len(self.counts))) for name in names}
        for s, states in enumerate(self.choices.states):
            entries = np.flatnonzero(possible[:, :, s].any(axis=1))
            rows = np.flatnonzero(self.states == s)
            if not len(rows):
                continue
            orders = [self.entries[e].order for e in entries.tolist()]
            found = exchange_seconds(self.step, states, self._replicas(states, entries), orders, network)
            place = entries.searchsorted(self.entry[rows])
            for name, values in table.items():
                values[rows] = getattr(found, name)[place]
        return ExchangeSeconds(**table)

    def _fill_memory(self, possible: BoolArray, host_bytes_per_s: float | None) -> None:
        """Fill the arrays of bytes, and of the seconds on the link to the host."""
        n_segments, n_policies = len(self.counts), len(self.choices.policies)
        policies = np.array([POLICIES.index(policy) for policy in self.choices.policies])
        self.state_bytes = np.empty((len(self), n_segments))
        self.flight_bytes = np.empty((len(self), n_policies, n_segments))
        self.working_bytes = np.empty_like(self.flight_bytes)
        self.updated = np.empty_like(self.state_bytes)
        """Parameters of a layer that the device updates itself."""
        self.host_s = np.zeros_like(self.flight_bytes)
        """Of a layer's activations, one way."""
        self.host_update_s = np.zeros_like(self.state_bytes)
        footprint = Footprint.of(self.step.layers)
        for s, states in enumerate(self.choices.states):
            entries = np.flatnonzero(possible[:, :, s].any(axis=1))
            for o, offload in enumerate(self.choices.offload):
                rows = np.flatnonzero((self.states == s) & (self.offload == o))
                if not len(rows):
                    continue
                replicas = self._replicas(states, entries)
                found = memory_coefficients(
                    self.step.layers,
                    self.step.parameter_bytes,
                    states=states,
                    replicas=replicas,
                    offload=offload,
                    allowance=self.allowance,
                    footprint=footprint,
                )
                place = entries.searchsorted(self.entry[rows])
                self.state_bytes[rows] = found.state_bytes[place]
                self.flight_bytes[rows] = found.in_flight_bytes[policies]
                self.working_bytes[rows] = found.working_bytes[place][:, policies]
                updated = updated_parameters(self.step.layers, states, replicas)[place]
                self.updated[rows] = (1.0 - offload.optimizer) * updated
                if host_bytes_per_s is not None:
                    self.host_s[rows] = found.activation_traffic.out_bytes[policies] / host_bytes_per_s
                    self.host_update_s[rows] = found.update_traffic.seconds(host_bytes_per_s)[place]

    def _fill_traffic(self, possible: BoolArray) -> None:
        """Fill the bytes and updates of a whole step on all devices."""
        devices = self.step.sharding.stage_devices * np.array([entry.data for entry in self.entries])[self.entry]
        virtual = np.array([each for _, each in self.choices.schedules])[self.schedule]
        crossings = 2 * (self.stages * virtual - 1) * self.microbatches
        self.sent_bytes: FloatArray = crossings * self.boundary_bytes * devices
        """``(R,)``: that replicas exchange and pipelines pass on; what layers exchange inside is not counted."""
        self.updates = np.zeros(len(self))
        """``(R,)``: parameters that are updated, each copy counted."""
        for s, states in enumerate(self.choices.states):
            rows = np.flatnonzero(self.states == s)
            if not len(rows):
                continue
            entries = np.flatnonzero(possible[:, :, s].any(axis=1))
            place = entries.searchsorted(self.entry[rows])
            replicas = self._replicas(states, entries)
            updated = updated_parameters(self.step.layers, states, replicas)[place]
            self.updates[rows] = of_layers(updated, self.counts) * devices[rows]
            for each in chain_exchanges(self.step.layers, self.step.parameter_bytes, states=states, replicas=replicas):
                rounds = 2 if each.kind is CollectiveKind.ALL_REDUCE else 1
                sent = of_layers(rounds * each.payload_bytes * (1 - 1 / each.group_size), self.counts)[place]
                times = self.microbatches[rows] if each.per_microbatch else 1
                self.sent_bytes[rows] += sent * times * devices[rows]

    def replayed(self, passes: Mapping[Pass, FloatArray]) -> FloatArray:
        """Return what recomputation repeats of each layer, ``(A, P, S)``, where passes take ``(A, S)`` of anything."""
        found = np.zeros((len(passes[Pass.FORWARD]), len(self.choices.policies), len(self.counts)))
        for p, policy in enumerate(self.choices.policies):
            for k, (layer, _) in enumerate(self.step.layers):
                which = replay_of(policy_of(layer, policy), layer)
                if which is not None:
                    found[:, p, k] = passes[which][:, k]
        return found

    def passes(self, rows: IntArray, seconds: LayerSeconds, schedule: PipelineSchedule) -> LayerPasses:
        """Return the seconds of layers' passes with what runs behind them, ``(R, P, S)``, for rows of one schedule.

        ``seconds`` has one entry for each of ``rows``, or a single one. What they are at least where it has limits.
        """
        forward = seconds[Pass.FORWARD][:, None]
        split = schedule in SPLIT_BACKWARD
        weights = seconds[Pass.WEIGHT_GRADIENT][:, None] if split else np.zeros_like(forward)
        inputs = seconds[Pass.INPUT_GRADIENT if split else Pass.BACKWARD][:, None]
        replayed = self.replayed(seconds.passes)
        gathered = self.exchanges.before_forward_s[rows, None]
        exchanged = (self.exchanges.before_backward_s[rows] + self.exchanges.after_backward_s[rows])[:, None]
        host_s, hides = self.host_s[rows], self.hides[rows]
        backward = inputs + weights + replayed
        forward_s = behind(np.broadcast_to(forward, host_s.shape), gathered, host_s, hides)
        backward_s = behind(np.broadcast_to(backward, host_s.shape), exchanged, host_s, hides)
        inputs_s = backward_s - weights
        if split and seconds.most is not None:
            # The longer weight gradients take, the more runs behind them and not behind input gradients.
            longest = seconds.most[Pass.WEIGHT_GRADIENT][:, None]
            left = np.where(hides[:, None, None], np.maximum(exchanged - longest, 0.0), exchanged)
            before = np.broadcast_to(inputs + replayed, host_s.shape)
            least = behind(before, left, np.maximum(host_s - longest, 0.0), hides)
            inputs_s = np.where(longest == weights, inputs_s, least)
        return LayerPasses(
            forward_s=forward_s,
            inputs_s=inputs_s,
            weights_s=np.broadcast_to(weights, host_s.shape),
            pair_s=_pair_s(seconds, forward_s + backward_s, replayed, schedule),
            forward_waits_s=forward_s - forward,
            backward_waits_s=backward_s - backward,
        )

    def _longest_passes_s(
        self, rows: IntArray, seconds: LayerSeconds, schedule: PipelineSchedule
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what :meth:`passes` are at most: forward, input gradients, weight gradients."""
        assert seconds.most is not None
        most = LayerSeconds(passes=seconds.most, optimizer_s_per_parameter=seconds.optimizer_s_per_parameter)
        longest = self.passes(rows, most, schedule)
        inputs_s = longest.inputs_s
        if schedule in SPLIT_BACKWARD:
            weights = seconds[Pass.WEIGHT_GRADIENT][:, None]
            same = seconds.most[Pass.WEIGHT_GRADIENT][:, None] == weights
            inputs_s = np.where(same, inputs_s, longest.inputs_s + longest.weights_s - weights)
        return longest.forward_s, inputs_s, longest.weights_s

    def updates_s(self, rows: IntArray, seconds: LayerSeconds) -> FloatArray:
        """Return the seconds of the optimizer step of one layer, ``(R, S)``: on the device, and to the host and back.

        What the host updates is taken to keep up with the link.
        """
        here: FloatArray = self.updated[rows] * seconds.optimizer_s_per_parameter[:, None]
        return here + self.host_update_s[rows]

    def alike(self, rows: IntArray) -> Iterator[IntArray]:
        """Yield those of ``rows`` that have one number of stages, and one schedule where it deals out the layers."""
        for places in self.places_alike(rows):
            yield rows[places]

    def places_alike(self, rows: IntArray) -> Iterator[IntArray]:
        """Yield where in ``rows`` those stand that :meth:`alike` yields together."""
        dealt = np.array([schedule in DEALT_EVENLY for schedule, _ in self.choices.schedules])
        kind = np.where(dealt[self.schedule[rows]], self.schedule[rows] + 1, 0)
        key = self.stages[rows] * (len(dealt) + 1) + kind
        for value in np.unique(key).tolist():
            yield np.flatnonzero(key == value)

    def times(self, rows: IntArray, seconds: LayerSeconds, *, least_recomputed: FloatArray | None = None) -> ChainTimes:
        """Return what the times of ``rows`` are made of; ``seconds`` has one entry for each, or a single one."""
        shape = (len(rows), len(self.choices.policies), len(self.counts))
        load_s, fill_s = np.empty(shape), np.empty(shape)
        pace, constant_s, boundary_s = (np.empty(len(rows)) for _ in range(3))
        for c, (schedule, virtual) in enumerate(self.choices.schedules):
            here = np.flatnonzero(self.schedule[rows] == c)
            if not len(here):
                continue
            mine = rows[here]
            own = seconds if len(seconds) == 1 else seconds.take(here)
            passes = self.passes(mine, own, schedule)
            longest = None if own.most is None else self._longest_passes_s(mine, own, schedule)
            stages, microbatches, transfer_s = self.stages[mine], self.microbatches[mine], self.transfer_s[mine]
            terms = coefficients(schedule, stages, virtual, microbatches)
            each = coefficients(schedule, stages[:, None, None], virtual, microbatches[:, None, None])
            pace[here], load_s[here] = paced(each, passes)
            fill_s[here] = each.fill_s(passes.forward_s, passes.inputs_s, passes.weights_s, longest)
            if longest is None:
                behind_s = self._transfers_s(terms, transfer_s, passes.forward_s, passes.inputs_s, passes.weights_s)
            else:
                if schedule is PipelineSchedule.DUALPIPE:
                    # What hides a message there is not more the longer all passes are, but at most the shorter one.
                    shorter = np.minimum(longest[0], longest[1])
                    known = own.settled[:, None, None]
                    longest = np.where(known, longest[0], shorter), np.where(known, longest[1], shorter), longest[2]
                behind_s = self._transfers_s(terms, transfer_s, *longest)
            # Senders that wait are busy for as long: a message a microbatch to either side, from each part they hold.
            sent_s = (2 * virtual * stages - 2) / (2 * virtual if virtual > 1 else 1) * transfer_s
            # Of two stages each sends one way; under GPipe both ways pace the pipeline, one after the other.
            of_two = 2 if schedule is PipelineSchedule.GPIPE else 2 * virtual - 1
            waiting_s = np.where(stages == 2, of_two, virtual) * transfer_s
            behind_each_s = np.zeros_like(transfer_s)
            if schedule is PipelineSchedule.ONE_F_ONE_B:
                # Messages behind computing hold up a stage all but once in as many microbatches as there are stages.
                behind_s = np.where(stages > 1, 2 * (stages - 1) * transfer_s, 0.0)
                behind_each_s = np.where(stages == 2, 2.0, 1.0) * (1 - 1 / stages) * transfer_s
            constant_s[here] = np.where(self.waits[mine], sent_s, behind_s)
            boundary_s[here] = np.where(self.waits[mine], waiting_s, behind_each_s)
        hides = self.hides[rows]
        reduction, gathering = self.exchanges.reduction_s[rows], self.exchanges.gathering_s[rows]
        # Where the fill has the whole first stage, what passes take longer outweighs what they hide.
        filled = np.array([schedule in _FILLED_WHOLE for schedule, _ in self.choices.schedules])[self.schedule[rows]]
        backward, forward = (
            np.where(filled[:, None], seconds[which], seconds.longest(which)) for which in (Pass.BACKWARD, Pass.FORWARD)
        )
        once = (
            hidden(reduction, seconds[Pass.BACKWARD], backward, hides),
            hidden(gathering, seconds[Pass.FORWARD], forward, hides),
        )
        return ChainTimes(
            counts=self.counts,
            stages=self.stages[rows],
            load_s=load_s,
            fill_s=fill_s,
            boundary_s=boundary_s,
            pace=pace,
            constant_s=constant_s,
            tail_s=self.updates_s(rows, seconds) + np.where(hides[:, None], 0.0, reduction + gathering),
            hidden_base_s=np.stack([each.base_s for each in once], axis=1),
            hidden_slope_s=np.stack([each.slope_s for each in once], axis=1),
            hidden_floor_s=np.stack([each.floor_s for each in once], axis=1),
            hidden_whole_s=np.stack([each.whole_s for each in once], axis=1),
            least_recomputed=np.zeros(shape[:2]) if least_recomputed is None else least_recomputed,
        )

    def _transfers_s(self, terms: PipelineCoefficients, transfer_s: FloatArray, *passes_s: FloatArray) -> FloatArray:
        """Return what messages behind computing add, for stages that hold their even share of the layers.

        ``passes_s`` are forward passes, input and weight gradients, ``(R, P, S)`` each.
        """
        parts = terms.stages * terms.virtual
        forward, inputs, weights = (of_layers(values[:, 0], self.counts) / parts for values in passes_s)
        return np.where(terms.stages > 1, terms.transfers_s(transfer_s, forward, inputs, weights), 0.0)

    def chain_rows(self, rows: IntArray, seconds: LayerSeconds, hbm_bytes: FloatArray | float) -> ChainRows:
        """Return ``rows``, all of one number of stages, with what ``hbm_bytes`` on each device allow."""
        return self.with_memory(rows, self.times(rows, seconds), hbm_bytes)

    def with_memory(self, rows: IntArray, times: ChainTimes, hbm_bytes: FloatArray | float) -> ChainRows:
        """Return the ``times`` of ``rows``, all of one number of stages, with what memory allows."""
        stages = int(self.stages[rows[0]])
        crossing = self.boundary_bytes if stages > 1 else 0.0
        capacity = hbm_bytes - float(self.allowance.constant_bytes(crossing, crossing))
        flight = np.empty((len(rows), stages))
        for c in np.unique(self.schedule[rows]).tolist():
            here = np.flatnonzero(self.schedule[rows] == c)
            schedule, virtual = self.choices.schedules[c]
            held = in_flight(schedule, stages, virtual, self.microbatches[rows[here], None], np.arange(stages))
            # What waits for weight gradients is part of a microbatch's activations; here it counts as all of them.
            flight[here] = held.activations + held.weight_inputs
        return ChainRows(
            **{field.name: getattr(times, field.name) for field in fields(ChainTimes)},
            capacity_bytes=np.broadcast_to(np.asarray(capacity, dtype=np.float64), (len(rows),)),
            state_bytes=self.state_bytes[rows],
            flight_bytes=self.flight_bytes[rows],
            working_bytes=self.working_bytes[rows],
            in_flight=flight,
        )


def table_of(
    strategy: Strategy,
    step: TrainingStep,
    workload: TrainingJob,
    network: NetworkPricer,
    *,
    allowance: Allowance,
) -> StrategyTable:
    """Return the table of one strategy, which must be possible."""
    degrees, sharding = strategy.degrees(), strategy.sharding
    order = DeviceOrder(
        tuple((axis, degrees[axis]) for axis in strategy.order),
        expert=sharding.expert,
        expert_tensor=sharding.expert_tensor,
    )
    entry = Entry(stages=strategy.stages, data=strategy.data, microbatches=strategy.microbatches(workload), order=order)
    host = network.cluster.host
    return StrategyTable(
        step,
        [entry],
        Choices(
            schedules=((strategy.schedule, strategy.virtual),),
            states=(strategy.states,),
            offload=(strategy.offload,),
            overlap=(strategy.overlap,),
            policies=strategy.policies,
        ),
        network,
        allowance=allowance,
        host_bytes_per_s=None if host is None else host.bandwidth_bytes_per_s,
    )


def _pair_s(
    seconds: LayerSeconds, apart_s: FloatArray, replayed_s: FloatArray, schedule: PipelineSchedule
) -> FloatArray:
    """Return the seconds of a forward and a backward pass together, which take ``apart_s`` one after the other.

    The operators of the two gain what they take less when scheduled together. The least where ``seconds`` has limits.
    """
    if schedule is not PipelineSchedule.DUALPIPE:
        return apart_s

    def apart(which: Callable[[Pass], FloatArray]) -> FloatArray:
        # Gradients of inputs, then of weights, are one way to schedule the backward pass.
        whole = np.minimum(which(Pass.BACKWARD), which(Pass.INPUT_GRADIENT) + which(Pass.WEIGHT_GRADIENT))
        return np.asarray(which(Pass.FORWARD) + whole)

    together_s = seconds[Pass.PAIR]
    gain = np.maximum(apart(seconds.longest) - together_s, 0.0)[:, None]
    found: FloatArray = np.maximum(apart_s - gain, 0.0)
    if seconds.most is None:
        return found
    # A gain is never more than leaves the pair, what is repeated, and what is waited for.
    floor = np.minimum(apart_s, together_s[:, None] + replayed_s) * ROUNDING
    return np.maximum(found, floor)
