"""Exact edge patching: chosen edges carry what they carry in the corrupted run.

At a reader, what each patched source writes now is replaced by what it wrote in the corrupted run:
x <- x - sum over patched sources of (output now - output then). Every other edge, and everything
computed after it, stays a part of the run. Many masks go through one forward, side by side in the
batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from circuits.graph import Graph
from circuits.pair import Pair
from training.families.base import Family, Params
from training.families.wiring import Node, Reader
from training.tasks.base import Batch

ROWS = 4096
"""Sequences that go through one forward together."""


def record(family: Family, params: Params, graph: Graph, tokens: Tensor, positions: Tensor):
    """Node name to its output (batch, .., width), without gradients, and the logits."""
    taps: dict[str, list[Node]] = {}
    for node in graph.nodes:
        taps.setdefault(node.tap, []).append(node)
    seen: dict[str, Tensor] = {}

    def tap(name: str, value: Tensor) -> Tensor:
        for node in taps.get(name, ()):
            seen[node.name] = node.of(value)
        return value

    with torch.no_grad():
        logits = family.forward(params, tokens, positions, tap)
    return seen, logits


class EdgePatcher:
    """One model on one set of pairs, ready to be run with any edges patched.

    Outputs of the corrupted run (or of an ablation in its place: `instead`, node name to an array
    that broadcasts to its outputs) are kept; `metric` runs masks.
    """

    def __init__(
        self,
        family: Family,
        params: Params,
        graph: Graph,
        pair: Pair,
        instead: dict[str, Tensor] | None = None,
    ) -> None:
        self.family, self.params, self.graph, self.pair = family, params, graph, pair
        self.rows, other = _rows(pair.clean), _rows(pair.corrupt)
        self.clean, clean_logits = record(family, params, graph, *self.rows)
        self.corrupt, corrupt_logits = record(family, params, graph, *other)
        self.clean_metric, self.corrupt_metric = map(pair.metric, (clean_logits, corrupt_logits))
        if instead is not None:
            self.corrupt = {
                name: instead[name].expand_as(value) for name, value in self.corrupt.items()
            }

    @property
    def gap(self) -> float:
        """Mean of the metric in the clean run minus that in the corrupted one, in logits."""
        return float((self.clean_metric - self.corrupt_metric).mean())

    def metric(self, masks: np.ndarray) -> Tensor:
        """The metric (K, batch) with the edges of each of K masks (K, E) patched."""
        masks = np.asarray(masks, dtype=bool)
        if masks.ndim != 2 or masks.shape[1] != len(self.graph.edges):
            raise ValueError(
                f"masks have shape {masks.shape}; allowed: (masks, {len(self.graph.edges)}), a "
                "column for each edge"
            )
        return torch.cat([self._some(part) for part in self._chunks(masks)])

    def _chunks(self, masks: np.ndarray) -> Iterator[np.ndarray]:
        size = max(1, ROWS // len(self.rows[0]))
        yield from (masks[i : i + size] for i in range(0, len(masks), size))

    def _some(self, masks: np.ndarray) -> Tensor:
        count, batch = len(masks), len(self.rows[0])
        tokens, positions = (x.repeat(count, 1) for x in self.rows)
        tap = _Patch(self.graph, masks, self.corrupt, batch)
        with torch.no_grad():
            logits = self.family.forward(self.params, tokens, positions, tap)
        return self.pair.metric(logits.unflatten(0, (count, batch)))


class _Patch:
    """The tap: remembers what nodes write, and takes the patched part out of what is read."""

    def __init__(
        self, graph: Graph, masks: np.ndarray, corrupt: dict[str, Tensor], batch: int
    ) -> None:
        self.graph, self.corrupt = graph, corrupt
        self.shape = (len(masks), batch)
        self.writers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            self.writers.setdefault(node.tap, []).append(node)
        self.readers: dict[str, list[tuple[Reader, np.ndarray]]] = {}
        for reader in graph.readers:
            part = masks[:, graph.columns[reader.name]]
            if part.any():
                self.readers.setdefault(reader.tap, []).append((reader, part))
        self.moved: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for node in self.writers.get(name, ()):  # first: a node with one reader is read at its tap
            now = node.of(value).unflatten(0, self.shape)
            self.moved[node.name] = now - self.corrupt[node.name]
        for reader, masks in self.readers.get(name, ()):
            here = Node(name=reader.name, tap=name, part=reader.part)
            value = here.put(value, self._read(reader, masks, here.of(value)))
        return value

    def _read(self, reader: Reader, masks: np.ndarray, x: Tensor) -> Tensor:
        x = x.unflatten(0, self.shape).clone()
        for source, patched in zip(reader.sources, masks.T, strict=True):
            if not patched.any():
                continue
            node, moved = self.graph.node[source], self.moved[source]
            on = torch.from_numpy(patched).to(x.dtype).view(-1, *(1,) * (moved.ndim - 1))
            x[..., node.offset : node.offset + moved.shape[-1]] -= on * moved
        return x.flatten(0, 1)


def _rows(batch: Batch) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
