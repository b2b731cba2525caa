"""Dimensions of all tensors of a graph, unified where operators say that they are one, cut where reshapes cut them.

Each dimension, and each loop of an operator, is a variable with a size. Where two sequences of variables stand for the
same elements in the same order, they are brought to their common refinement: variables of equal size become one, a
larger one is cut so that its major part matches. What remains uncut are the *atoms*. Sequences whose boundaries never
meet again (6 = 2 · 3 and 3 · 2) have no common refinement; there the rest stays apart, and nothing can be cut through.
"""

from collections.abc import Iterable, Sequence
from math import prod


class Atoms:
    """Variables, unified and cut."""

    def __init__(self) -> None:
        """Begin without variables."""
        self._parent: list[int] = []
        self._size: list[int] = []
        self._parts: list[tuple[int, ...] | None] = []

    def variable(self, size: int) -> int:
        """Return a new variable of ``size`` elements, at least 2."""
        assert size > 1, size
        self._parent.append(len(self._parent))
        self._size.append(size)
        self._parts.append(None)
        return len(self._parent) - 1

    def size(self, variable: int) -> int:
        """Return how many elements a variable has."""
        return self._size[self._root(variable)]

    def atoms(self, variables: Iterable[int]) -> tuple[int, ...]:
        """Return the atoms that variables are made of, major first; equal atoms have equal numbers."""
        found: list[int] = []
        stack = list(reversed(list(variables)))
        while stack:
            root = self._root(stack.pop())
            parts = self._parts[root]
            if parts is None:
                found.append(root)
            else:
                stack.extend(reversed(parts))
        return tuple(found)

    def unify(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Make two sequences one that stand for the same elements; return whether all of it could be.

        What fits from the major end is unified, and what fits from the minor end.
        """
        first, second = list(self.atoms(left)), list(self.atoms(right))
        if prod(self._size[one] for one in first) != prod(self._size[one] for one in second):
            return False
        return self._walk(first, second, major=True) or self._walk(first, second, major=False)

    def _walk(self, left: list[int], right: list[int], *, major: bool) -> bool:
        """Unify from one end and take off what fits; return whether nothing is left."""
        end = 0 if major else -1
        while left and right:
            one, other = self._root(left[end]), self._root(right[end])
            if self._parts[one] is not None or self._parts[other] is not None:
                # An atom that stands in the sequence twice has been cut on the way.
                left[:], right[:] = self.atoms(left), self.atoms(right)
                continue
            if self._size[one] == self._size[other]:
                self._parent[other] = one
                del left[end], right[end]
                continue
            small, large = (one, other) if self._size[one] < self._size[other] else (other, one)
            if self._size[large] % self._size[small]:
                return False
            rest = self.variable(self._size[large] // self._size[small])
            self._parts[large] = (small, rest) if major else (rest, small)
            # Where a variable is part of itself there is no end of cutting; sizes shrink, so that it cannot be.
            left[:], right[:] = self.atoms(left), self.atoms(right)
        return not left and not right

    def _root(self, variable: int) -> int:
        while self._parent[variable] != variable:
            self._parent[variable] = self._parent[self._parent[variable]]
            variable = self._parent[variable]
        return variable
