"""Averages of characters against known numbers, over rotations by spins; what cannot be counted."""

import numpy as np
import pytest

from manifold.groups.characters import (
    check_homomorphism,
    dimension_by_characters,
    dimension_over_rotations,
)

from .catalogue import (
    ANY,
    CUBE,
    DIAGONALS,
    EVEN_5,
    FINITE,
    ICOSAHEDRON,
    UNITS,
    VECTOR,
    cycle,
    left_multiplication,
    matrices,
    on_axes,
    plane,
    regular,
    spin,
    symmetric,
    wreath,
)


@pytest.mark.parametrize(
    ("action", "order"),
    [
        (symmetric(5), 120),
        (matrices(symmetric(5)), 120),
        (wreath(4, 3), 4**3 * 6),
        (plane(np.pi / 2), 4),
        (plane(2 * np.pi / 997), 997),
        (left_multiplication(UNITS), 8),
        (CUBE, 24),
        (ICOSAHEDRON, 60),
        (np.empty((0, 4), int), 1),
    ],
)
def test_every_element_is_met_once(action, order):
    assert dimension_by_characters(action).terms == order


def test_the_regular_action_has_as_many_as_the_group():
    assert dimension_by_characters(regular(symmetric(4))).dim == 24


def test_two_actions_count_the_joint_group():
    found = dimension_by_characters(cycle(4)[None], cycle(6)[None])
    assert (found.terms, found.dim) == (12, 2)


@pytest.mark.parametrize("action", [VECTOR, plane(1.0), symmetric(8)])
def test_a_group_beyond_the_limit_is_a_value_with_a_sentence(action):
    found = dimension_by_characters(action, limit=500)
    assert (found.dim, found.terms) == (None, 501)
    assert "more than 500 elements" in found.note


@pytest.mark.parametrize("l", [0, 0.5, 1, 4, 30])
def test_one_spin_is_irreducible_and_its_square_holds_every_spin_up_to_twice_it(l):
    degree = int(np.ceil(l))
    assert dimension_over_rotations(spin(l), degree=degree).dim == 1
    squared = dimension_over_rotations(lambda t: spin(l)(t) ** 2, degree=int(2 * l))
    assert squared.dim == int(2 * l) + 1
    assert dimension_over_rotations(spin(l), spin(l + 1), degree=degree + 1).dim == 0


def test_what_is_no_character_is_said():
    found = dimension_over_rotations(lambda t: 1.5, degree=1)
    assert found.dim is None
    assert "2.25 is no integer" in found.note


@pytest.mark.parametrize(
    ("inner", "outer", "order"),
    [
        (cycle(6)[None], cycle(3)[None], 6),
        (on_axes(CUBE, DIAGONALS), CUBE, 24),
        (CUBE, on_axes(CUBE, DIAGONALS), 24),
        (EVEN_5, ICOSAHEDRON, 60),
        (left_multiplication(ANY), VECTOR, None),
    ],
)
def test_an_action_that_follows_is_accepted(inner, outer, order):
    assert check_homomorphism(inner, outer, limit=300) == order


@pytest.mark.parametrize(
    ("inner", "outer", "word"),
    [
        (cycle(3)[None], cycle(6)[None], r"g\[0\] g\[0\] g\[0\] is"),
        (symmetric(3), symmetric(3)[::-1], r"product g\[1\] g\[1\] is"),
        (np.arange(2)[None], cycle(5)[None], r"product g\[0\] is"),
        (ICOSAHEDRON, EVEN_5[[0, 0]], None),
        (cycle(5)[None], cycle(4)[None], "of size 5, and moves the output, of size 4"),
    ],
)
def test_an_action_that_does_not_follow_names_the_shortest_product(inner, outer, word):
    with pytest.raises(ValueError, match=word or "check_homomorphism: the product"):
        check_homomorphism(inner, outer)


def test_a_pair_that_does_not_follow_still_has_its_intertwiners_counted():
    inner, outer = FINITE["S_2 and S_3, apart"]
    assert dimension_by_characters(inner, outer).dim == 1
    with pytest.raises(ValueError, match="is the identity on the input"):
        check_homomorphism(inner, outer)
