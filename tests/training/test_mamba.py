"""Mamba against Hugging Face's on the same weights, against a loop by hand, and its laws."""

import math

import pytest
import torch
from torch.nn import functional

from training.families.base import Family
from training.families.mamba import Mamba
from training.tasks.modular_addition import ModularAddition

TASK = ModularAddition(modulus=4, lengths=(4, 5), format="cot")
CASES = [
    Mamba(width=6, state=3),
    Mamba(width=6, layers=2, state=4, expand=1, conv=2, dt_rank=3),
]
FAMILY = CASES[1]


def inputs(members=None, size=5):
    batches = [TASK.batch(seed=m, k=0, size=size) for m in range(members or 1)]
    tokens = torch.stack([torch.as_tensor(b.tokens) for b in batches])
    positions = torch.stack([torch.as_tensor(b.positions) for b in batches])
    return (tokens, positions) if members else (tokens[0], positions[0])


def random_params(family=FAMILY, seed=0, dtype=torch.float64):
    params = family.initialise(TASK, seed, torch.float64)
    draw = torch.Generator().manual_seed(seed + 100)
    return {
        name: (p + 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)).to(dtype)
        for name, p in params.items()
    }


def hugging_face(family):
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=TASK.vocabulary,
        hidden_size=family.width,
        state_size=family.state,
        num_hidden_layers=family.layers,
        expand=family.expand,
        conv_kernel=family.conv,
        time_step_rank=family.dt_rank or math.ceil(family.width / 16),
        tie_word_embeddings=False,
        use_cache=False,
    )
    return MambaForCausalLM(config)


@pytest.mark.parametrize("family", CASES)
def test_logits_and_gradients_are_those_of_hugging_face(family):
    model, params = hugging_face(family), random_params(family, dtype=torch.float32)
    model.load_state_dict(params)  # the same names and shapes, all of them
    tokens, positions = inputs()
    theirs = model(tokens).logits
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    ours = family.forward(leaves, tokens, positions)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(leaves[name].grad, p.grad, rtol=1e-4, atol=1e-5)


def test_the_start_is_that_of_hugging_face_and_of_linear_layers():
    family = Mamba(width=64, layers=2)
    torch.manual_seed(0)
    model, ours = hugging_face(family), family.initialise(TASK, 0, torch.float32)
    for name, theirs in model.state_dict().items():
        here = ours[name]
        assert here.shape == theirs.shape, name
        if name.endswith(("in_proj.weight", "x_proj.weight", "lm_head.weight")):
            limit = here.shape[1] ** -0.5
            assert 0.9 * limit < here.abs().max() <= limit, name
        else:
            assert here.std() == pytest.approx(float(theirs.std()), rel=0.2, abs=1e-6), name
            assert here.mean() == pytest.approx(float(theirs.mean()), rel=0.2, abs=0.05), name


def slow_forward(family, p, tokens):
    """Loops over samples, time and channels of the recurrence."""
    out = []
    for sample in tokens.tolist():
        x = p["backbone.embeddings.weight"][sample]
        for layer in range(family.layers):
            name = f"backbone.layers.{layer}."
            q = {k.removeprefix(name + "mixer."): v for k, v in p.items() if k.startswith(name)}
            seen = functional.rms_norm(x, x.shape[-1:], p[name + "norm.weight"], 1e-5)
            u, z = (seen @ q["in_proj.weight"].T).chunk(2, -1)
            u = functional.conv1d(
                functional.pad(u.T, (family.conv - 1, 0)),
                q["conv1d.weight"],
                q["conv1d.bias"],
                groups=u.shape[1],
            )
            u = functional.silu(u.T)
            state = torch.zeros(u.shape[1], family.state, dtype=u.dtype)
            written = []
            for t in range(len(sample)):
                low, enter, leave = (q["x_proj.weight"] @ u[t]).split(
                    [len(q["x_proj.weight"]) - 2 * family.state, family.state, family.state]
                )
                step = functional.softplus(q["dt_proj.weight"] @ low + q["dt_proj.bias"])
                y = torch.zeros_like(u[t])
                for channel in range(u.shape[1]):
                    rate = -q["A_log"][channel].exp()
                    state[channel] = (
                        torch.exp(step[channel] * rate) * state[channel]
                        + step[channel] * u[t, channel] * enter
                    )
                    y[channel] = state[channel] @ leave + q["D"][channel] * u[t, channel]
                written.append(q["out_proj.weight"] @ (y * functional.silu(z[t])))
            x = x + torch.stack(written)
        x = functional.rms_norm(x, x.shape[-1:], p["backbone.norm_f.weight"], 1e-5)
        out.append(x @ p["lm_head.weight"].T)
    return torch.stack(out)


