"""The transformer against a slow reference, one sample and one head at a time; its laws."""

import itertools

import pytest
import torch
from torch.nn import functional

from training.families.base import Family, no_tap
from training.families.transformer import Transformer
from training.tasks.modular_addition import ModularAddition

TASK = ModularAddition(modulus=5, lengths=(3, 4), format="cot", layout="aligned")
CASES = [
    Transformer(layers=layers, heads=2, width=8, mlp=mlp, layer_norm=norm, positions=positions)
    for layers, mlp, norm, positions in itertools.product(
        (1, 2), (False, True), (False, True), ("learned", "none")
    )
]


def inputs(members=None, size=6):
    batches = [TASK.batch(seed=m, k=0, size=size) for m in range(members or 1)]
    tokens = torch.stack([torch.as_tensor(b.tokens) for b in batches])
    positions = torch.stack([torch.as_tensor(b.positions) for b in batches])
    return (tokens, positions) if members else (tokens[0], positions[0])


def random_params(family, seed=0):
    """The start, with every bias and gain moved off its trivial value."""
    params = family.initialise(TASK, seed, torch.float64)
    draw = torch.Generator().manual_seed(seed + 100)
    return {
        name: p + 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
        for name, p in params.items()
    }


def slow_norm(p, name, x):
    if f"{name}.w" not in p:
        return x
    return functional.layer_norm(x, x.shape[-1:], p[f"{name}.w"], p[f"{name}.b"], 1e-5)


def slow_forward(family, p, tokens, positions):
    """Loops over samples, heads and positions; no batching, no masking."""
    out = []
    for sample, places in zip(tokens.tolist(), positions.tolist(), strict=True):
        x = torch.stack([p["embed.W_E"][t] for t in sample])
        if family.positions == "learned":
            x = x + torch.stack([p["pos_embed.W_pos"][i] for i in places])
        for layer in range(family.layers):
            block = f"blocks.{layer}."
            seen = slow_norm(p, block + "ln1", x)
            write = torch.zeros_like(x)
            for head in range(family.heads):
                q, k, v = (
                    functional.linear(
                        seen,
                        p[f"{block}attn.W_{side}"][head].T,
                        p[f"{block}attn.b_{side}"][head]
                        if family.mlp or family.layer_norm
                        else None,
                    )
                    for side in "QKV"
                )
                for i in range(len(x)):
                    weight = (k[: i + 1] @ q[i] / k.shape[1] ** 0.5).softmax(0)
                    write[i] += weight @ v[: i + 1] @ p[f"{block}attn.W_O"][head]
            x = x + write + p.get(f"{block}attn.b_O", 0.0)
            if family.mlp:
                seen = slow_norm(p, block + "ln2", x)
                hidden = functional.linear(seen, p[block + "mlp.W_in"].T, p[block + "mlp.b_in"])
                hidden = functional.gelu(hidden)
                x = x + functional.linear(hidden, p[block + "mlp.W_out"].T, p[block + "mlp.b_out"])
        out.append(slow_norm(p, "ln_final", x) @ p["unembed.W_U"])
    return torch.stack(out)


@pytest.mark.parametrize("family", CASES)
def test_logits_equal_the_slow_reference(family):
    params = random_params(family)
    tokens, positions = inputs()
    torch.testing.assert_close(
        family.forward(params, tokens, positions),
        slow_forward(family, params, tokens, positions),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("family", CASES)
def test_stacked_members_equal_single_ones(family):
    members = [random_params(family, seed) for seed in range(3)]
    stacked = {name: torch.stack([m[name] for m in members]) for name in members[0]}
    tokens, positions = inputs(members=3)
    together = family.forward(stacked, tokens, positions)
    for i, params in enumerate(members):
        alone = family.forward(params, tokens[i], positions[i])
        torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("family", CASES)
def test_taps_have_the_promised_names_and_do_not_change_the_logits(family):
    params, seen = random_params(family), []
    tokens, positions = inputs()

    def tap(name, x):
        seen.append(name)
        return x

    logits = family.forward(params, tokens, positions, tap)
    assert tuple(seen) == family.hook_names(tokens.shape[-1])
    torch.testing.assert_close(logits, family.forward(params, tokens, positions))


def test_every_tap_can_change_the_logits():
    family, (tokens, positions) = CASES[-2], inputs()
    params = random_params(family)
    clean = family.forward(params, tokens, positions)
    for name in family.hook_names(tokens.shape[-1]):
        noise = torch.Generator().manual_seed(0)

        def tap(here, x, name=name, noise=noise):
            return x + torch.randn(x.shape, generator=noise, dtype=x.dtype) if here == name else x

        assert (family.forward(params, tokens, positions, tap) - clean).abs().max() > 1e-3, name


@pytest.mark.parametrize("family", CASES)
def test_later_tokens_do_not_reach_earlier_logits(family):
    params = random_params(family)
    tokens, positions = inputs()
    clean = family.forward(params, tokens, positions)
    for t in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, t:] = (changed[:, t:] + 1) % TASK.vocabulary
        other = family.forward(params, changed, positions)
        torch.testing.assert_close(other[:, :t], clean[:, :t], rtol=0, atol=1e-13)
        assert (other[:, t:] - clean[:, t:]).abs().max() > 1e-6


def test_gradients_are_those_of_finite_differences():
    family = Transformer(layers=1, heads=2, width=4)
    params = random_params(family)
    tokens, positions = inputs(size=2)
    names = list(params)

    def forward(*values):
        return family.forward(dict(zip(names, values, strict=True)), tokens, positions)

    leaves = tuple(p.requires_grad_() for p in params.values())
    assert torch.autograd.gradcheck(forward, leaves, fast_mode=True)


def test_bare_attention_has_no_bias():
    bare = Transformer(layers=2, heads=1, width=8, mlp=False, layer_norm=False)
    leaves = {name.rsplit(".", 1)[1] for name in bare.initialise(TASK, 0, torch.float32)}
    assert leaves == {"W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "W_U"}


def test_start_is_a_function_of_the_seed_and_the_same_at_both_precisions():
    family = CASES[-1]
    assert isinstance(family, Family)
    double, single = (family.initialise(TASK, 3, t) for t in (torch.float64, torch.float32))
    assert all(torch.equal(double[name].float(), single[name]) for name in double)
    other = family.initialise(TASK, 4, torch.float64)
    assert not torch.equal(other["embed.W_E"], double["embed.W_E"])


def test_init_std_sets_the_scale_of_every_matrix():
    family = Transformer(layers=2, heads=4, width=64, init_std=0.02)
    for name, p in family.initialise(TASK, 0, torch.float64).items():
        if name.rsplit(".", 1)[1] in ("W_O", "W_out"):
            assert abs(p.std() - 0.01) < 1e-3
        elif ".W_" in name:
            assert abs(p.std() - 0.02) < 2e-3
    zero = Transformer(layers=1, heads=1, width=4, init_std=0.0)
    tokens, positions = inputs()
    params = zero.initialise(TASK, 0, torch.float64)
    assert not zero.forward(params, tokens, positions, no_tap).any()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"layers": 0}, "layers: got 0"),
        ({"width": 9}, "multiples of heads = 2"),
        ({"positions": "rotary"}, "allowed learned, none"),
        ({"init_std": -1.0}, "init_std: got -1.0"),
    ],
)
def test_impossible_values_are_named(change, word):
    with pytest.raises(ValueError, match=word):
        Transformer(**({"layers": 1, "heads": 2, "width": 8} | change))
