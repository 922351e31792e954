"""Named directions of every effective matrix, and the maps between matrices and coordinates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from einops import rearrange
from scipy.sparse import csr_array

from training.families.attention_only import paths

READOUT = "Wbar"


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
    _where: dict[str, np.ndarray] = field(init=False, repr=False)
    _gram: csr_array = field(init=False, repr=False)
    _inverse: csr_array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        gram, inverse = _gram_and_inverse(self)
        where = {}
        for block in self.blocks:
            rows = [(i, d) for i, d in enumerate(self.directions) if d.block == block]
            entries = [(i, d.head, d.query, d.key, d.element) for i, d in rows]
            where[block] = np.array(entries, int).reshape(len(rows), 5).T
        for name, value in (("_where", where), ("_gram", gram), ("_inverse", inverse)):
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
        for direction in self.directions:
            if direction.name == name:
                stack = self.readouts if direction.block == READOUT else self.elements
                return direction, stack[direction.element]
        raise KeyError(f"basis: no direction {name!r}; there are {', '.join(self.names)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def select(self, names: Sequence[str]) -> Basis:
        """The basis of these directions alone, in this order."""
        return replace(self, directions=tuple(self[name][0] for name in names))

    def inner(self, matrices: Mapping[str, np.ndarray]) -> np.ndarray:
        """<B_i, W> for every direction, (dim,)."""
        products = np.zeros(self.dim)
        for block in self.blocks:
            split = self._split(block, matrices)
            stack = self.readouts if block == READOUT else self.elements
            table = np.einsum("hpaqb,eab->hpqe", split, stack, optimize=True)
            at, *index = self._where[block]
            products[at] = table[tuple(index)]
        return products

    def coordinates(self, matrices: Mapping[str, np.ndarray]) -> np.ndarray:
        """c = Gram^+ <B, W>, (dim,): the coefficients of the nearest point of the span."""
        return self._inverse @ self.inner(matrices)

    def raise_index(self, covector: np.ndarray) -> np.ndarray:
        """Gram^+ v, (dim,): a gradient in the coordinates to the velocity of gradient flow."""
        return self._inverse @ covector

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

    def off_manifold(self, matrices: Mapping[str, np.ndarray]) -> dict[str, float]:
        """||W - P W||^2 / ||W||^2 per block and over "all" of them; 0 where W is zero.

        P is the Frobenius-orthogonal projection on the span. Taken from the difference, so that
        shares far below rounding of 1 are meaningful.
        """
        nearest = self.matrices(self.coordinates(matrices))
        norms = {b: float(np.sum(matrices[b] ** 2)) for b in self.blocks}
        rests = {b: float(np.sum((matrices[b] - nearest[b]) ** 2)) for b in self.blocks}
        norms["all"], rests["all"] = sum(norms.values()), sum(rests.values())
        return {b: rests[b] / norms[b] if norms[b] else 0.0 for b in norms}

    def captured(self, matrices: Mapping[str, np.ndarray]) -> dict[str, float]:
        """||P W||^2 / ||W||^2 per block and over "all"; 1 where W is zero."""
        return {block: 1.0 - share for block, share in self.off_manifold(matrices).items()}

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
    rows, columns, values, inverses = [], [], [], []
    known: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}
    for key, members in groups.items():
        chosen = tuple(basis.directions[i].element for i in members)
        readout = key[0] == READOUT
        if (readout, chosen) not in known:
            gram = products[readout][np.ix_(chosen, chosen)]
            known[readout, chosen] = gram, np.linalg.pinv(gram, hermitian=True)
        gram, inverse = known[readout, chosen]
        rows.append(np.repeat(members, len(members)))
        columns.append(np.tile(members, len(members)))
        values.append(gram.ravel())
        inverses.append(inverse.ravel())
    size = len(basis.directions)
    at = (np.concatenate([*rows, []]).astype(int), np.concatenate([*columns, []]).astype(int))
    return (
        csr_array((np.concatenate([*values, []]), at), shape=(size, size)),
        csr_array((np.concatenate([*inverses, []]), at), shape=(size, size)),
    )
