"""How well discovery gets planted circuits back: ranking, size, and what it finds where none is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from circuits.attribution import METHODS, EdgeScores, score_edges
from circuits.edge_patching import EdgePatcher
from circuits.pair import MINIMUM_GAP
from circuits.planted.base import Planted

LEVEL = 0.05
"""Share of the gap between clean and corrupted answers that an edge must account for."""
ALPHA = 1e-3
"""Of finding anything by chance in a model of which nothing is true."""
BASELINE = "difference"
"""Edges by how much what their source writes differs between clean and corrupted, in norm."""
RESAMPLES = 1000


def found(scores: EdgeScores) -> np.ndarray:
    """(E,) the edges whose effect is above the level, and not 0 by chance.

    None where clean and corrupted answers lie less than MINIMUM_GAP apart. Else |mean effect| is at
    least LEVEL times the gap, and a t test over clean sequences, at ALPHA divided by the number of
    edges, excludes 0.
    """
    mean, count = np.abs(scores.values), scores.effects.shape[1]
    if scores.gap < MINIMUM_GAP:
        return np.zeros(len(mean), dtype=bool)
    error = scores.effects.std(1, ddof=1) / np.sqrt(count)
    reach = student.ppf(1 - ALPHA / (2 * len(mean)), count - 1)
    return (mean >= LEVEL * scores.gap) & (mean > reach * error)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recovery:
    """One row a model and method (or the baseline).

    table: construction, control (whether there is nothing to find), method, gap (logits), edges,
    true, apart (edges that count neither way), found (of those that count), right, apart_found,
    auroc (of |effect|; NaN in controls), size_error (|found - true| / true; NaN in controls).
    """

    table: pd.DataFrame = field(repr=False)

    def methods(self) -> list[dict[str, Any]]:
        """A record a method: method, models, auroc with its 95% bootstrap over models, the lowest,
        size_error, missed and wrong (edges of planted models), controls, controls_with_gap (those
        whose answers lie MINIMUM_GAP apart by chance, so that edges are tested at all),
        false_findings (edges found in controls), false_models."""
        return [self._method(name, own) for name, own in self.table.groupby("method", sort=False)]

    def constructions(self) -> pd.DataFrame:
        """Means by construction and method: auroc, its lowest, size_error, missed, wrong, and the
        share of edges apart that were found."""
        planted = self.table[~self.table.control].assign(
            missed=self.table.true - self.table.right, wrong=self.table.found - self.table.right
        )
        by = planted.groupby(["construction", "method"], sort=False)
        return by.agg(
            models=("auroc", "size"),
            auroc=("auroc", "mean"),
            lowest=("auroc", "min"),
            size_error=("size_error", "mean"),
            missed=("missed", "sum"),
            wrong=("wrong", "sum"),
            apart=("apart", "sum"),
            apart_found=("apart_found", "sum"),
        ).reset_index()

    def _method(self, name: Any, own: pd.DataFrame) -> dict[str, Any]:
        planted, controls = own[~own.control], own[own.control]
        aurocs = planted.auroc.to_numpy()
        rows = np.random.default_rng(0).integers(0, len(aurocs), (RESAMPLES, len(aurocs)))
        low, high = np.percentile(aurocs[rows].mean(1), [2.5, 97.5])
        return {
            "method": str(name),
            "models": len(planted),
            "auroc": float(aurocs.mean()),
            "auroc_low": float(low),
            "auroc_high": float(high),
            "auroc_lowest": float(aurocs.min()),
            "size_error": float(planted.size_error.mean()),
            "missed": int((planted.true - planted.right).sum()),
            "wrong": int((planted.found - planted.right).sum()),
            "controls": len(controls),
            "controls_with_gap": int((controls.gap >= MINIMUM_GAP).sum()),
            "false_findings": int(controls.found.sum()),
            "false_models": int((controls.found > 0).sum()),
        }


def recover(
    models: Iterable[Planted],
    methods: Sequence[str] = METHODS,
    *,
    steps: int = 5,
    watch: Callable[[Planted], None] = lambda _: None,
) -> Recovery:
    """Score the edges of every model by every method, and by the baseline.

    watch: is told of each model when it is done. ValueError for another method, or without models.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise ValueError(f"methods are {', '.join(methods)}; allowed: {', '.join(METHODS)}")
    rows = []
    for model in models:
        rows += _rows(model, methods, steps)
        watch(model)
    if not rows:
        raise ValueError("no models were given; allowed: 1 or more")
    return Recovery(table=pd.DataFrame(rows))


def _rows(model: Planted, methods: Sequence[str], steps: int) -> list[dict[str, Any]]:
    graph = model.graph
    patcher = EdgePatcher(model.family, model.params, graph, model.pair)
    truth, apart = model.masks(graph)
    shared = {
        "construction": model.construction,
        "control": not model.truth,
        "gap": patcher.gap,
        "edges": len(truth),
        "true": int(truth.sum()),
        "apart": int(apart.sum()),
    }
    rows = []
    for method in methods:
        scores = score_edges(patcher, method, steps)
        chosen = found(scores)
        counted = int((chosen & ~apart).sum())
        rows.append(
            shared
            | {
                "method": method,
                "auroc": _auroc(np.abs(scores.values), truth, apart),
                "found": counted,
                "right": int((chosen & truth).sum()),
                "apart_found": int((chosen & apart).sum()),
                "size_error": abs(counted - truth.sum()) / truth.sum() if truth.any() else np.nan,
            }
        )
    return [*rows, shared | _baseline(patcher, truth, apart)]


def _baseline(patcher: EdgePatcher, truth: np.ndarray, apart: np.ndarray) -> dict[str, Any]:
    size = {
        name: float((patcher.clean[name] - patcher.corrupt[name]).square().sum())
        for name in patcher.graph.node
    }
    written = np.array([size[edge.source] for edge in patcher.graph.edges])
    nothing = {"found": 0, "right": 0, "apart_found": 0, "size_error": np.nan}
    return {"method": BASELINE, "auroc": _auroc(written, truth, apart), **nothing}


def _auroc(values: np.ndarray, truth: np.ndarray, apart: np.ndarray) -> float:
    """Of the truth against all other edges but those apart; NaN where there are not both."""
    counts, right = values[~apart], truth[~apart]
    return float(roc_auc_score(right, counts)) if 0 < right.sum() < len(right) else np.nan
