"""Events of scores: a fall of what was learnt from context, and of memory in its place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from manifold.dynamics.change_point import change_point
from manifold.dynamics.event import Event

FALL = 0.1
"""A fall of a score from its peak by at least this much, and no noise, is one."""
FEWEST = 8
"""Checkpoints below which a peak and a fall cannot be told apart."""


def transience(
    steps: np.ndarray,
    scores: Mapping[str, np.ndarray],
    level: float,
    unanswered: list[str],
) -> list[Event]:
    """The ICL score falls from its peak and stays there."""
    if "ICL" not in scores or len(steps) < FEWEST:
        unanswered.append(f"transience: it needs an ICL score at {FEWEST} checkpoints or more")
        return []
    fall = _fall(steps, scores["ICL"], level)
    if fall is None:
        return []
    peak, below, said = fall
    return [_event("transience", "ICL", steps[below], steps[peak], said)]


def overfitting(
    steps: np.ndarray,
    scores: Mapping[str, np.ndarray],
    level: float,
    unanswered: list[str],
) -> list[Event]:
    """Memory instead of context: IWL rises from the peak of the mismatch accuracy on, which falls.

    Queries whose label in context is not the one in weights are then answered from the weights.
    """
    if not {"mismatch", "IWL"} <= set(scores) or len(steps) < FEWEST:
        unanswered.append(
            f"overfitting: it needs accuracies of mismatch and iwl at {FEWEST} checkpoints or more"
        )
        return []
    fall = _fall(steps, scores["mismatch"], level)
    if fall is None:
        return []
    peak, below, said = fall
    weights = scores["IWL"]
    before = float(np.median(weights[max(0, peak - 1) : peak + 2]))
    after = float(np.median(weights[-3:]))
    if after - before < max(FALL, 4 * _scatter(weights)):
        return []
    said = f"mismatch {said}; IWL rises from {before:.2f} to {after:.2f}"
    return [_event("overfitting", "IWL over mismatch", steps[below], steps[peak], said)]


def _fall(steps: np.ndarray, score: np.ndarray, level: float) -> tuple[int, int, str] | None:
    """(peak, where half of the fall is done, in words); None where there is no fall that stays.

    The median of its end lies below the peak by 0.1 and by 4 times the scatter between neighbours,
    and the series has changed by the test that onsets take, as a whole or from its peak on, half
    of `level` each: a rise and a fall together are a hump, which a polynomial bends to.
    """
    smooth = np.array([np.median(score[max(0, i - 1) : i + 2]) for i in range(len(score))])
    scatter, peak, end = _scatter(score), int(smooth.argmax()), float(np.median(score[-3:]))
    fall = smooth[peak] - end
    if peak >= len(score) - 3 or fall < max(FALL, 4 * scatter):
        return None
    parts = (slice(None), slice(peak, None))
    if not any(change_point(steps[part], score[part], level / 2).found for part in parts):
        return None
    below = peak + int(np.flatnonzero(smooth[peak:] <= end + fall / 2)[0])
    said = (
        f"falls from {smooth[peak]:.2f} at step {steps[peak]:g} to {end:.2f} at the end; "
        f"neighbours scatter by {scatter:.2f}"
    )
    return peak, below, said


def _scatter(score: np.ndarray) -> float:
    return 1.4826 * float(np.median(np.abs(np.diff(score))))


def _event(kind: str, what: str, step: float, low: float, evidence: str) -> Event:
    return Event(
        kind=kind, what=what, step=float(step), low=float(low), high=float(step), evidence=evidence
    )
