"""Check a schedule against every constraint, in plain code that shares nothing with the solvers."""

from archplace.search.schedule.graph import Kind
from archplace.search.schedule.problem import Mode, Schedule, ScheduleProblem

_TOLERANCE = 1e-9
"""Share of the makespan by which two times may differ before we call them different: sums of floats."""


def verify(problem: ScheduleProblem, schedule: Schedule) -> list[str]:
    """Every violated constraint in words; empty if the schedule is valid.

    Checked: array lengths, start times, modes that exist, unit indices, precedence, at most one operator per unit,
    fused operators on a tensor and a vector unit of the same index, nothing beside an operator on all units, one
    collective at a time, the makespan, and that the lower bound does not lie above it.
    """
    count = problem.n_ops
    names = problem.graph.names
    lengths = (len(schedule.start_s), len(schedule.mode), len(schedule.unit))
    if lengths != (count, count, count):
        return [f"found {lengths} start times, modes and units for {count} operators"]
    kinds = [Kind(kind) for kind in problem.kinds.tolist()]
    start = schedule.start_s.tolist()
    mode = schedule.mode.tolist()
    unit = schedule.unit.tolist()
    violations: list[str] = []

    duration = []
    for i in range(count):
        one_s, all_s = float(problem.one_s[i]), float(problem.all_s[i])
        network = kinds[i] is Kind.NETWORK
        if mode[i] not in (Mode.ONE, Mode.ALL):
            return [f"{names[i]}: found mode {mode[i]}"]
        if network and mode[i] != Mode.ONE:
            violations.append(f"{names[i]}: a collective has no mode but ONE")
        duration.append(min(one_s, all_s) if network else (all_s if mode[i] == Mode.ALL else one_s))
        if duration[i] == float("inf"):
            violations.append(f"{names[i]}: mode {Mode(mode[i]).name} is not available")
        if not start[i] >= 0 or start[i] == float("inf"):
            violations.append(f"{names[i]}: starts at {start[i]}")
    if violations:
        return violations

    end = [start[i] + duration[i] for i in range(count)]
    slack = _TOLERANCE * max(end, default=0.0)
    for i, j in problem.edges.tolist():
        if start[j] < end[i] - slack:
            violations.append(f"{names[j]} starts at {start[j]} before {names[i]} ends at {end[i]}")

    places = [_places(kinds[i], mode[i], unit[i]) for i in range(count)]
    for i in range(count):
        limit = {
            Kind.TENSOR: problem.tensor_units,
            Kind.VECTOR: problem.vector_units,
            Kind.FUSED: min(problem.tensor_units, problem.vector_units),
        }.get(kinds[i])
        if limit is None or mode[i] == Mode.ALL:
            if unit[i] != -1:
                violations.append(f"{names[i]}: found unit {unit[i]} where -1 belongs")
        elif not 0 <= unit[i] < limit:
            violations.append(f"{names[i]}: found unit {unit[i]}, but there are {limit} for its kind")

    for i in range(count):
        start_i, end_i = start[i], end[i]
        for j in range(i):
            first_end = end[j] if end[j] < end_i else end_i
            if first_end - start_i <= slack or first_end - start[j] <= slack:
                continue  # they do not overlap; this includes operators of no duration
            pair = f"{names[j]} and {names[i]} overlap"
            if kinds[i] is Kind.NETWORK or kinds[j] is Kind.NETWORK:
                if kinds[i] is kinds[j]:
                    violations.append(f"{pair} on the network")
            elif mode[i] == Mode.ALL or mode[j] == Mode.ALL:
                violations.append(f"{pair} though one of them runs on all units")
            elif places[i] & places[j]:
                violations.append(f"{pair} on {', '.join(sorted(places[i] & places[j]))}")

    makespan_s = max(end, default=0.0)
    if not abs(makespan_s - schedule.makespan_s) <= slack:
        violations.append(f"the makespan is {makespan_s}, not {schedule.makespan_s}")
    if not schedule.lower_bound_s <= schedule.makespan_s + slack:
        violations.append(f"the lower bound {schedule.lower_bound_s} lies above the makespan {schedule.makespan_s}")
    return violations


def _places(kind: Kind, mode: int, unit: int) -> set[str]:
    """The units that an operator occupies alone in mode ONE; empty in mode ALL and for collectives."""
    if mode == Mode.ALL:
        return set()
    return {
        Kind.TENSOR: {f"tensor unit {unit}"},
        Kind.VECTOR: {f"vector unit {unit}"},
        Kind.FUSED: {f"tensor unit {unit}", f"vector unit {unit}"},
        Kind.NETWORK: set[str](),
    }[kind]
