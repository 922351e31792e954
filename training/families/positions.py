"""Positions without parameters: sinusoids added to the residual, rotations of queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor

from training.families.base import lookup

BASE = 10_000
"""Wavelengths run from 2 pi to about 2 pi BASE, as in both papers."""


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """sin and cos of p / BASE^(2 i / width) at entries 2i and 2i + 1, (..., width), norm 1.

    arXiv 1706.03762, section 3.5, divided by sqrt(width / 2): there the token's embedding is
    scaled up instead. positions: integers from 0, any shape; width: even.
    """
    angles = _angles(positions, width)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2) * (2 / width) ** 0.5
    return lookup(table.to(dtype), positions)


def rotation(positions: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of p / BASE^(2 i / width), (..., width / 2) each, for `rotate`."""
    angles = _angles(positions, width)
    table = torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)
    cos, sin = lookup(table, positions).chunk(2, dim=-1)
    return cos, sin


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Entries i and i + width / 2 of x (..., width) turned as one plane each (arXiv 2104.09864).

    q.k then depends on the difference of their positions alone.
    """
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _angles(positions: Tensor, width: int) -> Tensor:
    """(largest position + 1, width / 2), float64."""
    count = int(positions.max()) + 1 if positions.numel() else 0
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    places = torch.arange(count, dtype=torch.float64, device=positions.device)
    return places[:, None] * BASE**-exponents
