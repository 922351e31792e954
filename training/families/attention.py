"""Who sees whom in a sequence, and attention of the queries at some of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from training.families.kernels import attend
from training.families.positions import rotate


def seen_by(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a token sees another: none after it, and none with a negative position but itself.

    (time, time), or (..., batch, time, time) where some position is negative.
    """
    time = positions.shape[-1]
    seen = torch.ones(time, time, dtype=torch.bool, device=positions.device).tril()
    there = positions >= 0
    if not there.all():
        itself = torch.eye(time, dtype=torch.bool, device=positions.device)
        seen = seen & (there.unsqueeze(-2) | itself)
    return seen.to(dtype)


def rows_at(x: Tensor, at: Tensor | None) -> Tensor:
    """The tokens `at` (K, count) of x (K, batch, time, width), (K, 1, count, width); None: all."""
    if at is None:
        return x
    members, batch, time, width = x.shape
    first = torch.arange(members, device=x.device).unsqueeze(-1) * (batch * time)
    found = x.reshape(-1, width).index_select(0, (at + first).flatten())
    return found.view(members, 1, -1, width)


def attend_at(
    q: Tensor,
    kv: Tensor,
    turn: tuple[Tensor, Tensor] | None,
    seen: Tensor,
    at: Tensor | None,
) -> Tensor:
    """What the queries find, as q: (..., batch, time, heads, width), or (K, 1, count, heads, width)
    at the tokens `at`.

    kv (..., batch, time, 2, heads, width). turn: rotary cos and sin, (..., batch, time, 1, half).
    seen: as from `seen_by`. at (K, count): as in `rows_at`, equally many of each sequence in turn.
    """
    time = kv.shape[-4]
    if turn is not None:
        k, v = kv.unbind(-3)
        kv = torch.stack([rotate(k, turn), v], dim=-3)
        if at is not None:
            cos, sin = (rows_at(each.squeeze(-2), at).unsqueeze(-2) for each in turn)
            turn = cos, sin
        q = rotate(q, turn)
    flat = kv.reshape(-1, *kv.shape[-4:])
    if seen.ndim > 2:
        seen = seen.reshape(-1, time, time)
    if at is not None:
        row = at.view(len(flat), -1) % time
        each = torch.arange(len(flat), device=at.device).unsqueeze(-1)
        seen = seen[row] if seen.ndim == 2 else seen[each, row]
    return attend(q.reshape(len(flat), -1, *q.shape[-2:]), flat, seen).view(q.shape)
