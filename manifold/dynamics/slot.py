"""One effective matrix as coefficients of elements, seen from tokens and places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manifold.coordinates.basis import Direction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """The elements that are not zero between two sides, each "tokens" or "places".

    which (k): among the slot's elements; elements (k, a, b) on the query's and the key's side.
    """

    query: str
    key: str
    which: Tensor
    elements: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slot:
    """An effective matrix: c[at] goes into a table (heads, query paths, key paths, K)."""

    at: Tensor
    index: tuple[Tensor, ...]
    shape: tuple[int, int, int, int]
    parts: tuple[Part, ...]

    def table(self, c: Tensor) -> Tensor:
        return torch.zeros(self.shape, dtype=c.dtype).index_put(self.index, c[self.at])

    def matrices(self, c: Tensor) -> list[tuple[Part, Tensor]]:
        """For each part sum_k table_(h p q k) elements_(k a b), (heads, p, q, a, b)."""
        table = self.table(c)
        return [
            (part, (table[..., part.which] @ part.elements.flatten(1)).unflatten(-1, size))
            for part in self.parts
            for size in [part.elements.shape[1:]]
        ]


def slot(
    directions: Sequence[tuple[int, Direction]],
    heads: int,
    queries: int,
    keys: int,
    elements: np.ndarray,
    sides: tuple[dict[str, slice], dict[str, slice]],
) -> Slot:
    """The slot of these directions, each with its coordinate.

    elements: (K, a, b), the ones in use in increasing order; sides: the ranges of a and of b that
    are tokens and places.
    """
    used = sorted({d.element for _, d in directions})
    entries = [(d.head, d.query, d.key, used.index(d.element)) for _, d in directions]
    parts = []
    for query, rows in sides[0].items():
        for key, columns in sides[1].items():
            inside = elements[:, rows, columns]
            which = np.flatnonzero(inside.reshape(len(inside), inside[:1].size).any(axis=1))
            if len(which):
                kept = torch.from_numpy(np.ascontiguousarray(inside[which]))
                parts.append(
                    Part(query=query, key=key, which=torch.from_numpy(which), elements=kept)
                )
    return Slot(
        at=torch.tensor([i for i, _ in directions], dtype=torch.long),
        index=tuple(torch.tensor(entries, dtype=torch.long).reshape(len(entries), 4).T),
        shape=(heads, queries, keys, len(used)),
        parts=tuple(parts),
    )
