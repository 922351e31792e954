"""The reduced field is the full model on the manifold: same loss, gradient and flow."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manifold.coordinates.invariant import invariant_basis, paper_basis
from manifold.dynamics.field import reduced_field
from training.families.attention_only import AttentionOnly
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.modular_addition import ModularAddition

SMALL = AssociativeRecall(
    n_blocks=2,
    n_common=4,
    n_rare=3,
    track_slots=4,
    f_r=0.3,
    f_v=0.2,
    distractor_f_r=0.5,
    distractor_f_v=0.4,
)
LARGER = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)


def full_params(basis, c, task, heads=1):
    """Parameters of the full model at a point of the manifold, in the basis's own frame."""
    model = AttentionOnly(layers=basis.layers, heads=heads, scale=0.0)
    params = model.initialise(task, 0, torch.float64)
    matrices = {name: torch.tensor(m) for name, m in basis.matrices(c).items()}
    for layer in range(basis.layers):
        params[f"blocks.{layer}.attn.W"] = matrices[f"W{layer + 1}"]
    params["unembed.W"] = matrices["Wbar"]
    if basis.family == "transformer":
        params["embed.token"] = torch.eye(task.vocabulary, dtype=torch.float64)
        params["embed.position"] = torch.eye(task.n_positions, dtype=torch.float64)
    return model, params


def full_losses(basis, c, task, batch, heads=1, params=None):
    model, made = full_params(basis, c, task, heads)
    logits = model.forward(
        params or made, torch.tensor(batch.tokens), torch.tensor(batch.positions)
    )
    return cross_entropy(logits[:, -1], torch.tensor(batch.targets[:, -1]), reduction="none")


def a_point(dim, seed=0, size=0.7):
    return size * np.random.default_rng(seed).normal(size=dim)


@pytest.mark.parametrize(
    ("family", "layers", "heads"),
    [
        ("attention_only", 2, 1),
        ("attention_only", 1, 1),
        ("attention_only", 2, 2),
        ("attention_only", 3, 1),
        ("transformer", 2, 1),
    ],
)
def test_loss_is_the_full_models_to_rounding(family, layers, heads):
    field = reduced_field(SMALL, family=family, layers=layers, heads=heads)
    orbits = SMALL.program.orbits()
    for seed in range(3):
        c = a_point(field.dim, seed, 0.4)
        full = full_losses(field.basis, c, SMALL, orbits.batch(), heads).numpy()
        assert abs(field.loss(c) - full @ orbits.weights()) < 1e-12


def test_placements_and_renamings_do_not_change_the_loss():
    """What one representative stands for: a sampled sequence has its orbit's loss."""
    field = reduced_field(SMALL)
    c = a_point(field.dim)
    rows = SMALL.batch(seed=0, k=0, size=20_000)
    full = full_losses(field.basis, c, SMALL, rows).numpy()
    assert abs(full.mean() - field.loss(c)) < 5 * full.std() / np.sqrt(len(full))
    orbits = full_losses(field.basis, c, SMALL, SMALL.program.orbits().batch()).numpy()
    nearest = np.abs(full[:300, None] - orbits[None]).min(1)
    assert nearest.max() < 1e-12


def test_orbits_that_are_one_function_are_merged_and_nothing_changes():
    field = reduced_field(LARGER, coordinates="four")
    orbits = LARGER.program.orbits()
    model, weights = field._model(field.weights)
    assert model.count == 690
    assert abs(weights.sum() - 1) < 1e-12
    for seed in range(3):
        c = a_point(4, seed, 3.0)
        full = full_losses(field.basis, c, LARGER, orbits.batch()).numpy()
        assert abs(field.loss(c) - full @ orbits.weights()) < 1e-12


def test_paper_basis_is_a_field_too():
    basis = paper_basis(SMALL)
    field = reduced_field(SMALL, coordinates=basis)
    orbits, c = SMALL.program.orbits(), a_point(field.dim)
    full = full_losses(basis, c, SMALL, orbits.batch()).numpy()
    assert abs(field.loss(c) - full @ orbits.weights()) < 1e-12


