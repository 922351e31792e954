"""Is the fall of in-context learning lessened by holding the answer from weights down?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analyses.claim import Claim, Comparison
from analyses.dynamics.base import Say
from analyses.dynamics.control_text import LEARNT, LESSENED, at, figures, text
from analyses.dynamics.share import mean
from manifold import Control, Monitor, invariant_basis
from training import AttentionOnly
from training.tasks import AssociativeRecall

TITLE: str = "Transience lessened: the answer from weights held down"
ARMS: Mapping[str, str] = {
    "untreated": "nothing is held",
    "delta held": "delta, out:C from I, is held at 0",
    "all held": "all coordinates of the read-out that hold C are held at 0",
    "let go": "as all held, then let go",
}

__all__ = ["TITLE", "claims", "figures", "measure", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Steps of SGD; f_v is `early` up to `fall` and `late` from there on; let go at `let_go`."""

    steps: int = 4000
    fall: int = 1500
    let_go: int = 3000
    early: float = 0.1
    late: float = 0.0
    decay: float = 1e-3
    rate: float = 1.0
    batch: int = 128
    every: int = 50
    seeds: int = 3

    def task(self, f_v: float) -> AssociativeRecall:
        return AssociativeRecall(
            n_blocks=2,
            n_common=6,
            n_rare=5,
            track_slots=4,
            f_r=0.0,
            f_v=f_v,
            distractor_f_r=0.3,
            distractor_f_v=0.3,
        )


QUICK = Setting(steps=60, fall=20, let_go=40, every=5, batch=16, seeds=1)


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Accuracies, delta and events of every arm and seed."""
    setting = QUICK if quick else Setting()
    rows = []
    for seed in range(setting.seeds):
        for arm in ARMS:
            say(f"{arm}, seed {seed}")
            rows.append(_kept(folder, setting, arm, seed))
    chance = 1 / setting.task(setting.early).vocabulary
    return {"setting": asdict(setting), "arms": dict(ARMS), "chance": chance, "rows": rows}


def _kept(folder: Path, setting: Setting, arm: str, seed: int) -> dict[str, Any]:
    """The run's facts, trained once."""
    name = f"{arm.replace(' ', '-')}-{seed}-{setting.steps}-{setting.late:g}"
    path = folder / f"{name}.json"
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["setting"] == asdict(setting):
            return kept["row"]
    row = _run(setting, arm, seed)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"setting": asdict(setting), "row": row}))
    return row


def _run(setting: Setting, arm: str, seed: int) -> dict[str, Any]:
    """SGD with decoupled decay on full matrices in a loop of its own, watched and held."""
    early, late = setting.task(setting.early), setting.task(setting.late)
    family = AttentionOnly(layers=2, heads=1, scale=0.02)
    weights = family.initialise(early, seed, torch.float32)
    trained = [v.requires_grad_() for k, v in weights.items() if k not in family.frozen]
    monitor = Monitor(early, family, every=setting.every, lr=setting.rate)
    held = _held(early, arm)
    control = Control(early, family, held) if held else None
    for step in range(setting.steps + 1):
        if step:
            task = early if step <= setting.fall else late
            _update(family, weights, trained, task.batch(seed, step, setting.batch, None), setting)
        if control is not None and (arm != "let go" or step <= setting.let_go):
            control(weights)
        monitor(step, weights)
    data = monitor.trajectory.isel(run=0)
    accuracy = {kind: data["accuracy"].sel(kind=kind).values.tolist() for kind in _KINDS}
    return {
        "arm": arm,
        "seed": seed,
        "steps": data["step"].values.tolist(),
        "accuracy": accuracy,
        "delta": data["c"].sel(coordinate="out:C I").values.tolist(),
        "icl_step": learnt(data["step"].values, accuracy["mismatch"]),
        "raised": [asdict(event) for event in monitor.raised],
    }


_KINDS = ("match", "mismatch", "iwl")


def _held(task: AssociativeRecall, arm: str) -> list[str]:
    if arm == "untreated":
        return []
    if arm == "delta held":
        return ["out:C I"]
    basis = invariant_basis(task, "attention_only", 2, 1)
    return [name for name in basis if name.startswith("out:C ")]


def _update(family: Any, weights: Any, trained: Sequence[Any], batch: Any, setting: Setting):
    tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    logits = family.forward_last(weights, tokens, positions)[:, 0]
    targets = torch.from_numpy(batch.targets[:, -1])
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, targets), trained)
    with torch.no_grad():
        for value, gradient in zip(trained, gradients, strict=True):
            value.mul_(1 - setting.rate * setting.decay).sub_(gradient, alpha=setting.rate)


def learnt(steps: np.ndarray, mismatch: Sequence[float]) -> int | None:
    """The first step from which the mismatch accuracy is above 1/2 three times in a row."""
    above = np.asarray(mismatch) > LEARNT
    for i in range(len(above) - 2):
        if above[i : i + 3].all():
            return int(steps[i])
    return None


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """All of C held leaves more of mismatch than nothing held; delta alone is another matter."""
    end = {arm: _ends(facts, arm) for arm in ("untreated", "all held", "delta held")}
    changed = f"after the data change at step {facts['setting']['fall']:,}"
    known = at(facts, "delta held", "mismatch", facts["setting"]["fall"])

    def less(arm: str) -> Comparison:
        pairs = np.array(end[arm]) - np.array(end["untreated"])
        what = f"mismatch accuracy at the end, {arm} less untreated"
        return _compared(what, pairs, (LESSENED, 1.0))

    return (
        Claim(
            number="control",
            source="ours",
            statement=f"{changed}, holding all that answers from weights lessens the fall of "
            f"in-context learning (by {LESSENED:g} or more)",
            comparisons=(less("all held"),),
        ),
        Claim(
            number="control, delta alone",
            source="ours",
            statement="with delta alone held, context is learnt while the data ask for it, and "
            f"{changed} falls less (by {LESSENED:g} or more)",
            comparisons=(
                _compared("mismatch accuracy at the change, delta held", known, (LEARNT, 1.0)),
                less("delta held"),
            ),
        ),
    )


def _compared(
    what: str, values: Sequence[float] | np.ndarray, expected: tuple[float, float]
) -> Comparison:
    found = mean(values)
    return Comparison(
        what=what,
        value=found["value"],
        low=found["low"],
        high=found["high"],
        expected=expected,
    )


def _ends(facts: Mapping[str, Any], arm: str) -> list[float]:
    rows = sorted((r for r in facts["rows"] if r["arm"] == arm), key=lambda row: row["seed"])
    return [float(np.mean(row["accuracy"]["mismatch"][-3:])) for row in rows]
