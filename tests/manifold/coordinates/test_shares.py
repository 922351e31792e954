"""Nothing missing, overflowing or divided by zero reads as perfect."""

import numpy as np
import pytest
import torch

from manifold.coordinates.effective import remove_gauge
from manifold.coordinates.function_space import function_agreement
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.lift import _compare, lift
from manifold.coordinates.shares import ratio
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)


def random_matrices(basis, seed=0):
    rng = np.random.default_rng(seed)
    return {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}


def test_a_ratio_is_zero_only_where_both_are():
    part, whole = np.array([0, 1, np.nan, 1, 0, 3.0]), np.array([0, 0, 0, np.nan, 2, 4.0])
    np.testing.assert_array_equal(ratio(part, whole), [0, np.inf, np.nan, np.nan, 0, 0.75])
    np.testing.assert_array_equal(ratio(np.ones(2), 0.0), [np.inf, np.inf])


@pytest.mark.parametrize("value", [np.nan, 1e200])
def test_matrices_without_a_finite_norm_are_named(value):
    basis = invariant_basis(TASK, layers=1)
    matrices = random_matrices(basis)
    broken = {**matrices, "Wbar": np.full_like(matrices["Wbar"], value)}
    batch = TASK.evaluation(0, 20)
    calls = (
        lambda: basis.captured(broken),
        lambda: basis.off_manifold(broken),
        lambda: basis.left_out(broken),
        lambda: function_agreement(basis, broken, broken, batch),
        lambda: function_agreement(basis, matrices, broken, batch),
    )
    for call in calls:
        with (
            np.errstate(over="ignore"),
            pytest.raises(ValueError, match=r"NaN or infinite: 1 of 1 of Wbar;"),
        ):
            call()


def test_nothing_against_something_is_infinitely_wrong():
    basis, batch = invariant_basis(TASK, layers=1), TASK.evaluation(0, 20)
    matrices = random_matrices(basis)
    nothing = {block: np.zeros_like(matrix) for block, matrix in matrices.items()}
    found = function_agreement(basis, nothing, matrices, batch)
    assert all(np.isposinf(error) for error in found.error.values())
    assert not any(function_agreement(basis, nothing, nothing, batch).error.values())


def test_logits_that_are_no_numbers_agree_with_nothing():
    logits = np.random.default_rng(0).standard_normal((6, 5))
    with np.errstate(invalid="ignore"):
        for bad in (np.nan, np.inf):
            for pair in ((np.full_like(logits, bad), 0 * logits), (logits, logits + bad)):
                error, agreement = _compare(*pair)
                assert np.isnan(agreement)
                assert not np.isfinite(error)
    assert _compare(0 * logits, 0 * logits) == (0.0, 1.0)
    assert _compare(0 * logits, logits)[0] == np.inf


def test_weights_that_overflow_are_not_on_the_manifold():
    """Finite weights, but their products have norms above 1e308."""
    family = Transformer(layers=2, heads=1, width=8, mlp=False, layer_norm=False)
    weights = {k: v * 1e40 for k, v in family.initialise(TASK, 0, torch.float64).items()}
    basis = invariant_basis(TASK, "transformer")
    with np.errstate(all="ignore"):
        found = lift(weights, family, TASK)
        assert found.logit_error != 0
        with pytest.raises(ValueError, match=r"NaN or infinite: .* of W2"):
            basis.captured(remove_gauge(basis, found.factored))
