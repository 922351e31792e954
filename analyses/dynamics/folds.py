"""The folds between in-weights and in-context learning, and how they move (theory, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analyses.dynamics.base import Say
from analyses.dynamics.fold_figure import fold_drawing
from analyses.dynamics.fold_text import claims, text
from manifold import (
    Bifurcation,
    Branch,
    FoldCurve,
    ReducedField,
    continue_branch,
    continue_folds,
    crossovers,
    reduced_field,
)
from manifold.dynamics.crossover import undecided
from manifold.dynamics.phase_diagram import in_context
from training.tasks.associative_recall import AssociativeRecall

__all__ = ["TITLE", "claims", "figures", "measure", "text"]

TITLE: str = "Folds between in-weights and in-context learning, and how they move"
DECAY, SPAN, STEP = 1e-3, (0.01, 1.0), 0.2
DECAYS = (2.5e-4, 5e-4, 2e-3, 4e-3)


def field_of(
    n: int = 3,
    common: int = 6,
    rare: int = 5,
    b: int = 1,
    samples: int | None = None,
    seed: int = 0,
) -> ReducedField:
    """alpha, beta, gamma, delta; m = 4, query from common tokens, distractors f_r = f_v = 0.3."""
    task = AssociativeRecall(
        n_blocks=n,
        n_common=common,
        n_rare=rare,
        track_slots=4,
        f_r=0.0,
        f_v=SPAN[0],
        burstiness=b,
        distractor_f_r=0.3,
        distractor_f_v=0.3,
    )
    return reduced_field(task, coordinates="four", samples=samples, seed=seed)


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Facts; `folder` is not needed, nothing is trained."""
    seeds, sizes = ((0, 1), (2,)) if quick else (tuple(range(6)), (2, 3, 4))
    say("the two folds of the exact field at n = 3")
    field = field_of() if not quick else field_of(n=2)
    branches = branches_of(field, DECAY)
    facts: dict[str, Any] = {"weight_decay": DECAY, "exact": _row(field, branches)}
    facts["curves"] = {}
    along = {"weight_decay": (1e-2, 1e-4), "f_r": (0.5,)}
    for second, ends in {"f_r": (0.05,)}.items() if quick else along.items():
        start = DECAY if second == "weight_decay" else 0.0
        for branch, fold in _distinct(branches):
            for end in ends:
                say(f"the fold at {fold.value:.4g} along {second} to {end:g}")
                curve = continue_folds(
                    branch, fold, second_parameter=second, span=(start, end), step=STEP
                )
                key = f"{second} from {fold.value:.4f} to {end:g}"
                facts["curves"][key] = _curve(curve, fold)
    say("at other weight decays")
    facts["decays"] = [
        {"weight_decay": decay, **_row(field, branches_of(field, decay))}
        for decay in ((4e-3,) if quick else DECAYS)
    ]
    say("other burstiness and numbers of blocks")
    facts["shapes"] = []
    for n in sizes:
        for b in range(1, 2 if quick else n + 1):
            exact = n < 4 or b > 1  # n = 4, b = 1 has too many orbits
            for seed in (0,) if exact else seeds[:2]:
                other = field_of(n=n, b=b, samples=None if exact else 6000, seed=seed)
                row = _row(other, branches_of(other, DECAY))
                facts["shapes"].append({"n": n, "b": b, "seed": seed, **row})
    say("samples of n = 6")
    facts["samples"] = []
    size, tokens = (3, 4) if quick else (6, 8)
    for seed in seeds:
        other = field_of(
            n=size, common=tokens, rare=tokens, samples=60 if quick else 1500, seed=seed
        )
        facts["samples"].append({"seed": seed, **_row(other, branches_of(other, DECAY))})
    return facts


def figures(facts: Mapping[str, Any]) -> Mapping[str, str]:
    return {"folds.svg": fold_drawing(facts)}


def branches_of(field: ReducedField, decay: float) -> dict[str, Branch]:
    """From zero at the low end of f_v; and from in context at the high end, if that is another."""
    low, high = SPAN
    zero = continue_branch(field, np.zeros(field.dim), span=SPAN, weight_decay=decay, step=STEP)
    context = continue_branch(
        field, in_context(field), span=(high, low), weight_decay=decay, step=STEP
    )
    found = {"from zero": zero}
    if not np.allclose(zero.states[-1], context.states[0], atol=1e-5):
        found["in context"] = context
    return found


def _distinct(branches: Mapping[str, Branch]) -> list[tuple[Branch, Bifurcation]]:
    return [(branch, fold) for branch in branches.values() for fold in branch.folds]


def _row(field: ReducedField, branches: Mapping[str, Branch]) -> dict[str, Any]:
    """Folds and crossovers of each branch, and how exact the field is."""
    return {
        "exact": field.exact,
        "field": str(field),
        "branches": {
            name: {
                "folds": [_fold(fold) for fold in branch.folds],
                "crossovers": [_fold(one) for one in crossovers(branch, undecided(field))],
                "largest eigenvalue": float(branch.table["leading"].to_numpy().max()),
                "unresolved": list(branch.unresolved),
                "ended": branch.ended,
                "ends": [_end(field, branch, 0), _end(field, branch, -1)],
                "f_v": branch.table["f_v"].tolist(),
                "gamma": branch.table["gamma"].tolist(),
                "stable": branch.table["stable"].tolist(),
            }
            for name, branch in branches.items()
        },
    }


def _fold(one: Bifurcation) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "f_v": one.value,
        "state": one.state.tolist(),
        "eigenvalues": np.real(one.eigenvalues).tolist(),
        "null_vector": None if one.null_vector is None else np.array(one.null_vector).tolist(),
        "transversality": one.transversality,
        "quadratic": one.quadratic,
        "residual": one.residual,
    }


def _end(field: ReducedField, branch: Branch, index: int) -> dict[str, Any]:
    """The branch's first or last state: where it is, what it answers."""
    accuracy = field.kinds(branch.states[index])["accuracy"].to_dict()
    return {
        "f_v": float(branch.table["f_v"].to_numpy()[index]),
        "stable": bool(branch.table["stable"].to_numpy()[index]),
        "state": branch.states[index].tolist(),
        "mismatch": float(accuracy["mismatch"]),
        "iwl": float(accuracy["iwl"]),
    }


def _curve(curve: FoldCurve, fold: Bifurcation) -> dict[str, Any]:
    """The curve of folds in f_v and a second parameter, where it turns in the second, and ends.

    turns: bounds of the second parameter's extreme value, and f_v there: two folds meet since
    branches reconnect.
    """
    second = curve.parameters[1]
    along, f_v = curve.table[second].to_numpy(), curve.table["f_v"].to_numpy()
    slope = curve.table["transversality"].to_numpy()
    turns = np.flatnonzero(slope[:-1] * slope[1:] < 0)
    return {
        "from": fold.value,
        "second": second,
        "f_v": f_v.tolist(),
        "along": along.tolist(),
        "alpha": curve.table["alpha"].tolist(),
        "quadratic": curve.table["quadratic"].tolist(),
        "turns": [{"at": float(along[i : i + 2].max()), "f_v": float(f_v[i])} for i in turns],
        "cusps": [
            {"values": list(one.values), "error": list(one.error), "cubic": one.cubic}
            for one in curve.cusps
        ],
        "ended": curve.ended,
    }
