"""The invariant manifold: right size, right span, right names, exact maps."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from manifold.coordinates import invariant
from manifold.coordinates.invariant import (
    count_directions,
    four_coordinates,
    frame_projector,
    invariant_basis,
    paper_basis,
)
from manifold.groups.commutant import commutant
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)
N, P = TASK.vocabulary, TASK.n_positions
D = N + P


def every_permutation(task):
    """Generators on tokens and positions together, written out independently of the room."""
    token, position = task.symmetry.token_generators, task.symmetry.position_generators
    rows = [[*g, *range(N, D)] for g in token] + [[*range(N), *(N + g)] for g in position]
    return np.array(rows)


def random_matrices(basis, seed=0):
    rng = np.random.default_rng(seed)
    return {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}


@pytest.mark.parametrize(("layers", "dim"), [(1, 12), (2, 42), (3, 150), (4, 558)])
def test_dimension_for_recall(layers, dim):
    """Theory, section 3: (m, m_out) = (6, 3), one head."""
    assert invariant_basis(TASK, layers=layers).dim == dim


@pytest.mark.parametrize(
    ("family", "counts"), [("attention_only", [6, 24, 12]), ("transformer", [16, 64, 36])]
)
def test_dimension_per_matrix(family, counts):
    basis = invariant_basis(TASK, family)
    blocks = [direction.block for direction in basis.directions]
    assert [blocks.count(block) for block in ("W1", "W2", "Wbar")] == counts


@pytest.mark.parametrize(("layers", "heads"), [(1, 2), (2, 2), (3, 2), (2, 3)])
def test_dimension_with_several_heads(layers, heads):
    """sum over layers of H (1+H)^(2(l-1)) m + (1+H)^L m_out."""
    scores = sum(heads * (1 + heads) ** (2 * (layer - 1)) * 6 for layer in range(1, layers + 1))
    assert (
        invariant_basis(TASK, layers=layers, heads=heads).dim == scores + 3 * (1 + heads) ** layers
    )


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_spans_the_projected_orbitals(family):
    """Both ways: no orbital leaves the span, and no element leaves the orbitals'."""
    basis, frame = invariant_basis(TASK, family), frame_projector(TASK, family)
    orbitals = commutant(every_permutation(TASK))
    projected = np.array([(frame @ orbital @ frame).ravel() for orbital in orbitals])
    elements = basis.elements.reshape(len(basis.elements), -1)
    for inside, span in ((projected, elements), (elements, projected)):
        rest = inside - inside @ np.linalg.pinv(span) @ span
        assert np.abs(rest).max() < 1e-12
    assert np.linalg.matrix_rank(projected) == len(elements)


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
@pytest.mark.parametrize("heads", [1, 2])
def test_points_of_the_span_commute_with_the_group(family, heads):
    basis = invariant_basis(TASK, family, heads=heads)
    matrices = basis.matrices(np.random.default_rng(1).standard_normal(basis.dim))
    for g in every_permutation(TASK):
        for block, matrix in matrices.items():
            wide = np.concatenate([g + D * k for k in range(len(basis.paths(block)))])
            rows = g[:N] if block == "Wbar" else wide
            np.testing.assert_allclose(matrix[..., rows[:, None], wide], matrix, atol=1e-12)


