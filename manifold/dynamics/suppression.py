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

from manifold.dynamics.field import ReducedField, reduced_field
from training.tasks.associative_recall import AssociativeRecall

INFINITY = 500.0
"""delta at which every match query's loss is zero to rounding: its limit."""
CORNERS = ({"f_r": 1.0, "f_v": 0.0}, {"f_r": 0.0, "f_v": 0.0}, {"f_r": 0.0, "f_v": 1.0})
"""The query's f_r and f_v under which it is rare, match, mismatch."""
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
    delta: float = INFINITY,
    resamples: int = 40,
    seed: int = 0,
) -> Suppression:
    """dL/d(alpha, beta, gamma) at `delta` over the same at delta = 0, at `state` else.

    field: on the four coordinates of recall. Distractors stay as the field has them; f_r and f_v
    move the query alone, so that gradients are sums over kinds and a grid costs no more than a
    point. ValueError for other coordinates and empty grids.
    """
    index = parts(field.names)
    if index is None or field.dim != 4:
        raise ValueError(
            f"suppression needs the field of coordinates='four', got {field.dim} coordinates"
        )
    if not len(f_r) or not len(f_v):
        raise ValueError("f_r and f_v: give at least one value of each")
    points = [np.array(state, dtype=float), np.array(state, dtype=float)]
    points[0][index["delta"][0]], points[1][index["delta"][0]] = 0.0, delta
    by_kind = _gradients(field, points, CORNERS, resamples, seed)  # draws, kinds, points, 4
    rows, ratios, shares = [], [], []
    for r in f_r:
        for v in f_v:
            chance = np.array([r, (1 - r) * (1 - v), (1 - r) * v])
            total = np.einsum("k,dkpc->dpc", chance, by_kind)
            ratio = total[:, 1, :3] / total[:, 0, :3]
            ratios.append(ratio)
            shares.append(suppressed_share(r, v))
            low, high = _interval(ratio)
            rows += [
                {
                    "f_r": r,
                    "f_v": v,
                    "share": shares[-1],
                    "coordinate": name,
                    "ratio": ratio[0, i],
                    "low": low[i],
                    "high": high[i],
                }
                for i, name in enumerate(("alpha", "beta", "gamma"))
            ]
    every, share = np.array(ratios), np.array(shares)  # grid, draws + 1, 3
    slope = np.einsum("g,gdc->dc", share, every) / (share @ share)
    low, high = _interval(slope)
    worst = np.abs(every[:, 0] - share[:, None]).max(0)
    slopes = pd.DataFrame(
        {"slope": slope[0], "low": low, "high": high, "deviation": worst},
        index=["alpha", "beta", "gamma"],
    )
    return Suppression(table=pd.DataFrame(rows), slopes=slopes)


def _gradients(
    field: ReducedField,
    points: Sequence[np.ndarray],
    queries: Sequence[dict[str, float]],
    resamples: int,
    seed: int,
) -> np.ndarray:
    """(1 + resamples, queries, points, 4): the field's, then of bootstrap draws of its sample."""
    rng, people = np.random.default_rng(seed), field.population
    model, group = field._merged(people.sequences)
    drawn = [people] + [people.resampled(rng) for _ in range(0 if field.exact else resamples)]
    weights = [[one.weights(**{**field._query, **query}) for query in queries] for one in drawn]
    return np.array(
        [
            [
                [model.gradient(point, np.bincount(group, row, model.count)) for point in points]
                for row in rows
            ]
            for rows in weights
        ]
    )


def _interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Around the first, the estimate: 1.96 standard deviations of the others, 0 where none."""
    spread = 1.96 * draws[1:].std(0, ddof=1) if len(draws) > 2 else np.zeros(draws.shape[1:])
    return draws[0] - spread, draws[0] + spread


def burstiness(
    task: AssociativeRecall,
    state: np.ndarray,
    bursts: Sequence[int],
    *,
    samples: str | int | None = "auto",
    resamples: int = 40,
    seed: int = 0,
) -> pd.DataFrame:
    """dL/d(alpha, beta, gamma) at `state` for each b over that for the first; b indexes the rows.

    Columns alpha, beta, gamma and each with _low and _high (95%, bootstrap; exact fields have
    none). ValueError where a b does not fit the task.
    """
    if not len(bursts):
        raise ValueError("bursts is empty; give burstinesses, the first to compare with")
    gradients = []
    for b in bursts:
        known: Any = task
        field = reduced_field(
            replace(known, burstiness=b), coordinates="four", samples=samples, seed=seed + b
        )
        gradients.append(_gradients(field, [state], [{}], resamples, seed)[:, 0, 0, :3])
    first, rows = gradients[0], {}
    for b, draws in zip(bursts, gradients, strict=True):
        count = min(len(first), len(draws))
        ratio = draws[:count] / first[:count]
        low, high = _interval(ratio) if b != bursts[0] else (ratio[0], ratio[0])
        names = ("alpha", "beta", "gamma")
        rows[b] = {
            key: value
            for i, name in enumerate(names)
            for key, value in (
                (name, ratio[0, i]),
                (f"{name}_low", low[i]),
                (f"{name}_high", high[i]),
            )
        }
    return pd.DataFrame.from_dict(rows, orient="index")
