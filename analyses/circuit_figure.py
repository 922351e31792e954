"""A circuit as a drawing: layer by layer, each edge as wide as its effect."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from analyses.figures import PALETTE, Figure, canvas, svg
from circuits.circuit import Circuit
from circuits.export import edge_table
from circuits.graph import LOGITS, Edge, Graph

MOST = 60
"""Edges that are drawn; of a larger circuit the strongest ones."""
SIDES = {"q": ("query", 0), "k": ("key", 1), "v": ("value", 2), "": ("other input", 7)}
"""What of its reader an edge feeds: in words, and its colour in the palette."""


def circuit_figure(circuit: Circuit, name: str = "") -> Figure:
    """The edges of the circuit, and none else; the table has every edge of the graph.

    Columns are layers (steps, in a recurrent family): a node stands right of all that it can read.
    Colour: the side of a head that reads; width: size of the effect; dashed where patching the edge
    raises the metric. ValueError for a circuit that is not defined.
    """
    if not circuit.defined:
        raise ValueError(f"there is no circuit to draw: {circuit.note}")
    values, kept = circuit.scores.values, np.flatnonzero(circuit.mask)
    drawn = kept[np.argsort(-np.abs(values[kept]), kind="stable")][:MOST]
    edges = [(circuit.graph.edges[i], float(values[i])) for i in drawn]
    largest = max((abs(effect) for _, effect in edges), default=0.0) or 1.0
    drawing = _draw(circuit.graph, edges, largest)
    title = f"{name}: " if name else ""
    some = f" The {MOST} strongest of its {len(kept)} edges." if len(kept) > MOST else ""
    dashes = " Dashed: patching the edge raises the metric." * any(e < 0 for _, e in edges)
    return Figure(
        svg=drawing,
        alt=f"{title}{circuit}. Edges, strongest first: "
        + "; ".join(f"{edge} {effect:.2f}" for edge, effect in edges),
        caption=f"{title}{circuit}. Width: effect of the edge by {circuit.scores.method}; the "
        f"widest {largest:.2f}.{dashes}{some}",
        table=edge_table(circuit),
    )


def _draw(graph: Graph, edges: Sequence[tuple[Edge, float]], largest: float) -> str:
    ends = [(edge.source, graph.reader[edge.reader].feeds) for edge, _ in edges]
    places = _places(graph, {LOGITS}.union(*ends))
    columns = np.array([x for x, _ in places.values()])
    most = np.unique(columns, return_counts=True)[1].max()
    width, height = 1.5 + 1.35 * len(np.unique(columns)), 1.1 + 0.62 * max(2, most)
    with canvas(width=max(5.0, width), height=height) as (figure, (axis,)):
        for (edge, effect), (source, reader) in zip(edges, ends, strict=True):
            start, end = (*places[source], _half(source)), (*places[reader], _half(reader))
            axis.add_patch(_arrow(start, end, _side(edge.reader), effect / largest))
        for node, (x, y) in places.items():
            axis.text(
                x, y, node, ha="center", va="center", fontsize=8, zorder=3,
                bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "0.25"},
            )  # fmt: skip
        axis.set_xlim(columns.min() - 0.55, columns.max() + 0.55)
        axis.set_ylim(-(most - 1) / 2 - 0.8, (most - 1) / 2 + 0.5)
        axis.set_axis_off()
        used = [side for side in SIDES if side in {_side(edge.reader) for edge, _ in edges}]
        if used != [""] and used:
            lines = [
                Line2D([], [], color=PALETTE[SIDES[s][1]], lw=2, label=SIDES[s][0]) for s in used
            ]
            figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), fontsize=8)
        return svg(figure)


def layers(graph: Graph) -> dict[str, int]:
    """Node to its column: one more than the last of what it can read, the logits at the end.

    Roots stand before the first that reads them, so that a token stands at its step.
    """
    sources: dict[str, set[str]] = {}
    for edge in graph.edges:
        sources.setdefault(graph.reader[edge.reader].feeds, set()).add(edge.source)
    column = {root.name: 0 for root in graph.roots}
    for node in graph.nodes:
        if node.name not in column:
            column[node.name] = 1 + max(column[name] for name in sources[node.name])
    column[LOGITS] = 1 + max(column.values())
    for root in graph.roots:
        readers = [column[name] for name, read in sources.items() if root.name in read]
        column[root.name] = min(readers) - 1
    return column


def _places(graph: Graph, wanted: set[str]) -> dict[str, tuple[float, float]]:
    """Node to (x, y): columns without gaps, nodes one apart in the order of the forward pass.

    Every second column is a little lower, so that edges pass between what they skip.
    """
    column = layers(graph)
    used = sorted({column[name] for name in wanted})
    order = [node.name for node in graph.nodes if node.name in wanted] + [LOGITS]
    places: dict[str, tuple[float, float]] = {}
    for x, layer in enumerate(used):
        names = [name for name in order if column[name] == layer]
        for i, name in enumerate(names):
            places[name] = x, (len(names) - 1) / 2 - i - 0.3 * (x % 2)
    return places


def _arrow(
    start: tuple[float, float, float], end: tuple[float, float, float], side: str, share: float
) -> FancyArrowPatch:
    """From box to box, (x, y, half a box's width). share: of the largest effect, with its sign."""
    bend = {"q": -0.12, "k": 0.0, "v": 0.12, "": 0.0}[side]
    if end[0] - start[0] > 1:
        bend += 0.08 if start[1] + end[1] <= 0 else -0.08
    return FancyArrowPatch(
        (start[0] + start[2], start[1]), (end[0] - end[2], end[1]),
        connectionstyle=f"arc3,rad={bend:.2f}", arrowstyle="-|>", mutation_scale=9,
        linewidth=0.7 + 4.3 * abs(share), color=PALETTE[SIDES[side][1]],
        linestyle="--" if share < 0 else "-", alpha=0.85, shrinkA=0, shrinkB=0, zorder=2,
    )  # fmt: skip


def _half(node: str) -> float:
    """Half the width of a node's box, in columns."""
    return 0.06 + 0.022 * len(node)


def _side(reader: str) -> str:
    """q, k or v of a head's input; nothing of another."""
    found = re.fullmatch(r"head .* ([qkv])", reader)
    return found[1] if found else ""
