"""Dimensions are brought to their common refinement, and no element is lost on the way."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from archplace.workloads.traced.atoms import Atoms

FACTORS = st.lists(st.sampled_from([2, 3, 5, 7]), min_size=1, max_size=6)


def grouped(factors: list[int], cuts: list[bool]) -> list[int]:
    """Products of neighbours: a shape whose boundaries are some of those between the factors."""
    shape = [factors[0]]
    for factor, cut in zip(factors[1:], cuts, strict=False):
        if cut:
            shape.append(factor)
        else:
            shape[-1] *= factor
    return shape


def variables(atoms: Atoms, shape: list[int]) -> list[int]:
    return [atoms.variable(size) for size in shape]


def test_a_reshape_cuts_where_the_other_side_has_a_boundary() -> None:
    atoms = Atoms()
    merged, parts = variables(atoms, [24]), variables(atoms, [2, 3, 4])
    assert atoms.unify(merged, parts)
    assert atoms.atoms(merged) == atoms.atoms(parts)
    assert [atoms.size(one) for one in atoms.atoms(merged)] == [2, 3, 4]


def test_boundaries_that_never_meet_stay_apart() -> None:
    atoms = Atoms()
    left, right = variables(atoms, [4, 2, 3]), variables(atoms, [4, 3, 2])
    assert not atoms.unify(left, right)
    assert atoms.atoms(left[:1]) == atoms.atoms(right[:1])
    assert not {*atoms.atoms(left[1:])} & {*atoms.atoms(right[1:])}


def test_the_minor_end_is_unified_where_the_middle_cannot_be() -> None:
    atoms = Atoms()
    left, right = variables(atoms, [2, 3, 5]), variables(atoms, [3, 2, 5])
    assert not atoms.unify(left, right)
    assert atoms.atoms(left[2:]) == atoms.atoms(right[2:])


def test_other_numbers_of_elements_are_not_unified() -> None:
    atoms = Atoms()
    left, right = variables(atoms, [4, 3]), variables(atoms, [4, 5])
    assert not atoms.unify(left, right)
    assert atoms.atoms(left) != atoms.atoms(right)


@given(FACTORS, st.data())
def test_common_boundaries_give_a_refinement_of_both(factors: list[int], data: st.DataObject) -> None:
    """Of two groupings one of which has all boundaries of the other, everything is unified."""
    atoms = Atoms()
    fine = data.draw(st.lists(st.booleans(), min_size=len(factors), max_size=len(factors)))
    coarse = [cut and data.draw(st.booleans()) for cut in fine]
    shapes = grouped(factors, fine), grouped(factors, coarse)
    left, right = (variables(atoms, shape) for shape in shapes)
    assert atoms.unify(left, right)
    assert atoms.atoms(left) == atoms.atoms(right)
    assert [atoms.size(one) for one in atoms.atoms(left)] == shapes[0]


@given(st.lists(FACTORS, min_size=2, max_size=6), st.data())
def test_elements_are_kept_whatever_is_unified(lists: list[list[int]], data: st.DataObject) -> None:
    atoms = Atoms()
    shapes = [
        grouped(data.draw(st.permutations(one)), data.draw(st.lists(st.booleans(), min_size=6, max_size=6)))
        for one in (*lists, *lists)
    ]
    given_variables = [variables(atoms, shape) for shape in shapes]
    for left, right in data.draw(st.lists(st.tuples(*(st.integers(0, len(shapes) - 1),) * 2), min_size=1, max_size=8)):
        fits = atoms.unify(given_variables[left], given_variables[right])
        if fits:
            assert atoms.atoms(given_variables[left]) == atoms.atoms(given_variables[right])
        for shape, made in zip(shapes, given_variables, strict=True):
            for size, variable in zip(shape, made, strict=True):
                assert prod(atoms.size(one) for one in atoms.atoms([variable])) == size
                assert all(atoms.size(one) > 1 for one in atoms.atoms([variable]))
