"""Interval of kappa and of kappa / kappa_sep: a bootstrap over all that was left to chance.

One draw takes data seeds with replacement, for each of them and each of its searches
initialisation seeds with replacement, and for each search a value of N* log-uniform between the
neighbouring sizes that bracket it. A resample of initialisation seeds holds fewer different ones
than were trained, so its N* is never below the one that was found: the interval of one N* is
lopsided, and in kappa numerator and denominator share that.

Where a bracket is open, N* at the bottom of its grid or bounded by no size above, a draw is itself
a range; the interval goes from the low ends of the draws to their high ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from training.sharing.n_star import NStar
from training.sharing.replicate import Replicate, prefix_size, separate_size
from training.tasks.base import generator

DRAWS = 2000
LEVEL = 0.95

T = TypeVar("T")
Interval = tuple[float, float | None]
"""Low end, and high end (None: no upper end)."""
Range = tuple[np.ndarray, np.ndarray]
"""Low and high ends of draws; equal where a draw is one value."""


def kappa_intervals(replicates: Sequence[Replicate], seed: int = 0) -> tuple[Interval, Interval]:
    """Of kappa and of its ratio to kappa_sep, geometric means over the replicates; 95%.

    The same replicates and seed give the same intervals.
    """
    kappa, ratio = _bootstrap(replicates, _kappa_logs, seed)
    return kappa, ratio


def ratio_interval(pairs: Sequence[tuple[NStar, NStar]], seed: int = 0) -> Interval:
    """Of the geometric mean over data seeds of one N* over another, one pair per data seed; 95%."""
    return _bootstrap(pairs, _pair_logs, seed)[0]


def prefix_interval(replicates: Sequence[Replicate], seed: int = 0) -> Interval:
    """Of the geometric mean of `prefix_size` over N*_joint; 95%."""
    return _bootstrap(replicates, _prefix_logs, seed)[0]


def interval_covers(replicates: Sequence[Replicate]) -> tuple[str, ...]:
    """Which sources of chance the intervals have in them: "grid", "initialisation", "data".

    Initialisation needs several seeds and members trained to their own ends (n50); data needs
    several data seeds.
    """
    stars = [star for replicate in replicates for star in replicate.stars.values()]
    covered = ["grid"]
    if all(star.complete and len(star.seeds) > 1 for star in stars):
        covered.append("initialisation")
    return (*covered, "data") if len(replicates) > 1 else tuple(covered)


def draw_n_star(star: NStar, count: int, draw: np.random.Generator) -> Range:
    """`count` draws of N*, each of a resample of the seeds and from inside its bracket."""
    picks = draw.integers(0, len(star.seeds), (count, len(star.seeds)))
    present = np.bitwise_or.reduce(1 << picks, axis=1)
    subsets, which = np.unique(present, return_inverse=True)
    brackets = [
        star.bracket([seed for bit, seed in enumerate(star.seeds) if subset >> bit & 1])
        for subset in subsets.tolist()
    ]
    ends = [(low, np.inf if high is None else high) for low, high in brackets]
    low, high = np.array(ends, dtype=np.float64)[which].T
    closed = (low > 0) & np.isfinite(high)
    share = draw.random(count)[closed]
    inside = low[closed] ** (1 - share) * high[closed] ** share
    low[closed] = high[closed] = inside
    return low, high


def _bootstrap(
    units: Sequence[T], logs: Callable[[T, int, np.random.Generator], np.ndarray], seed: int
) -> list[Interval]:
    """Intervals of geometric means over units drawn with replacement.

    logs(unit, count, draw): (2 q, count), logarithms of the low ends of q quantities, then of the
    high ends.
    """
    draw = generator(seed, *b"kappa")
    chosen = draw.integers(0, len(units), (len(units), DRAWS))
    drawn = [logs(unit, int((chosen == index).sum()), draw) for index, unit in enumerate(units)]
    every = np.empty((len(drawn[0]), *chosen.shape))
    for index, values in enumerate(drawn):
        every[:, chosen == index] = values
    low, high = np.split(np.exp(every.mean(axis=1)), 2)
    return [_quantiles(*ends) for ends in zip(low, high, strict=True)]


def _pair_logs(pair: tuple[NStar, NStar], count: int, draw: np.random.Generator) -> np.ndarray:
    (above_low, above_high), (below_low, below_high) = (
        draw_n_star(star, count, draw) for star in pair
    )
    with np.errstate(divide="ignore"):
        return np.log(np.stack([above_low / below_high, above_high / below_low]))


def _prefix_logs(replicate: Replicate, count: int, draw: np.random.Generator) -> np.ndarray:
    alone = {n: draw_n_star(star, count, draw) for n, star in replicate.alone.items()}
    joint_low, joint_high = draw_n_star(replicate.joint, count, draw)
    low, high = (_needed(alone, replicate.pools, end, prefix_size) for end in (0, 1))
    with np.errstate(divide="ignore"):
        return np.log(np.stack([low / joint_high, high / joint_low]))


def _needed(
    alone: Mapping[int, Range], pools: Mapping[int, int], end: int, size: Callable[..., np.ndarray]
) -> np.ndarray:
    """`size` of one end of the draws; infinite where a length needs more than there is."""
    values = {n: np.minimum(ends[end], float(pools[n])) for n, ends in alone.items()}
    unbounded = np.any([np.isinf(ends[end]) for ends in alone.values()], axis=0)
    return np.where(unbounded, np.inf, size(values, pools))


def _kappa_logs(replicate: Replicate, count: int, draw: np.random.Generator) -> np.ndarray:
    """Of kappa and of its ratio to kappa_sep."""
    alone = {n: draw_n_star(star, count, draw) for n, star in replicate.alone.items()}
    joint_low, joint_high = draw_n_star(replicate.joint, count, draw)
    size = partial(separate_size, distribution=replicate.distribution)
    separate_low, separate_high = (_needed(alone, replicate.pools, end, size) for end in (0, 1))
    low, high = (sum(ends[end] for ends in alone.values()) for end in (0, 1))
    with np.errstate(divide="ignore"):
        return np.log(
            np.stack(
                [
                    low / joint_high,
                    separate_low / joint_high,
                    high / joint_low,
                    separate_high / joint_low,
                ]
            )
        )


def _quantiles(low: np.ndarray, high: np.ndarray) -> Interval:
    """Outward to the nearest draw, so that no mean is taken with an infinite one."""
    tail = (1 - LEVEL) / 2
    upper = float(np.quantile(high, 1 - tail, method="higher"))
    return float(np.quantile(low, tail, method="lower")), upper if np.isfinite(upper) else None