@pytest.mark.parametrize("family", CASES)
def test_logits_equal_the_slow_reference(family):
    p, (tokens, positions) = random_params(family), inputs()
    logits = family.forward(p, tokens, positions)
    torch.testing.assert_close(logits, slow_forward(family, p, tokens), rtol=1e-12, atol=1e-12)


def test_stacked_members_equal_single_ones():
    members = [random_params(seed=seed) for seed in range(3)]
    stacked = {name: torch.stack([m[name] for m in members]) for name in members[0]}
    tokens, positions = inputs(members=3)
    together = FAMILY.forward(stacked, tokens, positions)
    for i, params in enumerate(members):
        alone = FAMILY.forward(params, tokens[i], positions[i])
        torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=1e-12)


def test_taps_have_the_promised_names_and_each_can_change_the_logits():
    p, (tokens, positions) = random_params(), inputs()
    clean, seen = FAMILY.forward(p, tokens, positions), {}
    logits = FAMILY.forward(p, tokens, positions, lambda n, x: seen.setdefault(n, x))
    torch.testing.assert_close(logits, clean)
    time = tokens.shape[-1]
    assert tuple(seen) == FAMILY.hook_names(time)
    assert seen["blocks.1.hook_state.2"].shape == (5, 6, 4)
    for name in seen:
        edited = FAMILY.forward(p, tokens, positions, lambda n, x, name=name: x + 0.5 * (n == name))
        assert (edited - clean).abs().max() > 1e-4, name


def test_the_written_out_gradient_is_that_of_the_steps_with_their_hooks():
    members = [random_params(seed=seed) for seed in range(2)]
    stacked = {
        name: torch.stack([m[name] for m in members]).requires_grad_() for name in members[0]
    }
    tokens, positions = inputs(members=2)
    values = [
        FAMILY.forward(stacked, tokens, positions, *tap) for tap in ((), (lambda name, x: x,))
    ]
    torch.testing.assert_close(*values)
    gradients = [torch.autograd.grad(v.square().mean(), list(stacked.values())) for v in values]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_what_a_state_hook_returns_is_what_the_next_step_starts_from():
    family = Mamba(width=4, state=2, conv=1)
    p, (tokens, positions) = random_params(family), inputs()
    cut = family.forward(p, tokens, positions, lambda n, x: x * (n != "blocks.0.hook_state.2"))
    afresh = family.forward(p, tokens[:, 3:], positions[:, 3:])
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
    each = [random_params(seed=seed) for seed in range(members or 1)]
    p = {n: torch.stack([q[n] for q in each]) for n in each[0]} if members else each[0]
    (tokens, positions), names = inputs(members, size=2), list(p)

    def forward(*values):
        return FAMILY.forward(dict(zip(names, values, strict=True)), tokens, positions)

    leaves = tuple(value.requires_grad_() for value in p.values())
    assert torch.autograd.gradcheck(forward, leaves, fast_mode=True)


def test_start_is_a_function_of_the_seed_and_the_same_at_both_precisions():
    assert isinstance(FAMILY, Family)
    assert FAMILY.any_length
    double, single = (FAMILY.initialise(TASK, 3, t) for t in (torch.float64, torch.float32))
    assert all(torch.equal(double[name].float(), single[name]) for name in double)
    other = FAMILY.initialise(TASK, 4, torch.float64)
    assert not torch.equal(other["lm_head.weight"], double["lm_head.weight"])


def test_impossible_values_are_named():
    with pytest.raises(ValueError, match=r"Mamba: width: got 0.*; state: got 0"):
        Mamba(width=0, state=0)
