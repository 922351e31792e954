"""Every family's forward written out plainly, one read at a time: the reference for patching.

`read(reader, *sources)` hands back what each source writes as this reader sees it, and
`wrote(name, value)` is told what each node writes.
"""

import math
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm, one_hot, silu, softplus

from circuits.pair import Pair
from training.families.attention_only import AttentionOnly
from training.families.dense_ssm import DenseSSM
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.positions import rotate, rotation
from training.families.transformer import Transformer
from training.tasks import AssociativeRecall
from training.tasks.base import IGNORE, Batch

TIME, BATCH, VOCABULARY, PLACES = 4, 6, 7, 8
RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=4, track_slots=3, f_r=0.3, f_v=0.3)
SIZES = SimpleNamespace(vocabulary=VOCABULARY, n_positions=PLACES)


def attention_only(family, p, tokens, positions, read, wrote):
    wrote("embed", p["embed.token"][tokens])
    wrote("positions", p["embed.position"][positions])
    names = ["embed", "positions"]
    causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    for layer in range(family.layers):
        heads = []
        for h in range(family.heads):
            q, k, v = (
                torch.cat(read(f"head {layer}.{h} {side}", *names), dim=-1) for side in "qkv"
            )
            scores = q @ p[f"blocks.{layer}.attn.W"][h] @ k.mT
            pattern = scores.masked_fill(~causal, -math.inf).softmax(-1)
            heads.append((f"head {layer}.{h}", pattern @ v))
        for name, value in heads:
            wrote(name, value)
            names.append(name)
    x = torch.cat(read("logits", *names), dim=-1)
    return x @ (p["embed.token"] @ p["unembed.W"]).mT


def transformer(family, p, tokens, positions, read, wrote):
    d, names = family.width, ["embed"]
    wrote("embed", p["embed.W_E"][tokens])
    if family.positions == "learned":
        wrote("positions", p["pos_embed.W_pos"][positions])
        names.append("positions")
    constant = torch.zeros(d, dtype=torch.float64)

    def norm(x, name):
        if not family.layer_norm:
            return x
        return layer_norm(x, (d,), p[f"{name}.w"], p[f"{name}.b"], 1e-5)

    def bias(name):
        return p.get(name, torch.zeros(()))

    causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    for layer in range(family.layers):
        block, heads = f"blocks.{layer}.", []
        for h in range(family.heads):
            sides = []
            for side in "qkv":
                x = sum(read(f"head {layer}.{h} {side}", *names)) + constant
                w, b = p[f"{block}attn.W_{side.upper()}"], bias(f"{block}attn.b_{side.upper()}")
                sides.append(norm(x, f"{block}ln1") @ w[h] + (b[h] if b.ndim else b))
            q, k, v = sides
            if family.positions == "rotary":
                turn = rotation(positions, d // family.heads, torch.float64)
                q, k = rotate(q, turn), rotate(k, turn)
            scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~causal, -math.inf)
            heads.append((f"head {layer}.{h}", scores.softmax(-1) @ v @ p[f"{block}attn.W_O"][h]))
        for name, value in heads:
            wrote(name, value)
            names.append(name)
        constant = constant + bias(f"{block}attn.b_O")
        if family.mlp:
            x = norm(sum(read(f"MLP {layer}", *names)) + constant, f"{block}ln2")
            hidden = gelu(x @ p[f"{block}mlp.W_in"] + p[f"{block}mlp.b_in"])
            wrote(f"MLP {layer}", hidden @ p[f"{block}mlp.W_out"] + p[f"{block}mlp.b_out"])
            names.append(f"MLP {layer}")
    return norm(sum(read("logits", *names)) + constant, "ln_final") @ p["unembed.W_U"]


def lstm(family, p, tokens, positions, read, wrote):
    w_x, w_h, b = (p[f"lstm.{n}"].chunk(4, -1) for n in ("W_x", "W_h", "b"))
    functions = {"i": torch.sigmoid, "f": torch.sigmoid, "g": torch.tanh, "o": torch.sigmoid}
    for t in range(TIME):
        wrote(f"token {t}", p["embed.W_E"][tokens[:, t]])
        for i, (gate, function) in enumerate(functions.items()):
            pre = read(f"{gate} {t} token", f"token {t}")[0] @ w_x[i] + b[i]
            if t:
                pre = pre + read(f"{gate} {t} state", f"state {t - 1}")[0] @ w_h[i]
            wrote(f"{gate} {t}", function(pre))
        i, f, g = (read(f"cell {t} {gate}", f"{gate} {t}")[0] for gate in "ifg")
        cell = i * g + (f * read(f"cell {t} cell", f"cell {t - 1}")[0] if t else 0)
        wrote(f"cell {t}", cell)
        o = read(f"state {t} o", f"o {t}")[0]
        wrote(f"state {t}", o * read(f"state {t} cell", f"cell {t}")[0].tanh())
    last = read(f"logits {TIME - 1}", f"state {TIME - 1}")[0]
    return (last @ p["unembed.W_U"] + p["unembed.b_U"])[:, None].expand(-1, TIME, -1)


