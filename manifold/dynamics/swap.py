"""Where the copying circuit overtakes the answer from weights, or falls behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from manifold.dynamics.change_point import change_point
from manifold.dynamics.event import Event
from manifold.dynamics.suppression import contenders

MATTERS = 0.05
"""A contender is there from this share of the smaller of the two maxima on."""
STAYS = 3
"""Checkpoints for which a new leader must stay ahead."""


def swaps(steps: np.ndarray, by_name: Mapping[str, np.ndarray], level: float) -> list[Event] | None:
    """delta against the product alpha beta gamma (theory, section 5), None where they are not.

    Each is the mean over token classes. One leads after the other where the gap between them has
    changed (`change_point` at `level`: noise around a level crosses too), both mattered while they
    led, and the new one stays ahead for 3 checkpoints.
    """
    pair = contenders(by_name)
    if pair is None:
        return None
    gap = pair[1] - pair[0]
    if not len(gap) or not change_point(steps, gap, level).found:
        return []
    ahead, least = gap > 0, MATTERS * min(pair[0].max(), pair[1].max())
    starts = np.flatnonzero(np.diff(ahead.astype(int), prepend=-1))
    ends = np.append(starts[1:], len(gap))
    found, last = [], None  # last: the leader that stayed, and its last checkpoint
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        now = bool(ahead[start])
        if end - start < STAYS or pair[int(now)][start:end].max() <= least:
            continue
        if last is not None and last[0] != now:
            found.append(_swap(steps, pair, gap, last[1], start))
        last = now, end - 1
    return found


def _swap(
    steps: np.ndarray, pair: tuple[np.ndarray, ...], gap: np.ndarray, before: int, after: int
) -> Event:
    i = after - 1
    at = steps[i] + gap[i] / (gap[i] - gap[after]) * (steps[after] - steps[i])
    return Event(
        kind="swap",
        what="alpha beta gamma over delta" if gap[after] > 0 else "delta over alpha beta gamma",
        step=float(at),
        low=float(steps[before]),
        high=float(steps[after]),
        evidence=f"delta {pair[0][after]:.3g}, alpha beta gamma {pair[1][after]:.3g} at step "
        f"{steps[after]:g}",
    )
