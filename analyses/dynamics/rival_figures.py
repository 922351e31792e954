"""Drawings of rival circuits: scores by scale, basins, dominance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analyses.figures import PALETTE, canvas, svg

WHO = {
    "field": ("the field", "o", 0),
    "logistic": ("regression", "s", 1),
    "magnitudes": ("regression on sizes", "^", 2),
    "majority": ("majority", "x", 7),
}
"""Score to label, marker and colour."""


def scores(groups: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    """Share of winners predicted against the scale of the start, a panel for each kind of run."""
    drawn = [k for k in kinds if any(g["kind"] == k and g["scale"] is not None for g in groups)]
    with canvas(len(drawn), width=8.2, height=3.2, sharey=True) as (figure, axes):
        for axis, kind in zip(axes, drawn, strict=True):
            mine = [g for g in groups if g["kind"] == kind and "field" in g["scores"]]
            for offset, (name, (label, marker, colour)) in enumerate(WHO.items()):
                known = [g for g in mine if g["scores"][name] is not None]
                values = [g["scores"][name] for g in known]
                if not values:
                    continue
                share = np.array([v["share"] for v in values])
                bars = np.abs(np.array([[v["low"], v["high"]] for v in values]).T - share)
                at = np.array([g["scale"] for g in known]) * (1 + 0.06 * (offset - 1.5))
                axis.errorbar(at, share, bars, fmt=marker, ms=5, lw=1, capsize=2,
                              color=PALETTE[colour], label=label)  # fmt: skip
            names = {"six": "six coordinates", "near": "full, near manifold", "full": "full"}
            axis.set(title=names[kind], xlabel="scale of the start", xscale="log", ylim=(0, 1.05))
            ticks = sorted({g["scale"] for g in mine})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axes[0].set_ylabel("share of winners predicted")
        if axes[0].get_legend_handles_labels()[0]:
            axes[0].legend(loc="lower left", fontsize=7)
        return svg(figure)


def basins(facts: Mapping[str, Any]) -> str:
    """Who wins from each point of the grid, and the boundary between."""
    first, second = (np.asarray(side) for side in facts["sides"])
    winner, boundary = np.asarray(facts["winner"]), np.asarray(facts["boundary"]).reshape(-1, 2)
    marks = {"A": ("o", PALETTE[0]), "B": ("s", PALETTE[1]), "neither": ("x", "grey")}
    with canvas(1, width=4.6, height=3.8) as (figure, (axis,)):
        for name, (marker, colour) in marks.items():
            i, j = np.nonzero(winner == name)
            if len(i):
                axis.plot(first[i], second[j], marker, color=colour, ms=6,
                          label=name if name == "neither" else f"{name} wins")  # fmt: skip
        if len(boundary):
            axis.plot(*boundary.T, ".", color="black", ms=4, label="boundary")
        axis.set(xlabel=f"initial {facts['axes'][0]}", ylabel=f"initial {facts['axes'][1]}")
        axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return svg(figure)


def dominance(groups: Sequence[Mapping[str, Any]]) -> str:
    """Every run's dominance, and the medians."""
    with canvas(1, width=6.4, height=3.0) as (figure, (axis,)):
        for k, group in enumerate(groups):
            values = np.array([row["dominance"] for row in group["rows"]])
            spread = np.linspace(-0.25, 0.25, len(values)) if len(values) > 1 else [0]
            colour = PALETTE[0 if group["kind"] == "reduced" else 1]
            marker = "o" if group["kind"] == "reduced" else "s"
            axis.plot(k + np.array(spread), values, marker, color=colour, ms=3, alpha=0.7)
            axis.hlines(np.median(values), k - 0.35, k + 0.35, color="black")
        labels = [f"{g['kind']}\n{g['scale']:g}" for g in groups]
        axis.set_xticks(range(len(groups)), labels)
        axis.set(ylabel="dominance", ylim=(-0.03, 1.03), xlabel="model, scale of the start")
        return svg(figure)
