"""Token matrices of a transformer: planted structure read back, noise at chance, errors named."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from manifold.states.isotypic import isotypic
from manifold.states.token_directions import left_out, token_directions, token_matrices
from training.families.transformer import Transformer
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition

Z5 = ModularAddition(modulus=5, lengths=(3, 4), format="cot")
S3 = PermutationComposition(degree=3, lengths=(3, 4), format="cot")
every_task = pytest.mark.parametrize("task", [Z5, S3], ids=lambda task: task.label)


def family_of(**fields):
    return Transformer(**{"layers": 2, "heads": 2, "width": 32} | fields)


def weights_of(family, task, seed=0):
    params = family.initialise(task, seed, torch.float64)
    return {name: value.numpy() for name, value in params.items()}


@every_task
@pytest.mark.parametrize("side", [0, 1])
def test_a_planted_representation_is_read_from_every_matrix(task, side):
    """E = regular representation's functions of one part, U likewise, all hidden by a rotation."""
    parts = isotypic(task)
    q, part = task.n_elements, 1
    family = family_of(layers=1, heads=1, width=32, mlp=False, layer_norm=False)
    weights = weights_of(family, task)
    table = (parts.left, parts.right)[side]
    planted = parts.idempotents[part][table]  # [y, x], commutes with one side's translations
    hidden = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 32)))[0]
    weights["embed.W_E"][:q] = np.eye(q, 32) @ hidden
    weights["unembed.W_U"][:, :q] = hidden.T @ np.eye(32, q) @ planted.T
    through = hidden.T @ np.eye(32, q) @ planted.T @ np.eye(q, 32) @ hidden
    left, values, right = np.linalg.svd(through)
    weights["blocks.0.attn.W_V"][0] = left * values
    weights["blocks.0.attn.W_O"][0] = right
    weights["blocks.0.attn.W_Q"][0], weights["blocks.0.attn.W_K"][0] = left * values, right.T
    found = token_directions(token_matrices(weights, family, task), parts)
    assert found.matrices == ("direct", "OV 0.0", "QK 0.0")
    np.testing.assert_allclose(found.share[:, side, part - 1], 1, atol=1e-12)
    np.testing.assert_allclose(found.share[:, side].sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(found.c[0, side], parts.idempotents[part], atol=1e-12)
    assert (found.chance_high[:, :, part - 1] < 0.9).all()


@every_task
def test_random_matrices_are_at_chance(task):
    """The mean over random weights is dimension / (q (q - 1)); 2.5% exceed the interval."""
    parts = isotypic(task)
    family = family_of(layers=1, heads=1, mlp=False, layer_norm=False)
    read = [
        token_directions(token_matrices(weights_of(family, task, seed), family, task), parts)
        for seed in range(300)
    ]
    shares = np.array([found.share for found in read])
    chance = np.broadcast_to(read[0].chance, shares.shape[1:])
    error = shares.std(0) / np.sqrt(len(shares))
    assert (abs(shares.mean(0) - chance) < 4 * error).all()
    above = np.array([found.share > found.chance_high for found in read]).mean()
    assert 0.01 < above < 0.05


@every_task
def test_gauge_is_what_neither_softmax_sees(task):
    """Attention over keys and answers over outputs stay; the mean that each drops is 0."""
    family = family_of(layers=1, heads=1, mlp=False, layer_norm=False, init_std=0.7)
    weights = weights_of(family, task)
    tokens = weights["embed.W_E"][: task.n_elements]
    sides = [tokens @ weights[f"blocks.0.attn.W_{side}"][0] for side in "QK"]
    scores = sides[0] @ sides[1].T / np.sqrt(32)
    found = token_matrices(weights, family, task)
    np.testing.assert_allclose(
        softmax(found["QK 0.0"], axis=1), softmax(scores, axis=1), atol=1e-12
    )
    np.testing.assert_allclose(found["QK 0.0"].mean(1), 0, atol=1e-12)
    assert np.abs(found["QK 0.0"].mean(0)).max() > 1e-3
    logits = tokens @ weights["unembed.W_U"][:, : task.n_elements]
    np.testing.assert_allclose(
        softmax(found["direct"], axis=0), softmax(logits.T, axis=0), atol=1e-12
    )


def test_the_direct_path_is_the_model_without_layers_that_write():
    """Attention that writes nothing leaves the direct path: the logits up to their mean."""
    family = family_of(layers=1, heads=1, mlp=False, layer_norm=False, positions="none")
    weights = weights_of(family, Z5)
    weights["blocks.0.attn.W_O"][:] = 0
    params = {name: torch.from_numpy(value) for name, value in weights.items()}
    tokens = torch.arange(5)[:, None]
    logits = family.forward(params, tokens, torch.zeros_like(tokens))[:, 0, :5].numpy().T
    found = token_matrices(weights, family, Z5)
    np.testing.assert_allclose(found["direct"], logits - logits.mean(0), atol=1e-12)
    assert np.isnan(token_directions(found, isotypic(Z5)).share[1]).all()  # OV is 0


def test_normalisation_is_folded_up_to_its_scale():
    """One token attends to itself alone: direct + OV is the logits, but for one scale per token."""
    family = family_of(layers=1, heads=1, mlp=False, positions="none")
    weights = weights_of(family, Z5)
    rng = np.random.default_rng(1)
    for name in ("blocks.0.ln1.w", "ln_final.w"):
        weights[name] = rng.uniform(0.5, 2, weights[name].shape)
    weights["blocks.0.attn.W_O"][:] = 0
    params = {name: torch.from_numpy(value) for name, value in weights.items()}
    tokens = torch.arange(5)[:, None]
    logits = family.forward(params, tokens, torch.zeros_like(tokens))[:, 0, :5].numpy().T
    scale = 1 / np.sqrt(weights["embed.W_E"][:5].var(-1) + 1e-5)
    direct = token_matrices(weights, family, Z5)["direct"]
    np.testing.assert_allclose(direct * scale, logits - logits.mean(0), atol=1e-12)


def test_what_is_left_out_is_said():
    plain = family_of(layers=1, mlp=False, layer_norm=False, positions="none")
    assert left_out(plain) == ()
    assert "MLPs" in left_out(family_of())
    assert "paths through several heads" in left_out(family_of())


def test_foreign_weights_are_named():
    family = family_of()
    with pytest.raises(ValueError, match=r"embed\.W_E has 8 tokens, but Z_5 .* has 7"):
        token_matrices(weights_of(family, S3), family, Z5)
    with pytest.raises(ValueError, match=r"lack embed\.W_E"):
        token_matrices({}, family, Z5)
