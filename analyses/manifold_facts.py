"""What docs/manifold.md says, measured on its runs; each part is kept as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import xarray as xr

from analyses.manifold_runs import (
    CONTROL,
    FROM_ZERO,
    KINDS,
    SEEDS,
    FromZero,
    configs,
    from_zero_config,
)
from analyses.page import write_json
from manifold import (
    captured_by_chance,
    confinement_slopes,
    exact_confinement,
    gradient_confinement,
    growth_along,
    invariant_basis,
    lift,
    project,
)
from training import Run, RunConfig, train_many
from training.checkpoint import read_json
from training.tasks.block_list import BlockList

RIGHT = 0.1
"""A loss below it counts as right: of the network, and of the model rebuilt from coordinates."""
PLATEAU = 16
"""A kept step of the initial plateau."""
GROWTH_SAMPLES = 8_000
"""A sample breaks the symmetry too: of recall, solved, 1,000 leave a rate of 8e-3, 16,000 8e-4."""
FEW = 20_000
"""Up to so many orbits are counted."""

Say = Callable[[str], None]


def measure(root: Path, say: Say = print) -> dict[str, Any]:
    """Train what is not trained yet under `root`, and measure it; finished parts are read back.

    Returns {"trained": {kind: [facts of each seed]}, "tasks": {name: facts}}.
    """
    found: dict[str, Any] = {"trained": {}, "tasks": {}}
    wanted = configs()
    for kind in (*KINDS, CONTROL):
        members = [wanted[kind, seed] for seed in SEEDS]
        found["trained"][kind] = _kept(root, kind, partial(_trained, members, root), say)
    for name in FROM_ZERO:
        found["tasks"][name] = _kept(root, name, partial(_from_zero, name, root), say)
    return found


def _kept(root: Path, name: str, part: Callable[[], Any], say: Say) -> Any:
    file = root / "manifold-facts" / f"{name.replace(' ', '-').replace(',', '')}.json"
    if not file.exists():
        say(f"{name}: training and measuring")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"facts": part()})
    return read_json(file)["facts"]


def _trained(members: list[RunConfig], root: Path) -> list[dict[str, Any]]:
    runs = train_many(members, root=root)
    coords = project(runs, rebuilt=True)
    return [_run_facts(run, coords.sel(run=run.run_id).dropna("step", how="all")) for run in runs]


def _run_facts(run: Run, coords: xr.Dataset) -> dict[str, Any]:
    last = coords.isel(step=-1)
    family: Any = run.family
    basis = invariant_basis(run.task, "transformer", family.layers, family.heads)
    drawn = captured_by_chance(basis, lift(run.last).factored, draws=100)
    return {
        "run": run.run_id,
        "step": coords["step"].values.tolist(),
        "loss": coords["loss"].values.tolist(),
        "rebuilt_loss": coords["rebuilt_loss"].values.tolist(),
        "accuracy": _by(last["accuracy"], "kind"),
        "rebuilt_accuracy": _by(last["rebuilt_accuracy"], "kind"),
        "rebuilt_accuracy_at_start": _by(coords["rebuilt_accuracy"].isel(step=0), "kind"),
        "captured": _by(last["captured"], "matrix"),
        "captured_at_start": _by(coords["captured"].isel(step=0), "matrix"),
        "chance": {block: drawn[block] for block in basis.blocks},
        "logit_error": float(last["logit_error"]),
        "lift_agreement": float(last["lift_agreement"]),
        "function_error": _by(last["function_error"], "matrix"),
        "attention_distance": _by(last["attention_distance"], "matrix"),
        "right": _first_below(coords["loss"]),
        "equivariant": _first_below(coords["rebuilt_loss"]),
        "dim": basis.dim,
    }


def _by(values: xr.DataArray, dim: str) -> dict[str, float]:
    """Name to value; what was not measured is left out."""
    pairs = zip(values[dim].values.tolist(), values.values.tolist(), strict=True)
    return {name: value for name, value in pairs if not np.isnan(value)}


def _first_below(loss: xr.DataArray) -> int | None:
    """The first kept step from which the loss stays below RIGHT; None where it never does."""
    above = np.flatnonzero(~(loss.values < RIGHT))
    after = above[-1] + 1 if len(above) else 0
    return int(loss["step"].values[after]) if after < len(loss) else None


def _from_zero(name: str, root: Path) -> dict[str, Any]:
    setting = FROM_ZERO[name]
    (run,) = train_many([from_zero_config(setting)], root=root)
    task = cast(BlockList, run.task)
    coords = project(run).isel(run=0)
    growth = growth_along(run, steps=[PLATEAU, run.steps[-1]], samples=GROWTH_SAMPLES)
    measured = run.metrics.dropna(subset=["validation_loss"]).iloc[-1]
    sampled = gradient_confinement(task, layers=setting.layers, batch_sizes=(500, 1000, 2000, 4000))
    slopes = confinement_slopes(sampled).unstack()
    orbits = task.program.few_orbits(FEW)
    return {
        "run": run.run_id,
        "vocabulary": task.vocabulary,
        "orbits": None if orbits is None else len(orbits),
        "dim": coords.sizes["coordinate"],
        "layers": setting.layers,
        "loss": float(measured["validation_loss"]),
        "accuracy": float(measured["validation_accuracy"]),
        "off_manifold": float(coords["off_manifold"][-1]),
        "growth": {"step": growth.index.tolist(), "rate": growth.tolist()},
        **_exact(setting),
        "slope": slopes["all"].to_dict(),
    }


def _exact(setting: FromZero) -> dict[str, Any]:
    """Over every outcome of a small instance: gap of its law, and what leaves each basis."""
    if setting.small is None:
        return {"invariance": None, "exact_share": None}
    task = cast(BlockList, from_zero_config(setting).replace(task=setting.small).task)
    shares = exact_confinement(task, layers=setting.layers)
    table = shares.pivot(index="basis", columns="matrix", values="share")
    return {"invariance": task.program.invariance(), "exact_share": table["all"].to_dict()}
