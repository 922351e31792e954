"""How good predictions of a winner are, beside what initial coordinates and the majority say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from analyses.dynamics.share import median, wilson
from analyses.rank import rank_correlation

PENALTIES = (0.01, 0.1, 1.0, 10.0)
"""Inverse regularisations between which each fit chooses by three-fold cross-validation inside."""
FOLDS = 3
BINS = (0.0, 0.25, 0.5, 0.75, 1.0)
FEW = 3
"""Of the rarer outcome: with fewer nothing can be learnt from them, nor told."""


def judge(rows: Sequence[Mapping[str, Any]], names: tuple[str, str]) -> dict[str, Any]:
    """Scores of the forecasts in `rows`, one of them a run.

    A row has trained and predicted (winners), grade (the prediction by degrees, -1 to 1 in favour
    of the first name), start (initial coordinates), onset and predicted_onset (or None). Runs
    without a winner of these two are left out of every score, and counted.

    verdict: share of all runs whose verdict, a winner or neither, was predicted.
    field, logistic, magnitudes, majority: share right, with Wilson's interval. A prediction of
    neither counts as wrong. logistic and magnitudes: leave-one-out logistic regression on the
    coordinates and on their sizes alone. auroc, brier: of the graded prediction and of the
    regression, with brier_base that of always saying the share; None where fewer than 3 runs have
    the rarer outcome: nothing is to be predicted there. bins: the grades as probabilities, in
    quarters: their mean and the share that came true.
    """
    kept = [row for row in rows if row["trained"] in names]
    found: dict[str, Any] = {
        "runs": len(rows),
        "wins": {name: sum(row["trained"] == name for row in rows) for name in names},
        "neither": len(rows) - len(kept),
        "predicted_neither": sum(row["predicted"] not in names for row in kept),
    }
    found["verdict"] = wilson(sum(r["trained"] == r["predicted"] for r in rows), len(rows))
    if not kept:
        return found
    won = np.array([row["trained"] == names[0] for row in kept])
    right = [row["trained"] == row["predicted"] for row in kept]
    start = np.array([row["start"] for row in kept])
    chance = (1 + np.array([row["grade"] for row in kept])) / 2
    found |= {
        "field": wilson(sum(right), len(kept)),
        "majority": wilson(int(max(won.sum(), (~won).sum())), len(kept)),
        "brier": float(np.mean((chance - won) ** 2)),
        "brier_base": float(won.mean() * (1 - won.mean())),
        "bins": _bins(chance, won),
        "rarer": int(min(won.sum(), (~won).sum())),
        "onset": _onsets(kept),
    }
    if found["rarer"] < FEW:
        return found | {"logistic": None, "magnitudes": None, "auroc": None}
    for name, features in (("logistic", start), ("magnitudes", np.abs(start))):
        guess = left_out(features, won)
        found[name] = wilson(int(((guess > 0.5) == won).sum()), len(kept)) | {
            "auroc": float(roc_auc_score(won, guess)),
            "brier": float(np.mean((guess - won) ** 2)),
        }
    return found | {"auroc": float(roc_auc_score(won, chance))}


def left_out(features: np.ndarray, won: np.ndarray) -> np.ndarray:
    """Probability of each run's outcome, (runs,), by a regression on all the others.

    Where the others hold fewer than two of one outcome, the share of theirs.
    """
    found = np.empty(len(won))
    for i in range(len(won)):
        others = np.arange(len(won)) != i
        rarer = min(won[others].sum(), (~won[others]).sum())
        if rarer < 2:
            found[i] = won[others].mean()
            continue
        search = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
            {"logisticregression__C": PENALTIES},
            scoring="neg_log_loss",
            cv=StratifiedKFold(min(FOLDS, int(rarer))),
        )
        search.fit(features[others], won[others])
        found[i] = search.predict_proba(features[i : i + 1])[0, 1]
    return found


def _bins(chance: np.ndarray, won: np.ndarray) -> list[dict[str, float]]:
    place = np.clip(np.searchsorted(BINS, chance, side="right") - 1, 0, len(BINS) - 2)
    return [
        {"count": int(here.sum()), "said": float(chance[here].mean()),
         **wilson(int(won[here].sum()), int(here.sum()))}
        for k in range(len(BINS) - 1)
        if (here := place == k).any()
    ]  # fmt: skip


def _onsets(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Measured against predicted, of runs that have both; None below 3 of them."""
    both = [r for r in rows if r["onset"] is not None and r["predicted_onset"] is not None]
    if len(both) < 3:
        return None
    measured, predicted = (np.array([r[k] for r in both]) for k in ("onset", "predicted_onset"))
    value, low, high = rank_correlation(predicted, measured)
    return {
        "count": len(both),
        "rank": {"value": value, "low": low, "high": high},
        "ratio": median(measured / predicted),
    }