@pytest.mark.parametrize("coordinates", ["all", "four"])
def test_flow_is_the_projected_full_gradient(coordinates):
    field = reduced_field(LARGER, coordinates=coordinates)
    c, orbits = a_point(field.dim), LARGER.program.orbits()
    _, params = full_params(field.basis, c, LARGER)
    trained = ["blocks.0.attn.W", "blocks.1.attn.W", "unembed.W"]
    params = {n: p.clone().requires_grad_(n in trained) for n, p in params.items()}
    losses = full_losses(field.basis, c, LARGER, orbits.batch(), params=params)
    full = torch.autograd.grad(
        losses @ torch.tensor(orbits.weights()), [params[name] for name in trained]
    )
    matrices = dict(zip(("W1", "W2", "Wbar"), (g.numpy() for g in full), strict=True))
    np.testing.assert_allclose(field.gradient(c), field.basis.inner(matrices), atol=1e-13)
    np.testing.assert_allclose(field.flow(c), -field.basis.coordinates(matrices), atol=1e-13)
    decayed = field.flow(c, weight_decay=0.1)
    np.testing.assert_allclose(decayed, field.flow(c) - 0.1 * c, atol=1e-14)


def differences(function, c, step=1e-5):
    moves = step * np.eye(len(c))
    return np.array([(function(c + m) - function(c - m)) / (2 * step) for m in moves]).T


def test_derivatives_against_finite_differences():
    field = reduced_field(SMALL)
    c = a_point(field.dim)
    np.testing.assert_allclose(field.gradient(c), differences(field.loss, c), atol=2e-10)
    four = reduced_field(LARGER, coordinates="four")
    c = np.array([1.0, 1.5, 2.0, 3.0])
    np.testing.assert_allclose(
        four.jacobian(c, 0.01), differences(lambda x: four.flow(x, 0.01), c), atol=2e-10
    )
    for name in ("f_r", "f_v"):
        value = getattr(four.task, name)
        up, down = (four.at(**{name: value + s * 1e-4}).flow(c) for s in (1, -1))
        np.testing.assert_allclose(
            four.parameter_derivative(c, name), (up - down) / 2e-4, atol=1e-12
        )
    np.testing.assert_array_equal(four.parameter_derivative(c, "weight_decay"), -c)


def test_another_query_keeps_the_distractors():
    field = reduced_field(LARGER)
    moved = field.at(f_r=0.0, f_v=0.05)
    told = replace(LARGER, f_r=0.0, f_v=0.05, distractor_f_r=0.3, distractor_f_v=0.3)
    c = a_point(field.dim)
    assert abs(moved.loss(c) - reduced_field(told).loss(c)) < 1e-13
    assert moved.task == told
    assert field.task.f_v == 0.3


def test_integrate_follows_the_flow():
    """Against the classical Runge-Kutta method of order 4 with small steps."""
    field = reduced_field(SMALL, coordinates="four")
    state = start = np.array([0.1, 0.2, 0.1, 0.0])
    step = 0.2
    for _ in range(50):
        k1 = field.flow(state, 0.01)
        k2 = field.flow(state + step / 2 * k1, 0.01)
        k3 = field.flow(state + step / 2 * k2, 0.01)
        k4 = field.flow(state + step * k3, 0.01)
        state = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    found = field.integrate(start, [0.0, 5.0, 10.0], weight_decay=0.01)
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found[0], start, rtol=1e-15)
    np.testing.assert_allclose(found[-1], state, atol=2e-5)


