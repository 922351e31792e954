"""How in-weights learning slows in-context learning, and burstiness speeds it.

Theorems 2 and 3 of arXiv 2607.11875 (theory, section 5) as things to measure: once delta answers
from the weights, the gradient of the in-context coordinates is said to be f_r + (1 - f_r) f_v of
what it was; and to be proportional to the burstiness b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from manifold.dynamics.field import ReducedField, reduced_field
from manifold.dynamics.population import Population
from manifold.dynamics.rollout import LEVEL, RESAMPLES
from manifold.dynamics.sample_parts import redrawn, sample_parts
from training.tasks.associative_recall import AssociativeRecall

INFINITY = 500.0
"""delta at which every match query's loss is zero to rounding: its limit."""
_CORNERS = {
    "rare": {"f_r": 1.0, "f_v": 0.0},
    "match": {"f_r": 0.0, "f_v": 0.0},
    "mismatch": {"f_r": 0.0, "f_v": 1.0},
}
"""The query's f_r and f_v under which every query is of one kind."""
ICL = ("alpha", "beta", "gamma")
LARGEST = 24.0
"""Up to here the delta of least loss is looked for."""
PARTS_OF_SAMPLE = 20
"""Parts of a field's sample, drawn anew for its intervals."""
PARTS = {
    "alpha": ("alpha", "1:M"),
    "beta": ("beta", "2:I_t I->V1", "2:I_c I->V1", "2:I_r I->V1"),
    "gamma": ("gamma", "out:I_t V2", "out:I_c V2", "out:I_r V2"),
    "delta": ("delta", "out:C I"),
}


