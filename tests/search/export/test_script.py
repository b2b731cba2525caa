"""Scripts of passes: one stream of computing and one of communication that take what the schedule takes."""

from hypothesis import given
from hypothesis import strategies as st

from archplace.search.attribution import OperatorBar
from archplace.search.export.script import WAIT, in_turn, lumped, script_of
from archplace.workloads import Axis, Collective, CollectiveKind, Operator, Phase, Unit

NS = 1e-9


def exchange_ns(collective):
    """A link of a byte per nanosecond."""
    return collective.payload_bytes


def computing(name, *inputs):
    return Operator(name=name, unit=Unit.VECTOR, phase=Phase.FORWARD, inputs=inputs)


def exchange(name, size, *inputs, axis=Axis.TENSOR):
    collective = Collective(kind=CollectiveKind.ALL_REDUCE, payload_bytes=size, group_size=2, axis=axis)
    return Operator(name=name, unit=Unit.NETWORK, phase=Phase.FORWARD, inputs=inputs, collective=collective)


def bar(operator, start_ns, end_ns):
    return OperatorBar(
        name=operator.name,
        unit=operator.unit.value,
        phase="forward",
        start_s=start_ns * NS,
        duration_s=(end_ns - start_ns) * NS,
        all_units=False,
        bound_by="HBM",
    )


def makespan(script):
    """Return when the last piece ends: computing takes turns, exchanges take turns, all wait for what they name."""
    ends, busy = [], [0, 0]
    for piece in script.pieces:
        stream = piece.collective is not None
        begin = max([busy[stream], *(ends[place] for place in piece.after)])
        ends.append(begin + piece.nanoseconds)
        busy[stream] = ends[-1]
    return max(ends, default=0)


@st.composite
def scheduled(draw):
    """Draw operators with a schedule: two units that compute, one network; each begins once its inputs are done."""
    operators, bars, free, ends = [], [], [0, 0, 0], {}
    for number in range(draw(st.integers(1, 9))):
        inputs = draw(st.sets(st.sampled_from(list(ends)), max_size=2)) if ends else set()
        length = draw(st.integers(0, 5000))
        unit = draw(st.integers(0, 2))
        name = f"o{number}"
        operator = exchange(name, length, *inputs) if unit == 2 else computing(name, *inputs)
        begin = max([free[unit], *(ends[each] for each in inputs)]) + draw(st.sampled_from([0, 0, 700]))
        free[unit] = ends[name] = begin + length
        operators.append(operator)
        bars.append(bar(operator, begin, begin + length))
    return operators, bars


@given(scheduled(), st.booleans())
def test_a_script_takes_what_the_schedule_takes(found, by_operator):
    operators, bars = found
    script = script_of(operators, bars, exchange_ns, by_operator=by_operator)
    end = max(round((each.start_s + each.duration_s) / NS) for each in bars)
    running = any(each.duration_s > 0 for each in bars)
    assert script.nanoseconds == makespan(script)
    assert script.nanoseconds == (end if running else script.nanoseconds)
    exchanged = sorted(piece.nanoseconds for piece in script.pieces if piece.collective is not None)
    assert exchanged == sorted(
        o.collective.payload_bytes for o in operators if o.collective and o.collective.payload_bytes
    )


@given(st.lists(scheduled(), min_size=1, max_size=3), st.integers(1, 4))
def test_scripts_one_after_another_and_lumped_take_their_sum(found, times):
    scripts = [script_of(*each, exchange_ns, by_operator=False) for each in found]
    total = times * sum(script.nanoseconds for script in scripts)
    chain, lump = in_turn(scripts * times), lumped("all", [(script, times) for script in scripts], exchange_ns)
    for whole in (chain, lump):
        assert whole.nanoseconds == makespan(whole) == total
    assert chain.compute_ns == lump.compute_ns
    assert lump.compute_ns == times * sum(script.compute_ns for script in scripts)
    payloads = [
        sum(piece.collective.payload_bytes for piece in whole.pieces if piece.collective is not None)
        for whole in (chain, lump)
    ]
    assert payloads[0] == payloads[1]


def test_an_exchange_shorter_than_scheduled_is_waited_for():
    operators = [computing("a"), exchange("x", 100, "a"), computing("b", "x")]
    bars = [bar(operators[0], 0, 1000), bar(operators[1], 1000, 1600), bar(operators[2], 1600, 2000)]
    script = script_of(operators, bars, exchange_ns, by_operator=False)
    assert [(piece.name, piece.nanoseconds) for piece in script.pieces] == [
        ("a", 1000),
        ("x", 100),
        (WAIT, 500),
        ("b", 400),
    ]
    assert makespan(script) == 2000


def test_what_runs_beside_an_exchange_does_not_wait_for_it():
    operators = [computing("a"), exchange("x", 500, "a"), computing("b", "a"), computing("c", "x", "b")]
    bars = [bar(operators[0], 0, 100), bar(operators[1], 100, 600), bar(operators[2], 100, 400)]
    bars.append(bar(operators[3], 600, 650))
    script = script_of(operators, bars, exchange_ns, by_operator=True)
    names = [piece.name for piece in script.pieces]
    place = {name: number for number, name in enumerate(names)}
    assert place["x"] not in script.pieces[place["b"]].after
    assert {place["x"], place["b"]} <= set(script.pieces[place["c"]].after)
    assert makespan(script) == 650
