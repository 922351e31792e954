"""Named directions of every effective matrix, and the maps between matrices and coordinates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from einops import rearrange
from scipy.sparse import csr_array

from manifold.elements import Element, contract, element
from manifold.factored import READOUT, Factored, Piece
from training.families.attention_only import paths

Source = Mapping[str, np.ndarray] | Factored
"""Effective matrices, written out by block or as factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One coordinate: an element on one path block of one effective matrix.

    block: "W1", "W2", .. or "Wbar"; head from 0; query and key index the paths below that layer
    (`Basis.paths(block)`); element indexes `Basis.elements`, for Wbar `Basis.readouts`.
    Wbar has neither head nor query: both are 0.
    """

    name: str
    block: str
    head: int
    query: int
    key: int
    element: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Basis:
    """Named directions, their Gram matrix and the maps between coordinates and matrices.

    d = vocabulary + n_positions. A matrices dictionary holds W1 (heads, d, d),
    W2 (heads, 2 d, 2 d) with one head, generally d_l = d (1 + heads)^(l - 1), and
    Wbar (vocabulary, d_(layers + 1)). Only elements of one path block are stored.

    frame: (d, d), the projector that the family's embedding applies to tokens and positions.
    elements: (n, d, d); readouts: (n', vocabulary, d); not normalised.
    group: the symmetry group in words, for people.

    `inner`, `coordinates`, `captured`, `off_manifold` and `left_out` take the matrices of a
    transformer as a `Factored` too (`manifold.lift(..).factored`), of any size; what comes out then
    has its leading axes first. From factors a share off the manifold is a difference of two norms
    and so good to about 1e-14; written out it is good far below.
    """

    family: str
    layers: int
    heads: int
    vocabulary: int
    n_positions: int
    frame: np.ndarray
    element_names: tuple[str, ...]
    elements: np.ndarray
    readout_names: tuple[str, ...]
    readouts: np.ndarray
    directions: tuple[Direction, ...]
    group: str = ""
    _index: dict[str, int] = field(init=False, repr=False)
    _structure: dict[bool, list[Element]] = field(init=False, repr=False)
    _where: dict[str, np.ndarray] = field(init=False, repr=False)
    _gram: csr_array = field(init=False, repr=False)
    _inverse: csr_array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        gram, inverse = _gram_and_inverse(self)
        rows: dict[str, list[tuple[int, ...]]] = {block: [] for block in self.blocks}
        for i, d in enumerate(self.directions):
            rows[d.block].append((i, d.head, d.query, d.key, d.element))
        where = {block: np.array(found, int).reshape(-1, 5).T for block, found in rows.items()}
        structure = {
            readout: [element(matrix) for matrix in stack]
            for readout, stack in ((False, self.elements), (True, self.readouts))
        }
        for name, value in (
            ("_index", {name: i for i, name in enumerate(self.names)}),
            ("_structure", structure),
            ("_where", where),
            ("_gram", gram),
            ("_inverse", inverse),
        ):
            object.__setattr__(self, name, value)
        for array in (self.frame, self.elements, self.readouts):
            array.flags.writeable = False

    @property
    def dim(self) -> int:
        return len(self.directions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(direction.name for direction in self.directions)

    @property
    def blocks(self) -> tuple[str, ...]:
        return (*(f"W{layer}" for layer in range(1, self.layers + 1)), READOUT)

    @property
    def gram(self) -> np.ndarray:
        """<B_i, B_j>, (dim, dim): zero between path blocks."""
        return self._gram.toarray()

    def paths(self, block: str) -> tuple[str, ...]:
        """Names of the paths that the block's queries and keys run over."""
        layer = self.layers if block == READOUT else int(block[1:]) - 1
        return paths(layer, self.heads)

    def shape(self, block: str) -> tuple[int, ...]:
        """Shape of the block in a matrices dictionary."""
        width = (self.vocabulary + self.n_positions) * len(self.paths(block))
        return (self.vocabulary, width) if block == READOUT else (self.heads, width, width)

    def __getitem__(self, name: str) -> tuple[Direction, np.ndarray]:
        """The direction of that name and its matrix on its own path block."""
        if name not in self._index:
            few = ", ".join(self.names[:100]) + (", .." if self.dim > 100 else "")
            raise KeyError(f"basis: no direction {name!r}; there are {few}")
        direction = self.directions[self._index[name]]
        stack = self.readouts if direction.block == READOUT else self.elements
        return direction, stack[direction.element]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def select(self, names: Sequence[str]) -> Basis:
        """The basis of these directions alone, in this order."""
        return replace(self, directions=tuple(self[name][0] for name in names))

    def inner(self, matrices: Source) -> np.ndarray:
        """<B_i, W> for every direction, (dim,)."""
        if isinstance(matrices, Factored):
            return self._inner_of_factors(matrices)
        products = np.zeros(self.dim)
        for block in self.blocks:
            split = self._split(block, matrices)
            stack = self.readouts if block == READOUT else self.elements
            table = np.einsum("hpaqb,eab->hpqe", split, stack, optimize=True)
            at, *index = self._where[block]
            products[at] = table[tuple(index)]
        return products

    def coordinates(self, matrices: Source) -> np.ndarray:
        """c = Gram^+ <B, W>, (dim,): the coefficients of the nearest point of the span."""
        return self.raise_index(self.inner(matrices))

    def raise_index(self, covector: np.ndarray) -> np.ndarray:
        """Gram^+ v, (.., dim): a gradient in the coordinates to the velocity of gradient flow."""
        flat = np.asarray(covector).reshape(-1, self.dim)
        return (self._inverse @ flat.T).T.reshape(np.shape(covector))

    def matrices(self, c: np.ndarray) -> dict[str, np.ndarray]:
        """W = sum_i c_i B_i, per block."""
        c = np.asarray(c, float)
        if c.shape != (self.dim,):
            raise ValueError(f"basis: {self.dim} coordinates are needed, got an array {c.shape}")
        found = {}
        for block in self.blocks:
            stack = self.readouts if block == READOUT else self.elements
            count = len(self.paths(block))
            heads, queries = (1, 1) if block == READOUT else (self.heads, count)
            table = np.zeros((heads, queries, count, len(stack)))
            at, *index = self._where[block]
            table[tuple(index)] = c[at]
            split = np.einsum("hpqe,eab->hpaqb", table, stack, optimize=True)
            joined = rearrange(split, "h p a q b -> h (p a) (q b)")
            found[block] = joined[0] if block == READOUT else joined
        return found

    def off_manifold(self, matrices: Source) -> dict[str, Any]:
        """||W - P W||^2 / ||W||^2 per block and over "all" of them; 0 where W is zero.

        P is the Frobenius-orthogonal projection on the span. Taken from the difference, so that
        shares far below rounding of 1 are meaningful.
        """
        if isinstance(matrices, Factored):
            return self.share_off(matrices, self.inner(matrices))
        nearest = self.matrices(self.coordinates(matrices))
        norms = {b: float(np.sum(matrices[b] ** 2)) for b in self.blocks}
        rests = {b: float(np.sum((matrices[b] - nearest[b]) ** 2)) for b in self.blocks}
        norms["all"], rests["all"] = sum(norms.values()), sum(rests.values())
        return {b: rests[b] / norms[b] if norms[b] else 0.0 for b in norms}

    def share_off(self, matrices: Factored, inner: np.ndarray) -> dict[str, np.ndarray]:
        """`off_manifold` of factors whose `inner` products are known already, (..) each."""
        norms = matrices.norms()
        c = self.raise_index(inner)
        rests = {}
        for block in self.blocks:
            at = self._where[block][0]
            rest = norms[block] - np.sum(c[..., at] * inner[..., at], axis=-1)
            rests[block] = np.maximum(rest, 0.0)
        norms["all"] = np.sum(list(norms.values()), axis=0)
        rests["all"] = np.sum(list(rests.values()), axis=0)
        return {b: _ratio(rests[b], norms[b]) for b in norms}

    def captured(self, matrices: Source) -> dict[str, Any]:
        """||P W||^2 / ||W||^2 per block and over "all"; 1 where W is zero."""
        return {block: 1.0 - share for block, share in self.off_manifold(matrices).items()}

    def left_out(self, matrices: Factored) -> dict[str, np.ndarray]:
        """Per block and over "all", the share of ||W||^2 on path blocks without a direction."""
        norms, kept = matrices.norms(), {}
        for piece in matrices.pieces(self._paths_used()):
            total = kept.setdefault(piece.block, np.zeros(matrices.stream.lead))
            left, right = (side.mT @ side for side in (piece.left, piece.right))
            for _, queries, keys in self._parts(piece):
                sums = left[..., queries, :, :].sum(-3) * right[..., keys, :, :].sum(-3)
                total += sums.sum((-2, -1))
        norms["all"] = np.sum(list(norms.values()), axis=0)
        kept["all"] = np.sum(list(kept.values()), axis=0)
        return {b: _ratio(np.maximum(norms[b] - kept[b], 0.0), norms[b]) for b in norms}

    def _inner_of_factors(self, matrices: Factored) -> np.ndarray:
        sizes = {block: matrices.shape(block) for block in matrices.blocks}
        wanted = {block: self.shape(block) for block in self.blocks}
        if sizes != wanted or self.family != "transformer":
            raise ValueError(
                f"basis: factors of a transformer with blocks {wanted} are needed (this basis is "
                f"in the {self.family} frame), got {sizes}"
            )
        products = np.zeros((*matrices.stream.lead, self.dim))
        for piece in matrices.pieces(self._paths_used()):
            at, _, query, key, one = self._where[piece.block]
            structure = self._structure[piece.block == READOUT]
            for rows, queries, keys in self._parts(piece):
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

    def _paths_used(self) -> np.ndarray:
        return np.unique(np.concatenate([self._where[block][2:4].ravel() for block in self.blocks]))

    def _parts(self, piece: Piece) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Directions on a piece as full grids: (columns of _where, queries, keys), the last two
        where in the piece's. Queries with the same keys go together."""
        _, head, query, key, _ = self._where[piece.block]
        rows = np.flatnonzero((head == piece.head) & np.isin(key, piece.key))
        keys_of: dict[bytes, list[int]] = defaultdict(list)
        for q in np.unique(query[rows]):
            keys_of[np.unique(key[rows[query[rows] == q]]).tobytes()].append(q)
        for keys, queries in keys_of.items():
            yield (
                rows[np.isin(query[rows], queries)],
                np.searchsorted(piece.query, queries),
                np.searchsorted(piece.key, np.frombuffer(keys, int)),
            )

    def _split(self, block: str, matrices: Mapping[str, np.ndarray]) -> np.ndarray:
        """(heads, query path, row, key path, column) view of a block."""
        if block not in matrices:
            raise ValueError(f"basis: block {block} is missing; got {', '.join(matrices)}")
        matrix, shape = matrices[block], self.shape(block)
        if matrix.shape != shape:
            raise ValueError(f"basis: {block} must have shape {shape}, got {matrix.shape}")
        count = len(self.paths(block))
        if block == READOUT:
            return rearrange(matrix, "a (q b) -> 1 1 a q b", q=count)
        return rearrange(matrix, "h (p a) (q b) -> h p a q b", p=count, q=count)


def _gram_and_inverse(basis: Basis) -> tuple[csr_array, csr_array]:
    """Gram matrix and its pseudo-inverse, block by block of equal (matrix, head, paths)."""
    products = {
        False: np.einsum("iab,jab->ij", basis.elements, basis.elements),
        True: np.einsum("iab,jab->ij", basis.readouts, basis.readouts),
    }
    groups: dict[tuple, list[int]] = defaultdict(list)
    for i, d in enumerate(basis.directions):
        groups[d.block, d.head, d.query, d.key].append(i)
    alike: dict[tuple, list[list[int]]] = defaultdict(list)
    for key, members in groups.items():
        chosen = tuple(basis.directions[i].element for i in members)
        alike[key[0] == READOUT, chosen].append(members)
    blocks = []
    for (readout, chosen), members in alike.items():
        gram = products[readout][np.ix_(chosen, chosen)]
        blocks.append((np.array(members), gram, np.linalg.pinv(gram, hermitian=True)))
    return (
        _scattered([(members, gram) for members, gram, _ in blocks], basis.dim),
        _scattered([(members, inverse) for members, _, inverse in blocks], basis.dim),
    )


def _scattered(blocks: list[tuple[np.ndarray, np.ndarray]], size: int) -> csr_array:
    """(size, size) with each small matrix at the indices in every row of its members."""
    rows, columns, values = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
    for members, matrix in blocks:
        i, j = np.nonzero(matrix)
        rows.append(members[:, i].ravel())
        columns.append(members[:, j].ravel())
        values.append(np.tile(matrix[i, j], len(members)))
    at = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(values), at), shape=(size, size))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
