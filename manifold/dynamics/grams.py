"""The attention-only model on the span of a basis, from Gram tensors alone (theory, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manifold.coordinates.basis import READOUT, Basis
from manifold.dynamics.readout_classes import readout_classes
from training.tasks.program import merge

CHUNK = 4096
"""Sequences evaluated together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequences:
    """Sequences at one common placement: tokens (S, T), target (S,), positions (T,)."""

    tokens: np.ndarray
    target: np.ndarray
    positions: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> Sequences:
        return replace(self, tokens=self.tokens[rows], target=self.target[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slot:
    """One effective matrix: c[at] goes into a table (heads, query paths, key paths, K).

    elements: (K, a, b) those in use, on the seen tokens and then the T places; in the read-out a
    are the seen tokens and then one token of each class of the others.
    """

    at: Tensor
    index: tuple[Tensor, ...]
    shape: tuple[int, int, int, int]
    elements: Tensor

    def table(self, c: Tensor) -> Tensor:
        return torch.zeros(self.shape, dtype=c.dtype).index_put(self.index, c[self.at])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """Some sequences. Rows of the first layer's scores that are equal are kept once.

    grams: (K, R, T) x_i^T B x_j, one row for each different (i, x_i^T B x_0 .. x_i^T B x_i);
    future: (R, T); row: (s, T) the row of each place. tokens (s, T), target (s,).
    last: (s, 1, T) the row of path I at the last place.
    """

    grams: Tensor
    future: Tensor
    row: Tensor
    tokens: Tensor
    target: Tensor
    last: Tensor


class GramModel:
    """Loss of each sequence at the last position as a function of the coordinates.

    With x^0 := identity over positions, Pi_p (T, T) holds how much of each source token path p
    carries to each place: Pi_I = 1, Pi_(V p) = A Pi_p. Scores of a layer are
    S = sum over path pairs and elements c_(p,q,B) Pi_p G_B Pi_q^T, G_B,ij = x_i^T B x_j; only
    the last row is needed in the last layer. Equal to the full model on basis.matrices(c).
    Everything is a sum over the tokens that the sequences hold and their T places, and unseen
    tokens are read out as classes (`readout_classes`): the width does not matter.

    frame: (d, d), what the family's embedding does to one-hot tokens and positions.
    """

    def __init__(self, basis: Basis, frame: np.ndarray, sequences: Sequences) -> None:
        self.basis, self.count = basis, len(sequences.tokens)
        used = np.unique(np.concatenate([sequences.tokens.ravel(), sequences.target]))
        seen = np.concatenate([used, basis.vocabulary + sequences.positions])
        self._slots = [self._slot(block, frame, seen) for block in basis.blocks]
        self._time, self._seen = len(sequences.positions), len(used)
        kept, many = readout_classes(self._slots[-1].elements.numpy(), used)
        self._many, self._log_many = torch.from_numpy(many), torch.from_numpy(np.log(many))
        self._slots[-1] = replace(self._slots[-1], elements=self._slots[-1].elements[:, kept])
        sequences = replace(
            sequences,
            tokens=np.searchsorted(used, sequences.tokens),
            target=np.searchsorted(used, sequences.target),
        )
        self._future = torch.ones(self._time, self._time, dtype=torch.bool).triu(1)
        first = self._slots[0].elements.numpy()
        self._pieces = [
            self._piece(first, sequences, slice(start, start + CHUNK))
            for start in range(0, self.count, CHUNK)
        ]

    def _slot(self, block: str, frame: np.ndarray, seen: np.ndarray) -> _Slot:
        rows = [(i, d) for i, d in enumerate(self.basis.directions) if d.block == block]
        used = sorted({d.element for _, d in rows})
        entries = [(d.head, d.query, d.key, used.index(d.element)) for _, d in rows]
        paths, n = len(self.basis.paths(block)), self.basis.vocabulary
        if block == READOUT:
            shape, left, stack = (1, 1, paths, len(used)), frame[:n, :n], self.basis.readouts
        else:
            shape, left = (self.basis.heads, paths, paths, len(used)), frame[seen]
            stack = self.basis.elements
        elements = left @ (stack[used] @ frame[:, seen])
        return _Slot(
            at=torch.tensor([i for i, _ in rows], dtype=torch.long),
            index=tuple(torch.tensor(entries, dtype=torch.long).reshape(len(rows), 4).T),
            shape=shape,
            elements=torch.from_numpy(np.ascontiguousarray(elements)),
        )

    def _piece(self, elements: np.ndarray, sequences: Sequences, rows: slice) -> _Piece:
        tokens, time = sequences.tokens[rows], self._time
        left, right = tokens[:, :, None], tokens[:, None, :]
        row, column = np.ogrid[:time, :time]
        row, column = self._seen + row, self._seen + column

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
            target=torch.from_numpy(sequences.target[rows].astype(np.int64)),
            last=torch.eye(time, dtype=torch.float64)[-1].expand(len(tokens), 1, time),
        )

    @property
    def rows(self) -> int:
        """Different logits that are read out."""
        return len(self._many)

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
                [_score(self._logits(point, p), p.target, self._many) for p in self._pieces]
            ).numpy()

    def signature(self, c: np.ndarray) -> np.ndarray:
        """Loss and sum of squared logits of each sequence, (S, 2): equal for equal functions."""
        point, found = torch.tensor(c, dtype=torch.float64), []
        with torch.no_grad():
            for piece in self._pieces:
                logits = self._logits(point, piece)
                loss = cross_entropy(logits + self._log_many, piece.target, reduction="none")
                found.append(torch.stack([loss, logits**2 @ self._many], 1))
        return torch.cat(found).numpy()

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
        return cross_entropy(
            self._logits(c, piece) + self._many.log(), piece.target, reduction="none"
        )

    def _logits(self, c: Tensor, piece: _Piece) -> Tensor:
        *attention, readout = self._slots
        carried = None  # (s, paths but I, T, T)
        for layer, slot in enumerate(attention[:-1]):
            pattern = (
                self._middle(slot, c, carried, piece) if layer else self._first(slot, c, piece)
            )
            carried = _extend(pattern, carried)
        rows = piece.last if carried is None else torch.cat([piece.last, carried[:, :, -1]], 1)
        last = self._scores(attention[-1], c, rows[:, None], carried, piece)[:, :, 0].softmax(-1)
        heard = last[:, :, None]
        if carried is not None:
            further = torch.matmul(last[:, None], carried).transpose(1, 2)
            heard = torch.cat([heard, further], dim=2)
        rows = torch.cat([rows, heard.flatten(1, 2)], dim=1)
        table, logits = readout.table(c)[0, 0], []
        places = bool(readout.elements[..., self._seen :].any())
        for which, weight in self._sides(rows, piece, places):
            part = torch.einsum("pk,kvn->pnv", table, readout.elements[:, :, which])
            logits.append(weight.flatten(1) @ part.flatten(0, 1))
        return sum(logits[1:], logits[0])

    def _sides(self, rows: Tensor, piece: _Piece, places: bool) -> Iterator[tuple[slice, Tensor]]:
        """Tokens, and places where elements see them: their range and the rows' weight on them."""
        yield slice(None, self._seen), self._tokens(rows, piece)
        if places:
            yield slice(self._seen, None), rows

    def _first(self, slot: _Slot, c: Tensor, piece: _Piece) -> Tensor:
        """Attention of layer 1, (s, heads, T, T): different rows once, then placed."""
        scores = torch.einsum("hk,krj->hrj", slot.table(c)[:, 0, 0], piece.grams)
        pattern = scores.masked_fill(piece.future, -math.inf).softmax(-1)
        placed = pattern.index_select(1, piece.row.flatten())
        return placed.unflatten(1, piece.row.shape).transpose(0, 1)

    def _middle(self, slot: _Slot, c: Tensor, carried: Tensor | None, piece: _Piece) -> Tensor:
        """Attention (s, heads, T, T) of a layer all of whose rows are needed."""
        identity = torch.eye(self._time, dtype=c.dtype)
        rows = identity[:, None].expand(len(piece.target), -1, 1, -1)
        if carried is not None:
            rows = torch.cat([rows, carried.transpose(1, 2)], dim=2)
        scores = self._scores(slot, c, rows, carried, piece)
        return scores.masked_fill(self._future, -math.inf).softmax(-1)

    def _tokens(self, rows: Tensor, piece: _Piece) -> Tensor:
        """(s, .., N): how much weight of the places (s, .., T) is on each token."""
        index = piece.tokens.view(len(rows), *(1,) * (rows.ndim - 2), self._time).expand_as(rows)
        empty = torch.zeros(*rows.shape[:-1], self._seen, dtype=rows.dtype)
        return empty.scatter_add(-1, index, rows)

    def _scores(
        self, slot: _Slot, c: Tensor, rows: Tensor, carried: Tensor | None, piece: _Piece
    ) -> Tensor:
        """Scores (s, heads, r, T) of query rows (s, r, paths, T)."""
        n, table, meets = self._seen, slot.table(c), []
        for which, weight in self._sides(rows, piece, bool(slot.elements[:, n:].any())):
            by_token = _meet(table, slot.elements[:, which, :n], weight.flatten(2))
            index = piece.tokens[:, None, None, None].expand(*by_token.shape[:-1], -1)
            meets.append(by_token.gather(-1, index))
            if slot.elements[:, which, n:].any():
                meets.append(_meet(table, slot.elements[:, which, n:], weight.flatten(2)))
        met = sum(meets[1:], meets[0])
        scores = met[..., 0, :].transpose(1, 2)
        if carried is not None:
            keys = met[..., 1:, :].permute(0, 3, 2, 1, 4)
            scores = scores + (keys @ carried.transpose(-1, -2)[:, :, None]).sum(1)
        return scores


