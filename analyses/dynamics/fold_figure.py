"""How the folds move, as a drawing: with the weight decay, with f_r, with n and b."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from analyses.figures import PALETTE, canvas, line_style, svg


def fold_drawing(facts: Mapping[str, Any]) -> str:
    """An <svg> element of three panels: f_v at the folds against weight decay, f_r, and shape."""
    with canvas(3, width=9.6, height=3.4) as (figure, axes):
        for axis, second in zip(axes, ("weight_decay", "f_r"), strict=False):
            _curves(axis, facts, second)
        axes[0].set(
            title="with the weight decay", xlabel="weight decay", ylabel="f_v at the fold",
            xscale="log", yscale="log",
        )  # fmt: skip
        if axes[0].get_legend_handles_labels()[0]:
            axes[0].legend(fontsize=7, loc="lower right")
        axes[1].set(title="with f_r of the query", xlabel="f_r", yscale="log")
        _shapes(axes[2], facts)
        for each in (axes[0].xaxis, *(axis.yaxis for axis in axes)):
            each.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            each.set_major_formatter("{x:g}")
            each.set_minor_formatter(NullFormatter())
        return svg(figure)


def _curves(axis: Axes, facts: Mapping[str, Any], second: str) -> None:
    origins = sorted({curve["from"] for curve in facts["curves"].values()}, reverse=True)
    for number, origin in enumerate(origins):
        label: str | None = f"fold at {origin:.4f}"
        for curve in facts["curves"].values():
            if curve["from"] != origin or curve["second"] != second:
                continue
            axis.plot(curve["along"], curve["f_v"], **line_style(number), lw=1.4, label=label)
            axis.plot(curve["along"][0], curve["f_v"][0], "o", ms=5, color=PALETTE[number])
            label = None
            for turn in curve["turns"]:
                axis.plot(turn["at"], turn["f_v"], "s", mfc="white", ms=6, color=PALETTE[number])
            for cusp in curve["cusps"]:
                axis.plot(cusp["values"][1], cusp["values"][0], "k*", ms=10)


def _shapes(axis: Axes, facts: Mapping[str, Any]) -> None:
    """One column for each n and b: folds on the branch from zero, on that in context, crossover."""
    shapes = list(dict.fromkeys((row["n"], row["b"]) for row in facts["shapes"]))
    marks = {"from zero": ("o", PALETTE[0]), "in context": ("^", PALETTE[1])}
    labelled = set()
    for row in facts["shapes"]:
        column = shapes.index((row["n"], row["b"]))
        for name, branch in row["branches"].items():
            for kind, points in (("fold", branch["folds"]), ("crossover", branch["crossovers"])):
                marker, colour = marks[name] if kind == "fold" else ("x", "black")
                if kind == "crossover" and name != "from zero":
                    continue
                label = f"fold, branch {name}" if kind == "fold" else "crossover from zero"
                values = [one["f_v"] for one in points]
                axis.plot(
                    np.full(len(values), column), values, marker, color=colour, ms=6, mfc="none",
                    label=None if label in labelled or not values else label,
                )  # fmt: skip
                labelled |= {label} if values else set()
    axis.set_xticks(range(len(shapes)), [f"n={n}\nb={b}" for n, b in shapes], fontsize=7)
    axis.set(title="with n and b", yscale="log", xlim=(-0.5, len(shapes) - 0.5))
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)
