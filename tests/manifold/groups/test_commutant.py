"""Orbitals against two independent counts, and against averaging over the enumerated group."""

import itertools

import numpy as np
import pytest

from manifold.groups.commutant import commutant


def cycle(n):
    return np.roll(np.arange(n), -1)


def swap(n):
    return np.array([1, 0, *range(2, n)])


def wreath(m, k):
    """Z_m wr S_k on k tracks of m slots."""
    turn = np.arange(m * k)
    turn[:m] = np.roll(turn[:m], -1)
    blocks = np.arange(m * k).reshape(k, m)
    return np.stack([turn, blocks[cycle(k)].ravel(), blocks[swap(k)].ravel()])


def elements(generators):
    """The whole group, by closing under the generators."""
    identity = tuple(range(generators.shape[1]))
    group, frontier = {identity}, [identity]
    while frontier:
        frontier = [
            image
            for g in frontier
            for image in {tuple(s[list(g)].tolist()) for s in generators}
            if image not in group
        ]
        group.update(frontier)
    return np.array(sorted(group))


GROUPS = {
    "trivial": np.empty((0, 4), int),
    "S_5": np.stack([cycle(5), swap(5)]),
    "Z_6": cycle(6)[None],
    "dihedral": np.stack([cycle(5), np.arange(5)[::-1]]),
    "S_2 x S_3 on 5": np.array([[1, 0, 2, 3, 4], [0, 1, 3, 2, 4], [0, 1, 3, 4, 2]]),
    "pairs": np.array([[1, 0, 2, 3, 4, 5], [2, 3, 0, 1, 4, 5], [2, 3, 4, 5, 0, 1]]),
    "Z_4 wr S_3": wreath(4, 3),
    "Z_3 wr S_2": wreath(3, 2)[:2],
    "even": np.array([[1, 2, 0, 3], [0, 2, 3, 1]]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_dimension_is_burnsides_count(name):
    """dim = mean over the group of (number of fixed points)^2, the squared character."""
    group = elements(GROUPS[name])
    fixed = (group == np.arange(group.shape[1])).sum(1)
    assert commutant(GROUPS[name]).dim == round(np.mean(fixed.astype(float) ** 2), 9)


@pytest.mark.parametrize("name", GROUPS)
def test_dimension_is_that_of_the_kronecker_null_space(name):
    generators = GROUPS[name]
    n = generators.shape[1]
    matrices = [np.eye(n)[g].T for g in generators]
    stacked = [np.kron(g, np.eye(n)) - np.kron(np.eye(n), g.T) for g in matrices]
    equations = np.concatenate([np.zeros((1, n * n)), *stacked])
    assert commutant(generators).dim == n * n - np.linalg.matrix_rank(equations)


@pytest.mark.parametrize("name", GROUPS)
def test_projection_is_the_average_over_the_group(name):
    generators = GROUPS[name]
    basis = commutant(generators)
    n = generators.shape[1]
    w = np.random.default_rng(0).standard_normal((n, n))
    average = np.mean([w[np.ix_(g, g)] for g in elements(generators)], axis=0)
    np.testing.assert_allclose(basis.project(w), average, atol=1e-13)
    rebuilt = sum(c * b for c, b in zip(basis.coordinates(w), basis, strict=True))
    np.testing.assert_allclose(rebuilt, average, atol=1e-13)


def test_every_element_commutes_and_elements_partition_the_pairs():
    basis = commutant(GROUPS["Z_4 wr S_3"])
    for g in GROUPS["Z_4 wr S_3"]:
        np.testing.assert_array_equal(basis.labels[np.ix_(g, g)], basis.labels)
    np.testing.assert_array_equal(sum(basis), np.ones((12, 12)))
    assert basis.dim == 5
    assert basis.labels[0, 0] == 0


def test_two_actions_give_the_intertwiners():
    """S_4 on points and on unordered pairs: a pair contains the point or not, so two orbitals."""
    pairs = list(itertools.combinations(range(4), 2))
    inner = np.stack([cycle(4), swap(4)])
    outer = np.array([[pairs.index(tuple(sorted(g[[i, j]]))) for i, j in pairs] for g in inner])
    basis = commutant(inner, outer)
    assert basis.labels.shape == (6, 4)
    assert basis.dim == 2
    for g, h in zip(inner, outer, strict=True):
        np.testing.assert_array_equal(basis.labels[np.ix_(h, g)], basis.labels)


def test_no_points_have_an_empty_commutant_that_can_be_shown():
    nothing = commutant(np.zeros((1, 0), int))
    assert nothing.dim == 0
    assert "none" in nothing._repr_html_()
    assert "2 to 2" in commutant(np.array([[1, 0]]))._repr_html_()


def test_what_is_no_permutation_is_refused():
    with pytest.raises(ValueError, match=r"generators\[1\] must permute 0\.\.2"):
        commutant(np.array([[0, 1, 2], [0, 0, 2]]))
    with pytest.raises(ValueError, match="float64"):
        commutant(np.eye(3))
    with pytest.raises(ValueError, match="same elements"):
        commutant(cycle(3)[None], np.stack([cycle(3), swap(3)]))
    with pytest.raises(ValueError, match=r"\(3, 3\) is needed"):
        commutant(cycle(3)[None]).project(np.zeros((2, 3)))
    with pytest.raises(IndexError):
        commutant(cycle(3)[None])[3]
