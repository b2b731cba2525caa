"""The algorithms of collectives inside one network dimension, and what each costs.

n members, full buffer of P bytes per device, α and B as in :mod:`archplace.costmodel.network.links`; k = ⌈log₂ n⌉.

====================  ===================  =========================================  ============================
collective            algorithm            steps                                      reference
====================  ===================  =========================================  ============================
all-gather,           ring                 n−1 of P/n                                 Thakur et al. 2005, 4.1, 4.4
reduce-scatter        halving-doubling     P/2, P/4 … P/n (n a power of two)          Thakur et al. 2005, 4.1, 4.4
all-gather            Bruck                k of P/n, 2P/n, 4P/n … up to (n−1)P/n      Bruck et al. 1997
all-reduce            ring, halving-d.     reduce-scatter, all-gather                 Thakur et al. 2005, 4.5
                      recursive doubling   k of P                                     Thakur et al. 2005, 4.5
                      double tree          2 (2h + 2s − 2) of P/2s, h = k             Sanders et al. 2009
all-to-all            direct               n−1 of P/n                                 Thakur et al. 2005, 4.3
                      Bruck                k of P/2                                   Bruck et al. 1997
broadcast             tree                 k of P                                     Chan et al. 2007
                      scatter-gather       as all-gather, twice                       Thakur et al. 2005, 4.2
                      double tree          2h + 2s − 2 of P/2s                        Sanders et al. 2009
                      ring (pipeline)      n − 2 + s of P/s                           Sanders et al. 2009
====================  ===================  =========================================  ============================

Where n is no power of two, r = n − 2^⌊log₂ n⌋ members hand their data to a partner first and get the result last (two
more steps of P; Thakur et al. 2005, 4.5). Segmented algorithms get the best number s of segments out of powers of four.
Trees and Bruck's algorithms need a switch: their partners lie anywhere. Over a full set of links, and as an alternative
on rings, a collective can also be direct: each member sends each other one its part at once, sums included.

Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH. IJHPCA 19(1), 2005.
Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient Algorithms for All-to-All Communications. IEEE TPDS 8(11), 1997.
Chan, Heimlich, Purkayastha, van de Geijn: Collective Communication: Theory, Practice, and Experience. CCPE 19, 2007.
Sanders, Speck, Träff: Two-Tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan. Parallel Comp. 35, 2009.
"""

from archplace.arch_configs.cluster import Topology
from archplace.costmodel.network.curve import Curve, largest, total
from archplace.costmodel.network.layout import Share
from archplace.costmodel.network.links import Links
from archplace.costmodel.network.plans import Algorithm, Best, Plan, Run
from archplace.workloads.operators import CollectiveKind

_SEGMENTS = tuple(4**i for i in range(8))

_HALVES = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)


def options(kind: CollectiveKind, share: Share) -> tuple[Plan, ...]:
    """Return the ways to run a collective among the members that one dimension joins."""
    links = Links.of(share)
    if kind in _HALVES:
        found = _gather(kind, links)
    elif kind is CollectiveKind.ALL_REDUCE:
        found = _all_reduce(links)
    elif kind is CollectiveKind.ALL_TO_ALL:
        found = _all_to_all(links)
    elif kind is CollectiveKind.BROADCAST:
        found = _broadcast(links)
    else:
        found = [(Algorithm.NEIGHBOUR, links.neighbour(), 1.0)]
    return tuple(
        Run(kind=kind, dimension=share.dimension.name, algorithm=algorithm, curve=curve, sent_per_byte=sent)
        for algorithm, curve, sent in found
    )


_Way = tuple[Algorithm, Curve, float]
"""Algorithm, seconds by payload, bytes sent per byte of payload."""


def _gather(kind: CollectiveKind, links: Links) -> list[_Way]:
    n = links.members
    sent = (n - 1) / n
    found = [(Algorithm.RING, links.ring_step(1 / n, times=n - 1), sent)]
    if n & (n - 1) == 0:
        found.append((Algorithm.HALVING_DOUBLING, _halving(links, n), sent))
    elif kind is CollectiveKind.ALL_GATHER and links.topology is Topology.SWITCH:
        sizes = [min(2**i, n - 2**i) / n for i in range((n - 1).bit_length())]
        found.append((Algorithm.BRUCK, total([links.message(size) for size in sizes]), sent))
    if links.topology is not Topology.SWITCH:
        found.append((Algorithm.DIRECT, links.everyone(1 / n), sent))
    return found


def _halving(links: Links, members: int) -> Curve:
    """Return the seconds of recursive halving, or doubling, among the first ``members`` (a power of two)."""
    steps = members.bit_length() - 1
    return total([links.exchange(0.5 ** (i + 1), 2**i) for i in range(steps)])


