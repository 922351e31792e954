"""A phase diagram as a section of a report: final states from both starts, folds, trained runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from analyses.figures import PALETTE, Figure, canvas, svg
from analyses.studies.base import Section
from manifold import PhaseDiagram
from manifold.dynamics.phase_diagram import FLAGS

WORDS = {
    "f_v": "within-class variability f_v of the query",
    "f_r": "share f_r of rare queries",
    "weight_decay": "weight decay",
}
COLOURS = (PALETTE[0], PALETTE[1], (0.8, 0.8, 0.8), PALETTE[2], "white")
"""One for each of FLAGS."""


def phase_section(
    diagram: PhaseDiagram, exact: bool, setting: str, runs: Sequence[Mapping[str, Any]] = ()
) -> Section:
    """What the diagram shows, in sentences, and its drawing.

    setting: what the field is, in words. runs: each with the two parameters, mismatch, name.
    """
    return Section(
        anchor="phases",
        title="Where training ends",
        findings=findings(diagram, runs),
        text=(
            f"{setting}. At each point of the grid the flow with weight decay is followed to rest "
            "from zero and from an induction circuit. Where the two end apart there is hysteresis. "
            "In every row the branches through these states are continued: where a state that "
            "attracts meets one that repels and both vanish there is a fold, a bifurcation; where "
            "the answer changes while every eigenvalue stays negative there is a crossover. "
            + ("The population is exact." if exact else "The population is a sample.")
            + (" " + " ".join(diagram.notes) if diagram.notes else ""),
        ),
        figures=(_figure(diagram, runs),),
    )


def findings(diagram: PhaseDiagram, runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    x, y = diagram.parameters
    flags = list(diagram.grid["flag"])
    told = [f"{flags.count(flag)} {_said(flag)}" for flag in FLAGS if flag in flags]
    lines = [f"Of {len(flags)} settings {', '.join(told)}."]
    for value in sorted(set(diagram.states[y])):
        row = diagram.marks[diagram.marks[y] == value]
        told = [
            f"{kind} at {x} = {', '.join(f'{v:.4g}' for v in sorted(part[x]))}"
            for kind, part in row.groupby("kind")
        ]
        lines.append(f"At {y} = {value:.3g}: {'; '.join(told) or 'no fold and no crossover'}.")
    for cusp in diagram.cusps:
        place = f"{x} = {cusp.values[0]:.6g}, {y} = {cusp.values[1]:.6g}"
        lines.append(
            f"Two folds meet in a cusp at {place} (+- {cusp.error[0]:.0e}, {cusp.error[1]:.0e})."
        )
    if diagram.curves and not diagram.cusps:
        lines.append("The folds meet in no cusp within the grid.")
    if runs:
        context = sum(run["mismatch"] > 0.5 for run in runs)
        lines.append(
            f"{len(runs)} trained models are drawn on top, {context} of which answer mismatch "
            "queries from the context."
        )
    return tuple(lines)


def _said(flag: str) -> str:
    return {
        "weights": "end in one state that answers from the weights",
        "context": "end in one state that answers from the context",
        "neither": "end in one state that does neither",
        "bistable": "are bistable, where the start decides",
        "unsettled": "did not come to rest",
    }[flag]


def _figure(diagram: PhaseDiagram, runs: Sequence[Mapping[str, Any]]) -> Figure:
    x, y = diagram.parameters
    with canvas(3, width=11.0, height=3.9, sharex=True, sharey=True) as (figure, axes):
        shown = None
        for axis, start in zip(axes, ("zero", "context"), strict=False):
            part = diagram.states.loc[diagram.states["start"] == start]
            shown = _cells(axis, part, diagram.parameters, "mismatch", cmap="cividis", vmax=1)
            axis.set_title(f"from {'zero' if start == 'zero' else 'in context'}")
        if shown is not None:
            figure.colorbar(shown, ax=axes[:2], label="accuracy on mismatch queries")
        codes = diagram.grid.assign(code=[FLAGS.index(flag) for flag in diagram.grid["flag"]])
        colours = ListedColormap(COLOURS)
        _cells(axes[2], codes, (x, y), "code", cmap=colours, vmax=len(FLAGS) - 1, alpha=0.55)
        axes[2].set_title("together")
        twice = diagram.grid[diagram.grid["flag"] == "bistable"]
        axes[2].plot(twice[x], twice[y], "D", color="black", ms=2)  # told apart without colour
        for axis in axes:
            _on_top(axis, diagram, runs)
            axis.set_xlabel(WORDS[x])
        axes[0].set_ylabel(WORDS[y])
        found = [flag for flag in FLAGS if flag in set(diagram.grid["flag"])]
        patches = [Patch(color=COLOURS[FLAGS.index(f)], alpha=0.55, label=f) for f in found]
        handles = [*patches, *axes[2].get_legend_handles_labels()[0]]
        axes[2].legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt=" ".join(findings(diagram, runs)),
        caption="Final state by start (colour: accuracy where context and weights disagree), and "
        "together. Lines are folds, crosses crossovers, a star a cusp; circles are trained models, "
        "filled where they answer from the context.",
        table=diagram.states,
    )


def _cells(
    axis: Axes, table: Any, names: tuple[str, str], value: str, vmax: float, **options: Any
) -> Any:
    """One cell for each point of the grid, edges half-way to its neighbours."""
    columns, rows = (np.array(sorted(set(table[name]))) for name in names)
    cells = np.full((len(rows), len(columns)), np.nan)
    for one in table.to_dict("records"):
        row, column = np.searchsorted(rows, one[names[1]]), np.searchsorted(columns, one[names[0]])
        cells[row, column] = one[value]
    for values, side in ((columns, "x"), (rows, "y")):
        if _log(values):
            getattr(axis, f"set_{side}scale")("log")
            which = getattr(axis, f"{side}axis")
            which.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            which.set_major_formatter("{x:g}")
            which.set_minor_formatter(NullFormatter())
    edges = _edges(columns), _edges(rows)
    return axis.pcolormesh(*edges, cells, vmin=0, vmax=vmax, rasterized=False, **options)


def _log(values: np.ndarray) -> bool:
    """Spread over more than a factor of 5 from above 0: even steps of the logarithm."""
    return bool(values[0] > 0 and values[-1] > 5 * values[0])


def _edges(values: np.ndarray) -> np.ndarray:
    scaled = np.log(values) if _log(values) else values
    middle = (scaled[1:] + scaled[:-1]) / 2
    ends = [2 * scaled[0] - middle[0]], [2 * scaled[-1] - middle[-1]]
    edges = np.concatenate([ends[0], middle, ends[1]])
    return np.exp(edges) if _log(values) else edges


def _on_top(axis: Axes, diagram: PhaseDiagram, runs: Sequence[Mapping[str, Any]]) -> None:
    x, y = diagram.parameters
    limits = axis.get_xlim(), axis.get_ylim()
    for number, curve in enumerate(diagram.curves):
        label = None if number else "fold"
        axis.plot(curve.table[x], curve.table[y], color="white", lw=3)
        axis.plot(curve.table[x], curve.table[y], color="black", lw=1.4, label=label)
    for kind, marker in (("fold", "|"), ("crossover", "x")):
        row = diagram.marks[diagram.marks["kind"] == kind]
        if len(row) and not (kind == "fold" and diagram.curves):
            axis.plot(row[x], row[y], marker, color="black", ms=8, lw=0, label=kind)
    for number, cusp in enumerate(diagram.cusps):
        axis.plot(*cusp.values, "k*", ms=12, label=None if number else "cusp")
    for number, run in enumerate(runs):
        face = "white" if run["mismatch"] <= 0.5 else "black"
        label = None if number else "trained model"
        axis.plot(run[x], run[y], "o", mec="black", mfc=face, ms=7, label=label)
    axis.set(xlim=limits[0], ylim=limits[1])
