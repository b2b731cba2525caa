"""The best way for a group of devices to share a layer, as an integer program.

Problem
    Every operator runs in one of a few ways (:mod:`choices`): each wants its operands in certain states and leaves its
    results in certain states. Collectives bring tensors from state to state (:mod:`resharding`).
Variables, all binary
    ``way[o,c]`` = 1 if operator o runs in way c. ``stored[t,s]`` = 1 if parameter t is stored in state s; ``kept[t,s]``
    = 1 if activation t waits in state s for the backward pass. ``made[v,s]``, the state in which value v comes to be,
    is no variable: it is the sum of the ways that leave it so, or given. ``moved[v,s,d]`` = 1 if a collective brings v
    from s to d, for all its readers. ``summed[g]`` = 1 if the gradient g of a parameter that every device stores is
    added over the group together with all other such gradients; ``sums`` = 1 if there are any.
Constraints
    1. ``Σ_c way[o,c] = 1``; ``Σ_s stored[t,s] = 1``; ``Σ_s kept[t,s] = 1``.
    2. ``moved[v,s,d] <= made[v,s]``.
    3. Whoever reads v in state d, waits with it, or is the next layer, finds it there: ``Σ_{c reads v in d} way[o,c] <=
       at[v,d]``, where ``at`` is the sum of ``made[v,d]``, of ``moved[v,·,d]`` and, as each device takes its part of a
       whole tensor for nothing, of the same for the replicated state where d is cut.
    4. A gradient is where its parameter is stored: ``stored[t,s] <= at[g,s]``, and ``+ summed[g]`` for s replicated;
       ``summed[g] <= made[g,partial]``; ``summed[g] <= sums``.
    5. Bytes of parameters and of kept activations are within a limit, if there is one.
Objective
    Minimise the seconds of all operators and collectives; of equals, the one that keeps fewer bytes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

import pulp

from archplace.workloads.milp_solver import minimise
from archplace.workloads.operators import CollectiveKind
from archplace.workloads.traced.assignment import Assignment, MemoryLimit
from archplace.workloads.traced.choices import choices_of
from archplace.workloads.traced.flow import Flow, Side, Value
from archplace.workloads.traced.rates import Rates
from archplace.workloads.traced.resharding import Conversion, conversion
from archplace.workloads.traced.shareable import Shareable
from archplace.workloads.traced.states import PARTIAL, REPLICATED, Cutting, State, gradient_state, local_tensor
from archplace.workloads.traced.tensor_graph import TensorLayer

T = TypeVar("T")

Term: TypeAlias = pulp.LpVariable | pulp.LpAffineExpression | int

_UNIT_S = 1e-6
"""Seconds are in this unit inside, which keeps the numbers of layers near 1."""
_TIE = 1e-6
"""Seconds charged for a byte that is stored or kept, relative to its transfer from memory: only equals are decided."""


def solve_sharding(
    layer: TensorLayer,
    cutting: Cutting,
    rates: Rates,
    *,
    limit: MemoryLimit | None = None,
    time_limit_s: float = 60.0,
) -> Assignment:
    """Return the assignment that the integer program proves to be best.

    Raises ``ValueError`` where the tensors between layers do not divide, where nothing fits into ``limit``, and where
    the proof takes longer than ``time_limit_s`` seconds.
    """
    program = _Program(layer, cutting, rates, limit)
    answer = minimise(program.model, solver="HiGHS", time_limit_s=time_limit_s)
    where = f"layer {layer.name} on {cutting.degree} {cutting.axis}-parallel devices"
    if not answer.found and limit is not None:
        raise ValueError(f"{where}: no sharding takes {limit.limit_bytes:,.0f} bytes or less; allow more memory")
    if not answer.proven:
        raise ValueError(f"{where}: no sharding was proven best within {time_limit_s:g} s; allow more time")
    return program.assignment()


class _Program:
    """The integer program of one layer."""

    def __init__(self, layer: TensorLayer, cutting: Cutting, rates: Rates, limit: MemoryLimit | None) -> None:
        self.model = pulp.LpProblem("sharding", pulp.LpMinimize)
        self._layer, self._cutting, self._rates = layer, cutting, rates
        self._flow = Flow.of(layer)
        self._cost: list[Term] = []

        # Variables
        shareable = Shareable.of(layer, cutting)
        states = [shareable.states(layer, t) for t in range(len(layer.tensors))]
        self._ways = [choices_of(op, layer.tensors, shareable, rates) for op in layer.operators]
        self._way = [self._one_of(f"way_{o}", range(len(ways))) for o, ways in enumerate(self._ways)]
        self._stored = {
            t: self._one_of(f"stored_{t}", cutting.storable(layer.tensors[t], states[t])) for t in self._flow.parameters
        }
        self._kept = {t: self._one_of(f"kept_{t}", self._keepable(states[t])) for t in self._flow.kept}
        self._given = self._given_states()
        self._made = {value: self._states_made(value) for value in self._flow.values}
        self._moved: dict[tuple[Value, State, State], tuple[pulp.LpVariable, Conversion]] = {}
        self._summed: dict[int, pulp.LpVariable] = {}

        # Constraints 2 to 5
        self._feed_operators()
        for t, flags in self._kept.items():
            for s, flag in flags.items():
                self._require(flag, (t, Side.FORWARD), s)
        for tensors, side in ((layer.leaves, Side.FORWARD), (layer.gradients_leave, Side.BACKWARD)):
            for t in tensors:
                self._require(1, (t, side), self._cutting.between(layer.tensors[t]))
        self._deliver_gradients()
        if limit is not None:
            self._limit(limit)

        # Objective
        for ways, on in zip(self._ways, self._way, strict=True):
            self._cost += [way.seconds / _UNIT_S * flag for way, flag in zip(ways, on.values(), strict=True)]
        tie = _TIE / rates.hbm_bytes_per_s / _UNIT_S
        self._cost += [
            tie * self._bytes(t, s) * flag
            for held in (self._stored, self._kept)
            for t, flags in held.items()
            for s, flag in flags.items()
        ]
        self.model.setObjective(pulp.lpSum(self._cost))

    def assignment(self) -> Assignment:
        """Return the solution."""
        ways = tuple(ways[_chosen(flags)] for ways, flags in zip(self._ways, self._way, strict=True))
        conversions: dict[Value, list[Conversion]] = defaultdict(list)
        for (value, _, _), (flag, moved) in self._moved.items():
            if _is_on(flag):
                conversions[value].append(moved)
        summed = tuple(t for t, flag in self._summed.items() if _is_on(flag))
        seconds = sum(way.seconds for way in ways)
        seconds += sum(
            moved.seconds(self._rates, self._cutting.degree) for each in conversions.values() for moved in each
        )
        exchanged = summed if self._cutting.cuts_parameters else ()
        if exchanged:
            seconds += self._rates.collective_latency_s + sum(self._summing_s(t) for t in exchanged)
        return Assignment(
            ways=ways,
            stored={t: _chosen(flags) for t, flags in self._stored.items()},
            given=self._given,
            kept={t: _chosen(flags) for t, flags in self._kept.items()},
            conversions={value: tuple(each) for value, each in conversions.items()},
            summed=exchanged,
            unsummed=() if self._cutting.cuts_parameters else summed,
            seconds=seconds,
        )

    def _one_of(self, name: str, options: Sequence[T]) -> dict[T, Term]:
        """Constraint 1: variables of which one is 1; a single option needs none."""
        if len(options) == 1:
            return {options[0]: 1}
        flags = {option: self.model.add_variable(f"{name}_{i}", cat=pulp.LpBinary) for i, option in enumerate(options)}
        self.model.addConstraint(pulp.lpSum(flags.values()) == 1)
        return flags

    def _keepable(self, states: Sequence[State]) -> tuple[State, ...]:
        """The states in which an activation may wait."""
        parts = tuple(state for state in states if state.is_cut)
        return parts if parts and self._cutting.keeps_cut else (*states, PARTIAL)

    def _given_states(self) -> dict[int, State]:
        between = {*self._layer.enters, *self._layer.gradients_enter}
        return {
            t: self._cutting.between(self._layer.tensors[t]) if t in between else REPLICATED for t in self._flow.given
        }

    def _states_made(self, value: Value) -> dict[State, Term]:
        """In which states a value comes to be: the sums of the flags that leave it so."""
        t, side = value
        producer = self._flow.producer.get(t)
        if producer is not None and Side.of(self._layer.operators[producer]) is side:
            made: dict[State, list[Term]] = defaultdict(list)
            for way, flag in zip(self._ways[producer], self._way[producer].values(), strict=True):
                for access, state in zip(self._layer.operators[producer].writes, way.writes, strict=True):
                    if access.tensor == t:
                        made[state].append(flag)
            return {state: _sum(flags) for state, flags in made.items()}
        if t in self._stored:
            return self._stored[t]
        if side is Side.BACKWARD and t in self._kept:
            return self._kept[t]
        return {self._given[t]: 1}

    def _at(self, value: Value, target: State) -> Term:
        """Whether a value is where a reader wants it (constraint 3)."""
        made = self._made[value]
        found = [made.get(target, 0), *self._moves(value, target)]
        if target.is_cut:
            found += [made.get(REPLICATED, 0), *self._moves(value, REPLICATED)]
        return _sum(found)

    def _moves(self, value: Value, target: State) -> list[Term]:
        """The flags of the collectives that bring a value into a state, with constraint 2."""
        found: list[Term] = []
        for source, made in self._made[value].items():
            key = (value, source, target)
            if key not in self._moved:
                moved = conversion(self._layer.tensors[value[0]], source, target, self._cutting.degree)
                if moved is None:
                    continue
                flag = self.model.add_variable(f"moved_{len(self._moved)}", cat=pulp.LpBinary)
                if not isinstance(made, int):
                    self.model.addConstraint(flag <= made)
                self._moved[key] = (flag, moved)
                self._cost.append(moved.seconds(self._rates, self._cutting.degree) / _UNIT_S * flag)
            found.append(self._moved[key][0])
        return found

    def _require(self, wanted: Term, value: Value, state: State, extra: Term = 0) -> None:
        """Constraint 3: where ``wanted`` is 1, the value is there, or ``extra`` is 1."""
        there = _sum([self._at(value, state), extra])
        if not isinstance(there, int):
            self.model.addConstraint(wanted <= there)
        elif not there:
            self.model.addConstraint(pulp.lpSum([wanted]) <= 0)

    def _feed_operators(self) -> None:
        wanted: dict[tuple[int, Value, State], list[Term]] = defaultdict(list)
        for o, op in enumerate(self._layer.operators):
            for way, flag in zip(self._ways[o], self._way[o].values(), strict=True):
                needs = {(a.tensor, state) for a, state in zip(op.reads, way.reads, strict=True)}
                for t, state in sorted(needs):
                    wanted[o, (t, Side.of(op)), state].append(flag)
        for (_, value, state), flags in wanted.items():
            self._require(_sum(flags), value, state)

    def _deliver_gradients(self) -> None:
        """Constraint 4."""
        sums: pulp.LpVariable | None = None
        for t in self._flow.gradients:
            parameter = self._layer.tensors[t].gradient_of
            value = (t, Side.BACKWARD)
            stored: dict[State, Term] = {REPLICATED: 1} if parameter is None else self._stored[parameter]
            partial = self._made[value].get(PARTIAL, 0)
            for state, flag in stored.items():
                summed: Term = 0
                if state == REPLICATED and not (isinstance(partial, int) and not partial):
                    summed = self._summed[t] = self.model.add_variable(f"summed_{t}", cat=pulp.LpBinary)
                    self.model.addConstraint(summed <= partial)
                    if self._cutting.cuts_parameters:
                        if sums is None:
                            sums = self.model.add_variable("sums", cat=pulp.LpBinary)
                            self._cost.append(self._rates.collective_latency_s / _UNIT_S * sums)
                        self.model.addConstraint(summed <= sums)
                        self._cost.append(self._summing_s(t) / _UNIT_S * summed)
                whole = self._layer.tensors
                wanted = state if parameter is None else gradient_state(whole[parameter], whole[t], state)
                self._require(flag, value, wanted, summed)

    def _summing_s(self, gradient: int) -> float:
        size = self._layer.tensors[gradient].bytes
        return self._rates.transfer_s(CollectiveKind.ALL_REDUCE, size, self._cutting.degree)

    def _limit(self, limit: MemoryLimit) -> None:
        """Constraint 5, in units of the limit."""
        scale = max(limit.limit_bytes, 1.0)
        terms = [
            factor * self._bytes(t, s) / scale * flag
            for held, factor in ((self._stored, limit.states_per_weight), (self._kept, 1.0))
            for t, flags in held.items()
            for s, flag in flags.items()
        ]
        self.model.addConstraint(pulp.lpSum(terms) <= limit.limit_bytes / scale)

    def _bytes(self, tensor: int, state: State) -> float:
        return local_tensor(self._layer.tensors[tensor], state, self._cutting.degree).bytes


def _sum(terms: Iterable[Term]) -> Term:
    """The sum of flags; a plain number where none is a variable."""
    listed = list(terms)
    constant = sum(term for term in listed if isinstance(term, int))
    flags = [term for term in listed if not isinstance(term, int)]
    return pulp.lpSum([*flags, constant]) if flags else constant


def _chosen(flags: dict[T, Term]) -> T:
    return next(option for option, flag in flags.items() if isinstance(flag, int) or _is_on(flag))


def _is_on(flag: pulp.LpVariable) -> bool:
    return round(pulp.value(flag) or 0.0) == 1
