"""The theory's model: attention alone, merged matrices, each head writes to a fresh subspace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.families.base import Params, Tap, lookup, no_tap
from training.families.wiring import Stream, Wiring
from training.tasks.base import Task, generator


def centring(size: int, classes: Sequence[np.ndarray]) -> np.ndarray:
    """Projector (size, size) that removes the mean within each class: I - sum_k 1_k 1_k^T / |k|.

    A point that is in no class stays as it is; a class of one point goes to zero.
    """
    projector = np.eye(size)
    for members in classes:
        projector[np.ix_(members, members)] -= 1.0 / len(members)
    return projector


def projectors(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """P_t (vocabulary, vocabulary) and P_p (n_positions, n_positions): this model's embeddings."""
    symmetry = task.symmetry
    return (
        centring(task.vocabulary, symmetry.token_classes),
        centring(task.n_positions, symmetry.tracks),
    )


def paths(layers: int, heads: int) -> tuple[str, ...]:
    """Ways through the first `layers` layers, in the order of the residual: I, V1, V2, V2V1, ...

    With several heads a step names layer and head: V1.0, V1.1, V2.0V1.1. Layers count from 1.
    """
    names = [""]
    for layer in range(1, layers + 1):
        steps = [f"V{layer}" if heads == 1 else f"V{layer}.{h}" for h in range(heads)]
        names += [step + name for step in steps for name in names]
    return tuple(name or "I" for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOnly:
    """Attention on a disentangled residual (arXiv 2607.11875; theory, section 2).

    x^0_i = (P_t e_token, P_p e_position), width d = vocabulary + n_positions;
    layer l, head h: A = causal softmax over j of x_i^T W^(l,h) x_j (no scale factor);
    x^l = (x^(l-1), A^(l,1) x^(l-1), .., A^(l,H) x^(l-1)), width d (1 + H)^l;
    logits = P_t Wbar x^L.

    The residual is the list of `paths`, each d wide. Parameters: embed.token (N, N) and
    embed.position (P, P), the frozen centring projectors; blocks.{l}.attn.W (H, d_l, d_l) with
    d_l = d (1 + H)^l, l from 0; unembed.W (N, d_L).

    scale: standard deviation of every trained entry at the start; 0 starts at the saddle of zeros.
    """

    layers: int = 2
    heads: int = 1
    scale: float = 0.02

    def __post_init__(self) -> None:
        for name in ("layers", "heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"attention_only: {name} must be an integer >= 1, got {value!r}")
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise ValueError(f"attention_only: scale must be finite and >= 0, got {self.scale!r}")

    @property
    def frozen(self) -> tuple[str, ...]:
        return ("embed.token", "embed.position")

    @property
    def any_length(self) -> bool:
        return False

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        token, position = projectors(task)
        width = task.vocabulary + task.n_positions
        rng = generator(seed, *b"attention_only")

        def normal(*shape: int) -> Tensor:
            return torch.from_numpy(self.scale * rng.standard_normal(shape)).to(dtype)

        params = {
            "embed.token": torch.from_numpy(token).to(dtype),
            "embed.position": torch.from_numpy(position).to(dtype),
        }
        for layer in range(self.layers):
            params[f"blocks.{layer}.attn.W"] = normal(self.heads, width, width)
            width *= 1 + self.heads
        params["unembed.W"] = normal(task.vocabulary, width)
        return params

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        return self._logits(params, tokens, positions, tap, slice(None))

    def forward_last(self, params: Params, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits at the last position alone, (..., batch, 1, vocabulary)."""
        return self._logits(params, tokens, positions, no_tap, slice(-1, None))

    def _logits(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap, read: slice
    ) -> Tensor:
        """Logits at the positions `read`; the last layer queries from these alone."""
        token = tap("hook_embed", lookup(params["embed.token"], tokens))
        position = tap("hook_pos_embed", lookup(params["embed.position"], positions))
        x = torch.cat([token, position], dim=-1)
        time = tokens.shape[-1]
        future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        for layer in range(self.layers):
            name = f"blocks.{layer}"
            x = tap(f"{name}.hook_resid_pre", x)
            rows = read if layer == self.layers - 1 else slice(None)
            here = x[..., rows, :]
            q, k, v = self._read(name, here, x, tap)
            query = torch.einsum("...bhtd,...hde->...bhte", q, params[f"{name}.attn.W"])
            scores = _with("...bhte,...bhse->...bhts", query, k)
            scores = scores.masked_fill(future[rows], -math.inf)
            scores = tap(f"{name}.attn.hook_attn_scores", scores)
            pattern = tap(f"{name}.attn.hook_pattern", scores.softmax(dim=-1))
            heard = _with("...bhts,...bhsd->...bthd", pattern, v)
            result = tap(f"{name}.attn.hook_result", heard)
            x = tap(f"{name}.hook_resid_post", torch.cat([here, result.flatten(-2)], dim=-1))
        return torch.einsum("...btd,...vd->...btv", x, params["embed.token"] @ params["unembed.W"])

    def _read(self, name: str, here: Tensor, x: Tensor, tap: Tap) -> tuple[Tensor, Tensor, Tensor]:
        """What heads read as query, key and value, (..., batch, heads or 1, time, width); 1 where
        nobody has set the heads apart."""
        sides = []
        for side, residual in zip("qkv", (here, x, x), strict=True):
            shared = residual.unsqueeze(-3)
            spread = shared.expand(*residual.shape[:-2], self.heads, *residual.shape[-2:])
            whole = spread.transpose(-3, -2)
            found = tap(f"{name}.hook_{side}_input", whole)
            sides.append(shared if found is whole else found.transpose(-3, -2))
        q, k, v = sides
        return q, k, v

    def wiring(self, params: Params, time: int) -> Wiring:
        """Tokens, positions and heads, each in a part of the residual of its own."""
        n, p = params["embed.token"].shape[-1], params["embed.position"].shape[-1]
        stream, width = Stream(), n + p
        stream.write("embed", "hook_embed")
        stream.write("positions", "hook_pos_embed", offset=n)
        for layer in range(self.layers):
            stream.attend(layer, [width * (1 + head) for head in range(self.heads)])
            width *= 1 + self.heads
        stream.read("logits", f"blocks.{self.layers - 1}.hook_resid_post", "logits")
        return stream.wiring()

    def hook_names(self, time: int) -> tuple[str, ...]:
        inside = (
            "hook_resid_pre",
            *(f"hook_{side}_input" for side in "qkv"),
            "attn.hook_attn_scores",
            "attn.hook_pattern",
            "attn.hook_result",
            "hook_resid_post",
        )
        blocks = [f"blocks.{layer}.{name}" for layer in range(self.layers) for name in inside]
        return ("hook_embed", "hook_pos_embed", *blocks)


def _with(equation: str, left: Tensor, right: Tensor) -> Tensor:
    """The product of what is apart by head with what heads share, (.., 1, time, width), or not."""
    if right.shape[-3] > 1 or left.shape[-3] == 1:
        return torch.einsum(equation, left, right)
    left_axes, rest = equation.split(",")
    return torch.einsum(f"{left_axes},{rest.replace('bhs', 'bs', 1)}", left, right.squeeze(-3))
