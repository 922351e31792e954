"""Named directions of every effective matrix, and the maps between matrices and coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import prod
from typing import Any

import numpy as np
from einops import rearrange
from scipy.sparse import csr_array

from manifold.coordinates.elements import element
from manifold.coordinates.factored import LARGEST, READOUT, Factored
from manifold.coordinates.gram import gram_and_inverse
from manifold.coordinates.placement import Placement, placement
from manifold.coordinates.shares import check_finite, ratio
from training.families.attention_only import paths

Source = Mapping[str, np.ndarray] | Factored
"""Effective matrices, written out by block or as factors."""
SHOWN = 24
"""Directions of a block that a notebook shows."""


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
    transformer as a `Factored` too (`manifold.lift(..).factored`), of any size; what comes out
    then has its leading axes first. From factors a share off the manifold is a difference of norms
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
    _placement: Placement = field(init=False, repr=False)
    _gram: csr_array = field(init=False, repr=False)
    _inverse: csr_array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        gram, inverse = gram_and_inverse(self)
        structure = {
            readout: [element(matrix) for matrix in stack]
            for readout, stack in ((False, self.elements), (True, self.readouts))
        }
        for name, value in (
            ("_index", {name: i for i, name in enumerate(self.names)}),
            ("_placement", placement(self.blocks, self.directions, structure)),
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
            self._check_factors(matrices)
            return self._placement.inner(matrices)
        products = np.zeros(self.dim)
        for block in self.blocks:
            split = self._split(block, matrices)
            stack = self.readouts if block == READOUT else self.elements
            table = np.einsum("hpaqb,eab->hpqe", split, stack, optimize=True)
            at, *index = self._placement.where[block]
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
        """W = sum_i c_i B_i, per block, written out; c (.., dim), what comes out (.., as `shape`).

        ValueError where a block has more than 2^27 entries.
        """
        c = np.asarray(c, float)
        if c.shape[-1:] != (self.dim,):
            raise ValueError(f"basis: {self.dim} coordinates are needed, got an array {c.shape}")
        lead, found = c.shape[:-1], {}
        for block in self.blocks:
            entries = prod((*lead, *self.shape(block)))
            if entries > LARGEST:
                raise ValueError(
                    f"basis: {block} of shape {(*lead, *self.shape(block))} would have {entries} "
                    f"entries, allowed {LARGEST}; a model of this size is not written out"
                )
            stack = self.readouts if block == READOUT else self.elements
            count = len(self.paths(block))
            heads, queries = (1, 1) if block == READOUT else (self.heads, count)
            table = np.zeros((*lead, heads, queries, count, len(stack)))
            at, *index = self._placement.where[block]
            table[..., *index] = c[..., at]
            split = np.einsum("...hpqe,eab->...hpaqb", table, stack, optimize=True)
            joined = split.reshape(*lead, heads, -1, split.shape[-2] * split.shape[-1])
            found[block] = joined[..., 0, :, :] if block == READOUT else joined
        return found

    def off_manifold(self, matrices: Source) -> dict[str, Any]:
        """||W - P W||^2 / ||W||^2 per block and over "all" of them; 0 where W is zero.

        P is the Frobenius-orthogonal projection on the span. Taken from the difference, so that
        shares far below rounding of 1 are meaningful. ValueError naming a matrix whose norm is NaN
        or infinite, here as in `captured` and `left_out`.
        """
        if isinstance(matrices, Factored):
            return self.share_off(matrices, self.inner(matrices))
        nearest = self.matrices(self.coordinates(matrices))
        norms = {b: float(np.sum(matrices[b] ** 2)) for b in self.blocks}
        check_finite("basis", norms)
        rests = {b: float(np.sum((matrices[b] - nearest[b]) ** 2)) for b in self.blocks}
        norms["all"], rests["all"] = sum(norms.values()), sum(rests.values())
        return {b: float(ratio(rests[b], norms[b])) for b in norms}

    def share_off(self, matrices: Factored, inner: np.ndarray) -> dict[str, np.ndarray]:
        """`off_manifold` of factors whose `inner` products are known already, (..) each."""
        norms = matrices.norms()
        check_finite("basis", norms)
        c = self.raise_index(inner)
        rests = {}
        for block in self.blocks:
            at = self._placement.where[block][0]
            rest = norms[block] - np.sum(c[..., at] * inner[..., at], axis=-1)
            rests[block] = np.maximum(rest, 0.0)
        norms["all"] = np.sum(list(norms.values()), axis=0)
        rests["all"] = np.sum(list(rests.values()), axis=0)
        return {b: ratio(rests[b], norms[b]) for b in norms}

    def captured(self, matrices: Source) -> dict[str, Any]:
        """||P W||^2 / ||W||^2 per block and over "all"; 1 where W is zero."""
        return {block: 1.0 - share for block, share in self.off_manifold(matrices).items()}

    def trace(self, block: str, table: np.ndarray) -> float:
        """sum over the block's directions of Gram^+_ij table[element of i, element of j]."""
        at, *_, one = self._placement.where[block]
        inverse = self._inverse[at][:, at].tocoo()
        return float(np.sum(inverse.data * table[one[inverse.row], one[inverse.col]]))

    def left_out(self, matrices: Source) -> dict[str, Any]:
        """Per block and over "all", the share of ||W||^2 on path blocks without any direction."""
        if isinstance(matrices, Factored):
            self._check_factors(matrices)
            norms, kept = matrices.norms(), self._placement.norms(matrices)
        else:
            norms, kept = {}, {}
            for block in self.blocks:
                split = np.sum(self._split(block, matrices) ** 2, axis=(2, 4))
                norms[block] = split.sum()
                kept[block] = split[tuple(self._placement.pairs(block))].sum()
        check_finite("basis", norms)
        norms["all"] = np.sum(list(norms.values()), axis=0)
        kept["all"] = np.sum(list(kept.values()), axis=0)
        return {b: ratio(np.maximum(norms[b] - kept[b], 0.0), norms[b]) for b in norms}

    @property
    def complete(self) -> bool:
        """Whether every path block has a direction, so that nothing is left out."""
        paths = {block: len(self.paths(block)) for block in self.blocks}
        return all(
            self._placement.pairs(block).shape[1]
            == (paths[block] if block == READOUT else self.heads * paths[block] ** 2)
            for block in self.blocks
        )

    def _check_factors(self, matrices: Factored) -> None:
        sizes = {block: matrices.shape(block) for block in matrices.blocks}
        wanted = {block: self.shape(block) for block in self.blocks}
        if sizes != wanted or self.family != "transformer":
            raise ValueError(
                f"basis: factors of a transformer with blocks {wanted} are needed (this basis is "
                f"in the {self.family} frame), got {sizes}"
            )

    def __repr__(self) -> str:
        return (
            f"Basis({self.dim} coordinates, {self.family}, layers={self.layers}, "
            f"heads={self.heads})"
        )

    def _repr_html_(self) -> str:
        """Names and squared norms by block, few of many, and the group."""
        diagonal = self._gram.diagonal()
        rows = []
        for block in self.blocks:
            at = self._placement.where[block][0]
            shown = ", ".join(
                f"{escape(self.names[i])} <small>{diagonal[i]:.3g}</small>" for i in at[:SHOWN]
            )
            more = f", .. {len(at) - SHOWN} more" if len(at) > SHOWN else ""
            rows.append(
                f"<tr><th>{block}</th><td>{len(at)}</td><td style='text-align:left'>"
                f"{shown}{more}</td></tr>"
            )
        group = f"<br>{escape(self.group)}" if self.group else ""
        return (
            f"<p><b>Basis</b> of {self.dim} coordinates, {self.family}, {self.layers} layers, "
            f"{self.heads} heads{group}</p><table><tr><th>matrix</th><th>count</th>"
            f"<th style='text-align:left'>direction <small>squared norm</small></th></tr>"
            f"{''.join(rows)}</table>"
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
