"""The runs in which circuits compete, and what each predicts and ends in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analyses.dynamics.confined import confined_sgd
from manifold import (
    ReducedField,
    Rivalry,
    effective_matrices,
    invariant_basis,
    predict_winner,
    who_won,
)
from manifold.dynamics.winner import onset_time
from training import AttentionOnly, KHop, Run, RunConfig, train_many
from training.tasks.base import Task, generator

TASK = KHop(hops=1, chains=3, n_tokens=8)
"""Three pairs of eight tokens and a key: T = 7, d = 24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearManifold(AttentionOnly):
    """attention_only that starts near the invariant manifold.

    spread: standard deviation of the coordinates drawn there; scale: of what is added to every
    entry of the matrices, as attention_only draws it.
    """

    spread: float

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        basis = invariant_basis(task, layers=self.layers, heads=self.heads)
        drawn = self.spread * generator(seed, *b"near manifold").standard_normal(basis.dim)
        params = AttentionOnly.initialise(self, task, seed, dtype)
        for name, block in _blocks(self.layers).items():
            params[name] = params[name] + torch.from_numpy(basis.matrices(drawn)[block]).to(dtype)
        return params


def _blocks(layers: int) -> dict[str, str]:
    return {**{f"blocks.{i}.attn.W": f"W{i + 1}" for i in range(layers)}, "unembed.W": "Wbar"}


def full_config(family: dict, seed: int, steps: int, **more: Any) -> RunConfig:
    """SGD at rate 1 on attention_only, unless `more` says otherwise; first and last step kept."""
    plain: dict[str, Any] = {
        "study": "winner",
        "task": TASK,
        "family": family,
        "optimiser": {"name": "sgd", "lr": 1.0},
        "steps": steps,
        "batch_size": 32,
        "seeds": {"init": seed, "data": seed, "eval": 0},
        "eval_every": max(1, steps // 60),
        "eval_size": 300,
        "checkpoints": {"doubling": False, "every": None},
    }
    return RunConfig(**{**plain, **more})


def confined(
    field: ReducedField, rivalry: Rivalry, scale: float, seeds: int, steps: int
) -> list[dict[str, Any]]:
    """Coordinates drawn at this scale, and SGD on them alone, against their prediction.

    Every scale has the same draws, rescaled, and the same seed of SGD.
    """
    draw = generator(0, *b"rival starts")
    starts = scale * draw.standard_normal((seeds, field.dim))
    times, losses, ends = confined_sgd(field, starts, steps=steps, seed=1)
    guessing = field.loss(np.zeros(field.dim))
    onsets = [onset_time(times, loss, guessing) for loss in losses.T]
    predicted = predict_winner(field, starts, rivalry, float(times[-1]))
    return rows(starts, predicted, who_won(field, ends, rivalry), onsets, losses[-1])


def trained(
    field: ReducedField,
    rivalry: Rivalry,
    configs: Sequence[RunConfig],
    folder: Path,
    horizon: float,
) -> list[dict[str, Any]]:
    """Runs of full models against what the field says from their projected starts.

    Measured onsets are in updates where the optimiser is not SGD, so only their order compares.
    Runs that diverged are left out.
    """
    runs = [run for run in train_many(configs, root=folder) if run.status["state"] != "diverged"]
    starts, ends = (
        np.stack([project_centred(field, run, which) for run in runs]) for which in (0, -1)
    )
    guessing = field.loss(np.zeros(field.dim))
    onsets, losses = [], []
    for run in runs:
        metrics = run.metrics.dropna(subset=["validation_loss"])
        rate = run.config.optimiser.lr if run.config.optimiser.name == "sgd" else 1.0
        loss = metrics["validation_loss"].to_numpy()
        onsets.append(onset_time(rate * metrics["step"].to_numpy(), loss, guessing))
        losses.append(loss[-1])
    predicted = predict_winner(field, starts, rivalry, horizon)
    return rows(starts, predicted, who_won(field, ends, rivalry), onsets, losses)


def project_centred(field: ReducedField, run: Run, which: int) -> np.ndarray:
    """Coordinates of a kept checkpoint in the field's own, centred frame.

    A transformer's effective matrices are one-hot: what is constant within classes and tracks
    drops out in the product with centred directions.
    """
    return field.basis.coordinates(effective_matrices(run[run.steps[which]]))


def rows(starts: np.ndarray, predicted: Any, won: Any, onsets: Any, losses: Any) -> list[dict]:
    """One row a run, of plain numbers."""
    return [
        {
            "start": starts[i].tolist(),
            "predicted": str(predicted["winner"].values[i]),
            "grade": float(predicted["grade"].values[i, 0]),
            "predicted_onset": _number(predicted["onset"].values[i]),
            "trained": str(won["winner"].values[i]),
            "dominance": float(won["dominance"].values[i]),
            "predicted_dominance": float(predicted["dominance"].values[i]),
            "rebuilt_loss": float(won["loss"].values[i]),
            "without": won["without"].values[i].tolist(),
            "onset": _number(onsets[i]),
            "loss": float(losses[i]),
        }
        for i in range(len(starts))
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