def test_gram_of_the_four_coordinates():
    """Theory, section 3: diagonal 12, 9, 9, 5 at n = 3, N_c = 6, N_r = 5, m = 4."""
    basis = four_coordinates(TASK)
    np.testing.assert_allclose(basis.gram, np.diag([12.0, 9.0, 9.0, 5.0]), atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_gram_is_that_of_the_matrices_written_out(heads):
    basis = invariant_basis(TASK, heads=heads)
    rows = []
    for unit in np.eye(basis.dim):
        rows.append(np.concatenate([m.ravel() for m in basis.matrices(unit).values()]))
    np.testing.assert_allclose(basis.gram, np.array(rows) @ np.array(rows).T, atol=1e-12)


def bases():
    full = invariant_basis(TASK)
    return {
        "exact": full,
        "transformer": invariant_basis(TASK, "transformer"),
        "paper": paper_basis(TASK),
        "four": four_coordinates(TASK),
        "two heads": invariant_basis(TASK, heads=2),
        "shuffled": full.select(full.names[::-2]),
    }


@pytest.mark.parametrize("name", list(bases()))
def test_coordinates_invert_matrices_and_project_orthogonally(name):
    basis = bases()[name]
    c = np.random.default_rng(2).standard_normal(basis.dim)
    np.testing.assert_allclose(basis.coordinates(basis.matrices(c)), c, atol=1e-12)
    matrices = random_matrices(basis)
    nearest = basis.matrices(basis.coordinates(matrices))
    rest = {block: matrices[block] - nearest[block] for block in basis.blocks}
    np.testing.assert_allclose(basis.inner(rest), 0, atol=1e-10)
    np.testing.assert_allclose(
        basis.raise_index(basis.inner(matrices)), basis.coordinates(matrices)
    )


def test_captured_is_one_on_the_span_zero_off_it_and_small_for_noise():
    basis = invariant_basis(TASK)
    inside = basis.matrices(np.random.default_rng(3).standard_normal(basis.dim))
    assert max(basis.off_manifold(inside).values()) < 1e-28
    noise = random_matrices(basis)
    nearest = basis.matrices(basis.coordinates(noise))
    outside = {block: noise[block] - nearest[block] for block in basis.blocks}
    assert max(basis.captured(outside).values()) < 1e-12
    captured = basis.captured(noise)
    assert 0 < captured["W1"] < 0.03
    total = sum((m**2).sum() for m in noise.values())
    explained = sum((m**2).sum() for m in nearest.values())
    assert captured["all"] == pytest.approx(explained / total, abs=1e-12)
    assert basis.captured({b: 0 * m for b, m in noise.items()})["W1"] == 1.0


def test_names_are_unique_readable_and_lead_to_their_matrix():
    basis = invariant_basis(TASK)
    assert len(set(basis.names)) == basis.dim
    assert basis.names[:6] == ("1:I_c", "1:I_r", "1:C", "1:I_p", "1:M", "1:M^T")
    assert {"2:I_c I->V1", "2:M^T V1->I", "out:C I", "out:I_r V2V1"} <= set(basis)
    direction, matrix = basis["2:M^T V1->I"]
    assert (direction.block, direction.query, direction.key) == ("W2", 1, 0)
    placed = basis.matrices(np.array([float(name == direction.name) for name in basis]))["W2"]
    np.testing.assert_array_equal(placed[0, D:, :D], matrix)
    assert np.count_nonzero(placed) == np.count_nonzero(matrix)
    assert "2.1:M I->V1.0" in invariant_basis(TASK, heads=2).names
    with pytest.raises(KeyError, match="2:Q"):
        basis["2:Q"]


def test_orientation_of_the_previous_token_matrix():
    """M_ij = 1 iff j is the slot before i, so that x_i^T M x_j attends one slot back."""
    shift = invariant_basis(TASK, "transformer")["1:M"][1][N:, N:]
    np.testing.assert_array_equal(np.argwhere(shift[:4]), [[0, 3], [1, 0], [2, 1], [3, 2]])


def test_one_hot_frame_completes_the_span_by_class_pairs():
    names = invariant_basis(TASK, "transformer").element_names
    expected = "I_c I_r C I_p M M^T M^2 J_cc J_cr J_cp J_rc J_rr J_rp J_pc J_pr J_pp"
    assert names == tuple(expected.split())


def test_paper_basis_has_one_identity_and_no_inverse_shift():
    names = paper_basis(TASK).names
    assert len(names) == 4 + 16 + 8
    assert names[:4] == ("1:I_t", "1:C", "1:I_p", "1:M")
    exact = invariant_basis(TASK)
    inside = paper_basis(TASK).matrices(np.ones(28))
    assert max(exact.off_manifold(inside).values()) < 1e-28


def test_without_names_the_span_is_the_same():
    bare = replace(TASK.symmetry, token_directions={}, position_directions={})
    plain = SimpleNamespace(vocabulary=N, n_positions=P, symmetry=bare)
    basis, named = invariant_basis(plain), invariant_basis(TASK)
    assert basis.dim == named.dim
    assert basis.element_names[0] == "I_t0"
    inside = named.matrices(np.random.default_rng(4).standard_normal(named.dim))
    assert max(basis.off_manifold(inside).values()) < 1e-28


def test_a_false_name_and_a_foreign_family_are_refused():
    skew = {"I_c": np.diag(np.arange(float(N)))}
    broken = replace(TASK.symmetry, token_directions=skew)
    task = SimpleNamespace(vocabulary=N, n_positions=P, symmetry=broken)
    with pytest.raises(ValueError, match="'I_c' does not commute"):
        invariant_basis(task)
    with pytest.raises(ValueError, match="attention_only, transformer"):
        invariant_basis(TASK, "dense_ssm")
    basis = invariant_basis(TASK)
    with pytest.raises(ValueError, match="42 coordinates"):
        basis.matrices(np.zeros(4))
    with pytest.raises(ValueError, match="W1 must have shape"):
        basis.coordinates({block: np.zeros((2, 2)) for block in basis.blocks})
    with pytest.raises(ValueError, match="W2 is missing"):
        basis.coordinates({"W1": np.zeros(basis.shape("W1"))})
    for make in (invariant_basis, paper_basis):
        with pytest.raises(ValueError, match="layers got 0; allowed: an integer from 1 on"):
            make(TASK, layers=0)


@pytest.mark.parametrize(
    ("task", "heads", "counts"),
    [
        ("rare", 1, [6, 24, 92, 356, 1396]),
        ("rare", 2, [11, 89, 755, 6641]),
        ("recall", 1, [12, 42, 150, 558]),
    ],
)
def test_number_of_coordinates_by_depth_and_heads(task, heads, counts):
    """Theory, section 3: (m, m_out) = (4, 1) with one class of tokens, (6, 3) for recall."""
    rare = AssociativeRecall(n_blocks=3, n_common=0, n_rare=5, track_slots=4, f_r=1.0, f_v=0.0)
    for layers, count in enumerate(counts, start=1):
        basis = invariant_basis(rare if task == "rare" else TASK, layers=layers, heads=heads)
        assert basis.dim == len(set(basis.names)) == count
        m, out = len(basis.elements), len(basis.readouts)
        assert count_directions(m, out, layers, heads) == count


def test_a_deep_basis_of_several_heads_is_small():
    """90,000 directions; their Gram matrix and its inverse hold one small block each."""
    basis = invariant_basis(TASK, layers=5, heads=2)
    assert basis.dim == count_directions(6, 3, 5, 2) == 89_301
    assert basis._gram.nnz <= 3 * basis.dim
    assert basis["5.1:C V4.1V2.0->V3.0"][0].block == "W5"


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_number_of_coordinates_of_low_order(order):
    basis = invariant_basis(TASK, layers=3, heads=2, order=order)
    assert basis.dim == count_directions(6, 3, 3, 2, order)


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_the_number_of_elements_is_known_before_any_is_made(family, monkeypatch):
    """A trace, against the elements found one by one and a numerical rank."""
    basis, frame = invariant_basis(TASK, family), frame_projector(TASK, family)
    orbitals = commutant(every_permutation(TASK))
    found = invariant._independent(orbitals, frame, N)
    assert found == (len(basis.elements), len(basis.readouts))
    stack = np.array([(frame @ orbital @ frame).ravel() for orbital in orbitals])
    assert found[0] == np.linalg.matrix_rank(stack)

    def none(*_):
        raise AssertionError("an element was made before its number was checked")

    monkeypatch.setattr(invariant, "candidates", none)
    with pytest.raises(ValueError, match=r"would have .* coordinates, allowed 1000000"):
        invariant_basis(TASK, family, layers=10)
    monkeypatch.setattr(invariant, "ENTRIES", 1000)
    with pytest.raises(ValueError, match=rf"{found[0]} elements of {D} x {D} are"):
        invariant_basis(TASK, family)


def test_matrices_of_several_points_at_once():
    basis = invariant_basis(TASK, heads=2)
    points = np.random.default_rng(0).standard_normal((3, basis.dim))
    together = basis.matrices(points)
    for k, point in enumerate(points):
        for block, matrix in basis.matrices(point).items():
            np.testing.assert_allclose(together[block][k], matrix, rtol=0, atol=1e-13)
    deep = invariant_basis(TASK, layers=5, heads=4, order=1)
    with pytest.raises(ValueError, match=r"W5 of shape .* would have \d+ entries"):
        deep.matrices(np.zeros(deep.dim))


def test_a_notebook_shows_names_norms_and_the_group():
    text = invariant_basis(TASK, layers=3)._repr_html_()
    assert "150 coordinates" in text
    assert "1:M <small>" in text
    assert "2:I_c I-&gt;V1" in text
    assert "72 more" in text
    assert "11 tokens in orbits of 6, 5" in text
    assert len(text) < 6000
