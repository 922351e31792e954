"""The attention-only model on the span of a basis, from Gram tensors alone (theory, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manifold.basis import READOUT, Basis
from training.tasks.program import merge

CHUNK = 4096
"""Sequences evaluated together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequences:
    """Sequences at one common placement: tokens (S, T), target (S,), positions (T,)."""

    tokens: np.ndarray
    target: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    """Where the coordinates of one matrix go: c[at] into a table (heads, queries, keys, n)."""

    at: Tensor
    index: tuple[Tensor, ...]
    shape: tuple[int, int, int, int]

    def table(self, c: Tensor) -> Tensor:
        return torch.zeros(self.shape, dtype=c.dtype).index_put(self.index, c[self.at])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """Some sequences. Rows of the first layer's scores that are equal are kept once.

    grams: (K, R, T) x_i^T B x_j, one row for each different (i, x_i^T B x_0 .. x_i^T B x_i);
    future: (R, T); row: (s, T) the row of each place. tokens (s, T), target (s, 1).
    """

    grams: Tensor
    future: Tensor
    row: Tensor
    tokens: Tensor
    target: Tensor


class GramModel:
    """Loss of each sequence at the last position as a function of the coordinates.

    With x^0 := identity over positions, Pi_p (T, T) holds how much of each source token path p
    carries to each place: Pi_I = 1, Pi_(V p) = A Pi_p. Scores of a layer are
    S = sum over path pairs and elements c_(p,q,B) Pi_p G_B Pi_q^T, G_B,ij = x_i^T B x_j; only
    the last row is needed in the last layer. Equal to the full model on basis.matrices(c).
    Everything is a sum over tokens and the T places in use, so width and sequence do not matter.

    frame: (d, d), what the family's embedding does to one-hot tokens and positions.
    """

    def __init__(self, basis: Basis, frame: np.ndarray, sequences: Sequences) -> None:
        self.basis, self.count = basis, len(sequences.tokens)
        n = basis.vocabulary
        seen = np.concatenate([np.arange(n), n + sequences.positions])
        used = sorted({d.element for d in basis.directions if d.block != READOUT})
        elements = np.einsum("ab,kbc,cd->kad", frame, basis.elements[used], frame, optimize=True)
        elements = elements[:, seen[:, None], seen[None, :]]
        readouts = np.einsum("ab,kbc,cd->kad", frame[:n, :n], basis.readouts, frame, optimize=True)
        self._elements = torch.from_numpy(elements)
        read = len(seen) if readouts[:, :, n:].any() else n
        self._readouts = torch.from_numpy(readouts[:, :, seen[:read]])
        self._slots = [self._slot(block, used) for block in basis.blocks]
        self._time = len(sequences.positions)
        self._future = torch.ones(self._time, self._time, dtype=torch.bool).triu(1)
        self._pieces = [
            self._piece(elements, sequences, slice(start, start + CHUNK))
            for start in range(0, self.count, CHUNK)
        ]

    def _slot(self, block: str, used: list[int]) -> _Slot:
        rows = [(i, d) for i, d in enumerate(self.basis.directions) if d.block == block]
        reads, paths = block == READOUT, len(self.basis.paths(block))
        entries = [
            (d.head, d.query, d.key, d.element if reads else used.index(d.element)) for _, d in rows
        ]
        index = torch.tensor(entries, dtype=torch.long).reshape(len(rows), 4)
        shape = (1, 1, paths, len(self.basis.readouts))
        if not reads:
            shape = (self.basis.heads, paths, paths, len(used))
        at = torch.tensor([i for i, _ in rows], dtype=torch.long)
        return _Slot(at=at, index=tuple(index.T), shape=shape)

    def _piece(self, elements: np.ndarray, sequences: Sequences, rows: slice) -> _Piece:
        tokens, time = sequences.tokens[rows], self._time
        left, right = tokens[:, :, None], tokens[:, None, :]
        row, column = np.ogrid[:time, :time]
        row, column = self.basis.vocabulary + row, self.basis.vocabulary + column

        def gram(matrix: np.ndarray) -> np.ndarray:
            by_place = matrix[left, column] + matrix[row, right] + matrix[row, column]
            return (matrix[left, right] + by_place).reshape(-1, time)

        mixed = gram(np.tensordot(np.random.default_rng(0).random(len(elements)), elements, 1))
        past = np.tril(np.ones((time, time), dtype=bool))[np.arange(len(mixed)) % time]
        _, alike = np.unique(np.round(mixed, 9), return_inverse=True)
        keys = np.where(past, alike.reshape(mixed.shape) + 1, 0)
        first, group = merge(np.column_stack([np.arange(len(mixed)) % time, keys]))
        return _Piece(
            grams=torch.from_numpy(np.stack([gram(matrix)[first] for matrix in elements])),
            future=torch.from_numpy(~past[first]),
            row=torch.from_numpy(group.reshape(tokens.shape)),
            tokens=torch.from_numpy(tokens.astype(np.int64)),
            target=torch.from_numpy(sequences.target[rows, None].astype(np.int64)),
        )

    def losses(self, c: np.ndarray) -> np.ndarray:
        """Cross-entropy of each sequence, (S,)."""
        point = torch.tensor(c, dtype=torch.float64)
        with torch.no_grad():
            return torch.cat([self._losses(point, piece) for piece in self._pieces]).numpy()

    def correct(self, c: np.ndarray) -> np.ndarray:
        """1 where the answer has the largest logit, 1/k where it shares it with k - 1, else 0."""
        point = torch.tensor(c, dtype=torch.float64)
        with torch.no_grad():
            return torch.cat(
                [_score(self._logits(point, p), p.target) for p in self._pieces]
            ).numpy()

    def gradient(self, c: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """d loss / d c, (dim,)."""
        return self._sum(c, weights, lambda loss, point: torch.autograd.grad(loss, point)[0])

    def hessian(self, c: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """d^2 loss / d c^2, (dim, dim)."""

        def rows(loss: Tensor, point: Tensor) -> Tensor:
            (slope,) = torch.autograd.grad(loss, point, create_graph=True)
            return torch.stack(
                [torch.autograd.grad(entry, point, retain_graph=True)[0] for entry in slope]
            )

        return self._sum(c, weights, rows)

    def _sum(
        self, c: np.ndarray, weights: np.ndarray, what: Callable[[Tensor, Tensor], Tensor]
    ) -> np.ndarray:
        total = None
        for piece, share in zip(self._pieces, torch.from_numpy(weights).split(CHUNK), strict=True):
            point = torch.tensor(c, dtype=torch.float64, requires_grad=True)
            part = what(self._losses(point, piece) @ share, point)
            total = part if total is None else total + part
        assert total is not None
        return total.numpy()

    def _losses(self, c: Tensor, piece: _Piece) -> Tensor:
        logits = self._logits(c, piece)
        return logits.logsumexp(-1) - logits.gather(-1, piece.target)[:, 0]

    def _logits(self, c: Tensor, piece: _Piece) -> Tensor:
        *attention, readout = (slot.table(c) for slot in self._slots)
        carried = None  # (s, paths but I, T, T)
        for layer, table in enumerate(attention[:-1]):
            pattern = (
                self._first(table, piece) if layer == 0 else self._middle(table, carried, piece)
            )
            carried = _extend(pattern, carried)
        rows = torch.zeros(len(piece.target), 1, self._time, dtype=c.dtype)
        rows[:, :, -1] = 1.0
        if carried is not None:
            rows = torch.cat([rows, carried[:, :, -1]], dim=1)
        last = self._scores(attention[-1], rows[:, None], carried, piece)[:, :, 0].softmax(-1)
        heard = last[:, :, None]
        if carried is not None:
            further = torch.einsum("shj,spjk->shpk", last, carried)
            heard = torch.cat([heard, further], dim=2)
        source = self._with_tokens(torch.cat([rows, heard.flatten(1, 2)], dim=1), piece)
        weight = torch.einsum("pk,kvn->pnv", readout[0, 0], self._readouts)
        return source[..., : weight.shape[1]].flatten(1) @ weight.flatten(0, 1)

    def _first(self, table: Tensor, piece: _Piece) -> Tensor:
        """Attention of layer 1, (s, heads, T, T): different rows once, then placed."""
        scores = torch.einsum("hk,krj->hrj", table[:, 0, 0], piece.grams)
        pattern = scores.masked_fill(piece.future, -math.inf).softmax(-1)
        placed = pattern.index_select(1, piece.row.flatten())
        return placed.unflatten(1, piece.row.shape).transpose(0, 1)

    def _middle(self, table: Tensor, carried: Tensor | None, piece: _Piece) -> Tensor:
        """Attention (s, heads, T, T) of a layer all of whose rows are needed."""
        identity = torch.eye(self._time, dtype=table.dtype)
        rows = identity[:, None].expand(len(piece.target), -1, 1, -1)
        if carried is not None:
            rows = torch.cat([rows, carried.transpose(1, 2)], dim=2)
        scores = self._scores(table, rows, carried, piece)
        return scores.masked_fill(self._future, -math.inf).softmax(-1)

    def _with_tokens(self, rows: Tensor, piece: _Piece) -> Tensor:
        """(s, .., T) weights of the places to (s, .., N + T): of the tokens there, then of them."""
        middle = rows.shape[1:-1]
        index = piece.tokens.view(len(rows), *(1,) * len(middle), self._time).expand_as(rows)
        tokens = torch.zeros(len(rows), *middle, self.basis.vocabulary, dtype=rows.dtype)
        return torch.cat([tokens.scatter_add(-1, index, rows), rows], dim=-1)

    def _scores(self, table: Tensor, rows: Tensor, carried: Tensor | None, piece: _Piece) -> Tensor:
        """Scores (s, heads, r, T) of query rows (s, r, paths, T)."""
        heads, _, keys, _ = table.shape
        size = self._elements.shape[-1]
        matrix = torch.einsum("hpqk,kab->pahqb", table, self._elements)
        query = self._with_tokens(rows, piece).flatten(2) @ matrix.reshape(-1, heads * keys * size)
        query = query.unflatten(-1, (heads, keys, size)).permute(0, 2, 1, 3, 4)
        index = piece.tokens[:, None, None, None].expand(*query.shape[:-1], -1)
        meets = query.gather(-1, index) + query[..., self.basis.vocabulary :]
        scores = meets[..., 0, :]
        if carried is not None:
            scores = scores + torch.einsum("shrqj,sqtj->shrt", meets[..., 1:, :], carried)
        return scores


def _extend(pattern: Tensor, carried: Tensor | None) -> Tensor:
    """Paths but I after a layer: those before, then each head past I and past those before."""
    heard = pattern[:, :, None]
    if carried is None:
        return heard.flatten(1, 2)
    further = torch.einsum("shij,spjk->shpik", pattern, carried)
    return torch.cat([carried, torch.cat([heard, further], dim=2).flatten(1, 2)], dim=1)


def _score(logits: Tensor, target: Tensor) -> Tensor:
    best = logits >= logits.max(-1, keepdim=True).values - 1e-12
    return best.gather(-1, target)[:, 0].double() / best.sum(-1)
