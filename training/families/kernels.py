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


def normalise(x: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) along the last axis: a layer norm before its gain."""
    return _Normalise.apply(x, epsilon)  # type: ignore[return-value]


def attend(qkv: Tensor) -> Tensor:
    """Causal attention: softmax over s <= t of q_t.k_s / sqrt(width), times v.

    qkv (..., time, 3, heads, width); what comes out is (..., time, heads, width).
    """
    return _Attend.apply(qkv)  # type: ignore[return-value]


class _Normalise(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        normal = x - mean
        scale = normal.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
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
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        *lead, time, _, heads, width = qkv.shape
        first = qkv.reshape(-1, time, 3, heads, width).permute(2, 0, 3, 1, 4).contiguous()
        q, k, v = first.view(3, -1, time, width)
        future = qkv.new_full((time, time), -torch.inf).triu(1)
        pattern = torch.baddbmm(future, q, k.mT, alpha=width**-0.5)
        pattern.sub_(pattern.amax(-1, keepdim=True)).exp_()
        pattern.div_(pattern.sum(-1, keepdim=True))
        ctx.save_for_backward(first, pattern)
        z = torch.bmm(pattern, v).view(-1, heads, time, width)
        return z.transpose(1, 2).reshape(*lead, time, heads, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor]:
        (g,) = gradients
        first, pattern = ctx.saved_tensors
        *lead, time, heads, width = g.shape
        dz = g.reshape(-1, time, heads, width).transpose(1, 2).reshape(-1, time, width)
        q, k, v = first.view(3, -1, time, width)
        slope = torch.empty_like(first)
        dq, dk, dv = slope.view(3, -1, time, width)
        torch.bmm(pattern.mT, dz, out=dv)
        scores = torch.bmm(dz, v.mT).mul_(pattern)
        scores.addcmul_(pattern, scores.sum(-1, keepdim=True), value=-1).mul_(width**-0.5)
        torch.bmm(scores, k, out=dq)
        torch.bmm(scores.mT, q, out=dk)
        return (slope.permute(1, 3, 0, 2, 4).reshape(*lead, time, 3, heads, width),)
