"""Effective matrices of a transformer as products of thin factors, never written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from manifold.coordinates.stream import Stream

READOUT = "Wbar"
LARGEST = 2**27
"""Entries of the largest effective matrix that is written out: 1 GB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Path blocks (p, q) of one head: left_p right_q^T.

    query, key: indices of paths. left: (.., queries, a, k); right: (.., keys, b, k). Of the
    read-out head and query are 0 and a is the vocabulary.
    """

    block: str
    head: int
    query: np.ndarray
    left: np.ndarray
    key: np.ndarray
    right: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Factored:
    """The effective matrices W1, W2, .., Wbar of a stream; takes the place of a dictionary of them.

    Rows of path p are R_p = rows A_p, A_p the product of the maps along it, and

        W_l[p, q] = R_p Q K^T R_q^T,  Wbar[:, p] = read^T R_p^T,

    of rank at most the head width (for p = I in Wbar, the stream's). Sums over all paths, and so
    every norm, follow from a recursion on (w, w) matrices; factors are made for chosen paths only.

    free: with the gauge removed (`manifold.remove_gauge`): rows and the logits' mean are centred,
    and every query path and read-out path gets the same multiple of the two parts' sums.
    """

    stream: Stream
    free: bool = False
    _rows: np.ndarray = field(init=False, repr=False)
    _layers: tuple[_Sums, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        stream = self.stream
        means = _means(stream)
        rows = stream.rows - _spread(stream, means) if self.free else stream.rows
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_layers", tuple(_sums(stream, rows, means)))

    @property
    def read(self) -> np.ndarray:
        """(.., w, vocabulary)."""
        read = self.stream.read
        return read - read.mean(-1, keepdims=True) if self.free else read

    @property
    def blocks(self) -> tuple[str, ...]:
        return (*(f"W{layer + 1}" for layer in range(len(self.stream.layers))), READOUT)

    def paths(self, block: str) -> int:
        """How many paths the block's queries and keys run over."""
        layer = len(self.stream.layers) if block == READOUT else int(block[1:]) - 1
        return (1 + self.stream.heads) ** layer

    def shape(self, block: str) -> tuple[int, ...]:
        """Shape of the block's array, without leading axes."""
        width = self.stream.rows.shape[-2] * self.paths(block)
        if block == READOUT:
            return (self.stream.vocabulary, width)
        return (self.stream.heads, width, width)

    def norms(self) -> dict[str, np.ndarray]:
        """||W||^2 per block, (..): over all paths and heads."""
        found = {}
        for index, layer in enumerate(self.stream.layers):
            sums = self._layers[index]
            left = _between(sums.gram, layer.query)
            if self.free:
                shift = sums.shift(layer.query)  # (.., heads, 1, k)
                left = left + sums.size * shift.mT * shift
            found[f"W{index + 1}"] = np.sum(
                left * _between(sums.gram, layer.key), axis=(-3, -2, -1)
            )
        sums, read = self._layers[-1], self.read
        found[READOUT] = np.sum((read @ read.mT) * sums.gram, axis=(-2, -1))
        if self.free:
            found[READOUT] += sums.size * np.sum((sums.shift(read)) ** 2, axis=(-2, -1))
        return found

    def pieces(self, wanted: np.ndarray) -> Iterator[Piece]:
        """The blocks between these paths (indices), I and those that they continue."""
        heads, lead = self.stream.heads, len(self.stream.lead)
        chosen = _closed(wanted, heads)
        values: dict[tuple[int, int], np.ndarray] = {}  # by step: (.., paths, d, k)
        writes: dict[tuple[int, int], np.ndarray] = {}  # by step: (.., k, w), up to here
        rows = self._rows

        def through(weight: np.ndarray) -> np.ndarray:
            """R_p weight of all chosen paths below, (.., paths, d, k)."""
            parts = [(rows @ weight)[..., None, :, :]]
            for step, value in values.items():
                parts.append(value @ (writes[step] @ weight)[..., None, :, :])
            return np.concatenate(parts, axis=lead)

        for index, layer in enumerate(self.stream.layers):
            below = chosen[chosen < (1 + heads) ** index]
            for head in range(heads):
                left = through(layer.query[..., head, :, :])
                if self.free:
                    shift = self._layers[index].shift(layer.query[..., head, :, :])
                    left += _spread(self.stream, np.repeat(shift, 2, axis=-2) * self._sizes)[
                        ..., None, :, :
                    ]
                yield Piece(
                    block=f"W{index + 1}",
                    head=head,
                    query=below,
                    left=left,
                    key=below,
                    right=through(layer.key[..., head, :, :]),
                )
            fresh = {}
            for head in range(heads):
                first = (1 + heads) ** index * (1 + head)
                here = chosen[(chosen >= first) & (chosen < first + (1 + heads) ** index)]
                if len(here):
                    inner = np.isin(below, here - first)
                    every = through(layer.value[..., head, :, :])
                    fresh[index, head] = np.compress(inner, every, axis=lead)
                    writes[index, head] = layer.write[..., head, :, :]
            values |= fresh
            writes = {step: write @ layer.after for step, write in writes.items()}
            rows = rows @ layer.after
        yield from self._readout(chosen, rows, values, writes)

    def _readout(self, chosen, rows, values, writes) -> Iterator[Piece]:
        read, heads = self.read, self.stream.heads
        groups = [(0, 1, rows[..., None, :, :], read)]
        for (layer, head), value in values.items():
            base = (1 + heads) ** layer
            groups.append((base * (1 + head), base, value, writes[layer, head] @ read))
        for first, size, right, left in groups:
            left = left.mT  # (.., vocabulary, k)
            if self.free:
                shift = self._layers[-1].shift(read).mT
                left = np.concatenate([left, np.broadcast_to(shift, (*left.shape[:-1], 1))], -1)
                common = _spread(self.stream, self._sizes)
                common = np.broadcast_to(common, (*right.shape[:-1], 1))
                right = np.concatenate([right, common], axis=-1)
            yield Piece(
                block=READOUT,
                head=0,
                query=np.zeros(1, int),
                left=left[..., None, :, :],
                key=chosen[(chosen >= first) & (chosen < first + size)],
                right=right,
            )

    @property
    def _sizes(self) -> np.ndarray:
        """(2, 1): 1 / number of tokens, 1 / number of positions."""
        return 1.0 / np.array([[self.stream.vocabulary], [self.stream.n_positions]])

    def matrices(self) -> dict[str, np.ndarray]:
        """The arrays themselves, (.., heads, d_l, d_l) and (.., N, d_L); small models only."""
        for block in self.blocks:
            size = int(np.prod([float(n) for n in (*self.stream.lead, *self.shape(block))]))
            if size > LARGEST:
                raise ValueError(
                    f"effective matrices: {block} of shape {self.shape(block)} would have {size} "
                    f"entries, allowed here {LARGEST}; the factored form does without them"
                )
        lead = self.stream.lead
        found = {block: np.empty((*lead, *self.shape(block))) for block in self.blocks}
        d = self.stream.rows.shape[-2]
        for piece in self.pieces(np.arange(self.paths(READOUT))):
            if piece.block == READOUT:
                full = piece.left @ piece.right.mT  # (.., paths, vocabulary, d)
                for at, q in enumerate(piece.key):
                    found[READOUT][..., q * d : (q + 1) * d] = full[..., at, :, :]
                continue
            left, right = (
                side.reshape(*lead, -1, side.shape[-1]) for side in (piece.left, piece.right)
            )
            found[piece.block][..., piece.head, :, :] = left @ right.mT
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """Sums over all paths below a layer.

    gram: sum of R_p^T R_p, (.., w, w). common: sum over paths and both parts of the mean row,
    (.., 1, w). size: squared norm of the vector that holds 1 / part size in every part.
    """

    gram: np.ndarray
    common: np.ndarray
    size: float

    def shift(self, weight: np.ndarray) -> np.ndarray:
        """(.., 1, k): what all paths' sums share, per unit of that vector."""
        extra = weight.ndim - self.gram.ndim
        common = self.common.reshape(*self.common.shape[:-2], *(1,) * extra, 1, -1)
        return common @ weight / self.size


def _sums(stream: Stream, rows: np.ndarray, means: np.ndarray) -> Iterator[_Sums]:
    """Below layer 1, below layer 2, .., below the read-out."""
    gram, common = rows.mT @ rows, means.sum(-2, keepdims=True)
    size = 1.0 / stream.vocabulary + 1.0 / stream.n_positions
    yield _Sums(gram=gram, common=common, size=size)
    for layer in stream.layers:
        past = layer.value @ layer.write  # (.., heads, w, w)
        gram = layer.after.mT @ (gram + _between(gram, past).sum(-3)) @ layer.after
        common = (common + common @ past.sum(-3)) @ layer.after
        size *= 1 + stream.heads
        yield _Sums(gram=gram, common=common, size=size)


def _between(gram: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """weight^T gram weight, weight (.., heads, w, k)."""
    return weight.mT @ gram[..., None, :, :] @ weight


def _means(stream: Stream) -> np.ndarray:
    """(.., 2, w): the mean token row and the mean position row."""
    n = stream.vocabulary
    parts = (stream.rows[..., :n, :], stream.rows[..., n:, :])
    return np.stack([part.mean(-2) for part in parts], axis=-2)


def _spread(stream: Stream, parts: np.ndarray) -> np.ndarray:
    """(.., 2, k) to (.., d, k): the first row for every token, the second for every position."""
    return np.repeat(parts, [stream.vocabulary, stream.n_positions], axis=-2)


def _closed(wanted: np.ndarray, heads: int) -> np.ndarray:
    """These paths, I, and for each the path that its last step was taken from; sorted."""
    chosen = {0}
    for path in np.unique(wanted).tolist():
        while path not in chosen:
            chosen.add(path)
            base = 1
            while base * (1 + heads) <= path:
                base *= 1 + heads
            path %= base
    return np.array(sorted(chosen), int)
