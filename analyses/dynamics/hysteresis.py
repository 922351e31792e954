"""Is there hysteresis in training of full matrices, at the statistics where the field has it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics.base import Say
from analyses.dynamics.hysteresis_text import figures, text
from analyses.dynamics.share import mean
from analyses.dynamics.start import StartAt
from analyses.page import write_json
from manifold import (
    Basis,
    ReducedField,
    effective_matrices,
    equilibrium,
    evaluate,
    project,
    reduced_field,
    stable_rate,
)
from training import Run, RunConfig, train_many
from training.checkpoint import read_json

TITLE: str = "Hysteresis in full matrices"
DECAY = 1e-3
NOISE = 0.01
"""Standard deviation of what is added to every entry of the planted matrices."""
SEEDS = (0, 1, 2)
CONTEXT = 0.5
"""A state answers from the context where its accuracy on mismatch is at least this."""
HELD_OUT = 500
"""Sequences of each kind on which the trained matrices are scored."""

__all__ = ["TITLE", "claims", "figures", "measure", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Recall with the query from common tokens alone, distractors at f_r = f_v = 0.3.

    samples: of the field; None for every orbit. weights, context: the query's f_v through which
    the flow is followed from rest to rest, from zero on, to the in-weights and the in-context
    state; both end at the f_v at which both are tried. low: where the in-context one should fall.
    """

    n_blocks: int
    n_common: int
    n_rare: int
    samples: int | None
    weights: tuple[float, ...]
    context: tuple[float, ...]
    low: float
    rate: float = 2.0
    steps: int = 2000
    points: int = 20

    def __post_init__(self) -> None:
        if self.weights[-1] != self.context[-1]:
            raise ValueError(
                f"hysteresis: both states are tried at one f_v, got paths that end at "
                f"{self.weights[-1]} and {self.context[-1]}"
            )

    @property
    def both(self) -> float:
        return self.weights[-1]

    def task(self, f_v: float) -> dict[str, Any]:
        return {
            "name": "associative_recall",
            "n_blocks": self.n_blocks,
            "n_common": self.n_common,
            "n_rare": self.n_rare,
            "track_slots": 4,
            "f_r": 0.0,
            "f_v": f_v,
            "burstiness": 1,
            "distractor_f_r": 0.3,
            "distractor_f_v": 0.3,
        }

    def config(self, start: np.ndarray, f_v: float, seed: int) -> RunConfig:
        """Full matrices planted at `start`, plus noise, trained at the query's f_v."""
        every = self.steps // self.points
        return RunConfig(
            **{
                "study": "hysteresis",
                "task": self.task(f_v),
                "family": StartAt(coordinates=tuple(start.tolist()), scale=NOISE),
                "optimiser": {"name": "sgd", "lr": self.rate, "weight_decay": DECAY},
                "steps": self.steps,
                "batch_size": 256,
                "seeds": {"init": seed, "data": seed, "eval": 0},
                "eval_every": every,
                "eval_size": 1000,
                "checkpoints": {"doubling": False, "every": every},
            }
        )


SETTINGS = {
    "n = 6, sampled": Setting(
        n_blocks=6,
        n_common=8,
        n_rare=8,
        samples=3000,
        weights=(0.02, 0.1, 0.2),
        context=(0.9, 0.2),
        low=0.02,
    ),
    "n = 3, exact": Setting(
        n_blocks=3,
        n_common=6,
        n_rare=5,
        samples=None,
        weights=(0.02, 0.05),
        context=(0.9, 0.05),
        low=0.01,
    ),
}
"""The theory's setting, and one whose population is enumerated, where both states exist at lower
f_v."""
QUICK = {
    "n = 2, exact": Setting(
        n_blocks=2,
        n_common=4,
        n_rare=2,
        samples=None,
        weights=(0.3,),
        context=(0.3,),
        low=0.2,
        steps=20,
        points=2,
    )
}


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """States of rest, and what training made of each, for every setting."""
    settings, seeds = (QUICK, SEEDS[:1]) if quick else (SETTINGS, SEEDS)
    return {name: _setting(folder, name, one, seeds, say) for name, one in settings.items()}


def _setting(
    folder: Path, name: str, setting: Setting, seeds: tuple[int, ...], say: Say
) -> dict[str, Any]:
    task: Any = setting.config(np.zeros(0), setting.both, 0).task
    field = reduced_field(task, samples=setting.samples)
    say(f"{name}: states of rest of the {field}")
    rest = _kept(folder / f"rest {name}.json", lambda: _rest(field, setting))
    arms = {
        "weights": (rest["weights"], setting.both),
        "context": (rest["context"], setting.both),
        "fall": (rest["context"], setting.low),
    }
    found = {}
    for arm, (start, f_v) in arms.items():
        say(f"{name}: training {arm} at f_v = {f_v}")
        state = np.array(start["state"])
        runs = train_many([setting.config(state, f_v, seed) for seed in seeds], root=folder)
        goal = np.array(rest["fallen" if arm == "fall" else arm]["state"])
        found[arm] = {
            "f_v": f_v,
            "runs": [_run(run, field.basis, goal) for run in runs],
            "foreseen": _foreseen(field.at(f_v=f_v), state, setting),
        }
    return {
        "field": str(field),
        "task": setting.task(setting.both),
        "low": setting.low,
        "rate": setting.rate,
        "steps": setting.steps,
        "decay": DECAY,
        "noise": NOISE,
        "rest": rest,
        "arms": found,
    }


