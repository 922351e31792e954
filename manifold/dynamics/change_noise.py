"""Noise that a series has without change: white, or remembering, by checkpoints or by time.

Stationary Gaussian Markov noise: y_i = r_i y_(i - 1) + sqrt(1 - r_i^2) e_i, of variance 1. Either
r is the same for each checkpoint, or r_i = exp(-gap_i / tau), Ornstein-Uhlenbeck: what relaxes in
training does so in time, so that on log-spaced steps the late checkpoints forget and the early ones
do not. On even steps both are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

MEMORY = (0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 0.99)
"""Correlations tried, from checkpoint to checkpoint."""
TIMES = 8
"""Relaxation times tried on uneven steps, in equal ratios from the least gap to the span."""

WHITE, LASTING = (0.1, 0.4), 0.5
"""Shares of white noise that noise of a mean r above this may be read with."""


@lru_cache(maxsize=8)
def noises(x: tuple[float, ...]) -> np.ndarray:
    """r of each noise that is tried, (noises, n - 1). x: log(step + constant), increasing."""
    gaps = np.diff(np.exp(np.array(x)))
    kept = np.repeat(np.array(MEMORY)[:, None], len(gaps), axis=1)
    if np.ptp(gaps) > 1e-6 * gaps.max():
        times = np.geomspace(gaps.min(), gaps.sum(), TIMES)
        kept = np.concatenate([kept, np.exp(-gaps / times[:, None])])
    kept.setflags(write=False)
    return kept


def whiten(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Rows (.., n) of noise with r `kept` (n - 1,) to white noise: their e."""
    out = rows.copy()
    out[..., 1:] -= kept * rows[..., :-1]
    out[..., 1:] /= np.sqrt(1 - kept**2)
    return out


def log_determinant(kept: np.ndarray) -> np.ndarray:
    """Of the covariance, (..), for r (.., n - 1)."""
    return np.log1p(-(kept**2)).sum(-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Null:
    """Noise that a series without change may have: sqrt(1 - white) y + sqrt(white) e, e white.

    A score is a state that relaxes, read from few sequences; which of `noises` y is: `kept`.
    """

    kept: np.ndarray
    white: float

    def drawn(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, n)."""
        shocks = rng.normal(size=(2, count, len(self.kept) + 1))
        noise, fresh = shocks[0], np.sqrt(1 - self.kept**2)
        for i, r in enumerate(self.kept):
            noise[:, i + 1] = r * noise[:, i] + fresh[i] * noise[:, i + 1]
        return np.sqrt(1 - self.white) * noise + np.sqrt(self.white) * shocks[1]

    def root(self) -> np.ndarray:
        """The covariance's lower Cholesky factor, (n, n)."""
        along = np.append(0.0, np.cumsum(np.log(np.maximum(self.kept, 1e-300))))
        covariance = (1 - self.white) * np.exp(-np.abs(along[:, None] - along))
        return np.linalg.cholesky(covariance + self.white * np.eye(len(along)))


@lru_cache(maxsize=8)
def nulls(x: tuple[float, ...]) -> tuple[Null, ...]:
    """Every one of `noises` alone, and those that last with a share of white noise."""
    alone = [Null(kept=kept, white=0.0) for kept in noises(x)]
    lasting = [null.kept for null in alone if null.kept.mean() > LASTING]
    return (*alone, *(Null(kept=kept, white=white) for white in WHITE for kept in lasting))
