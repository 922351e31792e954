"""Exact node patching at every length: the plain reference of faster attributions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from circuits.contrast import length_task
from circuits.edge_patching import EdgePatcher
from circuits.graph import Graph, graph
from circuits.pair import MINIMUM_GAP, pairs
from training import Run


def node_masks(graph: Graph) -> np.ndarray:
    """(nodes, E): all edges out of each node; patched, nothing of the node is left to be read."""
    sources = np.array([edge.source for edge in graph.edges])
    return np.array([sources == node.name for node in graph.nodes])


def patch_nodes(
    run: Run, step: int | None = None, *, samples: int = 256, seed: int = 0
) -> pd.DataFrame:
    """Effect of replacing each node by its corrupted value in the clean run, at every length.

    Rows: node and length. raw: mean fall of the metric M in logits; effect: that over the gap
    M(clean) - M(corrupt), 1 when the node carries the whole difference; low, high: its 95%
    interval (normal, over clean sequences; missing with a single one). Nodes that cannot matter
    (after a sequence's final token) are left out. effect is missing where the gap is below 0.3
    logits (undefined there).
    """
    step = run.steps[-1] if step is None else step
    task, family, params, rows = length_task(run.task), run.family, run[step].params(), []
    for length in task.lengths:
        pair = pairs(task, samples, seed, length)
        here = graph(family, params, pair.clean.tokens.shape[1], pair.final)
        patcher = EdgePatcher(family, params, here, pair)
        falls = pair.by_sequence(patcher.clean_metric - patcher.metric(node_masks(here)))
        scale = patcher.gap if patcher.gap >= MINIMUM_GAP else np.nan
        for node, fall in zip(here.nodes, falls, strict=True):
            half = 1.96 * fall.std(ddof=1) / np.sqrt(len(fall)) if len(fall) > 1 else np.nan
            rows.append(
                {
                    "length": length,
                    "node": node.name,
                    "raw": fall.mean(),
                    "effect": fall.mean() / scale,
                    "low": (fall.mean() - half) / scale,
                    "high": (fall.mean() + half) / scale,
                }
            )
    return pd.DataFrame(rows)
