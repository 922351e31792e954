"""Exact edge patching: chosen edges carry what they carry in the corrupted run.

At a reader, what each patched source writes now is replaced by what it wrote in the corrupted run:
x <- x - sum over patched sources of (output now - output then). Every other edge, and everything
computed after it, stays a part of the run. Many masks go through one forward, side by side in the
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

import numpy as np
import torch
from torch import Tensor

from circuits.graph import Graph
from circuits.pair import Pair
from training.families.base import Family, Params
from training.families.wiring import Node, Reader
from training.tasks.base import Batch

ROWS = 512
"""Sequences that go through one forward together."""
FEWEST = 10
"""Sequences below which there are too few to choose edges on one half and judge them on the other.
"""


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

    Outputs of the corrupted run are kept, or of an ablation in its place: `instead`, node name to
    an array that broadcasts to its outputs (`circuits.ablation`); then `corrupt_metric` is that of
    the run with everything ablated. `metric` runs masks.
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
            self.corrupt_metric = self.metric(np.ones((1, len(graph.edges)), dtype=bool))[0]

    def halves(self) -> tuple[EdgePatcher, EdgePatcher]:
        """On every second sequence, to choose edges, and on the others, to judge them.

        Itself twice where there are fewer than FEWEST sequences.
        """
        count = self.pair.sequences
        if count < FEWEST:
            return self, self
        return self._take(np.arange(0, count, 2)), self._take(np.arange(1, count, 2))

    def _take(self, sequences: np.ndarray) -> EdgePatcher:
        found, rows = copy(self), torch.from_numpy(self.pair.rows(sequences))
        found.pair = self.pair.take(sequences)
        found.rows = self.rows[0][rows], self.rows[1][rows]
        found.clean = {name: value[rows] for name, value in self.clean.items()}
        found.corrupt = {name: value[rows] for name, value in self.corrupt.items()}
        found.clean_metric = self.clean_metric[rows]
        found.corrupt_metric = self.corrupt_metric[rows]
        return found

    @property
    def gap(self) -> float:
        """Mean of the metric in the clean run minus that in the corrupted one, in logits."""
        return float((self.clean_metric - self.corrupt_metric).mean())

    def metric(self, masks: np.ndarray, read: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The metric (K, batch) with the edges of each of K masks (K, E) patched.

        read: another measure in its place, from logits (K, batch, time, vocabulary).
        """
        read = self.pair.metric if read is None else read
        masks = np.asarray(masks, dtype=bool)
        if masks.ndim != 2 or masks.shape[1] != len(self.graph.edges):
            raise ValueError(
                f"masks have shape {masks.shape}; allowed: (masks, {len(self.graph.edges)}), a "
                "column for each edge"
            )
        return torch.cat([self._some(part, read) for part in self._chunks(masks)])

    def _chunks(self, masks: np.ndarray) -> Iterator[np.ndarray]:
        size = max(1, ROWS // len(self.rows[0]))
        yield from (masks[i : i + size] for i in range(0, len(masks), size))

    def _some(self, masks: np.ndarray, read: Callable[[Tensor], Tensor]) -> Tensor:
        count, batch = len(masks), len(self.rows[0])
        tokens, positions = (x.repeat(count, 1) for x in self.rows)
        tap = _Patch(self.graph, masks, self.corrupt, batch)
        with torch.no_grad():
            logits = self.family.forward(self.params, tokens, positions, tap)
        return read(logits.unflatten(0, (count, batch)))


class _Patch:
    """The tap: remembers what nodes write, and takes the patched part out of what is read."""

    def __init__(
        self, graph: Graph, masks: np.ndarray, corrupt: dict[str, Tensor], batch: int
    ) -> None:
        self.graph, self.corrupt = graph, corrupt
        self.shape = (len(masks), batch)
        self.readers: dict[str, list[tuple[Reader, np.ndarray]]] = {}
        needed: set[str] = set()
        for reader in graph.readers:
            part = masks[:, graph.columns[reader.name]]
            if part.any():
                self.readers.setdefault(reader.tap, []).append((reader, part))
                needed |= {reader.sources[i] for i in np.flatnonzero(part.any(0))}
        self.writers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            if node.name in needed:
                self.writers.setdefault(node.tap, []).append(node)
        self.moved: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for node in self.writers.get(name, ()):  # first: a node with one reader is read at its tap
            now = node.of(value).unflatten(0, self.shape)
            self.moved[node.name] = now - self.corrupt[node.name]
        readers = self.readers.get(name, ())
        if readers:
            value = value.clone(memory_format=torch.contiguous_format)
        for reader, masks in readers:
            part = value if reader.part is None else value[..., reader.part, :]
            self._take_out(reader, masks, part.unflatten(0, self.shape))
        return value

    def _take_out(self, reader: Reader, masks: np.ndarray, x: Tensor) -> None:
        """From x (masks, batch, .., width) in place, of each mask its patched sources."""
        for source, patched in zip(reader.sources, masks.T, strict=True):
            rows = torch.from_numpy(np.flatnonzero(patched))
            if len(rows):
                moved, first = self.moved[source], self.graph.node[source].offset
                x[..., first : first + moved.shape[-1]].index_add_(0, rows, moved[rows], alpha=-1)


def _rows(batch: Batch) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
