"""The Dense-SSM against a product written out by hand; its laws."""

import pytest
import torch

from training.families.base import Family
from training.families.dense_ssm import DenseSSM
from training.tasks.modular_addition import ModularAddition

TASK = ModularAddition(modulus=4, lengths=(4, 5), format="acot")
FAMILY = DenseSSM(width=6)


def inputs(members=None, size=5):
    batches = [TASK.batch(seed=m, k=0, size=size) for m in range(members or 1)]
    tokens = torch.stack([torch.as_tensor(b.tokens) for b in batches])
    positions = torch.stack([torch.as_tensor(b.positions) for b in batches])
    return (tokens, positions) if members else (tokens[0], positions[0])


def random_params(seed=0):
    params = FAMILY.initialise(TASK, seed, torch.float64)
    draw = torch.Generator().manual_seed(seed + 100)
    return {
        name: p + 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
        for name, p in params.items()
    }


def test_logits_equal_products_of_transitions():
    p, (tokens, positions) = random_params(), inputs()
    logits = FAMILY.forward(p, tokens, positions)
    for b, t in [(0, 0), (2, 3), (4, 4)]:
        h = p["state.h_0"]
        for token in tokens[b, : t + 1].tolist():
            h = p["transition.A"][token] @ h
        expected = p["unembed.W_U"].T @ h + p["unembed.b_U"]
        torch.testing.assert_close(logits[b, t], expected, rtol=1e-12, atol=1e-12)


def test_stacked_members_equal_single_ones():
    members = [random_params(seed) for seed in range(3)]
    stacked = {name: torch.stack([m[name] for m in members]) for name in members[0]}
    tokens, positions = inputs(members=3)
    together = FAMILY.forward(stacked, tokens, positions)
    for i, params in enumerate(members):
        alone = FAMILY.forward(params, tokens[i], positions[i])
        torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=1e-12)


def test_every_step_has_its_own_hook_and_hands_on_what_the_hook_returns():
    p, (tokens, positions) = random_params(), inputs()
    clean, seen = FAMILY.forward(p, tokens, positions), []

    def read(name, x):
        seen.append((name, tuple(x.shape)))
        return x

    FAMILY.forward(p, tokens, positions, read)
    assert seen == [(name, (5, 6)) for name in FAMILY.hook_names(tokens.shape[-1])]

    cut = FAMILY.forward(p, tokens, positions, lambda n, x: x * (n != "hook_state.2"))
    torch.testing.assert_close(cut[:, :2], clean[:, :2])
    torch.testing.assert_close(cut[:, 2:], p["unembed.b_U"].expand_as(cut[:, 2:]))


def test_the_written_out_gradient_is_that_of_the_steps_with_their_hooks():
    members = [random_params(seed) for seed in range(3)]
    stacked = {
        name: torch.stack([m[name] for m in members]).requires_grad_() for name in members[0]
    }
    tokens, positions = inputs(members=3)
    values = [
        FAMILY.forward(stacked, tokens, positions, *tap) for tap in ((), (lambda name, x: x,))
    ]
    torch.testing.assert_close(*values)
    slope = torch.randn(values[0].shape, generator=torch.Generator(), dtype=torch.float64)
    gradients = [torch.autograd.grad((v * slope).sum(), list(stacked.values())) for v in values]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("width", [128, 256])
def test_a_wide_state_keeps_its_norm_over_many_steps(width):
    family = DenseSSM(width=width)
    p = family.initialise(TASK, 0, torch.float32)
    tokens = torch.arange(60).remainder(TASK.vocabulary).expand(2, 60)
    states = []

    def read(name, x):
        states.extend([x] if name.startswith("hook_state.") else [])
        return x

    tapped = family.forward(p, tokens, tokens, read)
    assert len(states) == 60
    norms = torch.stack(states).norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-5)
    torch.testing.assert_close(family.forward(p, tokens, tokens), tapped, rtol=0, atol=1e-5)


def test_later_tokens_do_not_reach_earlier_logits():
    p, (tokens, positions) = random_params(), inputs()
    changed = tokens.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % TASK.vocabulary
    clean, other = (FAMILY.forward(p, t, positions) for t in (tokens, changed))
    torch.testing.assert_close(other[:, :3], clean[:, :3], rtol=0, atol=1e-13)
    assert (other[:, 3:] - clean[:, 3:]).abs().max() > 1e-3


def test_gradients_are_those_of_finite_differences():
    p, (tokens, positions) = random_params(), inputs(size=2)
    names = list(p)

    def forward(*values):
        return FAMILY.forward(dict(zip(names, values, strict=True)), tokens, positions)

    leaves = tuple(value.requires_grad_() for value in p.values())
    assert torch.autograd.gradcheck(forward, leaves, fast_mode=True)


def test_start_is_orthogonal_and_a_function_of_the_seed():
    assert isinstance(FAMILY, Family)
    p = FAMILY.initialise(TASK, 3, torch.float64)
    a = p["transition.A"]
    eye = torch.eye(6, dtype=a.dtype).expand_as(a)
    torch.testing.assert_close(a @ a.transpose(-2, -1), eye, rtol=0, atol=1e-12)
    single = FAMILY.initialise(TASK, 3, torch.float32)
    assert all(torch.equal(p[name].float(), single[name]) for name in p)
    assert not torch.equal(FAMILY.initialise(TASK, 4, torch.float64)["transition.A"], a)


def test_the_starting_state_may_be_fixed():
    assert FAMILY.frozen == ()
    assert DenseSSM(width=6, learned_start=False).frozen == ("state.h_0",)
    with pytest.raises(ValueError, match="width: got 0"):
        DenseSSM(width=0)
