"""The transformer against a slow reference, one sample and one head at a time; its laws."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch.nn import functional

from training.families.base import Family, no_tap
from training.families.transformer import POSITIONS, Transformer
from training.tasks.modular_addition import ModularAddition

TASK = ModularAddition(modulus=5, lengths=(3, 4), format="cot", layout="aligned")
CASES = [
    Transformer(layers=layers, heads=2, width=8, mlp=mlp, layer_norm=norm, positions=positions)
    for layers, mlp, norm, positions in itertools.product(
        (1, 2), (False, True), (False, True), ("learned", "none")
    )
]
CASES += [
    Transformer(layers=2, heads=2, width=8, positions="sinusoidal", activation="gelu_new"),
    Transformer(layers=2, heads=2, width=8, positions="rotary"),
    Transformer(layers=1, heads=2, width=8, mlp=False, layer_norm=False, positions="rotary"),
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


def slow_turn(x, position):
    """Rotary positions in complex numbers: (x_j + i x_(j + half)) e^(i p / 10000^(j / half))."""
    half = len(x) // 2
    speed = torch.tensor([10_000.0 ** (-i / half) for i in range(half)], dtype=x.dtype)
    turned = torch.complex(x[:half], x[half:]) * torch.exp(1j * position * speed)
    return torch.cat([turned.real, turned.imag])


def slow_wave(position, width):
    angles = [position / 10_000 ** (2 * (i // 2) / width) for i in range(width)]
    wave = [math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)]
    return torch.tensor(wave, dtype=torch.float64) / (width / 2) ** 0.5


def slow_forward(family, p, tokens, positions):
    """Loops over samples, heads and positions; no batching, no masking."""
    out = []
    for sample, places in zip(tokens.tolist(), positions.tolist(), strict=True):
        x = torch.stack([p["embed.W_E"][t] for t in sample])
        if family.positions == "learned":
            x = x + torch.stack([p["pos_embed.W_pos"][i] for i in places])
        if family.positions == "sinusoidal":
            x = x + torch.stack([slow_wave(i, family.width) for i in places])
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
                if family.positions == "rotary":
                    q, k = (
                        torch.stack([slow_turn(y[i], places[i]) for i in range(len(x))])
                        for y in (q, k)
                    )
                for i in range(len(x)):
                    weight = (k[: i + 1] @ q[i] / k.shape[1] ** 0.5).softmax(0)
                    write[i] += weight @ v[: i + 1] @ p[f"{block}attn.W_O"][head]
            x = x + write + p.get(f"{block}attn.b_O", 0.0)
            if family.mlp:
                seen = slow_norm(p, block + "ln2", x)
                hidden = functional.linear(seen, p[block + "mlp.W_in"].T, p[block + "mlp.b_in"])
                if family.activation == "gelu":
                    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
                else:
                    inner = (2 / math.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)
                    hidden = hidden * 0.5 * (1 + torch.tanh(inner))
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


@pytest.mark.parametrize("case", [CASES[14], *CASES[16:18]])
def test_every_tap_can_change_the_logits(case):
    family, (tokens, positions) = case, inputs()
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


def test_rotary_positions_count_from_anywhere_and_sinusoidal_ones_do_not():
    tokens, positions = inputs()
    for family, same in ((CASES[17], True), (CASES[16], False)):
        params = random_params(family)
        here, there = (family.forward(params, tokens, positions + i) for i in (0, 7))
        assert torch.allclose(here, there, rtol=0, atol=1e-12) is same


@pytest.mark.parametrize("family", CASES)
def test_the_written_out_attention_has_the_gradient_of_the_tapped_one(family):
    members = [random_params(family, seed) for seed in range(2)]
    stacked = {
        name: torch.stack([m[name] for m in members]).requires_grad_() for name in members[0]
    }
    tokens, positions = inputs(members=2)
    values = [
        family.forward(stacked, tokens, positions, *tap) for tap in ((), (lambda name, x: x,))
    ]
    slope = torch.randn(values[0].shape, generator=torch.Generator(), dtype=torch.float64)
    gradients = [torch.autograd.grad((v * slope).sum(), list(stacked.values())) for v in values]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", CASES)
def test_logits_at_some_tokens_are_those_of_all(family):
    members = [random_params(family, seed) for seed in range(2)]
    stacked = {
        name: torch.stack([m[name] for m in members]).requires_grad_() for name in members[0]
    }
    tokens, positions = inputs(members=2)
    batch, time = tokens.shape[1:]
    every = family.forward(stacked, tokens, positions).flatten(1, 2)
    at = torch.randint(0, time, (2, batch, 2), generator=torch.Generator())
    at = (at + torch.arange(batch)[:, None] * time).flatten(1)
    expected = every.gather(1, at[..., None].expand(-1, -1, every.shape[-1]))
    some = family.forward_at(stacked, tokens, positions, at)[:, 0]
    torch.testing.assert_close(some, expected)
    slope = torch.randn(some.shape, generator=torch.Generator(), dtype=torch.float64)
    gradients = [
        torch.autograd.grad((v * slope).sum(), list(stacked.values())) for v in (some, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("layout", ["aligned_masked", "right_aligned_masked"])
def test_hidden_padding_might_as_well_not_be_there(family, layout):
    """Logits are those of the sequence without it, whichever way they are computed."""
    task = dataclasses.replace(TASK, layout=layout)
    batch = task.evaluation(seed=0, size=8)
    assert (batch.positions < 0).any(1).any()
    params = random_params(family)
    tokens, places = torch.as_tensor(batch.tokens), torch.as_tensor(batch.positions)
    logits = family.forward(params, tokens, places)
    hooked = family.forward(params, tokens, places, lambda name, x: x)
    stacked = {name: value[None] for name, value in params.items()}
    at = (torch.arange(8)[:, None] * task.time + torch.tensor([task.time - 2, task.time - 1])).view(
        1, -1
    )
    some = family.forward_at(stacked, tokens[None], places[None], at)[0, 0]
    for row, (t, p) in enumerate(zip(tokens, places, strict=True)):
        kept = p >= 0
        alone = family.forward(params, t[kept][None], p[kept][None])[0]
        torch.testing.assert_close(logits[row, kept], alone)
        torch.testing.assert_close(hooked[row, kept], alone)
        torch.testing.assert_close(some[2 * row : 2 * row + 2], logits[row, -2:])


def test_the_bias_of_the_keys_has_no_gradient_but_with_rotary_positions():
    tokens, places = inputs()
    for positions in POSITIONS:
        family = Transformer(layers=1, heads=2, width=8, positions=positions)
        params = {name: p.requires_grad_() for name, p in random_params(family).items()}
        loss = family.forward(params, tokens, places).square().mean()
        (slope,) = torch.autograd.grad(loss, [params["blocks.0.attn.b_K"]])
        assert bool(slope.any()) is (positions == "rotary")


def test_every_kind_of_position_but_the_learned_takes_longer_sequences():
    assert [family.any_length for family in CASES[-5:]] == [False, True, True, True, True]
    tokens, _ = inputs()
    longer = torch.cat([tokens, tokens, tokens], dim=1)
    places = torch.arange(longer.shape[1]).expand(longer.shape)
    for family in CASES[-4:]:
        params = random_params(family)
        logits = family.forward(params, longer, places)
        start = family.forward(params, tokens, places[:, : tokens.shape[1]])
        torch.testing.assert_close(logits[:, : tokens.shape[1]], start)
    with pytest.raises(ValueError, match="its context"):
        CASES[-5].forward(random_params(CASES[-5]), longer, places)


def as_gpt2(params, family):
    """Our parameters under GPT-2's names: heads side by side, queries, keys and values in one."""
    state = {
        "transformer.wte.weight": params["embed.W_E"],
        "transformer.wpe.weight": params["pos_embed.W_pos"],
        "transformer.ln_f.weight": params["ln_final.w"],
        "transformer.ln_f.bias": params["ln_final.b"],
        "lm_head.weight": params["unembed.W_U"].T,
    }
    for layer in range(family.layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        sides = [params[f"{ours}attn.W_{side}"] for side in "QKV"]
        wide = torch.cat([w.transpose(0, 1).flatten(1) for w in sides], dim=1)
        state[theirs + "attn.c_attn.weight"] = wide
        biases = [params[f"{ours}attn.b_{side}"].flatten() for side in "QKV"]
        state[theirs + "attn.c_attn.bias"] = torch.cat(biases)
        state[theirs + "attn.c_proj.weight"] = params[ours + "attn.W_O"].flatten(0, 1)
        state[theirs + "attn.c_proj.bias"] = params[ours + "attn.b_O"]
        for mine, other in (("in", "fc"), ("out", "proj")):
            state[f"{theirs}mlp.c_{other}.weight"] = params[f"{ours}mlp.W_{mine}"]
            state[f"{theirs}mlp.c_{other}.bias"] = params[f"{ours}mlp.b_{mine}"]
        for norm in (1, 2):
            state[f"{theirs}ln_{norm}.weight"] = params[f"{ours}ln{norm}.w"]
            state[f"{theirs}ln_{norm}.bias"] = params[f"{ours}ln{norm}.b"]
    return state


def test_logits_are_those_of_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    family = Transformer(layers=2, heads=2, width=8, activation="gelu_new")
    config = GPT2Config(
        vocab_size=TASK.vocabulary,
        n_positions=TASK.n_positions,
        n_embd=8,
        n_layer=2,
        n_head=2,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).double().eval()
    params = random_params(family)
    model.load_state_dict(as_gpt2(params, family))
    tokens, positions = inputs()
    theirs = model(tokens, position_ids=positions).logits
    ours = family.forward(params, tokens, positions)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("positions", POSITIONS)
def test_gradients_are_those_of_finite_differences(positions):
    family = Transformer(layers=1, heads=2, width=4, positions=positions)
    params = random_params(family)
    tokens, places = inputs(size=2)
    names = list(params)

    def forward(*values):
        return family.forward(dict(zip(names, values, strict=True)), tokens, places)

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
        ({"positions": "alibi"}, "allowed learned, sinusoidal, rotary, none"),
        ({"activation": "relu"}, "'relu', allowed gelu, gelu_new"),
        ({"positions": "rotary", "width": 6}, "got 6, allowed even multiples of heads = 2"),
        ({"positions": "sinusoidal", "heads": 1, "width": 7}, "got 7, allowed even"),
        ({"init_std": -1.0}, "init_std: got -1.0"),
    ],
)
def test_impossible_values_are_named(change, word):
    with pytest.raises(ValueError, match=word):
        Transformer(**({"layers": 1, "heads": 2, "width": 8} | change))
