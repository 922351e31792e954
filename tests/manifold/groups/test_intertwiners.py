"""Laws of intertwiners over the catalogue, against characters, a Kronecker null space, orbitals."""

import numpy as np
import pytest

from manifold.groups import irreducible
from manifold.groups.characters import dimension_by_characters, dimension_over_rotations
from manifold.groups.commutant import commutant
from training.tasks.base import generator

from .catalogue import (
    ALL,
    FINITE,
    PERMUTATIONS,
    ROTATIONS,
    UNITS,
    copies,
    cycle,
    hidden,
    left_multiplication,
    matrices,
    plane,
    symmetric,
)


def both(name):
    """Both actions as matrices."""
    inner, outer = ALL[name]
    pair = inner, inner if outer is None else outer
    return tuple(a if a.ndim == 3 else matrices(a) for a in pair)


def noise(shape, seed=0):
    return generator(seed, *b"noise").standard_normal(shape)


def kronecker_projection(inner, outer, matrix):
    """Slow reference: dimension of the null space of W -> W rho_in - rho_out W, and W onto it."""
    n_out, n_in = matrix.shape
    rows = [
        np.kron(np.eye(n_out), g.T) - np.kron(h, np.eye(n_in))
        for g, h in zip(inner, outer, strict=True)
    ]
    equations = np.concatenate([np.zeros((1, n_out * n_in)), *rows])
    values, vectors = np.linalg.eigh(equations.T @ equations)
    null = vectors[:, values < 1e-9]
    return null.shape[1], (null @ (null.T @ matrix.ravel())).reshape(matrix.shape)


def test_the_catalogue_is_large():
    assert len(ALL) >= 40


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", ["as given", "as matrices"])
def test_every_element_commutes_and_they_are_orthonormal(name, form):
    """1e-10 is what the library promises."""
    inner, outer = both(name)
    basis = commutant(*ALL[name]) if form == "as given" else commutant(inner, outer)
    elements = basis.orthonormal()
    assert elements.shape == (basis.dim, outer.shape[1], inner.shape[1])
    off = elements[:, None] @ inner - outer @ elements[:, None]
    largest = np.sqrt((off**2).sum((2, 3))).max(initial=0.0)
    assert largest <= 1e-10
    assert largest <= basis.residual + 1e-14
    assert basis.residual <= 1e-10
    gram = np.einsum("iab,jab->ij", elements, elements)
    np.testing.assert_allclose(gram, np.eye(basis.dim), atol=1e-12)
    for k in range(basis.dim):
        np.testing.assert_allclose(basis[k] / basis.norms[k], elements[k], atol=1e-15)


@pytest.mark.parametrize("name", FINITE)
def test_dimension_is_the_average_of_characters(name):
    count = dimension_by_characters(*FINITE[name])
    assert commutant(*FINITE[name]).dim == count.dim, count.note
    assert commutant(*both(name)).dim == count.dim


@pytest.mark.parametrize("name", ROTATIONS)
def test_dimension_is_the_integral_of_characters(name):
    pair, (character, character_out), degree = ROTATIONS[name]
    count = dimension_over_rotations(character, character_out, degree=degree)
    assert commutant(*pair).dim == count.dim
    assert dimension_by_characters(*pair, limit=200).dim is None


