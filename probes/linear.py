"""What can be read linearly, and whether a probe trained at one length reads another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Cross-validated accuracy of a linear probe, beside what it must be compared with.

    accuracy, interval: mean over folds and a normal 95% interval from their spread.
    control: the same probe on shuffled labels. Selectivity is accuracy - control.
    majority: the share of the most frequent label.
    """

    accuracy: float
    interval: tuple[float, float]
    control: float
    majority: float

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


def _classifier() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def _check(states: np.ndarray, labels: np.ndarray) -> None:
    if states.ndim != 2 or labels.shape != states.shape[:1]:
        raise ValueError(
            f"states must be (samples, width) and labels (samples,), got {states.shape} and "
            f"{labels.shape}"
        )
    if not np.isfinite(states).all():
        raise ValueError("states hold NaN or infinite values: the run diverged or was not trained")
    if len(np.unique(labels)) < 2:
        raise ValueError(f"labels hold one class only ({labels[0]!r}): nothing to tell apart")


def linear_probe(states: np.ndarray, labels: np.ndarray, *, folds: int = 5, seed: int = 0) -> Probe:
    """Logistic regression from states (samples, width) to labels (samples,)."""
    _check(states, labels)
    rarest = int(np.unique(labels, return_counts=True)[1].min())
    if rarest < folds:
        raise ValueError(f"the rarest label occurs {rarest} times; {folds} folds need {folds}")
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
    scores = cross_val_score(_classifier(), states, labels, cv=splits)
    shuffled = np.random.default_rng(seed).permutation(labels)
    control = cross_val_score(_classifier(), states, shuffled, cv=splits)
    half = 1.96 * scores.std(ddof=1) / np.sqrt(folds)
    mean = float(scores.mean())
    return Probe(
        accuracy=mean,
        interval=(max(0.0, mean - half), min(1.0, mean + half)),
        control=float(control.mean()),
        majority=float(np.unique(labels, return_counts=True)[1].max() / len(labels)),
    )


def transfer(
    samples: Mapping[int, tuple[np.ndarray, np.ndarray]], *, seed: int = 0
) -> pd.DataFrame:
    """Accuracy of the probe trained at the row's length and read at the column's.

    samples: length -> (states, labels). The diagonal is held out: half of each length trains.
    """
    rng = np.random.default_rng(seed)
    split = {}
    for length, (states, labels) in samples.items():
        _check(states, labels)
        order = rng.permutation(len(labels))
        split[length] = order[: len(order) // 2], order[len(order) // 2 :]
    rows = {}
    for n, (states, labels) in samples.items():
        probe = _classifier().fit(states[split[n][0]], labels[split[n][0]])
        rows[n] = {m: probe.score(x[split[m][1]], y[split[m][1]]) for m, (x, y) in samples.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis(index="trained at length", columns="read at length")
