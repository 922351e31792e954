"""Does the reduced field foresee training of the full matrices? Every task, from (near) zero."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analyses.claim import Claim
from analyses.dynamics.base import Say
from analyses.dynamics.full_cases import CASES, WHY, Case
from analyses.dynamics.full_cases import quick as few
from analyses.dynamics.full_text import figures, text
from manifold import (
    Basis,
    ReducedField,
    effective_matrices,
    project,
    reduced_field,
    remove_gauge,
    stable_rate,
)
from training import AttentionOnly, Run, train_many
from training.tasks.base import Task

TITLE: str = "Reduced against full training"
SOLVED = 0.95
"""Accuracy from which a task counts as solved."""
SHIFTS = np.linspace(-0.1, 0.1, 101)
"""By how much of the horizon the predicted path is moved in time, to see what is left then."""
STARTS, SCALES = 20, (0.01, 0.1)
"""Flows of 2-hop with 3 layers from so many projected random starts, at each scale."""

__all__ = ["TITLE", "claims", "figures", "measure", "text"]


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """R^2, errors and losses of every case; what parts the two; starts of 2-hop."""
    cases, why = (few(CASES), few(WHY)) if quick else (CASES, WHY)
    rows = [row for case in cases for row in _case(case, folder, say)]
    apart = [row for case in why for row in _case(case, folder, say)]
    return {
        "rows": rows,
        "why": apart,
        "sampling": None if quick else _another_sample(folder, say),
        "starts": _two_hop(2 if quick else STARTS, 30.0 if quick else 3000.0, say),
    }


def _case(case: Case, folder: Path, say: Say) -> list[dict[str, Any]]:
    say(f"{case.name}: training {len(case.starts)} of {case.steps} steps")
    runs = train_many([case.config(start) for start in case.starts], root=folder)
    field = reduced_field(runs[0].task, layers=case.layers, heads=case.heads)
    say(f"{case.name}: {field}")
    limit = None
    rows = []
    for start, run in zip(case.starts, runs, strict=True):
        row, path = _row(case, start, run, field)
        if limit is None:
            limit = stable_rate(field, path[:: max(1, -(-len(path) // case.states))])
        rows.append({**row, "limit": limit})
        say(f"{case.name}, scale {start[0]:g}: R^2 {row['r2']:.5f}")
    return rows


def _row(
    case: Case, start: tuple[float, int], run: Run, field: ReducedField
) -> tuple[dict[str, Any], np.ndarray]:
    """What one run did and what the field foresaw, and that path, densely, (more times, dim)."""
    coords = project(run).isel(run=0)
    times, trained = coords["time"].to_numpy(), coords["c"].to_numpy()
    dense = np.linspace(0.0, times[-1] * (1 + SHIFTS[-1]), 1 + 10 * len(times))
    both = np.union1d(dense, times)
    path = field.integrate(trained[0], both)
    foreseen = path[np.searchsorted(both, times)]
    shift, aligned = align(times, trained, both, path)
    errors = relative_errors(trained, foreseen)
    measured = run.metrics.set_index("step").loc[list(run.steps)]
    row = {
        "case": case.name,
        "task": case.task,
        "layers": case.layers,
        "heads": case.heads,
        "rate": case.lr,
        "batch": case.batch,
        "steps": case.steps,
        "scale": start[0],
        "seed": start[1],
        "run": run.run_id,
        "dim": field.dim,
        "orbits": len(field.population.kind) if field.exact else None,
        "target": case.target,
        "r2": r_squared(trained, foreseen),
        "shift": shift,
        "r2_aligned": aligned,
        "speed": float(np.linalg.norm(field.flow(trained[0]))),
        "times": times,
        "errors": errors,
        "losses": measured["validation_loss"].to_numpy(),
        "foreseen_losses": np.array([field.loss(c) for c in foreseen]),
        "accuracy": float(measured["validation_accuracy"].iloc[-1]),
        "off_manifold": float(coords["off_manifold"][-1]),
    }
    return row, path[both <= times[-1]]


def r_squared(trained: np.ndarray, foreseen: np.ndarray) -> float:
    """1 - sum (trained - foreseen)^2 / sum (trained - its mean over time)^2, all coordinates."""
    spread = ((trained - trained.mean(0)) ** 2).sum()
    return float(1 - ((trained - foreseen) ** 2).sum() / spread)


def relative_errors(trained: np.ndarray, foreseen: np.ndarray) -> np.ndarray:
    """|trained - foreseen| / |trained| at each time, (time,); 0 where both are zero."""
    size = np.linalg.norm(trained, axis=1)
    off = np.linalg.norm(trained - foreseen, axis=1)
    return np.divide(off, size, out=np.zeros_like(off), where=size > 0)


def align(
    times: np.ndarray, trained: np.ndarray, dense: np.ndarray, path: np.ndarray
) -> tuple[float, float]:
    """The shift s that makes trained(t) most like path(t + s), and R^2 there.

    s at most 10% of the horizon to either side; before time 0 the path stands at its start.
    """
    found = []
    for s in SHIFTS * times[-1]:
        moved = np.column_stack([np.interp(times + s, dense, column) for column in path.T])
        found.append(r_squared(trained, moved))
    best = int(np.argmax(found))
    return float(SHIFTS[best] * times[-1]), found[best]


def _another_sample(folder: Path, say: Say) -> dict[str, float]:
    """How far another sample moves the field where it is sampled: recall at n = 4."""
    (case,) = (case for case in CASES if case.name == "recall, n = 4")
    (run,) = train_many([case.config(case.starts[0])], root=folder)
    coords = project(run).isel(run=0)
    times, trained = coords["time"].to_numpy(), coords["c"].to_numpy()
    say("recall, n = 4: another sample")
    one, other = (
        reduced_field(run.task, seed=seed).integrate(trained[0], times) for seed in (0, 1)
    )
    middle = reduced_field(run.task).sampling_error(trained[len(trained) // 2])
    return {
        "r2": r_squared(one, other),
        "error": float(relative_errors(one, other)[-1]),
        "flow": middle["flow"],
        "samples": 6000,
    }


def _two_hop(starts: int, until: float, say: Say) -> dict[str, Any]:
    """Which random starts the flow of 2-hop with 3 layers solves, from each projected start."""
    (case,) = (case for case in CASES if case.name == "2-hop")
    task: Any = case.config(case.starts[0]).task
    field = reduced_field(task, layers=case.layers)
    accuracy = {}
    for scale in SCALES:
        say(f"2-hop: {starts} flows from scale {scale:g}")
        ends = [
            field.integrate(projected_start(task, field.basis, scale, seed), [until])[-1]
            for seed in range(starts)
        ]
        accuracy[str(scale)] = [float(field.kinds(c)["accuracy"].iloc[0]) for c in ends]
    return {"until": until, "accuracy": accuracy, "solved": SOLVED}


def projected_start(task: Task, basis: Basis, scale: float, seed: int) -> np.ndarray:
    """Coordinates, (dim,), of attention_only's random weights."""
    family = AttentionOnly(layers=basis.layers, heads=basis.heads, scale=scale)
    weights = family.initialise(task, seed, torch.float64)
    matrices = effective_matrices(weights, family, task)
    return basis.coordinates(remove_gauge(basis, matrices))


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """None: agreement is a matter of exactness, and is judged in the section itself."""
    return ()
