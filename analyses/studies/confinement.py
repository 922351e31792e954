"""Does the gradient stay on the manifold? Off-manifold shares by batch size and basis."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analyses.figures import Figure, canvas, line_style, svg
from analyses.settings import Settings
from analyses.studies.base import Progress, Section
from manifold import confinement_slopes, gradient_confinement, invariant_basis, paper_basis
from training import TASKS

TASK = {
    "n_blocks": 3,
    "n_common": 6,
    "n_rare": 5,
    "track_slots": 4,
    "f_r": 0.3,
    "f_v": 0.3,
    "burstiness": 1,
}
EXACT = "exact_commutant"
LABELS = {"exact_commutant": "exact commutant", "paper": "paper's basis"}


def run(folder: Path, settings: Settings, seed: int, progress: Progress) -> dict:
    """Shares at a random point on the manifold, for both bases, and at a point off it."""
    task = TASKS["associative_recall"](**TASK)
    bases = {
        "exact_commutant": invariant_basis(task, family="attention_only", layers=2, heads=1),
        "paper": paper_basis(task, layers=2, heads=1),
    }
    batches = settings.confinement_batches
    progress(0.0, "gradients on the manifold")
    on = gradient_confinement(task, batch_sizes=batches, bases=bases, on_manifold=True, seed=seed)
    progress(0.7, "gradients off the manifold")
    off = gradient_confinement(
        task,
        batch_sizes=batches,
        bases={"exact_commutant": bases["exact_commutant"]},
        on_manifold=False,
        seed=seed,
    )
    progress(1.0, "done")
    slopes = confinement_slopes(on).to_dict()
    return {
        "task": TASK,
        "on": _nested(on),
        "off": _nested(off)["exact_commutant"],
        "slopes": {matrix: v for (basis, matrix), v in slopes.items() if basis == EXACT},
    }


def _nested(table: pd.DataFrame) -> dict:
    """basis -> matrix -> batch -> share."""
    nested: dict = {}
    for row in table.to_dict(orient="records"):
        shares = nested.setdefault(row["basis"], {}).setdefault(row["matrix"], {})
        shares[str(row["batch"])] = row["share"]
    return nested


def section(facts: dict) -> Section:
    exact, paper = facts["on"]["exact_commutant"], facts["on"]["paper"]
    last = max(exact["all"], key=int)
    finding = (
        f"At batch {int(last):,} a share of {exact['all'][last]:.1e} of the squared gradient "
        f"leaves the span of the exact commutant, falling as batch^{facts['slopes']['all']:.2f}; "
        f"the paper's basis is not closed and leaves {paper['all'][last]:.1e}."
    )
    return Section(
        anchor="confinement",
        title="Gradients stay on the invariant manifold",
        findings=(finding,),
        text=(
            "The share ||(1 - P) g||^2 / ||g||^2 of a batch gradient outside the span, at a random "
            "point on it. If the manifold is invariant, only sampling noise is left, which falls "
            "as 1/batch. The control starts off the manifold, where most of the gradient of "
            f"the attention matrices stays off it: W1 {facts['off']['W1'][last]:.2f}, W2 "
            f"{facts['off']['W2'][last]:.2f} at batch {int(last):,}.",
        ),
        figures=(_figure(facts),),
    )


def _figure(facts: dict) -> Figure:
    matrices = [m for m in facts["on"]["exact_commutant"] if m != "all"] + ["all"]
    rows = []
    with canvas(len(matrices), width=8.4, height=2.6, sharey=True) as (figure, axes):
        for axis, matrix in zip(axes, matrices, strict=True):
            curves = {LABELS[basis]: facts["on"][basis][matrix] for basis in facts["on"]}
            curves["off the manifold"] = facts["off"][matrix]
            for index, (label, shares) in enumerate(curves.items()):
                x, y = [int(b) for b in shares], list(shares.values())
                marker = "os^"[index]
                axis.plot(x, y, marker=marker, ms=4, label=label, **line_style(index))
                rows += [
                    {"matrix": matrix, "curve": label, "batch": b, "share": s}
                    for b, s in zip(x, y, strict=True)
                ]
            axis.set(xscale="log", yscale="log", title=matrix, xlabel="batch")
        axes[0].set_ylabel("off-manifold share")
        axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Off-manifold share of the gradient against batch size, by matrix. Log-log slope for "
        "the exact commutant: "
        + ", ".join(f"{m} {v:.2f}" for m, v in facts["slopes"].items())
        + ".",
        caption="One panel per matrix and their total (Wbar dominates it).",
        table=pd.DataFrame(rows),
    )