def _meet(table: Tensor, elements: Tensor, weight: Tensor) -> Tensor:
    """(s, r, heads, key paths, b): sum over query paths p, elements k and a of
    weight_(p a) table_(h p q k) elements_(k a b); weight (s, r, p a)."""
    heads, _, keys, _ = table.shape
    matrix = (table @ elements.flatten(1)).unflatten(-1, elements.shape[1:])  # h p q a b
    matrix = matrix.permute(1, 3, 0, 2, 4).reshape(weight.shape[-1], -1)
    return (weight @ matrix).unflatten(-1, (heads, keys, elements.shape[-1]))


def _extend(pattern: Tensor, carried: Tensor | None) -> Tensor:
    """Paths but I after a layer: those before, then each head past I and past those before."""
    heard = pattern[:, :, None]
    if carried is None:
        return heard.flatten(1, 2)
    further = torch.einsum("shij,spjk->shpik", pattern, carried)
    return torch.cat([carried, torch.cat([heard, further], dim=2).flatten(1, 2)], dim=1)


def _score(logits: Tensor, target: Tensor, many: Tensor) -> Tensor:
    best = (logits >= logits.max(-1, keepdim=True).values - 1e-12).double()
    return best.gather(-1, target[:, None])[:, 0] / (best @ many)
