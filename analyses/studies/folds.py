"""Is the switch between in-weights and in-context learning a bifurcation? Folds in f_v."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analyses.figures import PALETTE, Figure, canvas, svg
from analyses.settings import Settings
from analyses.studies.base import Progress, Section
from manifold import Bifurcation, continue_branch, reduced_field
from training import TASKS

SPAN = (0.02, 1.0)
IN_CONTEXT = (3.0, 3.6, 3.9, 2.3)
"""alpha, beta, gamma, delta from which the flow comes to rest in context wherever it can."""
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
    """Branches of fixed points in the query's f_v, for each weight decay: the one that begins in
    the weights at the low end, and the one in context at the high end where it is another."""
    task = TASKS["associative_recall"](**TASK)
    field = reduced_field(task, layers=2, heads=1, coordinates="four", samples=None)
    branches, bifurcations = [], []
    for index, decay in enumerate(settings.decays):
        progress(index / len(settings.decays), f"continuing branches at weight decay {decay:g}")
        from_zero = continue_branch(
            field, np.zeros(field.dim), parameter="f_v", span=SPAN, weight_decay=decay
        )
        in_context = continue_branch(
            field,
            np.array(IN_CONTEXT),
            parameter="f_v",
            span=(SPAN[1], SPAN[0]),
            weight_decay=decay,
        )
        ends = from_zero.table[list(field.names)].iloc[-1]
        begins = in_context.table[list(field.names)].iloc[0]
        found = {"from zero": from_zero}
        if not np.allclose(ends, begins, atol=1e-6):
            found["in context"] = in_context
        for start, branch in found.items():
            folds = [_fold(fold, decay, field.names) for fold in branch.folds]
            bifurcations += folds
            branches.append(
                {
                    "start": start,
                    "weight_decay": decay,
                    "parameter": "f_v",
                    "span": list(SPAN),
                    "folds": [fold["value"] for fold in folds],
                    "table": branch.table.to_dict(orient="list"),
                }
            )
    progress(1.0, "done")
    return {"task": TASK, "branches": branches, "bifurcations": bifurcations}


def _fold(fold: Bifurcation, decay: float, names: tuple[str, ...]) -> dict:
    null = np.array(fold.null_vector, float)
    return {
        "kind": "fold",
        "parameter": "f_v",
        "value": fold.value,
        "weight_decay": decay,
        "coordinates": dict(zip(names, map(float, fold.state), strict=True)),
        "eigenvalues": np.real(fold.eigenvalues).tolist(),
        "null_vector": dict(zip(names, null.tolist(), strict=True)),
        "residual": float(fold.residual),
    }


def _finding(branch: dict) -> str:
    """What the branch is, by its folds and by the signs of its eigenvalues."""
    decay, folds, table = branch["weight_decay"], branch["folds"], branch["table"]
    if branch["start"] == "in context":
        where = f", down to a fold at f_v = {folds[0]:.10f}" if folds else ""
        return (
            f"At weight decay {decay:g} the in-context states are a branch of their own{where}: "
            "where both attract, the starting point decides."
        )
    pieces = [stable for stable, _ in itertools.groupby(table["stable"])]
    if not folds:
        return (
            f"At weight decay {decay:g} the branch from zero has no fold: its largest eigenvalue "
            f"anywhere is {max(table['leading']):.1e}."
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
            "branch from zero starts where the flow from zero comes to rest at the smallest f_v, "
            "the other where the flow from an in-context state does at the largest; they are "
            "followed by pseudo-arclength, and folds refined until the residual is at rounding.",
        ),
        figures=(_figure(facts),),
    )


def _figure(facts: dict) -> Figure:
    branches = facts["branches"]
    decays = list(dict.fromkeys(branch["weight_decay"] for branch in branches))
    with canvas(len(decays), width=7.2, height=3.0, sharey=True) as (figure, axes):
        for axis, decay in zip(axes, decays, strict=True):
            for branch in branches:
                if branch["weight_decay"] == decay:
                    _draw(axis, branch)
            for fold in facts["bifurcations"]:
                if fold["weight_decay"] == decay:
                    place = fold["value"], fold["coordinates"]["gamma"]
                    axis.plot(*place, "ko", ms=5)
                    axis.annotate(f"fold {fold['value']:.4f}", place, xytext=(7, -3),
                                  textcoords="offset points")  # fmt: skip
            axis.set(
                title=f"weight decay {decay:g}",
                xlabel="within-class variability f_v of the query",
                xscale="log",
            )
        axes[0].set_ylabel("gamma (output I_t from V2)")
        axes[0].legend(*_unique(axes[0]), loc="lower right")
        drawing = svg(figure)
    tables = [pd.DataFrame(b["table"]).assign(weight_decay=b["weight_decay"], start=b["start"])
              for b in branches]  # fmt: skip
    return Figure(
        svg=drawing,
        alt="Branches of fixed points in f_v. "
        + " ".join(
            f"At weight decay {b['weight_decay']:g}, {b['start']}: {len(b['folds'])} folds."
            for b in branches
        ),
        caption="Low gamma: the answer comes from the weights. High gamma: from the context. Solid "
        "branches attract training, dashed ones repel it.",
        table=pd.concat(tables, ignore_index=True),
    )


def _draw(axis: Axes, branch: dict) -> None:
    table = pd.DataFrame(branch["table"])
    stable = table["stable"].to_numpy(bool)
    for flag, style, label in ((True, "-", "stable"), (False, "--", "unstable")):
        drawn = table["gamma"].where(_widen(stable == flag))
        axis.plot(table["f_v"], drawn, style, color=PALETTE[0 if flag else 1], label=label)


def _unique(axis: Axes) -> tuple[list, list[str]]:
    """Handles and labels, each label once."""
    handles, labels = axis.get_legend_handles_labels()
    found = dict(zip(labels, handles, strict=True))
    return list(found.values()), list(found)


def _widen(mask: np.ndarray) -> np.ndarray:
    """A run of the mask and one point on either side, so that drawn pieces touch."""
    wide = mask.copy()
    wide[1:] |= mask[:-1]
    return wide