@pytest.mark.parametrize("name", [n for n in ALL if np.prod([a.shape[1] for a in both(n)]) <= 400])
def test_projection_is_that_of_the_kronecker_null_space(name):
    inner, outer = both(name)
    w = noise((outer.shape[1], inner.shape[1]))
    dim, expected = kronecker_projection(inner, outer, w)
    basis = commutant(inner, outer)
    assert basis.dim == dim
    np.testing.assert_allclose(basis.project(w), expected, atol=1e-10)
    rebuilt = np.tensordot(basis.coordinates(w), basis.orthonormal(), 1)
    np.testing.assert_allclose(rebuilt, expected, atol=1e-10)


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_orbitals_and_schurs_lemma_span_the_same(name):
    action = PERMUTATIONS[name]
    named, plain = commutant(action), commutant(matrices(action))
    w = noise(named.labels.shape)
    np.testing.assert_allclose(named.project(w), plain.project(w), atol=1e-10)
    gram = np.einsum("iab,jab->ij", named.orthonormal(), plain.orthonormal())
    np.testing.assert_allclose(gram @ gram.T, np.eye(named.dim), atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_random_groups_agree_whatever_the_basis(seed):
    """One to three random permutations that keep blocks apart, so that groups stay interesting."""
    rng = generator(seed, *b"random groups")
    sizes = rng.integers(1, 6, rng.integers(1, 4))
    starts = np.cumsum(sizes) - sizes
    rows = [
        np.concatenate([a + rng.permutation(n) for a, n in zip(starts, sizes, strict=True)])
        for _ in range(rng.integers(1, 4))
    ]
    action = np.array(rows)
    named, plain = commutant(action), commutant(hidden(matrices(action)))
    assert named.dim == plain.dim == dimension_by_characters(action).dim


@pytest.mark.parametrize("name", ["icosahedron, squared", "S_4 by its square", "cube"])
def test_hiding_turns_the_projection_with_it(name):
    """`hidden` turns every matrix of one size alike."""
    plain, turned = commutant(FINITE[name][0]), commutant(hidden(FINITE[name][0]))
    w = noise(plain.shape)
    expected = hidden(plain.project(w)[None])[0]
    np.testing.assert_allclose(turned.project(hidden(w[None])[0]), expected, atol=1e-10)
    assert [(p.size, p.copies) for p in turned.parts] == [(p.size, p.copies) for p in plain.parts]


def test_parts_say_type_size_and_copies():
    quaternions = commutant(hidden(copies(left_multiplication(UNITS), 3)))
    assert [(p.size, p.copies, p.numbers) for p in quaternions.parts] == [(4, (3, 3), 4)]
    turn = commutant(cycle(4)[None], plane(np.pi / 2))
    assert [(p.size, p.copies, p.numbers) for p in turn.parts] == [(2, (1, 1), 2)]


@pytest.mark.parametrize("count", [10, 40, 80])
def test_many_generators_that_each_move_little(count):
    """Transpositions (i, i + 1), then changes of one sign: nothing but all of them will do."""
    rows = [[*range(i), i + 1, i, *range(i + 2, count)] for i in range(count - 1)]
    assert commutant(hidden(matrices(np.array(rows)))).dim == 2
    signs = np.array([np.diag(1 - 2 * row) for row in np.eye(count)])
    assert commutant(hidden(signs)).dim == count


def test_a_large_commutant_needs_no_more_room_than_its_matrices():
    basis = commutant(plane(*[np.pi / 2] * 40))
    assert basis.dim == 2 * 40**2
    stored = sum(p.left.nbytes + p.right.nbytes for p in basis.parts)
    assert stored <= 3 * 80 * 80 * 8


def test_what_is_not_orthogonal_is_refused_by_name_and_amount():
    shear = np.array([[1.0, 1e-3], [0, 1]])
    with pytest.raises(ValueError, match=r"generators\[1\] must be orthogonal.*by 1\.0e-03"):
        commutant(np.stack([np.eye(2), shear]))
    with pytest.raises(ValueError, match=r"generators_out\[0\] must be orthogonal.*float64"):
        commutant(cycle(3)[None], plane(1.0).astype(np.float32))
    with pytest.raises(ValueError, match=r"generators\[0\] must be orthogonal.*by nan"):
        commutant(np.full((1, 2, 2), np.nan))


def test_sizes_and_forms_that_disagree_are_named():
    with pytest.raises(ValueError, match="got 1 of size 3 and 2 of size 4"):
        commutant(cycle(3)[None], matrices(symmetric(4)))
    with pytest.raises(ValueError, match=r"float64 \(3, 3\); a single matrix"):
        commutant(np.eye(3))
    with pytest.raises(ValueError, match=r"float64 \(1, 2, 3\)"):
        commutant(np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match=r"\(2, 4\) is needed, \(4, 2\)"):
        commutant(cycle(4)[None], plane(np.pi / 2)).project(np.zeros((4, 2)))
    with pytest.raises(IndexError):
        commutant(plane(1.0))[2]


def test_a_symmetry_that_rounding_hides_is_refused_and_not_guessed():
    """A plane turned by 1e-6 beside one at rest: dimension 6, but 16 commute to 1e-6."""
    assert commutant(plane(1e-2, 0)).dim == 6
    with pytest.raises(ValueError, match="close to a larger symmetry"):
        commutant(plane(1e-6, 0))


def test_bad_draws_are_measured_and_drawn_again(monkeypatch):
    """Eigenvalues that coincide make one part of two, and that does not commute."""
    draws = []
    honest = irreducible._shared_eigenspaces

    def merging(elements):
        draws.append(None)
        monkeypatch.setattr(irreducible, "SAME", 10.0 if len(draws) == 1 else 1e-7)
        return honest(elements)

    monkeypatch.setattr(irreducible, "_shared_eigenspaces", merging)
    assert commutant(matrices(symmetric(5))).dim == 2
    assert len(draws) == 2


def test_a_notebook_shows_dimension_sizes_and_residual():
    shown = commutant(symmetric(4))._repr_html_()
    assert "4 x 4" in shown
    assert "<td>2</td>" in shown
    shown = commutant(plane(*[np.pi / 2] * 3))._repr_html_()
    assert "6 x 6" in shown
    assert "<td>18</td>" in shown
    assert "2: 3, 3" in shown
    assert "none shared" in commutant(plane(1.0), plane(2.0))._repr_html_()