def _all_reduce(links: Links) -> list[_Way]:
    n = links.members
    power = 1 << (n.bit_length() - 1)
    spare = 0 if n == power else 2
    # Twice the payload with the partner that stands in for a spare member.
    folding = links.exchange(1.0, 1).times(spare)
    halves = _halving(links, power).times(2.0)
    doubling = total([links.exchange(1.0, 2**i) for i in range(power.bit_length() - 1)])
    found = [
        (Algorithm.RING, links.ring_step(1 / n, times=2 * (n - 1)), 2 * (n - 1) / n),
        (Algorithm.HALVING_DOUBLING, total([halves, folding]), 2 * (power - 1) / power + spare / 2),
        (Algorithm.RECURSIVE_DOUBLING, total([doubling, folding]), power.bit_length() - 1 + spare / 2),
    ]
    if links.topology is Topology.SWITCH:
        found += [(Algorithm.DOUBLE_TREE, tree.times(2.0), 2.0) for tree in _double_trees(links)]
    else:
        found.append((Algorithm.DIRECT, links.everyone(1 / n).times(2.0), 2 * (n - 1) / n))
    return found


def _double_trees(links: Links) -> list[Curve]:
    """Return the seconds of a broadcast over two trees by number of segments.

    A member passes a segment of each tree on in two steps and is an inner node of one tree only, so that the last
    segment leaves the root after 2s − 2 steps and is 2h steps on its way.
    """
    height = (links.members - 1).bit_length()
    return [links.message(1 / (2 * s), times=2 * height + 2 * s - 2) for s in _SEGMENTS]


def _all_to_all(links: Links) -> list[_Way]:
    n = links.members
    found = [(Algorithm.DIRECT, links.everyone(1 / n), (n - 1) / n)]
    if links.topology is Topology.SWITCH:
        steps = (n - 1).bit_length()
        # Step i moves the parts whose number has bit i: at most half of them.
        parts = [sum(1 for part in range(n) if part >> i & 1) / n for i in range(steps)]
        found.append((Algorithm.BRUCK, total([links.message(part) for part in parts]), sum(parts)))
    return found


def _broadcast(links: Links) -> list[_Way]:
    n = links.members
    if links.topology is Topology.FULLY_CONNECTED:
        return [
            (Algorithm.TREE, links.exchange(1.0, 1).times((n - 1).bit_length()), 1.0),
            (Algorithm.SCATTER_GATHER, links.everyone(1 / n).times(2.0), 2 * (n - 1) / n),
        ]
    gather = links.ring_step(1 / n, times=n - 1)
    found = [(Algorithm.SCATTER_GATHER, gather.times(2.0), 2 * (n - 1) / n)]
    if links.topology is Topology.RING:
        return found + [(Algorithm.RING, links.ring_step(1 / s, times=n - 2 + s), 1.0) for s in _SEGMENTS]
    tree = links.message(1.0, times=(n - 1).bit_length())
    found.append((Algorithm.TREE, tree, 1.0))
    return found + [(Algorithm.DOUBLE_TREE, curve, 1.0) for curve in _double_trees(links)]


def best(kind: CollectiveKind, share: Share) -> Plan:
    """Return the best algorithm for each payload in one dimension."""
    return Best(options(kind, share))


def torus(kind: CollectiveKind, shares: tuple[Share, ...]) -> Plan:
    """Return the collective over the rings of a torus at the same time.

    The payload is cut into as many parts as there are rings; each part passes them in another order, so that every
    ring works in every phase, which lasts as long as its slowest ring (Jain and Sabharwal, Optimal Bucket Algorithms
    for Large MPI Collectives on Torus Interconnects, ICS 2010). An all-reduce is a reduce-scatter and an all-gather.
    """
    k = len(shares)
    half = CollectiveKind.ALL_GATHER if kind is CollectiveKind.ALL_REDUCE else kind
    ways = [best(half, share).curve for share in shares]
    phases, sent = [], 0.0
    left = [1 / k] * k
    for phase in range(k):
        rings = []
        for part in range(k):
            ring = (part + phase) % k
            n = shares[ring].members
            rings.append(ways[ring].times(1.0, of=left[part]))
            sent += left[part] * (n - 1) / n
            if kind is not CollectiveKind.ALL_TO_ALL:
                left[part] /= n
        phases.append(largest(rings))
    rounds = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    return Run(
        kind=kind,
        dimension="+".join(share.dimension.name for share in shares),
        algorithm=Algorithm.TORUS,
        curve=total(phases).times(rounds),
        sent_per_byte=rounds * sent,
    )
