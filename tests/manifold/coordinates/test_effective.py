"""The lift is exact, and only what cannot change an output counts as gauge."""

import numpy as np
import pytest
import torch

from manifold.coordinates.effective import (
    disentangled,
    effective_matrices,
    frame_of,
    gauge_projectors,
    remove_gauge,
)
from manifold.coordinates.invariant import invariant_basis
from training.families.attention_only import AttentionOnly
from training.families.dense_ssm import DenseSSM
from training.families.transformer import Transformer
from training.tasks.associative_recall import AssociativeRecall

TASK = AssociativeRecall(n_blocks=3, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.3)
BATCH = TASK.evaluation(0, 20)
SEQUENCES = (torch.from_numpy(BATCH.tokens), torch.from_numpy(BATCH.positions))


def transformer(**changes):
    fields = {"layers": 2, "heads": 1, "width": 12, "mlp": False, "layer_norm": False}
    return Transformer(**(fields | {"init_std": 0.7} | changes))


def logits_of(basis, matrices):
    model = AttentionOnly(layers=basis.layers, heads=basis.heads)
    return model.forward(disentangled(basis, matrices), *SEQUENCES)


@pytest.mark.parametrize("positions", ["learned", "none"])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 1), (2, 2), (3, 1), (2, 3)])
def test_lifted_transformer_has_the_same_logits(layers, heads, positions):
    family = transformer(layers=layers, heads=heads, positions=positions)
    params = family.initialise(TASK, 0, torch.float64)
    basis = invariant_basis(TASK, "transformer", layers=layers, heads=heads)
    matrices = effective_matrices(params, family, TASK)
    assert {block: matrices[block].shape for block in basis.blocks} == {
        block: basis.shape(block) for block in basis.blocks
    }
    expected = family.forward(params, *SEQUENCES)
    assert expected.std() > 0.1
    torch.testing.assert_close(logits_of(basis, matrices), expected, rtol=0, atol=1e-10)


def test_attention_only_is_its_own_lift():
    family = AttentionOnly(layers=2, heads=2, scale=0.5)
    params = family.initialise(TASK, 0, torch.float64)
    matrices = effective_matrices({name: p.numpy() for name, p in params.items()}, family, TASK)
    np.testing.assert_array_equal(matrices["W2"], params["blocks.1.attn.W"].numpy())
    expected = family.forward(params, *SEQUENCES)
    basis = invariant_basis(TASK, heads=2)
    torch.testing.assert_close(logits_of(basis, matrices), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
@pytest.mark.parametrize("heads", [1, 2])
def test_gauge_changes_no_output(family, heads):
    basis = invariant_basis(TASK, family, heads=heads)
    rng = np.random.default_rng(0)
    matrices = {block: rng.standard_normal(basis.shape(block)) for block in basis.blocks}
    reduced = remove_gauge(basis, matrices)
    before, after = logits_of(basis, matrices), logits_of(basis, reduced)
    shift = (before - after).mean(-1, keepdim=True)
    torch.testing.assert_close(before - after, shift.expand_as(before), rtol=0, atol=1e-10)
    for block in basis.blocks:
        assert np.linalg.norm(reduced[block]) < np.linalg.norm(matrices[block])


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
def test_gauge_is_complete_for_what_sequences_can_show(family):
    """A left and a right vector are gauge exactly when no token at any position sees them.

    Rows x of all (token, position) pairs: on the query side W acts through x, on the key side
    through differences of x between keys. Paths beyond I are averages of such rows.
    """
    basis = invariant_basis(TASK, family)
    n, p = basis.vocabulary, basis.n_positions
    token, position = np.divmod(np.arange(n * p), p)
    rows = np.concatenate([basis.frame[token, :n], basis.frame[n + position, n:]], axis=1)
    rows = np.hstack([basis.frame[token, :n], basis.frame[n:, n:][position]])
    left, right = gauge_projectors(basis, "W1")
    differences = rows - rows[0]
    assert np.linalg.matrix_rank(left) == np.linalg.matrix_rank(rows)
    assert np.linalg.matrix_rank(right) == np.linalg.matrix_rank(differences)
    np.testing.assert_allclose(rows @ left, rows, atol=1e-12)
    np.testing.assert_allclose(differences @ right, differences, atol=1e-12)


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
@pytest.mark.parametrize("block", ["W1", "W2", "Wbar"])
def test_gauge_projectors_are_orthogonal_and_keep_the_manifold(family, block):
    basis = invariant_basis(TASK, family)
    for projector in gauge_projectors(basis, block):
        np.testing.assert_allclose(projector @ projector, projector, atol=1e-12)
        np.testing.assert_allclose(projector, projector.T, atol=1e-12)
    inside = basis.matrices(np.random.default_rng(0).standard_normal(basis.dim))
    assert max(basis.off_manifold(remove_gauge(basis, inside)).values()) < 1e-26


def test_no_lift_is_claimed_for_a_recurrent_family():
    with pytest.raises(ValueError, match="DenseSSM"):
        frame_of(DenseSSM(width=4))
