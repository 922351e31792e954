"""What one would write with torch.nn for each family: the other side of `stacked_training`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Weights = Mapping[str, Tensor]


class DenseSSM(nn.Module):
    """One product per step of (one-hot token outer state) with all transitions side by side."""

    def __init__(self, family: Any, task: Any, weights: Weights) -> None:
        super().__init__()
        self.transition = nn.Parameter(weights["transition.A"])
        self.start = nn.Parameter(weights["state.h_0"])
        self.head = _linear(weights["unembed.W_U"], weights["unembed.b_U"])

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        vocabulary, width, _ = self.transition.shape
        wide = self.transition.transpose(1, 2).reshape(vocabulary * width, width)
        picks = functional.one_hot(tokens, vocabulary).to(wide.dtype)
        h = self.start.expand(len(tokens), width)
        states = []
        for pick in picks.unbind(1):
            h = (pick[:, :, None] * h[:, None]).flatten(1) @ wide
            states.append(h)
        return self.head(torch.stack(states, dim=1))


class LSTM(nn.Module):
    """nn.Embedding, nn.LSTM, nn.Linear; the second bias is held at zero, as the family has one."""

    def __init__(self, family: Any, task: Any, weights: Weights) -> None:
        super().__init__()
        width = family.width
        self.embed = nn.Embedding.from_pretrained(weights["embed.W_E"], freeze=False)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.lstm.weight_ih_l0 = nn.Parameter(weights["lstm.W_x"].T.contiguous())
        self.lstm.weight_hh_l0 = nn.Parameter(weights["lstm.W_h"].T.contiguous())
        self.lstm.bias_ih_l0 = nn.Parameter(weights["lstm.b"])
        self.lstm.bias_hh_l0 = nn.Parameter(torch.zeros(4 * width), requires_grad=False)
        self.head = _linear(weights["unembed.W_U"], weights["unembed.b_U"])

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0])


class Block(nn.Module):
    """Pre-norm attention, fused, and an MLP."""

    def __init__(self, family: Any, weights: Weights, name: str) -> None:
        super().__init__()
        self.heads = family.heads
        self.norms = nn.ModuleList(_norm(weights, f"{name}ln{i}") for i in (1, 2))
        wide = [weights[f"{name}attn.W_{s}"].transpose(0, 1).flatten(1) for s in "QKV"]
        bias = [weights[f"{name}attn.b_{s}"].flatten() for s in "QKV"]
        self.enter = _linear(torch.cat(wide, 1), torch.cat(bias))
        self.leave = _linear(weights[f"{name}attn.W_O"].flatten(0, 1), weights[f"{name}attn.b_O"])
        self.up = _linear(weights[f"{name}mlp.W_in"], weights[f"{name}mlp.b_in"])
        self.down = _linear(weights[f"{name}mlp.W_out"], weights[f"{name}mlp.b_out"])

    def forward(self, x: Tensor) -> Tensor:
        parts = self.enter(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        q, k, v = (part.transpose(1, 2) for part in parts)
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.leave(z.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Tables for tokens and places, the blocks, a norm and a head."""

    def __init__(self, family: Any, task: Any, weights: Weights) -> None:
        super().__init__()
        self.token = nn.Embedding.from_pretrained(weights["embed.W_E"], freeze=False)
        self.place = nn.Embedding.from_pretrained(weights["pos_embed.W_pos"], freeze=False)
        names = [f"blocks.{layer}." for layer in range(family.layers)]
        self.blocks = nn.Sequential(*(Block(family, weights, name) for name in names))
        self.norm = _norm(weights, "ln_final")
        self.head = _linear(weights["unembed.W_U"], None)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place(positions))))


class GPT2(nn.Module):
    """Hugging Face's, without dropout."""

    def __init__(self, family: Any, task: Any, weights: Weights) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = GPT2Config(
            vocab_size=task.vocabulary,
            n_positions=task.n_positions,
            n_embd=family.width,
            n_layer=family.layers,
            n_head=family.heads,
            tie_word_embeddings=False,
            use_cache=False,
            **off,
        )
        self.model = GPT2LMHeadModel(config)
        self.model.load_state_dict(_as_gpt2(weights, family.layers))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.model(tokens, position_ids=positions).logits


def _as_gpt2(weights: Weights, layers: int) -> dict[str, Tensor]:
    """Our parameters under GPT-2's names: heads side by side, queries, keys and values in one."""
    state = {
        "transformer.wte.weight": weights["embed.W_E"],
        "transformer.wpe.weight": weights["pos_embed.W_pos"],
        "transformer.ln_f.weight": weights["ln_final.w"],
        "transformer.ln_f.bias": weights["ln_final.b"],
        "lm_head.weight": weights["unembed.W_U"].T,
    }
    for layer in range(layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        sides = [weights[f"{ours}attn.W_{side}"].transpose(0, 1).flatten(1) for side in "QKV"]
        biases = [weights[f"{ours}attn.b_{side}"].flatten() for side in "QKV"]
        state |= {
            theirs + "attn.c_attn.weight": torch.cat(sides, dim=1),
            theirs + "attn.c_attn.bias": torch.cat(biases),
            theirs + "attn.c_proj.weight": weights[ours + "attn.W_O"].flatten(0, 1),
            theirs + "attn.c_proj.bias": weights[ours + "attn.b_O"],
        }
        for mine, other in (("in", "fc"), ("out", "proj")):
            state[f"{theirs}mlp.c_{other}.weight"] = weights[f"{ours}mlp.W_{mine}"]
            state[f"{theirs}mlp.c_{other}.bias"] = weights[f"{ours}mlp.b_{mine}"]
        for norm in (1, 2):
            state[f"{theirs}ln_{norm}.weight"] = weights[f"{ours}ln{norm}.w"]
            state[f"{theirs}ln_{norm}.bias"] = weights[f"{ours}ln{norm}.b"]
    return state


class Mamba(nn.Module):
    """Hugging Face's."""

    def __init__(self, family: Any, task: Any, weights: Weights) -> None:
        from transformers import MambaConfig, MambaForCausalLM

        super().__init__()
        config = MambaConfig(
            vocab_size=task.vocabulary,
            hidden_size=family.width,
            state_size=family.state,
            num_hidden_layers=family.layers,
            expand=family.expand,
            conv_kernel=family.conv,
            time_step_rank=family.dt_rank or "auto",
            tie_word_embeddings=False,
            use_cache=False,
        )
        self.model = MambaForCausalLM(config)
        self.model.load_state_dict(weights)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.model(tokens).logits


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """From a weight (in, out)."""
    layer = nn.Linear(*weight.shape, bias=bias is not None)
    layer.weight = nn.Parameter(weight.T.contiguous())
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


def _norm(weights: Weights, name: str) -> nn.LayerNorm:
    layer = nn.LayerNorm(len(weights[f"{name}.w"]))
    layer.weight, layer.bias = (
        nn.Parameter(weights[f"{name}.w"]),
        nn.Parameter(weights[f"{name}.b"]),
    )
    return layer


MODULES: Mapping[str, Callable[[Any, Any, Weights], nn.Module]] = MappingProxyType(
    {"DenseSSM": DenseSSM, "LSTM": LSTM, "Transformer": Transformer, "GPT2": GPT2, "Mamba": Mamba}
)
