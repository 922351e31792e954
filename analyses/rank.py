"""Rank correlation with its interval."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from training.tasks.base import generator


def rank_correlation(x: np.ndarray, y: np.ndarray, draws: int = 2000) -> tuple[float, float, float]:
    """Spearman's, with its 95% bootstrap interval over the pairs; draws without spread are left
    out."""
    draw = generator(0, *b"rank")
    found = []
    for rows in draw.integers(0, len(x), (draws, len(x))):
        if len(set(x[rows])) > 1 and len(set(y[rows])) > 1:
            found.append(_spearman(x[rows], y[rows]))
    low, high = np.percentile(found, [2.5, 97.5]) if found else (-1.0, 1.0)
    return _spearman(x, y), float(low), float(high)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """0 where one of them has no spread."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
