"""Is the switch between in-weights and in-context learning a bifurcation? Folds in f_v."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from analyses.figures import PALETTE, Figure, canvas, svg
from analyses.settings import Settings
from analyses.studies.base import Progress, Section
from manifold import continue_branch, reduced_field
from training import TASKS

SPAN = (0.02, 1.0)
TASK = {
    "n_blocks": 3,
    "n_common": 6,
    "n_rare": 5,
    "track_slots": 4,
    "f_r": 0.0,
    "f_v": SPAN[0],
    "burstiness": 1,
    "distractor_f_r": 0.3,
    "distractor_f_v": 0.3,
}


def run(folder: Path, settings: Settings, seed: int, progress: Progress) -> dict:
    """The branch of the in-weights state in the query's f_v, for each weight decay."""
    task = TASKS["associative_recall"](**TASK)
    field = reduced_field(task, layers=2, heads=1, coordinates="four", samples=None)
    branches, bifurcations = [], []
    for index, decay in enumerate(settings.decays):
        progress(index / len(settings.decays), f"continuing the branch at weight decay {decay:g}")
        branch = continue_branch(
            field, np.zeros(field.dim), parameter="f_v", span=SPAN, weight_decay=decay
        )
        folds = [
            {
                "kind": "fold",
                "parameter": "f_v",
                "value": fold.value,
                "weight_decay": decay,
                "coordinates": dict(zip(field.names, map(float, fold.state), strict=True)),
                "eigenvalues": np.real(fold.eigenvalues).tolist(),
                "null_vector": dict(zip(field.names, map(float, fold.null_vector), strict=True)),
                "residual": float(fold.residual),
            }
            for fold in branch.folds
        ]
        bifurcations += folds
        branches.append(
            {
                "weight_decay": decay,
                "parameter": "f_v",
                "span": list(SPAN),
                "folds": [fold["value"] for fold in folds],
                "table": branch.table.to_dict(orient="list"),
            }
        )
    progress(1.0, "done")
    return {"task": TASK, "branches": branches, "bifurcations": bifurcations}


def _finding(branch: dict) -> str:
    """What the branch is, by its folds and by the signs of its eigenvalues."""
    decay, folds, table = branch["weight_decay"], branch["folds"], branch["table"]
    pieces = [stable for stable, _ in itertools.groupby(table["stable"])]
    if not folds:
        highest = max(table["leading"])
        kind = "a crossover, not a bifurcation" if all(table["stable"]) else "no fold"
        return (
            f"At weight decay {decay:g} the branch of fixed points has no fold: {kind}, its "
            f"largest eigenvalue anywhere is {highest:.1e}."
        )
    head = (
        f"At weight decay {decay:g} in-weights and in-context learning are parted by a real "
        f"bifurcation: the branch folds at f_v = {' and '.join(f'{v:.10f}' for v in folds)}"
    )
    if pieces == [True, False, True]:
        return f"{head}; between them two states attract, and the starting point decides."
    return f"{head}; along it the fixed points are {', '.join(map(_word, pieces))}."


def _word(stable: bool) -> str:
    return "stable" if stable else "unstable"


def section(facts: dict) -> Section:
    return Section(
        anchor="folds",
        title="From in-weights to in-context learning: folds",
        findings=tuple(_finding(branch) for branch in facts["branches"]),
        text=(
            "Fixed points of the reduced gradient flow with weight decay, on four coordinates, "
            "over the exact population of associative recall (3 blocks, 6 common and 5 rare "
            "tokens, query from the common tokens alone, distractors at f_r = f_v = 0.3). The "
            "branch starts from the flow integrated from zero and is followed by pseudo-arclength; "
            "folds are refined until the residual is at rounding.",
        ),
        figures=(_figure(facts),),
    )


def _figure(facts: dict) -> Figure:
    branches, rows = facts["branches"], []
    with canvas(len(branches), width=7.2, height=3.0, sharey=True) as (figure, axes):
        for axis, branch in zip(axes, branches, strict=True):
            table = pd.DataFrame(branch["table"])
            stable = table["stable"].to_numpy(bool)
            for flag, style, label in ((True, "-", "stable"), (False, "--", "unstable")):
                drawn = table["gamma"].where(_widen(stable == flag))
                axis.plot(table["f_v"], drawn, style, color=PALETTE[0 if flag else 1], label=label)
            for fold in facts["bifurcations"]:
                if fold["weight_decay"] == branch["weight_decay"]:
                    axis.plot(fold["value"], fold["coordinates"]["gamma"], "ko", ms=5)
                    axis.annotate(
                        f"fold {fold['value']:.4f}",
                        (fold["value"], fold["coordinates"]["gamma"]),
                        xytext=(7, -3),
                        textcoords="offset points",
                    )
            axis.set(
                title=f"weight decay {branch['weight_decay']:g}",
                xlabel="within-class variability f_v of the query",
                xscale="log",
            )
            rows.append(table.assign(weight_decay=branch["weight_decay"]))
        axes[0].set_ylabel("gamma (output I_t from V2)")
        axes[0].legend(loc="lower right")
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Branches of fixed points in f_v. "
        + " ".join(
            f"At weight decay {b['weight_decay']:g}: {len(b['folds'])} folds." for b in branches
        ),
        caption="Low gamma: the answer comes from the weights. High gamma: from the context. Solid "
        "branches attract training, dashed ones repel it.",
        table=pd.concat(rows, ignore_index=True),
    )


def _widen(mask: np.ndarray) -> np.ndarray:
    """A run of the mask and one point on either side, so that drawn pieces touch."""
    wide = mask.copy()
    wide[1:] |= mask[:-1]
    return wide
