"""The theory's model: its residual, its causality, its stacking, its equivariance."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from training.families.attention_only import AttentionOnly, centring, paths, projectors
from training.tasks.base import Symmetry

N, P, TIME = 7, 8, 5


@pytest.fixture
def task():
    """Two classes of tokens (4 + 3) and two tracks of four slots, every permutation within them."""
    token = np.tile(np.arange(N), (4, 1))
    token[0, :4] = [1, 0, 2, 3]
    token[1, :4] = [1, 2, 3, 0]
    token[2, 4:] = [5, 4, 6]
    token[3, 4:] = [5, 6, 4]
    position = np.tile(np.arange(P), (2, 1))
    position[0] = [1, 2, 3, 0, 4, 5, 6, 7]
    position[1] = [4, 5, 6, 7, 0, 1, 2, 3]
    symmetry = Symmetry(
        token_generators=token,
        position_generators=position,
        token_classes=(np.arange(4), np.arange(4, 7)),
        tracks=(np.arange(4), np.arange(4, 8)),
    )
    return SimpleNamespace(vocabulary=N, n_positions=P, symmetry=symmetry)


@pytest.fixture
def sequences():
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, N, (6, TIME)))
    return tokens, torch.from_numpy(rng.integers(0, P, (6, TIME)))


def test_centring_is_an_orthogonal_projector_that_kills_class_means():
    p = centring(6, [np.array([0, 2]), np.array([1, 3, 4])])
    np.testing.assert_allclose(p @ p, p, atol=1e-15)
    np.testing.assert_allclose(p, p.T)
    np.testing.assert_allclose(p[:, [0, 2]].sum(1), 0, atol=1e-15)
    np.testing.assert_array_equal(p[5], np.eye(6)[5])


def test_paths_follow_the_residual():
    assert paths(2, 1) == ("I", "V1", "V2", "V2V1")
    assert paths(2, 2)[:6] == ("I", "V1.0", "V1.1", "V2.0", "V2.0V1.0", "V2.0V1.1")
    assert len(paths(3, 2)) == 27


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_forward_equals_the_definition_written_out(task, sequences, layers, heads):
    model = AttentionOnly(layers=layers, heads=heads, scale=0.3)
    params = model.initialise(task, 1, torch.float64)
    tokens, positions = sequences
    logits = model.forward(params, tokens, positions)
    p_token, p_position = projectors(task)
    for b in range(len(tokens)):
        x = np.concatenate([p_token[tokens[b]], p_position[positions[b]]], axis=1)
        for layer in range(layers):
            written = [x]
            for w in params[f"blocks.{layer}.attn.W"].numpy():
                attention = np.zeros((TIME, TIME))
                for i in range(TIME):
                    score = np.array([x[i] @ w @ x[j] for j in range(i + 1)])
                    attention[i, : i + 1] = np.exp(score) / np.exp(score).sum()
                written.append(attention @ x)
            x = np.concatenate(written, axis=1)
        expected = x @ params["unembed.W"].numpy().T @ p_token
        np.testing.assert_allclose(logits[b].numpy(), expected, atol=1e-12)


def test_stacked_members_equal_single_ones(task, sequences):
    model = AttentionOnly(layers=2, heads=2, scale=0.4)
    members = [model.initialise(task, seed, torch.float64) for seed in range(3)]
    stacked = {name: torch.stack([m[name] for m in members]) for name in members[0]}
    tokens, positions = (torch.stack([s, s.flip(0), s.roll(1, 1)]) for s in sequences)
    together = model.forward(stacked, tokens, positions)
    for k, member in enumerate(members):
        alone = model.forward(member, tokens[k], positions[k])
        torch.testing.assert_close(together[k], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 1), (3, 2)])
def test_the_last_position_alone_has_the_same_logits_and_gradients(task, sequences, layers, heads):
    model = AttentionOnly(layers=layers, heads=heads, scale=0.5)
    params = model.initialise(task, 0, torch.float64)
    trained = {k: v.requires_grad_() for k, v in params.items() if k not in model.frozen}
    found = []
    for logits in (model.forward(params, *sequences), model.forward_last(params, *sequences)):
        last = logits[:, -1:]
        found.append((last, *torch.autograd.grad(last.square().sum(), list(trained.values()))))
    assert model.forward_last(params, *sequences).shape == (6, 1, N)
    for whole, alone in zip(*found, strict=True):
        torch.testing.assert_close(alone, whole, rtol=1e-12, atol=1e-12)


def test_a_later_token_changes_nothing_before_it(task, sequences):
    model = AttentionOnly(layers=2, heads=1, scale=0.5)
    params = model.initialise(task, 0, torch.float64)
    tokens, positions = sequences
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % N
    before, after = (model.forward(params, t, positions) for t in (tokens, other))
    torch.testing.assert_close(before[:, :-1], after[:, :-1], rtol=0, atol=0)
    assert (before[:, -1] - after[:, -1]).abs().min() > 1e-6


def test_relabelling_the_data_is_relabelling_the_matrices(task, sequences):
    """Logits of g(sequence) under W equal g of the logits of the sequence under g^T W g."""
    model = AttentionOnly(layers=2, heads=1, scale=0.5)
    params = model.initialise(task, 0, torch.float64)
    tokens, positions = sequences
    for g in task.symmetry.token_generators:
        action = np.eye(N + P)
        action[:N, :N] = np.eye(N)[g].T
        moved = dict(params)
        for name in ("blocks.0.attn.W", "blocks.1.attn.W"):
            wide = torch.from_numpy(np.kron(np.eye(params[name].shape[-1] // (N + P)), action))
            moved[name] = wide.T @ params[name] @ wide
        wide = torch.from_numpy(np.kron(np.eye(4), action))
        moved["unembed.W"] = torch.from_numpy(action[:N, :N]).T @ params["unembed.W"] @ wide
        image = model.forward(params, torch.from_numpy(g)[tokens], positions)
        original = model.forward(moved, tokens, positions)
        torch.testing.assert_close(image[..., g], original, rtol=0, atol=1e-12)


def test_every_name_is_tapped_once_and_an_edit_reaches_the_logits(task, sequences):
    model = AttentionOnly(layers=2, heads=2, scale=0.5)
    params = model.initialise(task, 0, torch.float64)
    seen = []

    def record(name, x):
        seen.append(name)
        return x

    plain = model.forward(params, *sequences, record)
    assert tuple(seen) == model.hook_names(TIME)
    for edited in model.hook_names(TIME):
        changed = model.forward(
            params, *sequences, lambda name, x, at=edited: x * 0.5 if name == at else x
        )
        assert not torch.equal(plain, changed), edited


def test_initialisation_is_a_function_of_the_seed(task):
    model = AttentionOnly(scale=0.1)
    one, again, other = (model.initialise(task, s, torch.float64) for s in (3, 3, 4))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["unembed.W"], other["unembed.W"])
    assert one["blocks.1.attn.W"].std().item() == pytest.approx(0.1, rel=0.1)
    zero = AttentionOnly(scale=0.0).initialise(task, 3, torch.float32)
    assert all((zero[name] == 0).all() for name in zero if name not in model.frozen)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"heads": 1.5}, {"scale": -1.0}])
def test_impossible_parameters_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AttentionOnly(**wrong)
