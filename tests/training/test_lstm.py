"""The LSTM against torch.nn.LSTM, and its laws."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from training.families.base import Family
from training.families.lstm import LSTM
from training.tasks.modular_addition import ModularAddition

TASK = ModularAddition(modulus=4, lengths=(4, 5), format="acot")
FAMILY = LSTM(width=6)


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


def torch_logits(p, tokens):
    """nn.Embedding, nn.LSTM and nn.Linear on the same weights; the bias split into two."""
    width, vocabulary = p["unembed.W_U"].shape
    modules = nn.Embedding(vocabulary, width), nn.LSTM(width, width, batch_first=True)
    embed, lstm = (module.to(p["lstm.b"].dtype) for module in modules)
    weights = {
        "weight_ih_l0": p["lstm.W_x"].mT,
        "weight_hh_l0": p["lstm.W_h"].mT,
        "bias_ih_l0": 0.25 * p["lstm.b"],
        "bias_hh_l0": 0.75 * p["lstm.b"],
    }
    x = torch.func.functional_call(embed, {"weight": p["embed.W_E"]}, (tokens,))
    h, _ = torch.func.functional_call(lstm, weights, (x,))
    return functional.linear(h, p["unembed.W_U"].mT, p["unembed.b_U"])


def loss_and_gradients(logits_of, p, tokens, targets):
    leaves = {name: value.clone().requires_grad_() for name, value in p.items()}
    loss = functional.cross_entropy(logits_of(leaves).flatten(0, -2), targets.flatten())
    return loss.detach(), torch.autograd.grad(loss, list(leaves.values()))


@pytest.mark.parametrize("tap", [(), (lambda name, x: x,)], ids=["written out", "tapped"])
def test_loss_and_gradients_are_those_of_torch(tap):
    p, (tokens, positions) = random_params(), inputs()
    targets = tokens % TASK.modulus
    ours = loss_and_gradients(
        lambda q: FAMILY.forward(q, tokens, positions, *tap), p, tokens, targets
    )
    theirs = loss_and_gradients(lambda q: torch_logits(q, tokens), p, tokens, targets)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def test_stacked_members_equal_single_ones():
    members = [random_params(seed) for seed in range(3)]
    stacked = {name: torch.stack([m[name] for m in members]) for name in members[0]}
    tokens, positions = inputs(members=3)
    together = FAMILY.forward(stacked, tokens, positions)
    for i, params in enumerate(members):
        alone = FAMILY.forward(params, tokens[i], positions[i])
        torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=1e-12)


def test_taps_have_the_promised_names_and_do_not_change_the_logits():
    p, (tokens, positions) = random_params(), inputs()
    seen = []

    def read(name, x):
        seen.append((name, tuple(x.shape)))
        return x

    logits = FAMILY.forward(p, tokens, positions, read)
    by_gate = ("hook_token_in", "hook_state_in", "hook_gate")
    expected = [
        (name, (5, 4, 6) if name.startswith(by_gate) else (5, 6))
        for name in FAMILY.hook_names(tokens.shape[-1])
    ]
    assert seen == expected
    torch.testing.assert_close(logits, FAMILY.forward(p, tokens, positions))


def test_what_a_hook_returns_is_what_the_next_step_starts_from():
    p, (tokens, positions) = random_params(), inputs()
    clean = FAMILY.forward(p, tokens, positions)
    reset = {"hook_cell.2", "hook_state.2"}
    cut = FAMILY.forward(p, tokens, positions, lambda name, x: x * (name not in reset))
    torch.testing.assert_close(cut[:, :2], clean[:, :2])
    torch.testing.assert_close(cut[:, 2], p["unembed.b_U"].expand_as(cut[:, 2]))
    afresh = FAMILY.forward(p, tokens[:, 3:], positions[:, 3:])
    torch.testing.assert_close(cut[:, 3:], afresh)


def test_later_tokens_do_not_reach_earlier_logits():
    p, (tokens, positions) = random_params(), inputs()
    changed = tokens.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % TASK.vocabulary
    clean, other = (FAMILY.forward(p, t, positions) for t in (tokens, changed))
    torch.testing.assert_close(other[:, :3], clean[:, :3], rtol=0, atol=1e-13)
    assert (other[:, 3:] - clean[:, 3:]).abs().max() > 1e-3


@pytest.mark.parametrize("members", [None, 2])
def test_gradients_are_those_of_finite_differences(members):
    each = [random_params(seed) for seed in range(members or 1)]
    p = {n: torch.stack([q[n] for q in each]) for n in each[0]} if members else each[0]
    (tokens, positions), names = inputs(members, size=2), list(p)

    def forward(*values):
        return FAMILY.forward(dict(zip(names, values, strict=True)), tokens, positions)

    leaves = tuple(value.requires_grad_() for value in p.values())
    assert torch.autograd.gradcheck(forward, leaves, fast_mode=True)


def test_start_has_the_range_of_torch_and_is_a_function_of_the_seed():
    family = LSTM(width=64)
    assert isinstance(family, Family)
    assert family.any_length
    p = family.initialise(TASK, 3, torch.float64)
    assert abs(p["embed.W_E"].std() - 1) < 0.1
    for name in ("lstm.W_x", "lstm.W_h", "unembed.W_U", "unembed.b_U"):
        assert p[name].abs().max() <= 64**-0.5
    assert abs(p["lstm.W_h"].std() - (3 * 64) ** -0.5) < 0.002
    assert abs(p["lstm.b"].std() - (1.5 * 64) ** -0.5) < 0.01
    single = family.initialise(TASK, 3, torch.float32)
    assert all(torch.equal(p[name].float(), single[name]) for name in p)
    assert not torch.equal(family.initialise(TASK, 4, torch.float64)["lstm.W_h"], p["lstm.W_h"])


def test_impossible_values_are_named():
    with pytest.raises(ValueError, match="LSTM: width: got 0, allowed 1 or more"):
        LSTM(width=0)
    p, (tokens, positions) = random_params(), inputs()
    with pytest.raises(ValueError, match="this model has 0 to 5"):
        FAMILY.forward(p, tokens + TASK.vocabulary, positions)
