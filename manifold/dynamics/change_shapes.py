"""The shapes that a change can have, fitted beside a smooth trend with noise that remembers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit
from scipy.stats import f as f_distribution

from manifold.dynamics.change_noise import log_determinant, noises, nulls, whiten

SHORT = 20
"""Below so many points the trend is a line, from there on a parabola."""
DRAWS = 399
"""Simulated series without change."""
FIRST, COMMON = 39, 10
"""Where so many of the first draws are as strong, a quarter of all are, and no more are made."""
TAIL = 0.1
"""The share of the simulated series that the tail is fitted on."""
SMOOTHEST = 5
"""Degree of the polynomials that a change has to beat."""
PLAUSIBLE = 6.0
"""Deviance above the best noise's up to which a noise is held possible: of the possible ones the
least favourable counts, since memory is underestimated in short series."""
AKAIKE = 2.0
"""By how much one parameter more must lower the deviance."""
PLACES, FINER = 60, 33
"""Places tried along the log axis, and then within two of their cells around the best."""
ROUNDING = 1e-9
"""Relative to the series: what is left of it below this is no noise to judge by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The best change: where it is on the log axis, and how much better than the trend alone.

    gain: twice the log likelihood ratio to the trend; plausible: which of `nulls` explain the
    series beside the trend alone, the best first.
    """

    shape: str
    at: float
    low: float
    high: float
    width: float
    size: float
    gain: float
    evidence: float
    plausible: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shapes:
    """Every change that is tried: place and width (K,), and under every noise its curve."""

    at: np.ndarray
    width: np.ndarray
    kept: np.ndarray  # (noises, n - 1)
    trends: tuple[np.ndarray, ...]  # for each noise, (n, degree + 1), orthonormal
    sides: tuple[np.ndarray, ...]  # for each noise, (K, n)
    logdet: np.ndarray  # (noises,)


@lru_cache(maxsize=8)
def _shapes(x: tuple[float, ...]) -> _Shapes:
    grid = np.array(x)
    span, n = np.ptp(grid), len(grid)
    inner = np.quantile(grid, [0.0, 1.0]) + np.array([1.0, -1.0]) * 0.04 * span
    # two points at the least lie on either side
    ends = max(inner[0], (grid[1] + grid[2]) / 2), min(inner[1], (grid[-2] + grid[-3]) / 2)
    places = np.linspace(*ends, PLACES)
    tried = _curves(grid, places, span / 2 ** np.arange(3.5, 8.0, 0.75), kinks=True)
    trend = _polynomial(grid, _degree(n))
    pairs = [_sides(trend, tried.curves, kept) for kept in noises(x)]
    return _Shapes(
        at=tried.at,
        width=tried.width,
        kept=noises(x),
        trends=tuple(base for base, _ in pairs),
        sides=tuple(side for _, side in pairs),
        logdet=log_determinant(noises(x)),
    )


def _degree(n: int) -> int:
    return 1 if n < SHORT else 2


def _polynomial(x: np.ndarray, degree: int) -> np.ndarray:
    """(n, degree + 1) orthonormal columns."""
    scaled = 2 * (x - x[0]) / np.ptp(x) - 1
    return np.linalg.qr(np.polynomial.legendre.legvander(scaled, degree))[0]


def _deviance(rest: np.ndarray, logdet: float, n: int) -> np.ndarray:
    """-2 log likelihood up to a constant, variance profiled out."""
    return n * np.log(np.maximum(rest, n * ROUNDING**2) / n) + logdet


def _rests(shapes: _Shapes, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For series (B, n): what the trend leaves (noises, B), and each shape (noises, B, K).

    Sums of squares times det^(1 / n), whose n log(.. / n) is the deviance: only the least of them
    need a logarithm.
    """
    n, alone, shaped = y.shape[1], [], []
    for index, kept in enumerate(shapes.kept):
        white, base = whiten(y, kept), shapes.trends[index].astype(y.dtype, copy=False)
        white = white - (white @ base) @ base.T
        total, scale = (white**2).sum(1), float(np.exp(shapes.logdet[index] / n))
        along = white @ shapes.sides[index].astype(y.dtype, copy=False).T
        np.subtract(total[:, None], np.square(along, out=along), out=along)
        floor = n * ROUNDING**2
        alone.append(scale * np.maximum(total, floor))
        shaped.append(np.multiply(np.maximum(along, floor, out=along), scale, out=along))
    return np.stack(alone), np.stack(shaped)


