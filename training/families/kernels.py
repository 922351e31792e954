"""Two pieces of a transformer with their backward pass written out, for short sequences on a CPU.

torch's softmax along an axis of a dozen entries and its layer norm over few dozen take several
times as long as the passes they are made of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

FLOOR = -80.0
"""Of exponents: those that give less than the smallest normal float32 take twenty times as long."""


def normalise(x: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) along the last axis: a layer norm before its gain."""
    return _Normalise.apply(x, epsilon)  # type: ignore[return-value]


def attend(q: Tensor, kv: Tensor, seen: Tensor) -> Tensor:
    """Attention: softmax over the seen s of q_t.k_s / sqrt(width), times v; as q (N, rows, heads,
    width).

    kv (N, time, 2, heads, width). seen (rows, time) or (N, rows, time): 1 where a row sees a token
    and 0 elsewhere, at least one 1 a row. A weight below e^-80 of the largest comes out as that.
    """
    return _Attend.apply(q, kv, seen)  # type: ignore[return-value]


class _Normalise(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        mean = _row_sums(x).div_(x.shape[-1])
        normal = x - mean
        scale = _row_sums(normal.square()).div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, mean, scale)
        return normal.mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, mean, scale = ctx.saved_tensors
        slope, *_ = torch.ops.aten.native_layer_norm_backward(
            gradients[0], x, x.shape[-1:], mean, scale, None, None, [True, False, False]
        )
        return slope, None


class _Attend(Function):
    """Head by head, so that no head has to be copied out of its row."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, seen: Tensor) -> Tensor:
        z, hidden, patterns = torch.empty_like(q), seen.log(), []
        for head in range(q.shape[-2]):
            k, v = kv[:, :, :, head].unbind(2)
            pattern = torch.baddbmm(hidden, q[:, :, head], k.mT, alpha=q.shape[-1] ** -0.5)
            pattern.sub_(pattern.amax(-1, keepdim=True)).clamp_(min=FLOOR).exp_().mul_(seen)
            pattern.div_(_row_sums(pattern))
            z[:, :, head] = torch.bmm(pattern, v)
            patterns.append(pattern)
        ctx.save_for_backward(q, kv, *patterns)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        q, kv, *patterns = ctx.saved_tensors
        dq, dkv = torch.empty_like(q), torch.empty_like(kv)
        for head, pattern in enumerate(patterns):
            k, v = kv[:, :, :, head].unbind(2)
            dz = gradients[0][:, :, head]
            dkv[:, :, 1, head] = torch.bmm(pattern.mT, dz)
            scores = torch.bmm(dz, v.mT).mul_(pattern)
            scores.addcmul_(pattern, _row_sums(scores), value=-1).mul_(q.shape[-1] ** -0.5)
            dq[:, :, head] = torch.bmm(scores, k)
            dkv[:, :, 0, head] = torch.bmm(scores.mT, q[:, :, head])
        return dq, dkv, None


def _row_sums(x: Tensor) -> Tensor:
    """(..., 1): as a product, which takes a third of the time of a sum along a short axis."""
    return x @ x.new_ones(x.shape[-1], 1)