def _kept(file: Path, make: Callable[[], Any]) -> dict[str, Any]:
    """What a file holds, or else what is made now and kept there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, make())
    return read_json(file)


def _rest(field: ReducedField, setting: Setting) -> dict[str, Any]:
    """Both states at the common f_v, and where the flow takes the in-context one at the low f_v."""
    states = {}
    for name, path in (("weights", setting.weights), ("context", setting.context)):
        state = np.zeros(field.dim)
        for f_v in path:
            state = equilibrium(field.at(f_v=f_v), state, DECAY)
        states[name] = _state(field.at(f_v=setting.both), state)
    low = field.at(f_v=setting.low)
    fallen = equilibrium(low, np.array(states["context"]["state"]), DECAY)
    lowest = equilibrium(low, np.array(states["weights"]["state"]), DECAY)
    apart = distance(field.basis, fallen, lowest)
    return {**states, "fallen": {**_state(low, fallen), "from_weights": apart}}


def _state(field: ReducedField, state: np.ndarray) -> dict[str, Any]:
    values = np.linalg.eigvals(field.jacobian(state, DECAY)).real
    accuracy = _accuracy(field, state)
    return {
        "state": state,
        "f_v": field.task.f_v,
        "residual": float(np.abs(field.flow(state, DECAY)).max()),
        "leading": float(values.max()),
        "limit": stable_rate(field, state, DECAY),
        "mismatch": accuracy["mismatch"],
        "iwl": accuracy["iwl"],
        "largest": _largest(field, state),
    }


def _largest(field: ReducedField, state: np.ndarray, count: int = 6) -> dict[str, float]:
    order = np.argsort(-np.abs(state))[:count]
    return {field.names[i]: float(state[i]) for i in order}


def distance(basis: Basis, c: np.ndarray, goal: np.ndarray) -> float:
    """|W(c) - W(goal)| / |W(goal)|, Frobenius norms over all matrices."""
    off, size = (x @ basis.gram @ x for x in (c - goal, goal))
    return float(np.sqrt(off / size))


def _run(run: Run, basis: Basis, goal: np.ndarray) -> dict[str, Any]:
    """The trained matrices' own accuracy, on and off the manifold, and how far from `goal`."""
    task: Any = run.task
    batches = {kind: task.evaluation(0, HELD_OUT, kind=kind) for kind in ("mismatch", "iwl")}
    accuracy: dict[str, list[float]] = {kind: [] for kind in batches}
    for step in run.steps:
        matrices = effective_matrices(run[step])
        for kind, batch in batches.items():
            scored = evaluate(task, basis, matrices, batch=batch)
            accuracy[kind].append(scored.accuracy[kind])
    coords = project(run, basis).isel(run=0)
    return {
        "run": run.run_id,
        "seed": run.config.seeds.init,
        "times": coords["time"].to_numpy(),
        **accuracy,
        "distance": [distance(basis, c, goal) for c in coords["c"].to_numpy()],
        "off_manifold": float(coords["off_manifold"][-1]),
    }


def _foreseen(field: ReducedField, state: np.ndarray, setting: Setting) -> dict[str, Any]:
    """The reduced flow from the same start, without noise."""
    times = np.linspace(0.0, setting.rate * setting.steps, setting.points + 1)
    scores = [_accuracy(field, c) for c in field.integrate(state, times, DECAY)]
    return {
        "times": times,
        "mismatch": [score["mismatch"] for score in scores],
        "iwl": [score["iwl"] for score in scores],
    }


def _accuracy(field: ReducedField, state: np.ndarray) -> dict[str, float]:
    """Kind to the field's accuracy on it."""
    found: dict = field.kinds(state)["accuracy"].to_dict()
    return found


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Mean accuracy on mismatch of the trained matrices at the end, on the side of 1/2 claimed."""
    comparisons = []
    for name, setting in facts.items():
        for arm, words, expected in (
            ("weights", "in-weights start", (0.0, CONTEXT)),
            ("context", "in-context start", (CONTEXT, 1.0)),
            ("fall", "in-context start", (0.0, CONTEXT)),
        ):
            found = setting["arms"][arm]
            ends = mean([run["mismatch"][-1] for run in found["runs"]])
            comparisons.append(
                Comparison(
                    what=f"{name}, f_v = {found['f_v']:g}, {words}, accuracy on mismatch",
                    value=ends["value"],
                    low=max(0.0, ends["low"]),
                    high=min(1.0, ends["high"]),
                    expected=expected,
                )
            )
    return (
        Claim(
            number="hysteresis",
            source="ours",
            statement="with weight decay full-matrix training has hysteresis in f_v: at one f_v "
            "an in-weights and an in-context start each stay, at a lower one the in-context "
            "start falls",
            comparisons=tuple(comparisons),
        ),
    )
