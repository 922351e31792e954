"""Effective matrices: any model of a family with a lift, as one attention-only model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from manifold.basis import READOUT, Basis
from training.families.attention_only import AttentionOnly
from training.families.base import Family
from training.families.transformer import Transformer
from training.tasks.base import Task

Matrices = dict[str, np.ndarray]


def frame_of(family: Family) -> str:
    """Which of `invariant.FRAMES` the family's effective matrices live in.

    Raises ValueError for a family, or a setting of it, that has no exact lift.
    """
    if isinstance(family, AttentionOnly):
        return "attention_only"
    if not isinstance(family, Transformer):
        raise ValueError(
            f"effective matrices: {type(family).__name__} has none; "
            f"allowed: AttentionOnly, and Transformer without MLP and LayerNorm"
        )
    present = [name for name in ("mlp", "layer_norm") if getattr(family, name)]
    if present:
        raise ValueError(
            f"effective matrices: the lift of a transformer is exact only without MLP and "
            f"LayerNorm; this one has {' and '.join(f'{name}=True' for name in present)}: "
            f"train it with them False"
        )
    if family.positions not in ("learned", "none"):
        raise ValueError(
            f"effective matrices: the lift of a transformer needs positions learned or none; "
            f"this one has {family.positions!r}"
        )
    return "transformer"


def effective_matrices(
    source: Any, family: Family | None = None, task: Task | None = None
) -> Matrices:
    """W1, W2, .. (heads, d_l, d_l) and Wbar (N, d_L), float64, with exactly the model's logits.

    source: a checkpoint, or a mapping of parameter names to arrays or tensors of one member, then
    with its family and task. For attention_only these are the parameters themselves. For a
    transformer (theory, section 3; arXiv 2607.11875), with X = [W_E; W_pos] of d rows and

        R_I = X,  R_(V_lh p) = R_p W_V^(l,h) W_O^(l,h)   along the paths of the residual,
        W_l[p, q] = R_p W_Q^(l,h) (R_q W_K^(l,h))^T / sqrt(head width),   Wbar[:, p] = (R_p W_U)^T,

    in the one-hot frame. Raises ValueError where a family has no exact lift.
    """
    model: Any = source.family if family is None else family
    frame = frame_of(model)
    weights = {
        name: np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, float)
        for name, value in getattr(source, "weights", source).items()
    }
    if frame == "attention_only":
        scores = {f"W{l + 1}": weights[f"blocks.{l}.attn.W"] for l in range(model.layers)}
        return {**scores, READOUT: weights["unembed.W"]}
    n_positions = source.task.n_positions if task is None else task.n_positions
    return _lift(weights, model, n_positions)


def _lift(weights: Mapping[str, np.ndarray], family: Transformer, n_positions: int) -> Matrices:
    embedding = weights["embed.W_E"]
    none = np.zeros((n_positions, embedding.shape[1]))
    rows = [np.concatenate([embedding, weights.get("pos_embed.W_pos", none)])]
    found = {}
    for layer in range(family.layers):
        q, k, v, o = (weights[f"blocks.{layer}.attn.W_{side}"] for side in "QKVO")
        every = np.concatenate(rows)
        queries, keys = every @ q, every @ k  # (heads, paths * d, head width)
        found[f"W{layer + 1}"] = queries @ keys.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        rows += [row @ v[h] @ o[h] for h in range(family.heads) for row in list(rows)]
    found[READOUT] = (np.concatenate(rows) @ weights["unembed.W_U"]).T
    return found


def disentangled(basis: Basis, matrices: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Parameters of the AttentionOnly model that runs these matrices in the basis' frame."""
    n = basis.vocabulary
    arrays = {
        "embed.token": basis.frame[:n, :n],
        "embed.position": basis.frame[n:, n:],
        "unembed.W": matrices[READOUT],
    }
    for layer in range(basis.layers):
        arrays[f"blocks.{layer}.attn.W"] = matrices[f"W{layer + 1}"]
    return {name: torch.from_numpy(np.array(value, float)) for name, value in arrays.items()}


def gauge_projectors(basis: Basis, block: str) -> tuple[np.ndarray, np.ndarray]:
    """Left and right projectors: W and left W right give the same attention and the same logits
    up to a constant, on every sequence.

    Centred frame: x lies in the range of P on every path, so P W P is all that acts.
    One-hot frame: on every path the token part of x sums to 1 and the position part sums to 1
    (attention rows sum to 1). So a score that depends on the query alone, W += u (1 on the token or
    position part of one path)^T, is constant over keys and leaves the softmax; a difference of two
    such sums is 0 on the query side and in the read-out. The mean over logits leaves the softmax
    of the output. Nothing that needs a property of the data or of causality is removed.
    """
    n, d = basis.vocabulary, basis.vocabulary + basis.n_positions
    count = len(basis.paths(block))
    if basis.family == "attention_only":
        wide = np.kron(np.eye(count), basis.frame)
        return (basis.frame[:n, :n], wide) if block == READOUT else (wide, wide)
    parts = np.kron(np.eye(count), np.repeat(np.eye(2), [n, d - n], axis=0))  # (count d, 2 count)
    sizes = parts.sum(0)
    sums = (parts / sizes) @ parts.T
    common = (parts / sizes).sum(1)
    within = np.eye(len(sums)) - sums
    without_differences = within + np.outer(common, common) / (common @ common)
    if block == READOUT:
        return np.eye(n) - 1.0 / n, without_differences
    return without_differences, within


def remove_gauge(basis: Basis, matrices: Mapping[str, np.ndarray]) -> Matrices:
    """The matrices of least norm among those that `gauge_projectors` says cannot be told apart."""
    found = {}
    for block in basis.blocks:
        left, right = gauge_projectors(basis, block)
        found[block] = left @ matrices[block] @ right
    return found
