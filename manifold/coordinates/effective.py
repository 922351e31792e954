"""Effective matrices: any model that has a lift, as one attention-only model; and their gauge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch

from manifold.coordinates.basis import READOUT, Basis, Source
from manifold.coordinates.factored import Factored
from manifold.coordinates.lift import arrays, check_liftable, lift
from training.families.attention_only import AttentionOnly
from training.families.base import Family
from training.families.transformer import Transformer
from training.tasks.base import Task

Matrices = dict[str, np.ndarray]


def frame_of(family: Family) -> str:
    """Which of `invariant.FRAMES` the family's effective matrices live in.

    Raises ValueError for a family, or a setting of it, that has none.
    """
    if isinstance(family, AttentionOnly):
        return "attention_only"
    if not isinstance(family, Transformer):
        raise ValueError(
            f"effective matrices: {type(family).__name__} has none; "
            f"allowed: AttentionOnly, Transformer"
        )
    check_liftable(family)
    return "transformer"


def effective_matrices(
    source: Any, family: Family | None = None, task: Task | None = None
) -> Matrices:
    """W1, W2, .. (heads, d_l, d_l) and Wbar (N, d_L), float64, with the logits of the model's lift.

    source: a checkpoint, or a mapping of parameter names to arrays or tensors of one member, then
    with its family and task. For attention_only these are the parameters themselves. For a
    transformer (theory, section 3; arXiv 2607.11875), with X = [W_E; W_pos] of d rows and

        R_I = X,  R_(V_lh p) = R_p W_V^(l,h) W_O^(l,h)   along the paths of the residual,
        W_l[p, q] = R_p W_Q^(l,h) (R_q W_K^(l,h))^T / sqrt(head width),   Wbar[:, p] = (R_p W_U)^T,

    in the one-hot frame; norms and MLPs are folded in as `lift` says, which also says how far the
    logits then are from the network's (without them: not at all). For a large model take
    `lift(..).factored`: these arrays have (paths d)^2 entries a head.
    Raises ValueError where a family has no lift.
    """
    model: Any = source.family if family is None else family
    if frame_of(model) == "attention_only":
        weights = arrays(source, model, source.task if task is None else task)
        scores = {f"W{l + 1}": weights[f"blocks.{l}.attn.W"] for l in range(model.layers)}
        return {**scores, READOUT: weights["unembed.W"]}
    return lift(source, model, task).factored.matrices()


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


@overload
def remove_gauge(basis: Basis, matrices: Factored) -> Factored: ...
@overload
def remove_gauge(basis: Basis, matrices: Mapping[str, np.ndarray]) -> Matrices: ...
def remove_gauge(basis: Basis, matrices: Source) -> Matrices | Factored:
    """The matrices of least norm among those that `gauge_projectors` says cannot be told apart."""
    if isinstance(matrices, Factored):
        return replace(matrices, free=True)
    found = {}
    for block in basis.blocks:
        left, right = gauge_projectors(basis, block)
        found[block] = left @ matrices[block] @ right
    return found
