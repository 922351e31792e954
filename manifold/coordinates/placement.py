"""Where every direction of a basis acts, and what factors say there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manifold.coordinates.elements import Element, contract
from manifold.coordinates.factored import READOUT, Factored, Piece

if TYPE_CHECKING:
    from manifold.coordinates.basis import Direction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """By block the rows (direction, head, query path, key path, element), (5, directions there).

    elements: those of scores (False) and of the read-out (True), by their structure.
    """

    where: dict[str, np.ndarray]
    elements: dict[bool, list[Element]]

    @property
    def paths(self) -> np.ndarray:
        """The paths that any direction reads, sorted."""
        return np.unique(np.concatenate([found[2:4].ravel() for found in self.where.values()]))

    def pairs(self, block: str) -> np.ndarray:
        """(3, pairs): head, query and key of the path blocks that have a direction."""
        return np.unique(self.where[block][1:4], axis=1)

    def inner(self, matrices: Factored) -> np.ndarray:
        """<B_i, W> of every direction, (.., dim)."""
        size = sum(found.shape[1] for found in self.where.values())
        products = np.zeros((*matrices.stream.lead, size))
        for piece in matrices.pieces(self.paths):
            at, _, query, key, one = self.where[piece.block]
            structure = self.elements[piece.block == READOUT]
            for rows, queries, keys in self._grids(piece):
                used, which = np.unique(one[rows], return_inverse=True)
                table = contract(
                    [structure[e] for e in used],
                    piece.left[..., queries, :, :],
                    piece.right[..., keys, :, :],
                )
                p = np.searchsorted(piece.query[queries], query[rows])
                q = np.searchsorted(piece.key[keys], key[rows])
                products[..., at[rows]] = table[..., which, p, q]
        return products

    def norms(self, matrices: Factored) -> dict[str, np.ndarray]:
        """Per block ||W||^2 over the path blocks that have a direction."""
        kept = {block: np.zeros(matrices.stream.lead) for block in self.where}
        for piece in matrices.pieces(self.paths):
            left, right = (side.mT @ side for side in (piece.left, piece.right))
            for _, queries, keys in self._grids(piece):
                both = left[..., queries, :, :].sum(-3) * right[..., keys, :, :].sum(-3)
                kept[piece.block] += both.sum((-2, -1))
        return kept

    def _grids(self, piece: Piece) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Directions on a piece as full grids of paths: columns of `where`, then queries and keys
        by their place in the piece. Queries with the same keys go together."""
        _, head, query, key, _ = self.where[piece.block]
        rows = np.flatnonzero((head == piece.head) & np.isin(key, piece.key))
        queries_of: dict[bytes, list[int]] = defaultdict(list)
        order = np.argsort(query[rows], kind="stable")
        queries, first = np.unique(query[rows][order], return_index=True)
        for q, part in zip(queries, np.split(rows[order], first[1:]), strict=False):
            queries_of[np.unique(key[part]).tobytes()].append(q)
        for keys, alike in queries_of.items():
            yield (
                rows[np.isin(query[rows], alike)],
                np.searchsorted(piece.query, alike),
                np.searchsorted(piece.key, np.frombuffer(keys, int)),
            )


def placement(
    blocks: Sequence[str],
    directions: Sequence[Direction],
    elements: dict[bool, list[Element]],
) -> Placement:
    rows: dict[str, list[tuple[int, ...]]] = {block: [] for block in blocks}
    for i, d in enumerate(directions):
        rows[d.block].append((i, d.head, d.query, d.key, d.element))
    where = {block: np.array(found, int).reshape(-1, 5).T for block, found in rows.items()}
    return Placement(where=where, elements=elements)
