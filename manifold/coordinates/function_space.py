"""What projecting the effective matrices changes in the function: scores, attention, logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.sequences import check_sequences
from manifold.coordinates.shares import check_finite, ratio
from training.tasks.base import IGNORE, Batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """How far matrices are from others, each put in its place alone in the model's own stream.

    error, by matrix: rms difference over rms, of scores after the mean over the keys in sight is
    removed (a constant there does nothing), of logits after the mean over the vocabulary.
    distance, by score matrix: mean total variation between rows of attention, 0 to 1.
    Of queries that see two keys or more; in the last layer and the read-out, of supervised ones.
    All (..), the matrices' leading axes.
    """

    error: dict[str, np.ndarray]
    distance: dict[str, np.ndarray]


def function_agreement(
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    batch: Batch,
) -> Agreement:
    """Of effective matrices with others, mostly their projection, on the sequences of a batch.

    Both in the basis' frame, (..) + `Basis.shape`, with the same leading axes or none.
    ValueError naming the matrix that has NaN, or a norm that overflows.
    """
    own, other = (
        {block: torch.from_numpy(np.ascontiguousarray(side[block])) for block in basis.blocks}
        for side in (matrices, others)
    )
    check_sequences(batch.tokens, batch.positions, basis.vocabulary, basis.n_positions)
    for name, side in (("matrices", own), ("others", other)):
        squares = {block: matrix.square().sum((-2, -1)).numpy() for block, matrix in side.items()}
        check_finite(f"function agreement, {name}", squares)
    n, time = basis.vocabulary, batch.tokens.shape[1]
    rows = [basis.frame[:n, :n][batch.tokens], basis.frame[n:, n:][batch.positions]]
    x = torch.from_numpy(np.concatenate(rows, axis=-1))
    x = x.expand(*own[READOUT].shape[:-2], *x.shape)
    supervised = torch.from_numpy(batch.targets != IGNORE)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    error, distance = {}, {}
    for layer in range(1, basis.layers + 1):
        block = f"W{layer}"
        used = supervised if layer == basis.layers else torch.ones_like(supervised)
        used = used & (torch.arange(time) > 0)
        both = [_scores(x, side[block]) for side in (own, other)]
        centred = [_centred(scores, ~future)[..., used, :] for scores in both]
        error[block] = _relative(*centred, over=3)  # heads, queries, keys
        pattern, changed = (side.masked_fill(future, -torch.inf).softmax(-1) for side in both)
        apart = (pattern - changed).abs().sum(-1)[..., used] / 2
        distance[block] = apart.mean((-2, -1)).numpy()
        x = torch.cat([x, *(pattern @ x.unsqueeze(-4)).unbind(-4)], dim=-1)
    token = torch.from_numpy(np.array(basis.frame[:n, :n]))
    logits = [x[..., supervised, :] @ (token @ side[READOUT]).mT for side in (own, other)]
    error[READOUT] = _relative(*(side - side.mean(-1, keepdim=True) for side in logits), over=2)
    return Agreement(error=error, distance=distance)


def _scores(x: Tensor, matrix: Tensor) -> Tensor:
    """x (.., batch, time, d_l), matrix (.., heads, d_l, d_l): (.., heads, batch, query, key)."""
    return (x.unsqueeze(-4) @ matrix.unsqueeze(-3)) @ x.unsqueeze(-4).mT


def _centred(scores: Tensor, seen: Tensor) -> Tensor:
    """Less the mean over the keys that each query sees; 0 at others."""
    kept = torch.where(seen, scores, 0.0)
    mean = kept.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return torch.where(seen, kept - mean, 0.0)


def _relative(own: Tensor, other: Tensor, over: int) -> np.ndarray:
    """rms(other - own) / rms(own) over so many last axes; 0 where both are 0, inf where own is."""
    axes = tuple(range(-over, 0))
    error, size = (side.square().sum(axes) for side in (other - own, own))
    return np.sqrt(ratio(error.numpy(), size.numpy()))
