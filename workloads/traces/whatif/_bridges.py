"""Nodes taken out of a graph: who waited for them waits for what they waited for."""

from collections.abc import Callable, Iterable, Iterator

from archplace.workloads.traces.node import Node
from archplace.workloads.traces.whatif._edit import copied


def without(nodes: Callable[[], Iterator[Node]], goes: Callable[[Node], bool]) -> Iterator[Node]:
    """Give the nodes of a trace but for those that go.

    Whose data parent goes gets the data parents of that one as its own, and its control parents as control parents. In
    memory are the parents of the nodes that go; the trace is read twice.
    """
    gone = {node.id: (tuple(node.data_parents), tuple(node.control_parents)) for node in nodes() if goes(node)}
    for node in nodes():
        if node.id in gone:
            continue
        if gone.keys().isdisjoint(node.data_parents) and gone.keys().isdisjoint(node.control_parents):
            yield node
            continue
        data, control = _reached(node.data_parents, gone)
        ordered, further = _reached(node.control_parents, gone)
        message = copied(node)
        del message.data_deps[:]
        message.data_deps.extend(data)
        del message.ctrl_deps[:]
        # What a control parent read, or waited for, is waited for on the order's account only.
        message.ctrl_deps.extend(dict.fromkeys(one for one in (*control, *ordered, *further) if one not in set(data)))
        yield Node(message)


_Parents = tuple[tuple[int, ...], tuple[int, ...]]


def _reached(parents: Iterable[int], gone: dict[int, _Parents]) -> tuple[list[int], list[int]]:
    """Return the data and the control parents that stay, through all that go."""
    data: dict[int, None] = {}
    control: dict[int, None] = {}
    waiting = [(one, True) for one in reversed(list(parents))]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        one, is_data = waiting.pop()
        if (one, is_data) in seen:
            continue
        seen.add((one, is_data))
        if one not in gone:
            (data if is_data else control)[one] = None
            continue
        further_data, further_control = gone[one]
        waiting += [(further, False) for further in reversed(further_control)]
        waiting += [(further, is_data) for further in reversed(further_data)]
    return list(data), list(control)
