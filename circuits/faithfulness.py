"""How much of the answer a set of edges carries, by how many are kept, beside random sets.

f(C) = (M(C) - M(corrupt)) / (M(clean) - M(corrupt)), M(C) the mean metric with every edge outside
C patched; means before the ratio. The areas are those of the MIB benchmark (Mueller et al. 2025):
with f(k) the faithfulness of the top share k of edges, CPR is the area under f over k from 0 to 1
and CMD that of |1 - f|.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from circuits.edge_patching import EdgePatcher
from circuits.pair import MINIMUM_GAP

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Of edges kept, as the MIB benchmark takes them."""
RANDOM = 20
RESAMPLES = 1000
RANKINGS = ("absolute", "signed")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Faithfulness:
    """Faithfulness of masks (K, E) of kept edges, each with its 95% bootstrap over sequences."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def faithfulness(patcher: EdgePatcher, kept: np.ndarray, seed: int = 0) -> Faithfulness:
    """Of each mask of `kept` (K, E).

    NaN where the metric falls by less than MINIMUM_GAP from the clean run to the corrupted one: a
    share of next to nothing means nothing.
    """
    pair = patcher.pair
    reached = pair.by_sequence(patcher.metric(~np.asarray(kept, dtype=bool)))
    clean, corrupt = map(pair.by_sequence, (patcher.clean_metric, patcher.corrupt_metric))
    rows = np.random.default_rng(seed).integers(0, len(clean), (RESAMPLES, len(clean)))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = (reached.mean(-1) - corrupt.mean()) / (clean.mean() - corrupt.mean())
        gaps = (clean - corrupt)[rows].mean(-1)
        draws = ((reached - corrupt)[:, rows].mean(-1)) / gaps
    low, high = np.percentile(draws, [2.5, 97.5], axis=1)
    if patcher.gap < MINIMUM_GAP:
        value, low, high = (np.full(len(value), np.nan) for _ in range(3))
    return Faithfulness(value=value, low=low, high=high)


def ranked(values: np.ndarray, ranking: str) -> np.ndarray:
    """Edges (E,) best first: by the size of their effect, or by the effect with its sign.

    ValueError for another ranking.
    """
    if ranking not in RANKINGS:
        raise ValueError(f"ranking is {ranking!r}; allowed: {', '.join(RANKINGS)}")
    keys = np.abs(values) if ranking == "absolute" else values
    return np.argsort(-keys, kind="stable")


def top(order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Masks (sizes, E) of the first so many edges in this order."""
    masks = np.zeros((len(sizes), len(order)), dtype=bool)
    for mask, size in zip(masks, sizes, strict=True):
        mask[order[:size]] = True
    return masks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Faithfulness of the first edges of a ranking, beside random sets of the same sizes.

    table: share, edges, faithfulness, low, high, random (mean), random_high (95th percentile).
    cpr, cmd: areas over the share; random_cpr, random_cmd: those of the random sets' mean.
    """

    ranking: str
    table: pd.DataFrame = field(repr=False)
    cpr: float
    cmd: float
    random_cpr: float
    random_cmd: float


def curve(
    patcher: EdgePatcher, values: np.ndarray, ranking: str = "absolute", seed: int = 0
) -> Curve:
    """The curve over SHARES of the graph's edges."""
    order = ranked(values, ranking)
    sizes = np.maximum(1, np.round(np.array(SHARES) * len(order)).astype(int))
    found = faithfulness(patcher, top(order, sizes), seed)
    rng = np.random.default_rng(seed)
    shuffled = np.stack([top(rng.permutation(len(order)), sizes) for _ in range(RANDOM)])
    chance = faithfulness(patcher, shuffled.reshape(-1, len(order)), seed).value
    chance = chance.reshape(RANDOM, len(sizes))
    table = pd.DataFrame(
        {
            "share": SHARES,
            "edges": sizes,
            "faithfulness": found.value,
            "low": found.low,
            "high": found.high,
            "random": chance.mean(0),
            "random_high": np.percentile(chance, 95, axis=0),
        }
    )
    cpr, cmd = areas(found.value)
    random_cpr, random_cmd = areas(chance.mean(0))
    return Curve(
        ranking=ranking,
        table=table,
        cpr=cpr,
        cmd=cmd,
        random_cpr=random_cpr,
        random_cmd=random_cmd,
    )


def areas(values: np.ndarray) -> tuple[float, float]:
    """CPR and CMD of faithfulness at SHARES: trapezoids over the share, from 0.001 to 1."""
    return (
        float(np.trapezoid(values, SHARES)),
        float(np.trapezoid(np.abs(1 - values), SHARES)),
    )
