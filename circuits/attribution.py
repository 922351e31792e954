"""Edge attribution patching: what patching each edge would do, to first order, all at once.

effect(u -> r) = sum over positions of (output of u, clean - corrupt) . (d metric / d what r reads),
an estimate of the fall of the metric when the edge is patched. The gradient is taken

- `attribution`: in the clean run (Syed et al. 2023, arXiv 2310.10348);
- `ig inputs`: averaged along the straight line between the corrupted and the clean embeddings
  (Hanna et al. 2024, arXiv 2403.17806). Complete in what the roots write: the effects of the edges
  out of the roots, summed, tend to M(clean) - M(corrupt) as steps grow;
- `ig activations`: for each node by itself, averaged along the line between its corrupted and its
  clean output in the clean run. Complete node by node: the effects of the edges out of a node tend
  to what patching the node does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from circuits.edge_patching import EdgePatcher
from circuits.graph import Graph
from training.families.wiring import Node, Reader

METHODS = ("exact", "attribution", "ig inputs", "ig activations")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeScores:
    """Effect of patching each edge, in logits of the metric's fall.

    effects (E, sequences), each clean sequence's; steps: of the integral, 0 where there is none.
    gap: mean of M(clean) - M(corrupt).
    """

    graph: Graph = field(repr=False)
    method: str
    steps: int
    gap: float
    effects: np.ndarray = field(repr=False)

    @property
    def values(self) -> np.ndarray:
        """(E,) means."""
        return self.effects.mean(1)

    @property
    def table(self) -> pd.DataFrame:
        """One row an edge, largest size first; low, high: 95%, normal over clean sequences; NaN
        for a single one."""
        count = self.effects.shape[1]
        spread = self.effects.std(1, ddof=1) if count > 1 else np.nan
        half = 1.96 * spread / np.sqrt(count)
        table = pd.DataFrame(
            {
                "source": [edge.source for edge in self.graph.edges],
                "reader": [edge.reader for edge in self.graph.edges],
                "effect": self.values,
                "low": self.values - half,
                "high": self.values + half,
            }
        )
        return table.sort_values("effect", key=np.abs, ascending=False, ignore_index=True)


def score_edges(patcher: EdgePatcher, method: str = "ig inputs", steps: int = 5) -> EdgeScores:
    """The effect of every edge, by one of METHODS.

    steps: points of the integral's midpoint rule; `exact` and `attribution` need none. ValueError
    for another method, or steps below 1.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if steps < 1:
        raise ValueError(f"steps is {steps}; allowed: 1 or more")
    found = _METHODS[method](patcher, steps)
    return EdgeScores(
        graph=patcher.graph,
        method=method,
        steps=steps if method.startswith("ig") else 0,
        gap=patcher.gap,
        effects=patcher.pair.by_sequence(found),
    )


def _exact(patcher: EdgePatcher, steps: int) -> Tensor:
    each = np.eye(len(patcher.graph.edges), dtype=bool)
    return patcher.clean_metric - patcher.metric(each)


def _attribution(patcher: EdgePatcher, steps: int) -> Tensor:
    return _Gradients(patcher).effects({})


def _ig_inputs(patcher: EdgePatcher, steps: int) -> Tensor:
    gradients = _Gradients(patcher)
    roots = patcher.graph.roots
    total = patcher.clean_metric.new_zeros(len(patcher.graph.edges), len(patcher.rows[0]))
    for share in _midpoints(steps):
        total = total + gradients.effects({node.name: share for node in roots})
    return total / steps


def _ig_activations(patcher: EdgePatcher, steps: int) -> Tensor:
    gradients, graph = _Gradients(patcher), patcher.graph
    total = patcher.clean_metric.new_zeros(len(graph.edges), len(patcher.rows[0]))
    for node in graph.nodes:
        out = torch.tensor([edge.source == node.name for edge in graph.edges])
        for share in _midpoints(steps):
            total[out] += gradients.effects({node.name: share}, only=node.name)[out]
    return total / steps


_METHODS: Mapping[str, Callable[[EdgePatcher, int], Tensor]] = {
    "exact": _exact,
    "attribution": _attribution,
    "ig inputs": _ig_inputs,
    "ig activations": _ig_activations,
}


def _midpoints(steps: int) -> np.ndarray:
    return (np.arange(steps) + 0.5) / steps


class _Gradients:
    """First-order effects at points between the clean and the corrupted run."""

    def __init__(self, patcher: EdgePatcher) -> None:
        self.patcher, self.graph = patcher, patcher.graph
        self.moved = {name: value - patcher.corrupt[name] for name, value in patcher.clean.items()}

    def effects(self, shares: Mapping[str, float], only: str | None = None) -> Tensor:
        """(E, batch) with the nodes of `shares` that far from corrupted (0) to clean (1).

        only: of the edges out of this node; the others are 0.
        """
        patcher, graph = self.patcher, self.graph
        readers = [r for r in graph.readers if only is None or only in r.sources]
        taps = _Leaves(graph, readers, patcher.corrupt, self.moved, shares)
        logits = patcher.family.forward(patcher.params, *patcher.rows, taps)
        names, leaves = zip(*taps.leaves.items(), strict=True)
        slopes = torch.autograd.grad(
            patcher.pair.metric(logits).sum(), leaves, allow_unused=True, materialize_grads=True
        )
        by_tap = dict(zip(names, slopes, strict=True))
        found = patcher.clean_metric.new_zeros(len(graph.edges), len(patcher.rows[0]))
        for reader in readers:
            slope = by_tap[reader.tap]
            here = slope if reader.part is None else slope[..., reader.part, :]
            for i, source in enumerate(reader.sources, start=graph.columns[reader.name].start):
                if only in (None, source):
                    found[i] = self._meet(source, here)
        return found

    def _meet(self, source: str, slope: Tensor) -> Tensor:
        node, moved = self.graph.node[source], self.moved[source]
        part = slope[..., node.offset : node.offset + moved.shape[-1]]
        return (part * moved).flatten(1).sum(1)


class _Leaves:
    """The tap: adds a zero that asks for a gradient to what is read, and moves chosen nodes."""

    def __init__(
        self,
        graph: Graph,
        readers: Sequence[Reader],
        corrupt: Mapping[str, Tensor],
        moved: Mapping[str, Tensor],
        shares: Mapping[str, float],
    ) -> None:
        self.read = {reader.tap for reader in readers}
        self.corrupt, self.moved, self.shares = corrupt, moved, shares
        self.writers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            if node.name in shares:
                self.writers.setdefault(node.tap, []).append(node)
        self.leaves: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for node in self.writers.get(name, ()):
            between = self.corrupt[node.name] + self.shares[node.name] * self.moved[node.name]
            value = node.put(value, between)
        if name in self.read:
            leaf = torch.zeros(value.shape, dtype=value.dtype, requires_grad=True)
            self.leaves[name] = leaf
            value = value + leaf
        return value
