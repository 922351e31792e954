"""The graph of a forward pass: its nodes, and its edges from what is written to what is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from training.families.base import Family, Params
from training.families.wiring import Node, Reader, Wiring

LOGITS = "logits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One source of one reader."""

    source: str
    reader: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Nodes and edges that can matter to the logits at the token `final`, of one family.

    nodes: in the order in which they are computed. readers: inputs of nodes, the logits last; for
    a recurrent family one of each for every step. edges: reader by reader, sources in order. Masks
    and scores of edges are arrays in this order.
    """

    nodes: tuple[Node, ...]
    readers: tuple[Reader, ...]
    final: int
    edges: tuple[Edge, ...] = field(init=False)

    def __post_init__(self) -> None:
        edges = tuple(Edge(source=s, reader=r.name) for r in self.readers for s in r.sources)
        object.__setattr__(self, "edges", edges)

    def __str__(self) -> str:
        return f"graph of {len(self.nodes)} nodes and {len(self.edges)} edges"

    @cached_property
    def node(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def reader(self) -> dict[str, Reader]:
        return {reader.name: reader for reader in self.readers}

    @cached_property
    def index(self) -> dict[Edge, int]:
        return {edge: i for i, edge in enumerate(self.edges)}

    @cached_property
    def roots(self) -> tuple[Node, ...]:
        """Nodes that read nothing: embeddings, tokens, positions."""
        fed = {reader.feeds for reader in self.readers}
        return tuple(node for node in self.nodes if node.name not in fed)

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Reader to its edges, a slice of `edges`."""
        found, start = {}, 0
        for reader in self.readers:
            found[reader.name] = slice(start, start + len(reader.sources))
            start += len(reader.sources)
        return found

    def mask(self, edges: Iterable[Edge | str]) -> np.ndarray:
        """(E,) True at these edges, given as Edge or as "source -> reader".

        ValueError for an edge that is not there.
        """
        named = {str(edge): i for edge, i in self.index.items()}
        wanted = [str(edge) for edge in edges]
        unknown = [name for name in wanted if name not in named]
        if unknown:
            raise ValueError(f"no edge {unknown[0]!r}; there are {', '.join(list(named)[:4])}, ..")
        mask = np.zeros(len(self.edges), dtype=bool)
        mask[[named[name] for name in wanted]] = True
        return mask

    def connected(self, mask: np.ndarray) -> np.ndarray:
        """The edges of `mask` (E,) that lie on a path from a root to the logits within it."""
        mask = np.array(mask, dtype=bool)
        live = {root.name for root in self.roots}
        ahead = np.zeros_like(mask)
        for i, edge in enumerate(self.edges):
            if mask[i] and edge.source in live:
                ahead[i] = True
                live.add(self.reader[edge.reader].feeds)
        wanted, kept = {LOGITS}, np.zeros_like(mask)
        for i in reversed(range(len(self.edges))):
            edge = self.edges[i]
            if ahead[i] and self.reader[edge.reader].feeds in wanted:
                kept[i] = True
                wanted.add(edge.source)
        return kept

    def nodes_of(self, mask: np.ndarray) -> tuple[str, ...]:
        """Names of the nodes that some edge of `mask` writes from or reads into, in order."""
        touched = {self.edges[i].source for i in np.flatnonzero(mask)}
        touched |= {self.reader[self.edges[i].reader].feeds for i in np.flatnonzero(mask)}
        return tuple(node.name for node in self.nodes if node.name in touched)


def graph(family: Family, params: Params, time: int, final: int) -> Graph:
    """The graph of `family` on sequences of `time` tokens, answered at the token `final`.

    What cannot matter to that answer (later steps of a recurrent family) is left out. ValueError
    for a family that does not say how it is wired, and for a `final` outside the sequence.
    """
    wired = getattr(family, "wiring", None)
    if wired is None:
        raise ValueError(
            f"{type(family).__name__} has no `wiring`; give it one (nodes, and readers with their "
            "sources, as in training.families.transformer) to have circuits read"
        )
    if not 0 <= final < time:
        raise ValueError(f"final is {final}; allowed: 0 to {time - 1}")
    wiring: Wiring = wired(params, time)
    readers = [r for r in wiring.readers if _matters_at(r, final)]
    nodes, readers = _reaching(wiring.nodes, readers)
    return Graph(nodes=nodes, readers=readers, final=final)


def _matters_at(reader: Reader, final: int) -> bool:
    """Whether it is no read-out, or the one at `final`: recurrent families have one for a step."""
    return reader.feeds != LOGITS or reader.name in (LOGITS, f"{LOGITS} {final}")


def _reaching(
    nodes: Sequence[Node], readers: Sequence[Reader]
) -> tuple[tuple[Node, ...], tuple[Reader, ...]]:
    """What has a path to the logits."""
    wanted, kept = {LOGITS}, []
    for reader in reversed(readers):
        if reader.feeds in wanted:
            kept.append(reader)
            wanted |= set(reader.sources)
    return tuple(node for node in nodes if node.name in wanted), tuple(reversed(kept))