def parts(names: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    """Where alpha, beta, gamma, delta are among coordinate names; None if one has no coordinate."""
    found = {
        part: tuple(i for i, name in enumerate(names) if name in alike)
        for part, alike in PARTS.items()
    }
    return found if all(found.values()) else None


def contenders(by_name: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """(delta, alpha beta gamma) of recall, or None where the coordinates are not there.

    0 where a factor is negative: then nothing is copied.
    """
    found = parts(tuple(by_name))
    if found is None:
        return None
    columns = np.array(list(by_name.values()))
    groups = [columns[list(index)] for index in found.values()]
    alpha, beta, gamma, delta = (np.maximum(np.mean(group, axis=0), 0.0) for group in groups)
    return delta, alpha * beta * gamma


def suppressed_share(f_r: float, f_v: float) -> float:
    """Theorem 2's factor f_r + (1 - f_r) f_v: the share of queries that weights cannot answer."""
    return f_r + (1 - f_r) * f_v


def suppression_along(field: ReducedField, states: np.ndarray) -> tuple[np.ndarray, float] | None:
    """(dL/dalpha at each state over the same with delta = 0, the theorem's factor), or None where
    the field has no delta, alpha or f_r and f_v. NaN where the denominator is at rounding."""
    index = parts(field.names)
    if index is None or not {"f_r", "f_v"} <= set(field.task.program.parameters):
        return None
    alpha, delta = index["alpha"][0], list(index["delta"])
    pairs = []
    for state in states:
        without = np.array(state, dtype=float)
        without[delta] = 0.0
        pairs.append([field.gradient(c)[alpha] for c in (state, without)])
    with_delta, alone = np.array(pairs).T
    small = np.abs(alone) <= 1e-9 * np.abs(alone).max(initial=0.0)
    ratio = np.divide(with_delta, alone, out=np.full(len(alone), np.nan), where=~small)
    return ratio, suppressed_share(field.task.f_r, field.task.f_v)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suppression:
    """Ratios over a grid of the query's statistics.

    table: f_r, f_v, share (the theorem's), coordinate, ratio, low, high (95% by bootstrap of the
    field's sample; equal to ratio where the field is exact).
    slopes: by coordinate slope, low, high of ratio against share through the origin, and
    deviation: the largest |ratio - share|.
    """

    table: pd.DataFrame
    slopes: pd.DataFrame


def suppression(
    field: ReducedField,
    state: np.ndarray,
    *,
    f_r: Sequence[float],
    f_v: Sequence[float],
    delta: float | None = INFINITY,
    seed: int = 0,
) -> Suppression:
    """dL/d(alpha, beta, gamma) at `delta` over the same at delta = 0, at `state` else.

    field: on the four coordinates of recall. Distractors stay as the field has them; f_r and f_v
    move the query alone, so that gradients are sums over kinds and a grid costs no more than a
    point. delta: None for the one that minimises the loss, at each point of the grid.
    ValueError for other coordinates, empty grids, and samples too small for their error.
    """
    index = parts(field.names)
    if index is None or field.dim != 4:
        raise ValueError(
            f"suppression needs the field of coordinates='four', got {field.dim} coordinates"
        )
    if not len(f_r) or not len(f_v):
        raise ValueError("f_r and f_v: give at least one value of each")
    grid = [(r, v) for r in f_r for v in f_v]
    there = {grid[0]: delta or 0.0} if delta is not None else _best_delta(field, state, grid)
    points = [_with_delta(state, at) for at in (0.0, *there.values())]
    by_kind = _gradients(field, points, seed)  # draws + 1, kinds, points, 4
    rows, every = [], []
    for i, (r, v) in enumerate(grid):
        total = np.einsum("k,dkpc->dpc", _chance(field, f_r=r, f_v=v), by_kind)
        ratio = total[:, 1 if delta is not None else 1 + i, :3] / total[:, 0, :3]
        every.append(ratio)
        low, high = _interval(ratio)
        rows += [
            {
                "f_r": r,
                "f_v": v,
                "share": suppressed_share(r, v),
                "coordinate": name,
                "ratio": ratio[0, i],
                "low": low[i],
                "high": high[i],
            }
            for i, name in enumerate(ICL)
        ]
    share = np.array([suppressed_share(r, v) for r, v in grid])
    slope = np.einsum("g,gdc->dc", share, np.array(every)) / (share @ share)
    low, high = _interval(slope)
    worst = np.abs(np.array(every)[:, 0] - share[:, None]).max(0)
    slopes = pd.DataFrame(
        {"slope": slope[0], "low": low, "high": high, "deviation": worst}, index=list(ICL)
    )
    return Suppression(table=pd.DataFrame(rows), slopes=slopes)


def burstiness(
    task: AssociativeRecall,
    state: np.ndarray,
    bursts: Sequence[int],
    *,
    samples: str | int | None = "auto",
    seed: int = 0,
) -> pd.DataFrame:
    """dL/d(alpha, beta, gamma) at `state` for each b over that for the first; b indexes the rows.

    Columns alpha, beta, gamma and each with _low and _high (95%, bootstrap; exact fields have
    none). Sampled fields all have the same queries and distractors: a sequence of burstiness b is
    one of burstiness 1, b - 1 of whose distractors, drawn at random, give way to the query's pair.
    That is the law of the task without its C(n, b) sets of slots, and what the burstinesses have
    in common leaves the ratios. ValueError where a b does not fit the task, or is 0.
    """
    if not len(bursts):
        raise ValueError("bursts is empty; give burstinesses, the first to compare with")
    if min(bursts) < 1:
        raise ValueError(
            f"bursts holds {min(bursts)}; allowed: 1 and more, since the context "
            f"teaches nothing without the query's pair"
        )
    known: Any = task
    tasks = {b: replace(known, burstiness=b) for b in bursts}
    base = reduced_field(
        replace(known, burstiness=1), coordinates="four", samples=samples, seed=seed
    )
    found = {}
    for b, one in tasks.items():
        if base.exact:
            field = reduced_field(one, coordinates="four", samples=None)
        else:
            field = replace(base, population=_bursting(base, b, seed), _cache={})
        gradients = _gradients(field, [state], seed)[:, :, 0, :3]
        found[b] = np.einsum("k,dkc->dc", _chance(field, **field._query), gradients)
    rows = {}
    for b, gradients in found.items():
        ratio = gradients / found[bursts[0]]
        low, high = _interval(ratio)
        rows[b] = {
            key: value
            for i, name in enumerate(ICL)
            for key, value in (
                (name, ratio[0, i]),
                (f"{name}_low", low[i]),
                (f"{name}_high", high[i]),
            )
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _bursting(base: ReducedField, b: int, seed: int) -> Population:
    """The sample with b - 1 more blocks of each sequence made copies of its query's pair.

    Which, is one order of the blocks for all b: the copies of a smaller b are among a larger's.
    """
    people = base.population
    tokens = np.array(people.sequences.tokens)
    query, answer = tokens[:, -1], people.sequences.target
    pairs = tokens[:, :-1].reshape(len(tokens), -1, 2)
    order = np.random.default_rng(seed).random(pairs.shape[:2])
    order[(pairs[:, :, 0] == query[:, None]).nonzero()] = -1.0  # its own copy; no distractor has q
    chosen = np.argsort(order, axis=1)[:, :b]
    rows = np.arange(len(tokens))[:, None]
    pairs[rows, chosen] = np.stack([query, answer], axis=1)[:, None]
    tokens[:, :-1] = pairs.reshape(len(tokens), -1)
    return replace(people, sequences=replace(people.sequences, tokens=tokens))


def _with_delta(state: np.ndarray, delta: float) -> np.ndarray:
    return np.array([*np.asarray(state, dtype=float)[:3], delta])


def _best_delta(
    field: ReducedField, state: np.ndarray, grid: Sequence[tuple[float, float]]
) -> dict[tuple[float, float], float]:
    """At each f_r, f_v the delta of least loss, to a hundredth, from 0 to LARGEST."""
    deltas = np.linspace(0.0, LARGEST, 49)
    moved = [field.at(**_CORNERS[kind]) for kind in field.drawn_kinds]
    losses = np.array([[one.loss(_with_delta(state, d)) for d in deltas] for one in moved])
    fine = np.linspace(0.0, LARGEST, round(100 * LARGEST) + 1)
    smooth = CubicSpline(deltas, losses, axis=1)(fine)
    return {(r, v): float(fine[(_chance(field, f_r=r, f_v=v) @ smooth).argmin()]) for r, v in grid}


def _chance(field: ReducedField, **query: float) -> np.ndarray:
    """Probability of each drawn kind, (kinds,)."""
    found = field.task.kind_probabilities(**query)
    return np.array([found[kind] for kind in field.drawn_kinds])


def _gradients(field: ReducedField, points: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """(1 + draws, kinds, points, 4): the field's, then bootstrap draws of its sample, if it is."""
    if field.exact:
        moved = [field.at(**_CORNERS[kind]) for kind in field.drawn_kinds]
        return np.array([[[one.gradient(point) for point in points] for one in moved]])
    by_part = np.array(
        [
            [[field._gradient(point, weights) for point in points] for weights in of_kind]
            for of_kind in sample_parts(field, PARTS_OF_SAMPLE)
        ]
    )
    draws = redrawn(by_part, RESAMPLES, np.random.default_rng(seed))
    return np.concatenate([by_part.mean(1)[None], draws])


def _interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95% of the draws after the first, the estimate; that itself where there are none."""
    if len(draws) == 1:
        return draws[0], draws[0]
    low, high = np.percentile(draws[1:], LEVEL, axis=0)
    return low, high
