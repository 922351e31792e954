"""Gradients stay on the exact manifold, and leave the paper's basis."""

from dataclasses import replace

import numpy as np
import pytest

from manifold.coordinates.invariant import invariant_basis, paper_basis
from manifold.coordinates.rebuild import rebuild
from manifold.symmetry.confinement import (
    confinement_slopes,
    exact_confinement,
    gradient_confinement,
)
from manifold.symmetry.full_loss import loss_gradient
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.base import Batch

SMALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=2, track_slots=4, f_r=0.4, f_v=0.4)
TINY = AssociativeRecall(n_blocks=1, n_common=4, n_rare=2, track_slots=4, f_r=0.4, f_v=0.4)
ISSUE = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)


def group(generators):
    """Every element, by closing under the generators."""
    identity = tuple(range(generators.shape[1]))
    found, frontier = {identity}, [identity]
    while frontier:
        images = {tuple(s[list(g)].tolist()) for g in frontier for s in generators}
        frontier = list(images - found)
        found.update(frontier)
    return np.array(sorted(found))


def every_image(task, batch):
    """The sequences of `batch` under every element of the group."""
    tokens, positions = group(task.symmetry.token_generators), task.symmetry.position_generators
    positions = group(positions)
    a, b = (i.ravel() for i in np.indices((len(tokens), len(positions))))
    targets = np.where(batch.targets < 0, -1, tokens[a][:, batch.targets])
    images = Batch(
        tokens=tokens[a][:, batch.tokens].reshape(-1, batch.tokens.shape[1]),
        positions=positions[b][:, batch.positions].reshape(-1, batch.positions.shape[1]),
        targets=targets.reshape(-1, batch.targets.shape[1]),
        kind=np.tile(batch.kind, len(a)),
    )
    return images, len(a)


@pytest.fixture(scope="module")
def images():
    return every_image(SMALL, SMALL.batch(0, 0, 3))