def test_a_sample_is_near_the_exact_field_and_says_how_near():
    exact, sample = reduced_field(LARGER), reduced_field(LARGER, samples=3000, seed=1)
    assert exact.exact
    assert not sample.exact
    assert "exact over 1,836 orbits" in str(exact)
    assert "a sample of 3,000 sequences" in str(sample)
    c = a_point(exact.dim, size=0.5)
    error = sample.sampling_error(c)
    assert exact.sampling_error(c) == {"loss": 0.0, "flow": 0.0}
    assert abs(sample.loss(c) - exact.loss(c)) < 4 * error["loss"]
    gram, gap = exact.basis.gram, sample.flow(c) - exact.flow(c)
    relative = np.sqrt(gap @ gram @ gap / (exact.flow(c) @ gram @ exact.flow(c)))
    assert 0.2 * error["flow"] < relative < 3 * error["flow"]
    again = reduced_field(LARGER, samples=3000, seed=1)
    assert again.loss(c) == sample.loss(c)
    assert reduced_field(LARGER, samples=3000, seed=2).loss(c) != sample.loss(c)
    assert abs(sample.weights.sum() - 1.0) < 1e-12


def test_auto_is_exact_where_orbits_are_few_and_sampled_where_they_are_many():
    many = replace(LARGER, n_blocks=4, n_common=8, n_rare=8)
    assert reduced_field(LARGER).exact
    assert not reduced_field(many).exact


def test_kinds_before_learning_and_with_the_answer_in_weights():
    field = reduced_field(LARGER, coordinates="four")
    start = field.kinds(np.zeros(4))
    assert list(start.index) == ["rare", "match", "mismatch", "iwl"]
    np.testing.assert_allclose(start["loss"], np.log(11))
    np.testing.assert_allclose(start["accuracy"], 1 / 11)
    known = field.kinds(np.array([0.0, 0.0, 0.0, 6.0]))
    np.testing.assert_allclose(known["accuracy"][["match", "mismatch", "iwl"]], [1, 0, 1])
    mix = np.array([0.3, 0.7 * 0.7, 0.7 * 0.3])
    c = np.array([1.0, 1.0, 2.0, 1.0])
    assert abs(field.kinds(c)["loss"].to_numpy()[:3] @ mix - field.loss(c)) < 1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coordinates": "five"}, "coordinates is 'five'"),
        ({"samples": 0}, "samples is 0"),
        ({"samples": "few"}, "samples is 'few'"),
        ({"coordinates": "four", "layers": 3}, "3 layers"),
        ({"layers": 0}, "layers got 0; allowed: an integer from 1 on"),
        ({"layers": 0, "heads": 0}, "layers got 0; .*; heads got 0; allowed"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        reduced_field(SMALL, **arguments)


def test_bad_points_times_and_tasks_are_refused():
    field = reduced_field(SMALL, coordinates=invariant_basis(SMALL))
    with pytest.raises(ValueError, match="42 coordinates"):
        field.loss(np.zeros(3))
    with pytest.raises(ValueError, match="times"):
        field.integrate(np.zeros(42), [3.0, 1.0])
    with pytest.raises(ValueError, match="f_w"):
        field.at(f_w=0.1)
    with pytest.raises(ValueError, match=r"f_v is 1\.2"):
        field.at(f_v=1.2)
    with pytest.raises(ValueError, match="weight"):
        field.parameter_derivative(np.zeros(42), "burstiness")
    with pytest.raises(ValueError, match="ModularAddition"):
        reduced_field(ModularAddition(modulus=5, lengths=(3,), format="cot", layout="usual"))


@pytest.mark.parametrize("block", ["W1", "W2", "Wbar"])
def test_a_basis_without_a_direction_in_some_block_is_that_block_at_zero(block):
    whole = reduced_field(SMALL)
    kept = [d.name for d in whole.basis.directions if d.block != block]
    part = reduced_field(SMALL, coordinates=whole.basis.select(kept))
    at = [whole.names.index(name) for name in kept]
    c = a_point(part.dim)
    there = np.zeros(whole.dim)
    there[at] = c
    assert part.loss(c) == pytest.approx(whole.loss(there), rel=1e-12)
    np.testing.assert_allclose(part.gradient(c), whole.gradient(there)[at], atol=1e-12)
    np.testing.assert_allclose(part.kinds(c), whole.kinds(there), atol=1e-12)