def dense_ssm(family, p, tokens, positions, read, wrote):
    h = p["state.h_0"].expand(len(tokens), -1)
    for t in range(TIME):
        wrote(f"token {t}", one_hot(tokens[:, t], VOCABULARY).double())
        a = torch.einsum(
            "bv,vde->bde", read(f"state {t} token", f"token {t}")[0], p["transition.A"]
        )
        before = read(f"state {t} state", f"state {t - 1}")[0] if t else h
        wrote(f"state {t}", torch.einsum("bde,be->bd", a, before))
    last = read(f"logits {TIME - 1}", f"state {TIME - 1}")[0]
    return (last @ p["unembed.W_U"] + p["unembed.b_U"])[:, None].expand(-1, TIME, -1)


def mamba(family, p, tokens, positions, read, wrote):
    def norm(x, gain):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    wrote("embed", p["backbone.embeddings.weight"][tokens])
    names = ["embed"]
    for layer in range(family.layers):
        name = f"backbone.layers.{layer}."
        m = {key.removeprefix(f"{name}mixer."): x for key, x in p.items() if key.startswith(name)}
        x = norm(sum(read(f"mixer {layer}", *names)), p[name + "norm.weight"])
        u, gate = (x @ m["in_proj.weight"].mT).chunk(2, -1)
        kernel = m["conv1d.weight"][:, 0]
        reach = kernel.shape[1]
        mixed = torch.stack(
            [
                sum(u[:, t - j] * kernel[:, reach - 1 - j] for j in range(min(reach, t + 1)))
                for t in range(TIME)
            ],
            1,
        )
        u = silu(mixed + m["conv1d.bias"])
        low, enter, leave = (u @ m["x_proj.weight"].mT).split(
            [m["dt_proj.weight"].shape[1], family.state, family.state], -1
        )
        step = softplus(low @ m["dt_proj.weight"].mT + m["dt_proj.bias"])
        seen = []
        for t in range(TIME):
            s = (step[:, t] * u[:, t])[..., None] * enter[:, t, None]
            if t:
                keep = torch.exp(-step[:, t, :, None] * m["A_log"].exp())
                s = s + keep * read(f"state {layer}.{t} state", f"state {layer}.{t - 1}")[0]
            wrote(f"state {layer}.{t}", s)
            out = read(f"mixer {layer} state {t}", f"state {layer}.{t}")[0]
            seen.append((out * leave[:, t, None]).sum(-1))
        y = torch.stack(seen, 1) + m["D"] * u
        wrote(f"mixer {layer}", (y * silu(gate)) @ m["out_proj.weight"].mT)
        names.append(f"mixer {layer}")
    return norm(sum(read("logits", *names)), p["backbone.norm_f.weight"]) @ p["lm_head.weight"].mT


CASES = {
    "attention_only": (AttentionOnly(layers=2, heads=2, scale=0.4), attention_only, RECALL),
    "transformer": (Transformer(layers=2, heads=2, width=8), transformer, SIZES),
    "transformer, rotary, bare": (
        Transformer(layers=2, heads=2, width=8, mlp=False, layer_norm=False, positions="rotary"),
        transformer,
        SIZES,
    ),
    "lstm": (LSTM(width=5), lstm, SIZES),
    "dense_ssm": (DenseSSM(width=5), dense_ssm, SIZES),
    "mamba": (Mamba(width=6, layers=2, state=3), mamba, SIZES),
}


def made(name, seed=0):
    """Family, parameters that are all at work (float64), a pair whose every token differs."""
    family, _, task = CASES[name]
    draw = torch.Generator().manual_seed(seed)
    params = {
        key: x if key in family.frozen else x + 0.3 * torch.randn(x.shape, generator=draw).to(x)
        for key, x in family.initialise(task, seed, torch.float64).items()
    }
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, VOCABULARY, (BATCH, TIME))
    other = (clean + rng.integers(1, VOCABULARY, clean.shape)) % VOCABULARY
    places = np.stack([rng.permutation(task.n_positions)[:TIME] for _ in range(2 * BATCH)])
    answers = np.stack([rng.permutation(VOCABULARY)[:2] for _ in range(BATCH)])
    sides = []
    for i, tokens in enumerate((clean, other)):
        targets = np.full(tokens.shape, IGNORE)
        targets[:, -1] = answers[:, i]
        at = places[i * BATCH : (i + 1) * BATCH]
        sides.append(Batch(tokens=tokens, positions=at, targets=targets, kind=np.zeros(BATCH, int)))
    return family, params, Pair(clean=sides[0], corrupt=sides[1], sequences=BATCH, final=TIME - 1)


def slow_metric(name, params, pair, patched, share=1.0):
    """The metric (batch,) with the edges `patched`, "source -> reader", carrying the corrupted run.

    share: or only so much of the way there.
    Also what every node writes, and all edges there are.
    """
    family, forward, _ = CASES[name]
    kept: dict[str, torch.Tensor] = {}
    if patched:
        _, kept, _ = slow_metric(name, params, _swapped(pair), ())
    written: dict[str, torch.Tensor] = {}
    edges: list[str] = []

    def wrote(node, value):
        written[node] = value

    def read(reader, *sources):
        edges.extend(f"{source} -> {reader}" for source in sources)
        return [
            torch.lerp(written[source], kept[source], share)
            if f"{source} -> {reader}" in patched
            else written[source]
            for source in sources
        ]

    tokens, positions = map(torch.from_numpy, (pair.clean.tokens, pair.clean.positions))
    logits = forward(family, params, tokens, positions, read, wrote)
    return pair.metric(logits), written, edges


def _swapped(pair):
    return Pair(clean=pair.corrupt, corrupt=pair.clean, sequences=pair.sequences, final=pair.final)
