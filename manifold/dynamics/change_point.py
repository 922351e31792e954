"""When a series along training changes: a step or a kink in log step, against a smooth trend.

No change is a polynomial in log step with noise that remembers, from checkpoint to checkpoint or in
time (`change_noise`). A change adds one shape to it: `logistic`
(a level left for another) or `hinge` (a slope left for another). It is announced where

- it would be that strong in at most `level` of simulated series that have no change, with the
  trend and the noise of this one, and
- BIC, corrected for few points, prefers it to every polynomial of as many parameters, so that a
  curve that merely bends is not a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manifold.dynamics.change_shapes import ROUNDING, Fit, chance, fit_change

FEWEST = 8
"""Points below which a step, its place, its width and the noise cannot be told apart."""
LONGEST = 300
"""Series with more points are thinned to so many, evenly in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """Whether and where a series changes.

    step: the middle of a logistic, the corner of a hinge; low, high: 95% by profile likelihood,
    in steps. size: height of the step, or what the kink adds by the end; in units of the series.
    width: of the logistic, in log step (its middle half takes 2.2 widths); 0 for a hinge.
    evidence: BIC of the best curve without change less BIC of the change; positive speaks for it.
    p: share of series without change in which a change would be as strong, where it is above the
    level perhaps more; NaN, since it is not asked, where a smooth curve explains the series as
    well. reason: in words.
    All but `found` and `reason` are NaN and shape is "" where nothing could be fitted.
    """

    found: bool
    reason: str
    step: float = np.nan
    low: float = np.nan
    high: float = np.nan
    shape: str = ""
    size: float = np.nan
    width: float = np.nan
    evidence: float = np.nan
    p: float = np.nan


def change_point(
    steps: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, level: float = 0.05
) -> ChangePoint:
    """The strongest change of one series; `level`: the rate of false alarms that is accepted.

    steps (n,): increasing, from 0 on; the axis is log(step + first gap). values (n,): finite.
    ValueError for other input. With fewer than 8 points, or a series that does not move, or is a
    polynomial to rounding, the answer is no change, with the reason.
    """
    steps, values = _checked(steps, values, level)
    if len(steps) < FEWEST:
        return ChangePoint(
            found=False, reason=f"{len(steps)} points are too few to tell; {FEWEST} are needed"
        )
    if np.ptp(values) <= ROUNDING * np.abs(values).max():
        return ChangePoint(found=False, reason="the series never moves")
    if len(steps) > LONGEST:
        kept = np.unique(np.linspace(0, len(steps) - 1, LONGEST).round().astype(int))
        steps, values = steps[kept], values[kept]
    first_gap = float(steps[1] - steps[0])
    x, y = np.log(steps + first_gap), (values - values.mean()) / np.ptp(values)
    fit = fit_change(tuple(x), y)
    if fit is None:
        return ChangePoint(found=False, reason="the series is a smooth curve to rounding")
    smooth = fit.evidence <= 0
    p = np.nan if smooth else _chance(tuple(x), fit, level)
    found = bool(p <= level)
    low, high, step = (float(np.exp(at) - first_gap) for at in (fit.low, fit.high, fit.at))
    if found:
        reason = f"a {fit.shape} explains it better than a smooth curve (BIC {fit.evidence:.1f})"
    elif smooth:
        reason = f"a smooth curve explains it as well (BIC {fit.evidence:.1f})"
    else:
        reason = f"series without change look like it ({p:.2g} of them or more, level {level:.2g})"
    return ChangePoint(
        found=found,
        reason=reason,
        step=step,
        low=max(low, float(steps[0])),
        high=min(high, float(steps[-1])),
        shape=fit.shape,
        size=fit.size * float(np.ptp(values)),
        width=fit.width,
        evidence=fit.evidence,
        p=p,
    )


def _chance(x: tuple[float, ...], fit: Fit, level: float) -> float:
    """The largest over plausible noises; the first that is above the level decides."""
    largest = 0.0
    for noise in fit.plausible:
        largest = max(largest, chance(x, noise, fit.gain))
        if largest > level:
            break
    return largest


def _checked(steps, values, level: float) -> tuple[np.ndarray, np.ndarray]:
    steps, values = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    if steps.ndim != 1 or steps.shape != values.shape:
        raise ValueError(
            f"steps {steps.shape} and values {values.shape} must be two lists of one length"
        )
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; a rate of false alarms between 0 and 1, e.g. 0.05")
    for name, array in (("steps", steps), ("values", values)):
        wrong = np.flatnonzero(~np.isfinite(array))
        if len(wrong):
            raise ValueError(
                f"{name}[{wrong[0]}] is {array[wrong[0]]} ({len(wrong)} of {len(array)} are not "
                "finite); drop the checkpoints that were not measured"
            )
    back = np.flatnonzero(np.diff(steps) <= 0)
    if len(back):
        raise ValueError(
            f"steps must increase; steps[{back[0]}] = {steps[back[0]]:g} is followed by "
            f"{steps[back[0] + 1]:g}: sort the checkpoints and keep each once"
        )
    if len(steps) and steps[0] < 0:
        raise ValueError(f"steps start at {steps[0]:g}; they count updates, from 0 on")
    return steps, values