def fit_change(x: tuple[float, ...], y: np.ndarray) -> Fit | None:
    grid, n = np.array(x), len(x)
    shapes = _shapes(x)
    if _rest(grid, y, SMOOTHEST if n > 2 * SMOOTHEST else 2) < ROUNDING:
        return None
    trend, shaped = (rows[:, 0] for rows in _rests(shapes, y[None]))
    alone, least = n * np.log(trend / n), n * np.log(shaped.min(0) / n)
    best = int(least.argmin())
    kept = shapes.kept[int(shaped[:, best].argmin())]
    logistic = bool(shapes.width[best] > 0)
    near = _near(grid, shapes, best)
    finer = _least(grid, near.curves, y, kept)
    best, deviance = int(finer.argmin()), float(min(finer.min(), least.min()))
    count = _degree(n) + 1 + (3 if logistic else 2)
    free = max(n - count - 2, 1)
    allowed = deviance + n * np.log1p(f_distribution.ppf(0.95, 1, free) / free)
    close = np.concatenate([shapes.at[least <= allowed], near.at[finer <= allowed]])
    design = np.column_stack([_polynomial(grid, _degree(n)), near.curves[best]])
    white = whiten(design.T, kept).T
    size = float(np.linalg.lstsq(white, whiten(y[None], kept)[0], rcond=None)[0][-1])
    smooth = min(
        _smooth_deviance(x, y, degree) + _penalty(degree + 1, n)
        for degree in range(min(SMOOTHEST, n - 4) + 1)
    )
    half = np.ptp(near.at) / (FINER - 1) / 2
    return Fit(
        shape="logistic" if logistic else "hinge",
        at=float(near.at[best]),
        low=float(close.min() - half),
        high=float(close.max() + half),
        width=float(near.width[best]),
        size=size,
        gain=float(alone.min() - least.min()),
        evidence=float(smooth - deviance - _penalty(count, n)),
        plausible=_plausible(x, y, alone),
    )


def _plausible(x: tuple[float, ...], y: np.ndarray, alone: np.ndarray) -> tuple[int, ...]:
    """Which of `nulls`, from the trend's deviances `alone` under those that are of `noises`.

    A share of white noise is one parameter more: it counts where it lowers the deviance by 2."""
    n, deviances = len(x), list(alone)
    for inverse, base, logdet in _trends(x):
        white = inverse @ y
        rest = np.sum((white - base @ (base.T @ white)) ** 2)
        deviances.append(float(_deviance(rest, logdet, n)))
    if min(deviances[len(alone) :], default=np.inf) > alone.min() - AKAIKE:
        deviances = list(alone)
    least = min(deviances) + PLAUSIBLE
    return tuple(int(i) for i in np.argsort(deviances) if deviances[i] <= least)


@lru_cache(maxsize=4)
def _trends(x: tuple[float, ...]) -> tuple[tuple[np.ndarray, np.ndarray, float], ...]:
    """Of each of `nulls` that is not of `noises`: what makes it white (n, n), the trend then,
    orthonormal (n, degree + 1), and the covariance's log determinant."""
    trend, found = _polynomial(np.array(x), _degree(len(x))), []
    for null in nulls(x)[len(noises(x)) :]:
        root = null.root()
        inverse = solve_triangular(root, np.eye(len(x)), lower=True)
        base = np.linalg.qr(inverse @ trend)[0]
        found.append((inverse, base, 2 * float(np.log(np.diag(root)).sum())))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Curves:
    """(K, n) curves with place and width (K,)."""

    curves: np.ndarray
    at: np.ndarray
    width: np.ndarray


def _curves(x: np.ndarray, places: np.ndarray, widths: np.ndarray, kinks: bool) -> _Curves:
    """Logistics from 0 to 1 at every place and width, or (and) hinges that end at 1."""
    found = [(at, w, expit((x - at) / w)) for at in places for w in widths]
    if kinks:
        found += [(at, 0.0, np.maximum(x - at, 0.0) / (x[-1] - at)) for at in places]
    at, width, curves = (np.array(column) for column in zip(*found, strict=True))
    return _Curves(curves=curves, at=at, width=width)


