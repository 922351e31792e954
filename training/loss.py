"""Cross-entropy of K members at once, with the vocabulary before the tokens.

Along a last axis as short as a small task's vocabulary, torch's softmax takes seven times as long;
`read_out` leaves logits so that putting it first costs nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from training.tasks import IGNORE


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy at each token, nats, (K, batch, time); 0 where the target is IGNORE."""
    scores = logits.movedim(-1, 1).log_softmax(1)
    return functional.nll_loss(scores, targets, ignore_index=IGNORE, reduction="none")


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Each member's mean over its supervised tokens, nats, (K,); NaN where it has none."""
    return _MeanLoss.apply(logits, targets)  # type: ignore[return-value]


def supervised(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Where each member's supervised tokens are and their targets: (K, count), (K, 1, count).

    The first are indices into batch * time. Every sequence gets as many places as the one with
    most, filled up with its token 0 and the target IGNORE: so count is batch times the task's
    largest number but for freak batches, and a member's sums do not depend on the others' counts.
    """
    members, batch, time = targets.shape
    flat = targets.reshape(-1, time)
    kept = flat != IGNORE
    place = kept.cumsum(1)
    row, token = kept.nonzero(as_tuple=True)
    place = place[row, token] - 1
    sequence = torch.arange(batch, device=flat.device).repeat(members).unsqueeze(1) * time
    at = sequence.repeat(1, int(kept.sum(1).max()))
    at[row, place] += token
    scored = torch.full_like(at, IGNORE)
    scored[row, place] = flat[row, token]
    return at.view(members, -1), scored.view(members, 1, -1)


class _MeanLoss(Function):
    """The gradient is (softmax - one-hot of the target) / supervised tokens; 0 where IGNORE."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        scores = logits.movedim(-1, 1).flatten(2).log_softmax(1)
        flat = targets.reshape(len(targets), 1, -1)
        supervised = flat != IGNORE
        share = supervised / supervised.sum(2, keepdim=True, dtype=scores.dtype)
        chosen = flat.clamp_min(0)
        ctx.save_for_backward(scores, chosen, share)
        ctx.shape = targets.shape[1:]
        return -(scores.gather(1, chosen) * share).sum((1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        scores, chosen, share = ctx.saved_tensors
        slope = scores.exp()
        slope.scatter_add_(1, chosen, slope.new_full((1, 1, 1), -1.0).expand(chosen.shape))
        slope *= share * gradients[0][:, None, None]
        return slope.unflatten(2, ctx.shape).movedim(1, -1), None
