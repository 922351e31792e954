"""Gradient and curvature of the full matrices, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest

from manifold.coordinates.invariant import invariant_basis
from manifold.symmetry.full_loss import curvature_product, flat, loss_gradient, unflat
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=2, track_slots=4, f_r=0.4, f_v=0.4)
BASIS = invariant_basis(TASK)
BATCH = TASK.batch(0, 0, 40)


def a_point(seed):
    rng = np.random.default_rng(seed)
    return {block: 0.3 * rng.standard_normal(BASIS.shape(block)) for block in BASIS.blocks}


def test_curvature_is_the_derivative_of_the_gradient():
    """Against central differences, off the manifold too; the step's error is of order 1e-9."""
    point, direction, step = a_point(0), a_point(1), 1e-4
    up, down = (
        loss_gradient(BASIS, {b: point[b] + s * direction[b] for b in point}, BATCH)
        for s in (step, -step)
    )
    found = curvature_product(BASIS, point, direction, BATCH)
    for block in BASIS.blocks:
        expected = (up[block] - down[block]) / (2 * step)
        np.testing.assert_allclose(found[block], expected, atol=1e-8)
        assert np.abs(expected).max() > 1e-4


def test_curvature_is_symmetric():
    point, one, other = (a_point(seed) for seed in range(3))
    left, right = (
        flat(BASIS, v) @ flat(BASIS, curvature_product(BASIS, point, w, BATCH))
        for v, w in ((one, other), (other, one))
    )
    assert abs(left) > 1e-3
    assert abs(left - right) < 1e-13


def test_weights_make_a_sum_over_parts():
    weights = np.random.default_rng(3).random(40)
    whole = loss_gradient(BASIS, a_point(0), BATCH, weights)
    halves = [
        loss_gradient(BASIS, a_point(0), BATCH[rows], weights[rows])
        for rows in (slice(0, 15), slice(15, 40))
    ]
    uniform = loss_gradient(BASIS, a_point(0), BATCH, np.full(40, 1 / 40))
    for block, expected in loss_gradient(BASIS, a_point(0), BATCH).items():
        np.testing.assert_allclose(halves[0][block] + halves[1][block], whole[block], atol=1e-14)
        np.testing.assert_allclose(uniform[block], expected, atol=1e-15)


def test_flat_and_back():
    point = a_point(0)
    back = unflat(BASIS, flat(BASIS, point))
    assert all((back[block] == point[block]).all() for block in point)


def test_bad_matrices_and_sequences_are_named():
    point = a_point(0)
    broken = {**point, "W2": np.where(np.abs(point["W2"]) > 1, np.nan, point["W2"])}
    with pytest.raises(ValueError, match=r"W2 has \d+ of 1296 entries NaN"):
        loss_gradient(BASIS, broken, BATCH)
    with pytest.raises(ValueError, match=r"Wbar has shape \(6, 3\) and the basis needs \(6, 72\)"):
        loss_gradient(BASIS, {**point, "Wbar": np.zeros((6, 3))}, BATCH)
    with pytest.raises(ValueError, match="W1 is missing; got W2, Wbar"):
        loss_gradient(BASIS, {b: point[b] for b in ("W2", "Wbar")}, BATCH)
    larger = AssociativeRecall(n_blocks=2, n_common=8, n_rare=2, track_slots=4, f_r=0.4, f_v=0.4)
    with pytest.raises(ValueError, match="tokens run from 0 to 9; the basis has 0 to 5"):
        loss_gradient(BASIS, point, larger.batch(0, 0, 50))
    with pytest.raises(ValueError, match=r"one for each of 40 sequences is needed, got \(3,\)"):
        loss_gradient(BASIS, point, BATCH, np.ones(3))
    with pytest.raises(ValueError, match="batch is empty"):
        loss_gradient(BASIS, point, replace(BATCH[:0], kind=BATCH.kind[:0]))
