"""A node in a basis of its own: principal directions of what clean and corrupted runs differ by.

Where units are not the natural parts, as in recurrent states (theory, section 8: 81 to 94% of their
units belong to a circuit, and 11 to 27% of their principal directions).
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from circuits.edge_patching import EdgePatcher
from training.families.wiring import Node


def patch_directions(patcher: EdgePatcher, node: str, count: int = 8) -> pd.DataFrame:
    """Exact effects of the first `count` principal directions of a node, alone and together.

    The directions are right singular vectors of its clean-minus-corrupt outputs over pairs (and
    positions, where they have an axis). Rows: direction, from 1; variance: its share of the
    squared differences; effect: mean fall of the metric in logits when the node's output carries
    the corrupted run's along this direction alone; low, high: 95% (normal, over clean sequences);
    together: the fall with all directions up to this one. With all of them it is what patching the
    node does. ValueError for a node that is not in the graph and a count below 1.
    """
    if node not in patcher.graph.node:
        raise ValueError(f"no node {node!r}; there are {', '.join(patcher.graph.node)}")
    if count < 1:
        raise ValueError(f"count is {count}; allowed: 1 or more directions")
    here = patcher.graph.node[node]
    moved = _flat(here, patcher.clean[node] - patcher.corrupt[node])
    _, sizes, directions = torch.linalg.svd(moved.flatten(0, -2), full_matrices=False)
    variance = (sizes**2 / (sizes**2).sum().clamp(min=1e-30)).cpu().numpy()
    rows = []
    for k in range(min(count, len(sizes))):
        alone, together = (
            patcher.pair.by_sequence(patcher.clean_metric - _patched(patcher, here, part))
            for part in (directions[k : k + 1], directions[: k + 1])
        )
        spread = alone.std(ddof=1) / np.sqrt(len(alone)) if len(alone) > 1 else np.nan
        rows.append(
            {
                "direction": k + 1,
                "variance": variance[k],
                "effect": alone.mean(),
                "low": alone.mean() - 1.96 * spread,
                "high": alone.mean() + 1.96 * spread,
                "together": together.mean(),
            }
        )
    return pd.DataFrame(rows)


def _flat(node: Node, output: Tensor) -> Tensor:
    """(batch, .., width): a state of one step is one vector, whatever its shape."""
    return output.flatten(1) if re.search(r"\.\d+$", node.tap) else output


def _patched(patcher: EdgePatcher, node: Node, directions: Tensor) -> Tensor:
    """The metric (batch,) with the node corrupted along orthonormal directions (k, width)."""

    def tap(name: str, value: Tensor) -> Tensor:
        if name != node.tap:
            return value
        now = node.of(value)
        moved = _flat(node, now - patcher.corrupt[node.name]) @ directions.mT @ directions
        return node.put(value, now - moved.view_as(now))

    with torch.no_grad():
        logits = patcher.family.forward(patcher.params, *patcher.rows, tap)
    return patcher.pair.metric(logits)
