"""The loss of the full matrices on given sequences: its gradient and its curvature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from manifold.coordinates.basis import Basis
from manifold.coordinates.effective import Matrices, disentangled
from manifold.coordinates.sequences import check_sequences
from training.families.attention_only import AttentionOnly
from training.tasks.base import IGNORE, Batch


def loss_gradient(
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    batch: Batch,
    weights: np.ndarray | None = None,
) -> Matrices:
    """dL/dW of every effective matrix, L the mean cross-entropy per supervised token; float64.

    Of the full model in the basis' frame; of the basis only its frame and size matter.
    weights: (batch,), of each sequence in place of 1 / batch; they need not sum to 1, so that
    the gradients of parts of a law add up.

    ValueError for matrices with NaN or another shape, and for tokens that the basis has not.
    """
    loss, trained = _loss(basis, matrices, batch, weights)
    return _by_block(basis, torch.autograd.grad(loss, trained))


def curvature_product(
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    direction: Mapping[str, np.ndarray],
    batch: Batch,
    weights: np.ndarray | None = None,
) -> Matrices:
    """H V, the derivative of `loss_gradient` along V, exact: by differentiating twice."""
    loss, trained = _loss(basis, matrices, batch, weights)
    slopes = torch.autograd.grad(loss, trained, create_graph=True)
    along = [torch.from_numpy(np.asarray(direction[block], float)) for block in basis.blocks]
    moved = torch.stack([(g * v).sum() for g, v in zip(slopes, along, strict=True)]).sum()
    return _by_block(basis, torch.autograd.grad(moved, trained))


def _loss(
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    batch: Batch,
    weights: np.ndarray | None,
) -> tuple[Tensor, list[Tensor]]:
    """The loss, and the matrices as leaves in the order of the blocks."""
    check_matrices(basis, matrices)
    _check_sequences(basis, batch, weights)
    model = AttentionOnly(layers=basis.layers, heads=basis.heads)
    params = disentangled(basis, matrices)
    names = [f"blocks.{layer}.attn.W" for layer in range(basis.layers)] + ["unembed.W"]
    trained = [params[name].requires_grad_() for name in names]
    arrays = (batch.tokens, batch.positions, batch.targets)
    tokens, positions, targets = (torch.from_numpy(np.array(a)) for a in arrays)
    if (targets[:, :-1] == IGNORE).all():
        logits, targets = model.forward_last(params, tokens, positions), targets[:, -1:]
    else:
        logits = model.forward(params, tokens, positions)
    entropy: Any = functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none"
    )
    if weights is None:
        return entropy.sum() / (targets != IGNORE).sum(), trained
    count = (targets != IGNORE).sum(1).clamp(min=1)
    each = torch.from_numpy(np.asarray(weights, float)) / count
    return (entropy.view(targets.shape) * each[:, None]).sum(), trained


def check_matrices(basis: Basis, matrices: Mapping[str, np.ndarray]) -> None:
    """ValueError where a block is missing, has another shape than the basis', or is not finite."""
    for block in basis.blocks:
        if block not in matrices:
            raise ValueError(f"effective matrices: {block} is missing; got {', '.join(matrices)}")
        found, shape = np.asarray(matrices[block]), basis.shape(block)
        if found.shape != shape:
            raise ValueError(
                f"effective matrices: {block} has shape {found.shape} and the basis needs {shape} "
                f"(vocabulary {basis.vocabulary}, positions {basis.n_positions}, layers "
                f"{basis.layers}, heads {basis.heads}); make the basis from the run's own task"
            )
        bad = int(np.size(found) - np.isfinite(found).sum())
        if bad:
            raise ValueError(
                f"effective matrices: {block} has {bad} of {found.size} entries NaN or infinite; "
                f"the run diverged: take an earlier checkpoint"
            )


def _check_sequences(basis: Basis, batch: Batch, weights: np.ndarray | None) -> None:
    check_sequences(batch.tokens, batch.positions, basis.vocabulary, basis.n_positions)
    if weights is not None and np.shape(weights) != (len(batch),):
        raise ValueError(
            f"weights: one for each of {len(batch)} sequences is needed, got {np.shape(weights)}"
        )


def _by_block(basis: Basis, gradients: tuple[Tensor, ...]) -> Matrices:
    return {block: g.numpy() for block, g in zip(basis.blocks, gradients, strict=True)}


def flat(basis: Basis, matrices: Mapping[str, np.ndarray]) -> np.ndarray:
    """All blocks as one vector, in the order of `basis.blocks`."""
    return np.concatenate([np.ravel(matrices[block]) for block in basis.blocks])


def unflat(basis: Basis, vector: np.ndarray) -> Matrices:
    """The inverse of `flat`."""
    found, start = {}, 0
    for block in basis.blocks:
        size = int(np.prod(basis.shape(block)))
        found[block] = vector[start : start + size].reshape(basis.shape(block))
        start += size
    return found
