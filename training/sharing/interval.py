"""Interval of kappa and of kappa / kappa_sep: a bootstrap over all that was left to chance.

One draw takes data seeds with replacement, for each of them and each of its searches
initialisation seeds with replacement, and for each search a value of N* log-uniform between the
neighbouring sizes that bracket it. A resample of initialisation seeds holds fewer different ones
than were trained, so its N* is never below the one that was found: the interval of one N* is
lopsided, and in kappa numerator and denominator share that.

Of a few data seeds the spread cannot be told from them, and a bootstrap of two values covers the
mean they were drawn around with 64 to 74% instead of 95. So where data seeds are resampled each N*
is also spread by SPREAD, what one data seed differs from another by. In simulations with two data
seeds that cover by 91 to 100%, where the true spread is 1.16 to 1.5 (the tests have one of them).

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
SPREAD = 1.3
"""Standard deviation, as a factor, of N* between data seeds: a grid step is usual (theory, section
7), and so it is in docs/kappa-small.json."""

T = TypeVar("T")
Interval = tuple[float, float | None]
"""Low end, and high end (None: no upper end)."""
Range = tuple[np.ndarray, np.ndarray]
"""Low and high ends of draws; equal where a draw is one value."""
Draws = Callable[[NStar], Range]


def kappa_intervals(replicates: Sequence[Replicate], seed: int = 0) -> tuple[Interval, Interval]:
    """Of kappa and of its ratio to kappa_sep, geometric means over the replicates; 95%.

    The same replicates and seed give the same intervals.
    """
    kappa, ratio = _bootstrap(replicates, _kappa_logs, seed)
    return kappa, ratio


def ratio_interval(pairs: Sequence[tuple[NStar, NStar]]) -> Interval:
    """Of the geometric mean over data seeds of one N* over another, one pair per data seed; 95%."""
    return _bootstrap(pairs, _pair_logs, 0)[0]


def prefix_interval(replicates: Sequence[Replicate]) -> Interval:
    """Of the geometric mean of `prefix_size` over N*_joint; 95%."""
    return _bootstrap(replicates, _prefix_logs, 0)[0]


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


def draw_n_star(star: NStar, count: int, draw: np.random.Generator, spread: float = 1.0) -> Range:
    """`count` draws of N*, each of a resample of the seeds and from inside its bracket.

    spread: each draw is then multiplied by a factor, log-normal with this standard deviation.
    """
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
    factor = np.exp(np.log(spread) * draw.standard_normal(count))
    return low * factor, high * factor


def _bootstrap(
    units: Sequence[T], logs: Callable[[T, Draws], np.ndarray], seed: int
) -> list[Interval]:
    """Intervals of geometric means over units drawn with replacement.

    logs(unit, draws): (2 q, count), logarithms of the low ends of q quantities, then of the high
    ends; draws(star) draws a search's N* as often as wanted.
    """
    draw = generator(seed, *b"kappa")
    chosen = draw.integers(0, len(units), (len(units), DRAWS))
    spread = SPREAD if len(units) > 1 else 1.0
    drawn = []
    for index, unit in enumerate(units):
        count = int((chosen == index).sum())
        drawn.append(logs(unit, partial(draw_n_star, count=count, draw=draw, spread=spread)))
    every = np.empty((len(drawn[0]), *chosen.shape))
    for index, values in enumerate(drawn):
        every[:, chosen == index] = values
    low, high = np.split(np.exp(every.mean(axis=1)), 2)
    return [_quantiles(*ends) for ends in zip(low, high, strict=True)]


def _pair_logs(pair: tuple[NStar, NStar], draws: Draws) -> np.ndarray:
    (above_low, above_high), (below_low, below_high) = map(draws, pair)
    with np.errstate(divide="ignore"):
        return np.log(np.stack([above_low / below_high, above_high / below_low]))


def _prefix_logs(replicate: Replicate, draws: Draws) -> np.ndarray:
    alone = {n: draws(star) for n, star in replicate.alone.items()}
    joint_low, joint_high = draws(replicate.joint)
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


def _kappa_logs(replicate: Replicate, draws: Draws) -> np.ndarray:
    """Of kappa and of its ratio to kappa_sep."""
    alone = {n: draws(star) for n, star in replicate.alone.items()}
    joint_low, joint_high = draws(replicate.joint)
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