@pytest.mark.parametrize("heads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_gradient_averaged_over_the_group_lies_on_the_manifold(images, heads):
    """Symmetric criticality, for any data: 6,144 group elements on three sequences."""
    batch, order = images
    assert order == 6144
    exact, paper = invariant_basis(SMALL, heads=heads), paper_basis(SMALL, heads=heads)
    for basis, closed in ((exact, True), (paper, False)):
        point = basis.matrices(0.5 * np.random.default_rng(1).standard_normal(basis.dim))
        gradient = loss_gradient(basis, point, batch)
        share = basis.off_manifold(gradient)
        assert all((value < 1e-20) == closed for value in share.values()), share
        assert closed or share["all"] > 1e-2


def test_gradient_of_one_sequence_is_off_the_manifold():
    basis = invariant_basis(SMALL)
    point = basis.matrices(0.5 * np.random.default_rng(1).standard_normal(basis.dim))
    share = basis.off_manifold(loss_gradient(basis, point, SMALL.batch(0, 0, 1)))
    assert min(share.values()) > 0.1


def test_averaged_gradient_at_a_point_off_the_manifold_leaves_it(images):
    basis = invariant_basis(SMALL)
    rng = np.random.default_rng(2)
    point = {block: 0.5 * rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    share = basis.off_manifold(loss_gradient(basis, point, images[0]))
    assert min(share["W1"], share["W2"]) > 0.5


def test_the_inverse_shift_is_dead_in_layer_1_and_alive_in_layer_2():
    """A key one slot after its query lies in the future: no score ever reads that entry of W1."""
    basis = invariant_basis(ISSUE, "transformer")
    point = basis.matrices(0.5 * np.random.default_rng(3).standard_normal(basis.dim))
    slope = basis.inner(loss_gradient(basis, point, ISSUE.batch(0, 0, 500)))
    named = dict(zip(basis.names, slope, strict=True))
    assert named["1:M^T"] == 0.0
    assert named["1:M^2"] == 0.0  # blocks have two tokens: nothing is two slots away
    assert min(abs(named[f"2:M^T {path}"]) for path in ("V1->I", "V1->V1")) > 1e-8
    assert abs(named["1:M"]) > 1e-6


def test_the_dead_direction_of_the_centred_frame():
    """Centring spreads M^T over its track, and I + M + M^T + M^2 goes to 0 at m = 4, so the
    unseen matrix is M^T - M^2 = I_p + M + 2 M^T."""
    basis = invariant_basis(ISSUE)
    point = basis.matrices(0.5 * np.random.default_rng(3).standard_normal(basis.dim))
    slope = basis.inner(loss_gradient(basis, point, ISSUE.batch(0, 0, 500)))
    named = dict(zip(basis.names, slope, strict=True))
    dead = named["1:I_p"] + named["1:M"] + 2 * named["1:M^T"]
    assert abs(dead) < 1e-14 < 1e-6 < abs(named["1:M^T"])
    above = named["2:I_p V1->V1"] + named["2:M V1->V1"] + 2 * named["2:M^T V1->V1"]
    assert abs(above) > 1e-8


def test_gradient_is_that_of_the_loss():
    basis = invariant_basis(SMALL)
    rng = np.random.default_rng(4)
    c, v = rng.standard_normal((2, basis.dim))
    batch = SMALL.batch(0, 0, 50)
    step = 1e-5
    up, down = (rebuild(SMALL, basis, c + s * v, batch=batch).loss for s in (step, -step))
    slope = v @ basis.inner(loss_gradient(basis, basis.matrices(c), batch))
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6)


@pytest.mark.slow
def test_share_falls_as_one_over_batch_and_the_papers_basis_stalls():
    """Theory, section 3, at its size: n = 3, N_c = 6, N_r = 5, m = 4, f_r = f_v = 0.3, b = 1."""
    table = gradient_confinement(ISSUE)
    share = table.set_index(["basis", "batch", "matrix"])["share"]
    assert share["exact_commutant", 100_000, "all"] < 1e-3
    assert share["paper", 100_000, "all"] > 1e-2
    slopes = confinement_slopes(table)
    for matrix in ("W1", "W2", "Wbar", "all"):
        assert slopes["exact_commutant", matrix] == pytest.approx(-1, abs=0.15)
    assert slopes["paper", "all"] > -0.3


@pytest.mark.slow
def test_off_the_manifold_the_share_stays():
    table = gradient_confinement(ISSUE, on_manifold=False)
    share = table.set_index(["basis", "batch", "matrix"])["share"]
    assert min(share["exact_commutant", 100_000, matrix] for matrix in ("W1", "W2")) > 0.5


def test_small_table_has_every_size_and_matrix():
    table = gradient_confinement(SMALL, batch_sizes=(10, 20), repeats=3, layers=1)
    assert set(table["matrix"]) == {"W1", "Wbar", "all"}
    assert table.groupby("batch")["batches"].first().to_dict() == {10: 6, 20: 3}
    assert table["share"].between(0, 1).all()
    again = gradient_confinement(SMALL, batch_sizes=(20, 10), repeats=3, layers=1)
    np.testing.assert_array_equal(table["share"], again["share"])


def test_a_gradient_of_zero_has_no_slope():
    """At the origin Wbar alone has a gradient; the others' share of 0 is no perfect confinement."""
    table = gradient_confinement(SMALL, batch_sizes=(10, 20), layers=1, scale=0.0)
    with pytest.raises(ValueError, match=r"exact_commutant W1, paper W1 is 0\.0 .*gradient is 0"):
        confinement_slopes(table)
    assert confinement_slopes(table[table["matrix"] != "W1"]).notna().all()


def test_batch_sizes_that_do_not_nest_are_refused():
    with pytest.raises(ValueError, match=r"batch_sizes.*\(100, 250\)"):
        gradient_confinement(SMALL, batch_sizes=(100, 250))


@pytest.mark.parametrize("task", [TINY, pytest.param(SMALL, marks=pytest.mark.slow)])
def test_over_the_exact_law_the_share_is_rounding(task):
    """Every sequence at every placement (448 and 121,344), nothing averaged over the group."""
    share = exact_confinement(task).set_index(["basis", "matrix"])["share"]
    for matrix in ("W1", "W2", "Wbar", "all"):
        assert share["exact_commutant", matrix] < 1e-26
        assert share["paper", matrix] > 1e-3


def test_over_the_exact_law_a_point_off_the_manifold_leaves_it():
    table = exact_confinement(TINY, on_manifold=False, layers=1)
    assert table.set_index(["basis", "matrix"])["share"]["exact_commutant", "W1"] > 0.1


@pytest.mark.parametrize("settings", [{"batch_sizes": (0,)}, {"repeats": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match="at least 1 each"):
        gradient_confinement(TINY, **settings)


def test_a_basis_of_another_task_is_refused():
    other = invariant_basis(replace(TINY, n_rare=3))
    with pytest.raises(ValueError, match="the basis is not of this task"):
        gradient_confinement(TINY, batch_sizes=(10,), bases={"other": other})
    with pytest.raises(ValueError, match="the basis is not of this task"):
        exact_confinement(TINY, bases={"other": other})
