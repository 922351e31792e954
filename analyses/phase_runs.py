"""Trained models as points of a phase diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analyses.coordinates import open_runs
from manifold import ReducedField, project
from training import Run


def trained(
    folders: Sequence[Path],
    field: ReducedField,
    grid: Mapping[str, Sequence[float]],
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Of each run in these folders its two parameters, and how its last checkpoint answers.

    mismatch, iwl: accuracy of the network; rebuilt_mismatch: of the model made from its
    coordinates alone; captured: the share of its weights in them.

    ValueError for a run of another task, or with other values of what is not swept.
    """
    points = []
    for run in open_runs(folders) if folders else []:
        own = {**_statistics(run.task), "weight_decay": run.config.optimiser.weight_decay}
        expected = {**_statistics(field.task), "weight_decay": weight_decay}
        off = {k: v for k, v in expected.items() if own.get(k) != v and k not in grid}
        if type(run.task) is not type(field.task) or off:
            said = ", ".join(f"{k} {own.get(k)} instead of {v}" for k, v in off.items())
            raise ValueError(
                f"run {run.run_id} is of another setting than the diagram "
                f"({said or type(run.task).__name__}); sweep what differs, or leave the run out"
            )
        points.append({"run": run.run_id, **{k: own[k] for k in grid}, **_answers(run)})
    return points


def _statistics(task: Any) -> dict[str, Any]:
    """What the task is made of, the distractors' statistics filled in."""
    program = getattr(task, "program", None)
    return {**asdict(task), **(program.parameters if program is not None else {})}


def _answers(run: Run) -> dict[str, float]:
    last = project(run, rebuilt=True).isel(run=0, step=-1)
    own, rebuilt = last["accuracy"], last["rebuilt_accuracy"]
    return {
        "mismatch": float(own.sel(kind="mismatch")),
        "iwl": float(own.sel(kind="iwl")),
        "rebuilt_mismatch": float(rebuilt.sel(kind="mismatch")),
        "captured": 1 - float(last["off_manifold"]),
    }
