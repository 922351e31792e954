"""Shares with Wilson's interval, means with Student's, and medians with a bootstrap one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from training.tasks.base import generator

DRAWS = 2000


def wilson(hits: int, total: int, level: float = 0.95) -> dict[str, float]:
    """hits, total, share and its interval (Wilson 1927), never outside 0 to 1.

    ValueError unless 0 <= hits <= total and total is positive.
    """
    if not 0 <= hits <= total or total < 1:
        raise ValueError(f"wilson: {hits} of {total}; allowed: 0 to all of one or more")
    z = float(norm.ppf((1 + level) / 2))
    share = hits / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return {"hits": hits, "total": total, "share": share, "low": low, "high": high}


def mean(values: Sequence[float] | np.ndarray, level: float = 0.95) -> dict[str, float]:
    """value, and low and high of its interval by Student's t over so many draws.

    A percentile bootstrap of a few cannot leave their least and largest, and is too narrow.
    One value is bounded by nothing: its interval is infinite. ValueError for none.
    """
    values = np.asarray(values, dtype=float)
    if not len(values):
        raise ValueError("mean: no values; allowed: one or more")
    if len(values) == 1:
        return {"value": float(values[0]), "low": -np.inf, "high": np.inf}
    half = student.ppf((1 + level) / 2, len(values) - 1)
    half *= float(np.std(values, ddof=1)) / np.sqrt(len(values))
    middle = float(np.mean(values))
    return {"value": middle, "low": middle - float(half), "high": middle + float(half)}


def median(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """value, and low and high of its 95% percentile bootstrap."""
    values = np.asarray(values, dtype=float)
    rows = generator(0, *b"median").integers(0, len(values), (DRAWS, len(values)))
    low, high = np.percentile(np.median(values[rows], axis=1), [2.5, 97.5])
    return {"value": float(np.median(values)), "low": float(low), "high": float(high)}
