"""Collectives over several dimensions: which part of the work each dimension does.

Reduce-scatter goes up from the fast to the slow dimensions, each working on what the faster ones have left of the
payload; all-gather comes down again; the slowest dimension's part of an all-reduce is an all-reduce (Cho et al.,
BlueConnect, MLSys 2019). For small payloads an all-reduce, or a broadcast, of the whole payload in every dimension is
faster. An all-to-all exchanges the whole payload in every dimension (each device gathers for its own place of the next
one), or goes to every member directly. Consecutive rings are a torus, which may run at the same time.
"""

from functools import lru_cache

from archplace.arch_configs.cluster import Topology
from archplace.costmodel.network.algorithms import best, torus
from archplace.costmodel.network.curve import largest
from archplace.costmodel.network.layout import Share
from archplace.costmodel.network.links import Links
from archplace.costmodel.network.plans import Algorithm, Best, InTurn, Plan, Run
from archplace.workloads.operators import CollectiveKind

_Part = tuple[float, Plan]

_best = lru_cache(maxsize=1 << 14)(best)
_torus = lru_cache(maxsize=1 << 14)(torus)


@lru_cache(maxsize=1 << 16)
def plan(kind: CollectiveKind, shares: tuple[Share, ...]) -> Plan:
    """Return the best way to run a collective in a group that lies so in the network; free for a group of one."""
    if not shares:
        return InTurn(())
    if kind is CollectiveKind.POINT_TO_POINT:
        return _neighbour(shares)
    if kind is CollectiveKind.ALL_TO_ALL:
        return _all_to_all(shares)
    return _reducing(kind, _blocks(shares), before=1)


def _blocks(shares: tuple[Share, ...]) -> list[tuple[Share, ...]]:
    """Return the shares, those of consecutive rings, which can work at the same time, together."""
    blocks: list[tuple[Share, ...]] = []
    for share in shares:
        ring = share.even and share.dimension.topology is Topology.RING
        last = blocks[-1][-1] if blocks else None
        beside = last is not None and last.even and last.dimension.topology is Topology.RING
        if last is not None and ring and beside and last.dimension != share.dimension:
            blocks[-1] = (*blocks[-1], share)
        else:
            blocks.append((share,))
    return blocks


def _reducing(kind: CollectiveKind, blocks: list[tuple[Share, ...]], *, before: int) -> Plan:
    """Return the plan of a collective whose payload the faster dimensions divide.

    ``before`` is what the dimensions before these have divided it by already.
    """
    scatter, gather, left = [], [], before
    for block in blocks[:-1]:
        scatter.append((before / left, _block(CollectiveKind.REDUCE_SCATTER, block, left)))
        gather.append((before / left, _block(CollectiveKind.ALL_GATHER, block, left)))
        left = block[-1].reduced
    last = (before / left, _block(kind, blocks[-1], left))
    if kind is CollectiveKind.REDUCE_SCATTER:
        return InTurn([*scatter, last])
    if kind is CollectiveKind.ALL_GATHER:
        return InTurn([last, *gather[::-1]])
    # A scatter from one device costs as much as a gather of all.
    way = InTurn([*(scatter if kind is CollectiveKind.ALL_REDUCE else gather), last, *gather[::-1]])
    everywhere = InTurn([(1.0, _best(kind, share)) for block in blocks[::-1] for share in block])
    return Best([way, everywhere]) if len(blocks) > 1 else way


def _block(kind: CollectiveKind, block: tuple[Share, ...], before: int) -> Plan:
    if len(block) == 1:
        return _best(kind, block[0])
    in_turn = _reducing(kind, [(share,) for share in block], before=before)
    return in_turn if kind is CollectiveKind.BROADCAST else Best([in_turn, _torus(kind, block)])


def _all_to_all(shares: tuple[Share, ...]) -> Plan:
    kind = CollectiveKind.ALL_TO_ALL
    parts: list[_Part] = []
    for block in _blocks(shares):
        in_turn = InTurn([(1.0, _best(kind, share)) for share in block])
        parts.append((1.0, in_turn if len(block) == 1 else Best([in_turn, _torus(kind, block)])))
    by_dimension = InTurn(parts)
    ports = all(share.even and share.dimension.topology is Topology.SWITCH for share in shares)
    return Best([by_dimension, _everyone(shares)]) if ports and len(shares) > 1 else by_dimension


def _everyone(shares: tuple[Share, ...]) -> Plan:
    """Return the all-to-all in which each member sends every other one its part, over the slowest dimension in which
    the two differ."""
    size, before = shares[-1].reduced, 1
    parts: list[_Part] = []
    for share in shares:
        partners = before * (share.members - 1)
        run = Run(
            kind=CollectiveKind.ALL_TO_ALL,
            dimension=share.dimension.name,
            algorithm=Algorithm.DIRECT,
            curve=Links.of(share).message(1 / size, times=partners),
            sent_per_byte=partners / size,
        )
        parts.append((1.0, run))
        before = share.reduced
    return InTurn(parts)


def _neighbour(shares: tuple[Share, ...]) -> Plan:
    """Return the step to the next member: it lasts as long as the slowest dimension that some neighbours differ in."""
    return Run(
        kind=CollectiveKind.POINT_TO_POINT,
        dimension=shares[-1].dimension.name,
        algorithm=Algorithm.NEIGHBOUR,
        curve=largest([Links.of(share).neighbour() for share in shares]),
        sent_per_byte=1.0,
    )
