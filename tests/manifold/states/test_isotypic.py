"""Isotypic parts of groups: idempotents, dimensions and names against written-out characters."""

import numpy as np
import pytest

from manifold.groups.commutant import commutant
from manifold.states.isotypic import isotypic
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition


def cyclic(m):
    return ModularAddition(modulus=m, lengths=(3,), format="acot")


def symmetric(k):
    return PermutationComposition(degree=k, lengths=(3,), format="acot")


GROUPS = [*map(cyclic, (2, 3, 4, 5, 6, 12)), *map(symmetric, (2, 3, 4, 5))]
every_group = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.label)


@every_group
def test_idempotents_are_orthogonal_and_sum_to_one(group):
    parts = isotypic(group)
    e = parts.idempotents
    product = np.einsum("ah,bhg->abg", e, e[:, parts.left.T])
    np.testing.assert_allclose(product, np.eye(len(e))[:, :, None] * e, atol=1e-13)
    np.testing.assert_allclose(e.sum(0), np.arange(group.n_elements) == 0, atol=1e-13)
    np.testing.assert_allclose(e[:, 0] * group.n_elements, parts.dimensions, atol=1e-10)
    np.testing.assert_allclose(e[0], 1 / group.n_elements, atol=1e-13)


@every_group
def test_coefficients_are_those_of_the_commutant(group):
    """Matrices that commute with left translations: orbitals, by another algorithm."""
    every = np.arange(group.n_elements)
    parts = isotypic(group)
    left = group.compose(every[:, None], every[None])
    matrix = np.random.default_rng(0).standard_normal((group.n_elements,) * 2)
    for side, generators in enumerate((left, left.T)):
        table = (parts.left, parts.right)[side]
        f = parts.coefficients(matrix)[side]
        np.testing.assert_allclose(f[table], commutant(generators).project(matrix), atol=1e-13)
    pieces = parts.squares(parts.coefficients(matrix))
    np.testing.assert_allclose(
        pieces[0].sum(), np.square(parts.coefficients(matrix)[0]).sum() * group.n_elements
    )


@pytest.mark.parametrize("m", [4, 5, 12])
def test_parts_of_a_cyclic_group_are_its_frequencies(m):
    parts = isotypic(cyclic(m))
    for j, (e, size) in enumerate(zip(parts.idempotents, parts.dimensions, strict=True)):
        assert size == (1 if j in (0, m / 2) else 2)
        np.testing.assert_allclose(
            e, size / m * np.cos(2 * np.pi * j * np.arange(m) / m), atol=1e-13
        )


def test_parts_of_permutations_are_representations_in_the_order_of_content():
    """Hook lengths: S_4 has dimensions 1, 3, 2, 3, 1; S_5 has 1, 4, 5, 6, 5, 4, 1."""
    for k, sizes in ((3, (1, 2, 1)), (4, (1, 3, 2, 3, 1)), (5, (1, 4, 5, 6, 5, 4, 1))):
        group = symmetric(k)
        parts = isotypic(group)
        assert parts.dimensions.tolist() == [d * d for d in sizes]
        fixed = (group.permutations == np.arange(k)).sum(1)
        character = parts.idempotents[1] * group.n_elements / sizes[1]
        np.testing.assert_allclose(character, fixed - 1, atol=1e-12)
        assert {round(e / abs(parts.idempotents[-1][0])) for e in parts.idempotents[-1]} == {-1, 1}


def test_what_is_no_group_is_refused():
    with pytest.raises(ValueError, match="Z_2000 has 2000 elements, allowed at most 720"):
        isotypic(cyclic(2000))

    class Wrong(ModularAddition):
        def compose(self, later, earlier):
            return (later * earlier) % self.modulus

    with pytest.raises(ValueError, match="the products of Z_5 do not make a group"):
        isotypic(Wrong(modulus=5, lengths=(3,), format="acot"))