def _near(x: np.ndarray, shapes: _Shapes, best: int) -> _Curves:
    """Finer places and widths around the best of all."""
    cell, at = np.ptp(shapes.at) / (PLACES - 1), shapes.at[best]
    places = np.linspace(at - 2 * cell, at + 2 * cell, FINER)
    places = places[(places > shapes.at.min() - cell / 8) & (places < shapes.at.max() + cell / 8)]
    width = shapes.width[best]
    widths = width * 2 ** np.linspace(-0.75, 0.75, 7) if width else np.empty(0)
    return _curves(x, places, widths, kinks=not width)


def _least(x: np.ndarray, curves: np.ndarray, y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Deviance of trend and curve, (K,), under one noise."""
    base, side = _sides(_polynomial(x, _degree(len(x))), curves, kept)
    white = whiten(y[None], kept)[0]
    rest = np.sum((white - base @ (base.T @ white)) ** 2) - (side @ white) ** 2
    return _deviance(rest, float(log_determinant(kept)), len(x))


def _sides(trend: np.ndarray, curves: np.ndarray, kept: np.ndarray):
    """Under a noise: the trend (n, degree + 1), orthonormal; curves (K, n) orthogonal to it and
    of length 1, or 0 where the trend has them."""
    base = np.linalg.qr(whiten(trend.T, kept).T)[0]
    side = whiten(curves, kept)
    length = np.linalg.norm(side, axis=1)
    for _ in range(2):
        side = side - (side @ base) @ base.T
    rest = np.linalg.norm(side, axis=1)
    lost = rest < 1e-6 * length
    side[lost] = 0.0
    return base, side / np.where(lost, 1.0, rest)[:, None]


def _rest(x: np.ndarray, y: np.ndarray, degree: int) -> float:
    base = _polynomial(x, degree)
    return float(np.abs(y - base @ (base.T @ y)).max())


def _smooth_deviance(x: tuple[float, ...], y: np.ndarray, degree: int) -> float:
    """Least over noises, of a polynomial."""
    found = []
    for kept, base in zip(noises(x), _whitened_polynomials(x, degree), strict=True):
        white = whiten(y[None], kept)[0]
        rest = np.sum((white - base @ (base.T @ white)) ** 2)
        found.append(float(_deviance(rest, float(log_determinant(kept)), len(x))))
    return min(found)


@lru_cache(maxsize=64)
def _whitened_polynomials(x: tuple[float, ...], degree: int) -> tuple[np.ndarray, ...]:
    """For each noise, (n, degree + 1), orthonormal."""
    design = _polynomial(np.array(x), degree)
    return tuple(np.linalg.qr(whiten(design.T, kept).T)[0] for kept in noises(x))


def _penalty(curve: int, n: int) -> float:
    """k log n with the correction for few points n / (n - k - 1), k = curve, variance, memory."""
    k = curve + 2
    return k * np.log(n) * n / max(n - k - 1, 1)


def chance(x: tuple[float, ...], noise: int, gain: float) -> float:
    """Share of series without change, of that one of `nulls`, with at least this gain.

    (1 + r) / (1 + draws), and among the largest tenth of the draws TAIL exp(-(gain - g) / s), g
    where that tenth begins and s its mean excess: gains are log likelihood ratios, whose tail is
    exponential, and levels shared by many series and looks lie below 1 / draws.
    """
    first = int(np.sum(_null(x, noise, 0, FIRST) >= gain))
    if first >= COMMON:
        return (1 + first) / (1 + FIRST)
    nulls = np.concatenate([_null(x, noise, 0, FIRST), _null(x, noise, FIRST, DRAWS)])
    begins = float(np.quantile(nulls, 1 - TAIL))
    if gain > begins:
        excess = float((nulls[nulls > begins] - begins).mean())
        return TAIL * float(np.exp(-(gain - begins) / excess))
    return float((1 + np.sum(nulls >= gain)) / (1 + len(nulls)))


@lru_cache(maxsize=128)
def _null(x: tuple[float, ...], noise: int, start: int, stop: int) -> np.ndarray:
    """Gains of simulated noise, in single precision: they depend neither on the trend's
    coefficients nor on the noise's variance, only on its memory and the checkpoints."""
    n, drawn = len(x), nulls(x)[noise].drawn(np.random.default_rng(0), DRAWS)[start:stop]
    trend, shaped = _rests(_shapes(x), drawn.astype(np.float32))
    return n * np.log(trend.min(0) / shaped.min((0, 2)))
