"""The scripts of every operation over the layers of a stage, and what they exchange, at one granularity."""

from collections.abc import Sequence
from enum import StrEnum

from archplace.costmodel import Moment, policy_of
from archplace.costmodel.network import Group
from archplace.search.attribution import EXCHANGE_PARTS
from archplace.search.export.backlog import Transfer
from archplace.search.export.communicators import Communicators, Lowered
from archplace.search.export.placed import Placed, StateExchange
from archplace.search.export.script import Script, in_turn, lumped, script_of
from archplace.search.pipeline import SPLIT_BACKWARD, OperationKind
from archplace.search.strategy.layers import Pass, replay_of
from archplace.workloads import Collective, CollectiveKind, Recompute

_NS = 1e9


class Granularity(StrEnum):
    """What a node of computing stands for."""

    OPERATOR = "operator"
    """One operator of a layer."""
    LAYER = "layer"
    """What a layer computes between two of its exchanges."""
    STAGE = "stage"
    """What a stage computes of a microbatch, with one exchange for all of a kind."""


class Passes:
    """Scripts and exchanges of a placement at one granularity."""

    def __init__(self, placed: Placed, communicators: Communicators, granularity: Granularity) -> None:
        self.placed, self.communicators, self.granularity = placed, communicators, granularity
        self.parts = placed.parts()
        self._passes = placed.block.passes(0)
        self._scripts: dict[tuple[int, Pass], Script] = {}
        self._units: dict[tuple[int, tuple[Pass, ...], int], Script] = {}
        self._ns: dict[tuple[CollectiveKind, float, Group], int] = {}

    def ns(self, kind: CollectiveKind, payload_bytes: float, group: Group) -> int:
        """Return the nanoseconds of a collective in the simulator."""
        key = kind, payload_bytes, group
        if key not in self._ns:
            seconds = self.placed.network.seconds(kind, payload_bytes, group)
            self._ns[key] = round(float(seconds) * _NS)
        return self._ns[key]

    def exchange_ns(self, collective: Collective) -> int:
        """Return the nanoseconds of an exchange inside a layer."""
        return self.ns(collective.kind, float(collective.payload_bytes), self.group(collective))

    def group(self, collective: Collective) -> Group:
        """Return the groups in which a layer's devices exchange."""
        return self.placed.order.group(collective.axis)

    def lower(self, collective: Collective) -> tuple[Lowered, ...]:
        """Return what the simulator runs for an exchange inside a layer."""
        return self.communicators.lower(collective.kind, collective.payload_bytes, self.group(collective))

    def units(self, stage: int, *, fine: bool) -> tuple[tuple[int, int], ...]:
        """Return the layers of a virtual stage as kind and count, in model order; ``fine`` one by one."""
        held = [(kind, count) for kind, count in enumerate(self.parts[stage]) if count]
        if fine or self.granularity is not Granularity.STAGE:
            return tuple((kind, 1) for kind, count in held for _ in range(count))
        return tuple(held)

    def which(self, operation: OperationKind, kind: int, policy: Recompute) -> tuple[Pass, ...]:
        """Return the passes over a layer that an operation of a stage consists of."""
        if operation is OperationKind.FORWARD:
            return (Pass.FORWARD,)
        if operation is OperationKind.BACKWARD_WEIGHT:
            return (Pass.WEIGHT_GRADIENT,)
        layer = self.placed.layers[kind]
        again = replay_of(policy_of(layer, policy), layer)
        before = () if again is None else (again,)
        if operation is OperationKind.BACKWARD_INPUT:
            return (*before, Pass.INPUT_GRADIENT)
        if self.placed.shape.schedule in SPLIT_BACKWARD:
            return (*before, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
        return (*before, Pass.BACKWARD)

    def script(self, kind: int, which: Pass) -> Script:
        """Return the script of one pass over one layer."""
        key = kind, which
        if key not in self._scripts:
            placed = self.placed
            self._scripts[key] = script_of(
                placed.operators(kind, which),
                placed.bars(kind, which),
                self.exchange_ns,
                by_operator=self.granularity is Granularity.OPERATOR,
            )
        return self._scripts[key]

    def unit(self, kind: int, passes: Sequence[Pass], count: int) -> Script:
        """Return the script of some passes over ``count`` layers of a kind."""
        key = kind, tuple(passes), count
        if key not in self._units:
            scripts = [self.script(kind, which) for which in passes]
            if self.granularity is Granularity.STAGE:
                name = " and ".join(each.replace("_", " ") for each in passes)
                times = "" if count == 1 else f"{count} × "
                label = f"{name} of {times}{self.placed.layers[kind].name}"
                self._units[key] = lumped(label, [(script, count) for script in scripts], self.exchange_ns)
            else:
                self._units[key] = in_turn(scripts * count)
        return self._units[key]

    def asked_ns(self, operation: OperationKind, stage: int, kind: int) -> float:
        """Return the nanoseconds that the cost model gives an operation over one layer of a stage."""
        policy, passes = self.placed.policy_number(stage), self._passes
        if operation is OperationKind.FORWARD:
            seconds = passes.forward_s[0, policy, kind]
        elif operation is OperationKind.BACKWARD_WEIGHT:
            seconds = passes.weights_s[0, policy, kind]
        elif operation is OperationKind.BACKWARD_INPUT:
            seconds = passes.inputs_s[0, policy, kind]
        else:
            seconds = passes.inputs_s[0, policy, kind] + passes.weights_s[0, policy, kind]
        return float(seconds) * _NS

    def transfers(self, operation: OperationKind, kind: int, count: int) -> tuple[list[Transfer], list[Transfer]]:
        """Return what replicas exchange of ``count`` layers for every microbatch: before an operation, and after it."""
        moments: tuple[tuple[Moment, ...], tuple[Moment, ...]] = ((), ())
        if operation is OperationKind.FORWARD:
            moments = (Moment.BEFORE_FORWARD,), ()
        elif operation is not OperationKind.BACKWARD_WEIGHT:
            moments = (Moment.BEFORE_BACKWARD,), (Moment.AFTER_BACKWARD,)
        before, after = ([each for moment in some for each in self.placed.state_exchanges[moment]] for some in moments)
        return self._transfers(before, kind, count, "state exchange"), self._transfers(
            after, kind, count, "state exchange"
        )

    def reductions(self, kind: int, count: int) -> list[Transfer]:
        """Return the gradients that replicas reduce once per step of ``count`` layers of a kind."""
        return self._transfers(self.placed.reductions, kind, count, "gradient reduction")

    def gathers(self, kind: int, count: int) -> list[Transfer]:
        """Return the parameters that replicas gather once per step, after the update."""
        return self._transfers(self.placed.state_exchanges[Moment.AFTER_UPDATE], kind, count, "parameter gathering")

    def _transfers(self, exchanges: Sequence[StateExchange], kind: int, count: int, part: str) -> list[Transfer]:
        found = []
        for each in exchanges:
            payload = each.payload_bytes[kind] * count
            if payload > 0 and each.group.size > 1:
                what = "experts of " if each.exchange.expert else ""
                found.append(
                    Transfer(
                        name=f"{each.exchange.kind} {what}{self.placed.layers[kind].name}",
                        part=part,
                        kind=each.exchange.kind,
                        payload_bytes=payload,
                        group=each.group,
                    )
                )
        return found

    @staticmethod
    def part_of(collective: Collective) -> str:
        """Return what the seconds of an exchange inside a layer count as."""
        return EXCHANGE_PARTS[collective.axis]
