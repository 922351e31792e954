"""Checkpoints on disk to coordinates: which runs are read together, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from manifold import project, state_coordinates
from manifold.coordinates.projection import Progress
from training import AttentionOnly, Run, StateTracking, open_run
from training.run import run_folders

STRONGEST = 8


def open_runs(folders: Sequence[Path]) -> list[Run]:
    """Every run in these folders: a run's own, a study's, or one of studies; each once, a copy of
    a run included."""
    found: dict[str, Run] = {}
    for folder in folders:
        inside = run_folders(folder)
        if not inside:
            raise ValueError(
                f"{folder}: has no run; allowed: the folder of a run, <root>/<study>/<run id>, of a"
                " study, or of studies"
            )
        for run in map(open_run, inside):
            found.setdefault(run.run_id, run)
    return list(found.values())


def together(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one task and one family share their coordinates; in order of appearance."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        plain = run.config.canonical()
        groups.setdefault(json.dumps([plain["task"], plain["family"]]), []).append(run)
    return list(groups.values())


def read(runs: Sequence[Run], rebuilt: bool, progress: Progress | None = None) -> xr.Dataset:
    """`state_coordinates` of state tracking, `project` of all else."""
    if isinstance(runs[0].task, StateTracking) and not isinstance(runs[0].family, AttentionOnly):
        return state_coordinates(runs)
    return project(runs, rebuilt=rebuilt, progress=progress)


def facts(data: xr.Dataset) -> list[dict[str, Any]]:
    """Of each run: run, first and last kept step, and its variables at both.

    Of `c` only the strongest coordinates at the end are named; all are in the dataset.
    """
    found = []
    for run in data["run"].values.tolist():
        kept = data.sel(run=run).dropna("step", how="all")
        row: dict[str, Any] = {"run": run, "steps": kept["step"].values.tolist()}
        for name, values in kept.data_vars.items():
            if name == "c" and "coordinate" in values.dims:
                row["strongest"] = strongest(values.isel(step=-1))
            elif name != "c" and "step" in values.dims:
                row[str(name)] = {"first": _named(values[0]), "last": _named(values[-1])}
            elif name != "c":
                row[str(name)] = _named(values)
        found.append(row)
    return found


def strongest(c: xr.DataArray, count: int = STRONGEST) -> dict[str, float]:
    """The coordinates of largest size, by name, largest first."""
    order = np.argsort(-np.abs(c.values))[:count]
    return {str(c["coordinate"].values[i]): float(c.values[i]) for i in order}


def _named(values: xr.DataArray) -> Any:
    """A number, or a mapping of names to what is there; what was not measured is null."""
    if not values.dims:
        return float(values)
    dim = values.dims[0]
    return {str(name): _named(part) for name, part in zip(values[dim].values, values, strict=True)}
