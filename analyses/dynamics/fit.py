"""Which equation a run follows, from its checkpoints alone: what fits recover, on runs unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analyses.claim import Claim
from analyses.dynamics.base import Say
from analyses.studies.base import RECALL
from manifold import ReducedField, fit_ode, four_coordinates, project, reduced_field
from manifold.coordinates.invariant import frame_projector
from manifold.dynamics.grams import GramModel, Sequences
from manifold.dynamics.mixture_regression import regression
from manifold.dynamics.sparse_fit import LIBRARIES
from manifold.dynamics.structured_fit import StructuredFit, conclude
from manifold.dynamics.trajectory import Trajectory, read_trajectories
from training import AssociativeRecall, RunConfig, train_many
from training.groups import relabel

TITLE: str = "The equation of a run, read from its checkpoints"
TASK = AssociativeRecall(**{k: v for k, v in RECALL.items() if k != "name"})
SMALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)
TOGETHER = 2
"""Runs held out at once: with 8 runs each is held out once in 4 fits of 6."""
DENSE = 4
"""Runs of the densest series, whose fits take four times as long."""
NEVER = float("inf")
POOL = 48
"""Different minibatches that SGD on four coordinates draws from."""


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Facts: `series` of four coordinates, `trained` full models, `own` (a field for each run)."""
    task, count, until = (SMALL, 3, 30) if quick else (TASK, 8, 1000)
    samples = 200 if quick else 6000
    made = reduced_field(task, coordinates="four", samples=samples, seed=100)
    field = reduced_field(task, coordinates="four", samples=samples // 3, seed=200)
    say("flows and SGD on four coordinates")
    series = _four_coordinate_runs(made, count, until, few=8 if quick else 75)
    libraries = ("linear", "sigmoid products") if quick else tuple(LIBRARIES)
    facts: dict[str, Any] = {
        "task": {"n": task.n_blocks, "n_common": task.n_common, "n_rare": task.n_rare},
        "samples": {"made": made.population.drawn, "fitted": field.population.drawn},
        "truth": _truth(task),
        "until": until,
        "series": {},
        "trained": {},
    }
    for name, runs in series.items():
        say(f"structured fits of {name}")
        found = _structured(runs, field)
        say(f"sparse fits of {name}")
        found["sparse"] = {library: _sparse(runs, library) for library in libraries}
        facts["series"][name] = found
    say("full models: training")
    trained = train_many(
        _configs(RECALL if not quick else {**RECALL, **_plain(SMALL)}, count, quick),
        root=folder / "runs",
    )
    for name, basis in (("all", None), ("four", four_coordinates(task))):
        say(f"full models: fits in {name} coordinates")
        data = project(trained, basis)
        whole = field if basis is not None else reduced_field(task, samples=samples // 3, seed=200)
        facts["trained"][name] = _structured(read_trajectories(data), whole)
    say("a field of its own for each run")
    facts["own"] = [
        _single(run, reduced_field(task, coordinates="four", samples=samples // 4, seed=300 + i))
        for i, run in enumerate(series["SGD"])
    ]
    return facts


def _plain(task: AssociativeRecall) -> dict[str, Any]:
    return {"n_blocks": task.n_blocks, "n_common": task.n_common, "n_rare": task.n_rare}


def _truth(task: AssociativeRecall) -> dict[str, float]:
    return {kind: float(v) for kind, v in task.kind_probabilities(task.f_r, task.f_v).items()}


def _configs(task: Mapping[str, Any], count: int, quick: bool) -> list[RunConfig]:
    steps, every = (30, 5) if quick else (1500, 20)
    return [
        RunConfig(
            study="fit",
            task=dict(task),
            family={"name": "attention_only", "layers": 2, "heads": 1, "scale": 0.01},
            optimiser={"name": "sgd", "lr": 1.0},
            steps=steps,
            batch_size=64 if quick else 512,
            seeds={"init": seed, "data": seed},
            eval_every=steps,
            eval_size=100,
            checkpoints={"doubling": False, "every": every},
        )
        for seed in range(count)
    ]


def _four_coordinate_runs(
    field: ReducedField, count: int, until: int, few: int
) -> dict[str, list[Trajectory]]:
    """Name of a series to its runs: flows read at other times, and minibatch SGD."""
    rng = np.random.default_rng(0)
    starts = np.column_stack([rng.uniform(0.1, 0.5, (count, 3)), rng.uniform(0.0, 0.3, count)])
    even, dense = np.linspace(0, until, few + 1), np.linspace(0, until, 4 * few + 1)
    spaced = np.concatenate([[0.0], np.geomspace(1.0, until, few)])
    union = np.unique(np.concatenate([dense, spaced]))
    found: dict[str, list[Trajectory]] = {
        f"{few} even": [],
        f"{4 * few} even": [],
        f"{few} log-spaced": [],
        "SGD": [],
    }
    batches = _minibatches(field, POOL if few > 10 else 4)
    for i, start in enumerate(starts):
        states = field.integrate(start, union)
        for name, times in zip(found, (even, dense, spaced), strict=False):
            if times is dense and i >= DENSE:
                continue
            kept = states[np.searchsorted(union, times)]
            found[name].append(Trajectory(name=f"{i}", times=times, states=kept))
        steps = np.unique(np.round(even).astype(int))
        walked = _sgd(field, batches, start, until, np.random.default_rng(i))[steps]
        found["SGD"].append(Trajectory(name=f"{i}", times=steps.astype(float), states=walked))
    return found


def _minibatches(
    field: ReducedField, count: int, size: int = 512
) -> list[tuple[GramModel, np.ndarray]]:
    """Models of minibatches drawn by the task itself, and the weight of each of their sequences."""
    task, found = field.task, []
    frame = frame_projector(task, field.basis.family)
    for seed in range(count):
        batch = task.evaluation(10_000 + seed, size)
        rows = np.column_stack([batch.tokens, batch.targets[:, -1]])
        rows = relabel(rows, task.program.classes)
        sequences = Sequences(
            tokens=rows[:, :-1], target=rows[:, -1], positions=task.program.one_placement()
        )
        found.append((GramModel(field.basis, frame, sequences), np.full(size, 1 / size)))
    return found


def _sgd(
    field: ReducedField,
    batches: Sequence[tuple[GramModel, np.ndarray]],
    start: np.ndarray,
    steps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """States (steps + 1, 4) of SGD at rate 1, each step on a minibatch drawn from the pool."""
    states = [start]
    for _ in range(steps):
        model, weights = batches[int(rng.integers(len(batches)))]
        states.append(states[-1] - field.basis.raise_index(model.gradient(states[-1], weights)))
    return np.array(states)


def _structured(runs: Sequence[Trajectory], field: ReducedField) -> dict[str, Any]:
    """Every run held out once, and every run fitted alone and rolled out on the next one."""
    parts = [regression(run, field, NEVER) for run in runs]
    known = [part for part in parts if part is not None]
    folds, singles = [], []
    for first in range(0, len(runs), TOGETHER):
        out = range(first, min(first + TOGETHER, len(runs)))
        left = [i for i in range(len(runs)) if i not in out]
        fit = conclude(field, [], [runs[i] for i in out], [known[i] for i in left], seconds=600)
        folds.append({"held": list(out), **_said(fit)})
    for i in range(len(runs)):
        beyond = runs[(i + 1) % len(runs)]
        fit = conclude(field, [], [beyond], [known[i]], seconds=600)
        singles.append({"run": i, **_said(fit)})
    return {"runs": len(runs), "checkpoints": len(runs[0]), "folds": folds, "singles": singles}


def _single(run: Trajectory, field: ReducedField) -> dict[str, Any]:
    part = regression(run, field, NEVER)
    assert part is not None
    return _said(conclude(field, [], [run], [part], seconds=600))


def _said(fit: StructuredFit) -> dict[str, Any]:
    table = {**fit.mixture.to_dict("index"), **fit.statistics.to_dict("index")}
    judged = fit.judgement
    runs = [] if judged is None else judged.runs[["error", "low", "high"]].to_numpy().tolist()
    return {"values": table, "identified": fit.identified, "errors": runs, "verdict": fit.verdict}


def _sparse(runs: Sequence[Trajectory], library: str) -> list[dict[str, Any]]:
    """Each run held out once."""
    found = []
    for first in range(0, len(runs), TOGETHER):
        order = [*runs[:first], *runs[first + TOGETHER :], *runs[first : first + TOGETHER]]
        pairs = [(run.times, run.states) for run in order]
        fit = fit_ode(pairs, "sparse", library=library, held_out=TOGETHER, seconds=20)
        judged = fit.judgement
        outside = None if judged is None else judged.runs[judged.runs["held_out"]]
        found.append(
            {
                "status": fit.status,
                "terms": int((fit.coefficients != 0).to_numpy().sum()),
                "of": fit.coefficients.size,
                "errors": [] if outside is None else outside["error"].tolist(),
                "verdict": fit.verdict,
            }
        )
    return found


def text(facts: Mapping[str, Any]) -> str:
    from analyses.dynamics.fit_text import write

    return write(facts)


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    from analyses.dynamics.fit_text import draw

    return {"fit.svg": draw(facts)}


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    from analyses.dynamics.fit_text import claimed

    return claimed(facts)
