"""The attention-only model on the span of a basis, from Gram tensors alone (theory, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manifold.coordinates.basis import READOUT, Basis
from manifold.dynamics.first_rows import FirstRows, first_rows
from manifold.dynamics.readout_classes import readout_classes
from manifold.dynamics.slot import Slot, slot

WORKING = 2**19
"""Numbers in the largest array while a gradient is taken (4 MB)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequences:
    """Sequences at one common placement: tokens (S, T), target (S,), positions (T,)."""

    tokens: np.ndarray
    target: np.ndarray
    positions: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> Sequences:
        return replace(self, tokens=self.tokens[rows], target=self.target[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """Some sequences, evaluated together: tokens (T, s), target (s,), rows of layer 1.

    last: (1, 1, T, s) the row of path I at the last place.
    """

    first: FirstRows
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

    Sequences are the last axis of every array, so that each operation runs along them.
    """

    def __init__(self, basis: Basis, frame: np.ndarray, sequences: Sequences) -> None:
        self.basis, self.count = basis, len(sequences.tokens)
        self._time = len(sequences.positions)
        used = np.unique(np.concatenate([sequences.tokens.ravel(), sequences.target]))
        self._seen = len(used)
        columns = np.concatenate([used, basis.vocabulary + sequences.positions])
        elements = [self._elements(block, frame, columns) for block in basis.blocks]
        kept, many = readout_classes(elements[-1], used)
        elements[-1] = elements[-1][:, kept]
        self._many = torch.from_numpy(many)
        self._log_many = self._many.log()[:, None]
        self._slots = [self._slot(*pair) for pair in zip(basis.blocks, elements, strict=True)]
        self._future = torch.ones(self._time, self._time, dtype=torch.bool).triu(1)
        sequences = replace(
            sequences,
            tokens=np.searchsorted(used, sequences.tokens),
            target=np.searchsorted(used, sequences.target),
        )
        self._chunk = max(16, WORKING // self._work())
        self._pieces = [
            self._piece(elements[0], sequences[start : start + self._chunk])
            for start in range(0, self.count, self._chunk)
        ]

    def _directions(self, block: str) -> list:
        return [(i, d) for i, d in enumerate(self.basis.directions) if d.block == block]

    def _elements(self, block: str, frame: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Those in use, (K, a, b) on the seen tokens and places; a: all tokens in the read-out."""
        used = sorted({d.element for _, d in self._directions(block)})
        if block == READOUT:
            n = self.basis.vocabulary
            return frame[:n, :n] @ (self.basis.readouts[used] @ frame[:, columns])
        return frame[columns] @ (self.basis.elements[used] @ frame[:, columns])

    def _slot(self, block: str, elements: np.ndarray) -> Slot:
        paths, n = len(self.basis.paths(block)), self._seen
        both = {"tokens": slice(None, n), "places": slice(n, None)}
        read = block == READOUT
        return slot(
            self._directions(block),
            1 if read else self.basis.heads,
            1 if read else paths,
            paths,
            elements,
            ({"logits": slice(None)} if read else both, both),
        )

    def _work(self) -> int:
        """Numbers per sequence in the largest array."""
        paths, heads, time = len(self.basis.paths(READOUT)), self.basis.heads, self._time
        below = paths // (1 + heads)  # paths that the last layer reads
        middle = below // (1 + heads) * heads * time if self.basis.layers > 2 else 1
        return time * max(time, below * time, middle * time)

    def _piece(self, elements: np.ndarray, sequences: Sequences) -> _Piece:
        count = len(sequences.tokens)
        return _Piece(
            first=first_rows(elements, sequences.tokens),
            tokens=torch.from_numpy(np.ascontiguousarray(sequences.tokens.T).astype(np.int64)),
            target=torch.from_numpy(sequences.target.astype(np.int64)),
            last=torch.eye(self._time, dtype=torch.float64)[-1][None, None, :, None].expand(
                1, 1, -1, count
            ),
        )

    @property
    def rows(self) -> int:
        """Different logits that are read out."""
        return len(self._many)

    def losses(self, c: np.ndarray) -> np.ndarray:
        """Cross-entropy of each sequence, (S,)."""
        return self._each(c, lambda logits, piece: self._entropy(logits, piece))

    def correct(self, c: np.ndarray) -> np.ndarray:
        """1 where the answer has the largest logit, 1/k where it shares it with k - 1, else 0."""

        def score(logits: Tensor, piece: _Piece) -> Tensor:
            best = (logits >= logits.max(0, keepdim=True).values - 1e-12).double()
            return best.gather(0, piece.target[None])[0] / (self._many @ best)

        return self._each(c, score)

    def signature(self, c: np.ndarray) -> np.ndarray:
        """Loss and sum of squared logits of each sequence, (S, 2): equal for equal functions."""

        def both(logits: Tensor, piece: _Piece) -> Tensor:
            return torch.stack([self._entropy(logits, piece), self._many @ logits**2], 1)

        return self._each(c, both)

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

    def hessian_product(self, c: np.ndarray, weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(d^2 loss / d c^2) v, (dim,), without the Hessian."""
        along = torch.tensor(v, dtype=torch.float64)

        def product(loss: Tensor, point: Tensor) -> Tensor:
            (slope,) = torch.autograd.grad(loss, point, create_graph=True)
            return torch.autograd.grad(slope @ along, point)[0]

        return self._sum(c, weights, product)

    def _each(self, c: np.ndarray, what: Callable[[Tensor, _Piece], Tensor]) -> np.ndarray:
        point = torch.tensor(c, dtype=torch.float64)
        with torch.no_grad():
            found = [what(self._logits(point, piece), piece) for piece in self._pieces]
        return torch.cat(found).numpy()

    def _sum(
        self, c: np.ndarray, weights: np.ndarray, what: Callable[[Tensor, Tensor], Tensor]
    ) -> np.ndarray:
        total = torch.zeros(())
        shares = torch.from_numpy(weights).split(self._chunk)
        for piece, share in zip(self._pieces, shares, strict=True):
            point = torch.tensor(c, dtype=torch.float64, requires_grad=True)
            total = total + what(self._entropy(self._logits(point, piece), piece) @ share, point)
        return total.numpy()

    def _entropy(self, logits: Tensor, piece: _Piece) -> Tensor:
        logits = logits + self._log_many
        return cross_entropy(logits[None], piece.target[None], reduction="none")[0]

    def _logits(self, c: Tensor, piece: _Piece) -> Tensor:
        """(rows, s) of the read-out."""
        *attention, readout = self._slots
        carried = None  # (paths but I, T, T, s)
        for layer, each in enumerate(attention[:-1]):
            pattern = self._middle(each, c, carried, piece) if layer else self._first(c, piece)
            carried = _extend(pattern, carried)
        rows = piece.last  # (1, paths, T, s)
        if carried is not None:
            rows = torch.cat([rows, carried[None, :, -1]], 1)
        last = self._scores(attention[-1], c, rows, carried, piece)[0].softmax(1)
        heard = last[:, None]
        if carried is not None:
            further = (last[:, None, :, None] * carried).sum(2)
            heard = torch.cat([heard, further], 1)
        rows = torch.cat([rows[0], heard.flatten(0, 1)])
        weights: dict[str, Tensor] = {}
        total = 0.0 * (c**2).sum()  # of a basis without read-out the loss is flat, not undefined
        for part, matrix in readout.matrices(c):
            matrix = matrix[0, 0].transpose(0, 1).flatten(1)  # logits, (paths, b)
            total = total + matrix @ self._side(part.key, rows, piece, weights).flatten(0, 1)
        return total.expand(self.rows, len(piece.target))

    def _first(self, c: Tensor, piece: _Piece) -> Tensor:
        """Attention of layer 1, (heads, T, T, s): different rows once, then placed."""
        rows, each = piece.first, self._slots[0]
        scores = torch.tensordot(each.table(c)[:, 0, 0], rows.grams, 1)
        pattern = scores.masked_fill(rows.future, -math.inf).softmax(1)
        placed = pattern.index_select(2, rows.row.flatten())
        return placed.unflatten(2, rows.row.shape).transpose(1, 2)

    def _middle(self, each: Slot, c: Tensor, carried: Tensor | None, piece: _Piece) -> Tensor:
        """Attention (heads, T, T, s) of a layer all of whose rows are needed."""
        assert carried is not None
        own = torch.eye(self._time, dtype=c.dtype)[:, None, :, None]
        rows = torch.cat([own.expand(-1, -1, -1, carried.shape[-1]), carried.transpose(0, 1)], 1)
        scores = self._scores(each, c, rows, carried, piece)
        future = self._future[:, None, :, None]
        return scores.masked_fill(future, -math.inf).softmax(2).transpose(0, 1)

    def _side(self, side: str, rows: Tensor, piece: _Piece, made: dict[str, Tensor]) -> Tensor:
        """How much weight of the places (.., T, s) is on each token, or the places themselves."""
        if side not in made:
            made[side] = rows
            if side == "tokens":
                empty = rows.new_zeros(*rows.shape[:-2], self._seen, rows.shape[-1])
                made[side] = empty.scatter_add(-2, piece.tokens.expand_as(rows), rows)
        return made[side]

    def _scores(
        self, each: Slot, c: Tensor, rows: Tensor, carried: Tensor | None, piece: _Piece
    ) -> Tensor:
        """Scores (r, heads, T, s) of query rows (r, paths, T, s)."""
        heads, _, keys, _ = each.shape
        met, weights = rows.new_zeros(()), {}
        for part, matrix in each.matrices(c):
            matrix = matrix.permute(0, 2, 4, 1, 3).flatten(3).flatten(0, 2)  # (h q b, p a)
            by_key = matrix @ self._side(part.query, rows, piece, weights).flatten(1, 2)
            by_key = by_key.unflatten(1, (heads, keys, -1))
            if part.key == "tokens":
                place = piece.tokens.expand(*by_key.shape[:-2], -1, -1)
                by_key = by_key.gather(-2, place)
            met = met + by_key
        met = met.expand(len(rows), heads, keys, self._time, rows.shape[-1])
        scores = met[:, :, 0]
        if carried is not None:
            scores = scores + (met[:, :, 1:, None] * carried).sum((2, 4))
        return scores


def _extend(pattern: Tensor, carried: Tensor | None) -> Tensor:
    """Paths but I after a layer: those before, then each head past I and past those before."""
    heard = pattern[:, None]
    if carried is None:
        return heard.flatten(0, 1)
    further = (pattern[:, None, :, :, None] * carried[:, None]).sum(3)
    return torch.cat([carried, torch.cat([heard, further], 1).flatten(0, 1)])
