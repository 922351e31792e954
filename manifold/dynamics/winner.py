"""Which of several rival circuits training ends in, and when, before it begins (theory, section 6).

At a state c, a circuit is taken out by setting to 0 those of its own coordinates that are positive:
on the same directions a negative value is no part of it. Its *rise* is by how much that raises the
loss, at most up to the loss at zero, which is that of guessing: what is left can be worse than that
by accident. *dominance* is (first - second) / (first + second) of the two largest rises: 1 where
all the work is done by one, 0 where it is shared. One wins where its rise is at least LEAST of the
loss of guessing, and dominance at least CLEAR; else the winner is "neither".
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from manifold.dynamics.field import ReducedField
from manifold.dynamics.rivalry import Rivalry

NEITHER = "neither"
LEAST = 0.25
"""Share of the loss of guessing by which the loss must rise without a winner."""
CLEAR = 1 / 3
"""Dominance of a winner: without it the loss rises at least twice as far as without the next."""
LEARNT = 0.5
"""Share of the loss of guessing below which something has been learnt: its first time is the
onset."""
TIMES = 61
"""Times, evenly spaced, at which a predicted run is looked at."""
RTOL = 1e-4


def who_won(field: ReducedField, states: np.ndarray, rivalry: Rivalry) -> xr.Dataset:
    """Who does the work at each of these states, (state, dim).

    loss (state), without (state, circuit): nats. dominance (state): 0 where nobody's rise is
    positive. lead (state, circuit): the circuit's rise less the largest of the others', over their
    sum, from -1 to 1. winner (state): a circuit's name, or "neither".
    ValueError for other shapes, NaN, and a field that lacks a coordinate of the rivalry.
    """
    states = _checked(field, states)
    own = rivalry.places(field.names)
    loss = np.array([field.loss(c) for c in states])
    without = np.array([[field.loss(np.where(out & (c > 0), 0.0, c)) for out in own]
                        for c in states]).reshape(len(states), len(own))  # fmt: skip
    return judged(field.loss(np.zeros(field.dim)), loss, without, rivalry)


def judged(guessing: float, loss: np.ndarray, without: np.ndarray, rivalry: Rivalry) -> xr.Dataset:
    """The verdicts that these losses give; guessing: the loss of the model of zeros, nats."""
    rise = np.maximum(np.minimum(without, guessing) - loss[:, None], 0.0)
    order = np.sort(rise, axis=1)
    first, second = order[:, -1], order[:, -2]
    dominance = _share(first - second, first + second)
    best = rise.argmax(1)
    others = np.where(np.arange(rise.shape[1]) == best[:, None], second[:, None], first[:, None])
    wins = (first >= LEAST * guessing) & (dominance >= CLEAR)
    winner = np.where(wins, np.array(rivalry.names)[best], NEITHER)
    return xr.Dataset(
        {
            "loss": ("state", loss, {"units": "nats"}),
            "without": (("state", "circuit"), without, {"units": "nats"}),
            "dominance": ("state", dominance),
            "lead": (("state", "circuit"), _share(rise - others, rise + others)),
            "winner": ("state", winner),
        },
        coords={"circuit": list(rivalry.names)},
        attrs={"guessing": guessing},
    )


def predict_winner(
    field: ReducedField,
    starts: np.ndarray,
    rivalry: Rivalry,
    horizon: float,
    weight_decay: float = 0.0,
) -> xr.Dataset:
    """Follow the field from each start, (start, dim), and say which circuit wins, and when.

    As `who_won` at time `horizon` (the sum of learning rates), with

    onset (start): the first time at which the loss is below half of that of guessing, linear
        between 61 times; NaN where that never happens.
    grade (start, circuit): the lead at the onset, where winners are not yet all alike, or at the
        horizon where there is none: the prediction by degrees.
    end (start, coordinate): the state at the horizon.

    ValueError as `who_won`, and for a horizon that is not positive.
    """
    starts = _checked(field, starts)
    rivalry.places(field.names)
    if not (np.isfinite(horizon) and horizon > 0):
        raise ValueError(f"predict_winner: horizon got {horizon!r}; allowed: a time above 0")
    times = np.linspace(0.0, horizon, TIMES)
    guessing = field.loss(np.zeros(field.dim))
    onset = np.full(len(starts), np.nan)
    ends, middle = np.empty_like(starts), np.empty_like(starts)
    for i, start in enumerate(starts):
        course = field.integrate(start, times, weight_decay, rtol=RTOL)
        onset[i] = onset_time(times, np.array([field.loss(c) for c in course]), guessing)
        ends[i] = middle[i] = course[-1]
        if np.isfinite(onset[i]):
            middle[i] = course[np.searchsorted(times, onset[i])]
    found = who_won(field, ends, rivalry).assign(
        grade=who_won(field, middle, rivalry)["lead"],
        onset=("state", onset, {"units": "sum of learning rates"}),
        end=(("state", "coordinate"), ends),
    )
    named = found.assign_coords(coordinate=list(field.names)).rename(state="start")
    return named.assign_attrs(horizon=horizon, weight_decay=weight_decay)


def onset_time(times: np.ndarray, loss: np.ndarray, guessing: float) -> float:
    """First time at which the loss is below LEARNT of `guessing`, linear between; NaN if never."""
    below = np.flatnonzero(loss < LEARNT * guessing)
    if not len(below):
        return np.nan
    k = below[0]
    if k == 0:
        return float(times[0])
    part = (loss[k - 1] - LEARNT * guessing) / (loss[k - 1] - loss[k])
    return float(times[k - 1] + part * (times[k] - times[k - 1]))


def _checked(field: ReducedField, states: np.ndarray) -> np.ndarray:
    states = np.asarray(states, dtype=float)
    if states.ndim != 2 or states.shape[1] != field.dim or not len(states):
        raise ValueError(
            f"states got an array {states.shape}; allowed: one row of {field.dim} coordinates for "
            f"each state, at least one"
        )
    bad = np.flatnonzero(~np.isfinite(states).all(1))
    if len(bad):
        raise ValueError(
            f"states: row {bad[0]} is not finite; was that run stopped as diverged? leave it out"
        )
    return states


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
