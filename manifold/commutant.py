"""The commutant of a permutation action: all matrices W with W g = g' W for every generator g."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommutantBasis:
    """The 0/1 matrices of the orbitals: orbits of the group on pairs (out point, in point).

    They are orthogonal, and span exactly the matrices with W[g' i, g j] = W[i, j].

    labels: (n_out, n_in) integers, the orbital of each pair, numbered by first appearance.
    sizes: (dim,) number of pairs in each orbital, which is its squared Frobenius norm.
    """

    labels: np.ndarray
    sizes: np.ndarray

    @property
    def dim(self) -> int:
        return len(self.sizes)

    def __len__(self) -> int:
        return self.dim

    def __getitem__(self, k: int) -> np.ndarray:
        """Basis matrix k, (n_out, n_in), float64."""
        if not -self.dim <= k < self.dim:
            raise IndexError(f"commutant element {k} of {self.dim}")
        return (self.labels == k % self.dim).astype(float)

    def coordinates(self, matrix: np.ndarray) -> np.ndarray:
        """Mean of each orbital's entries: the coefficients of the projection, (dim,)."""
        if matrix.shape != self.labels.shape:
            raise ValueError(f"commutant: a matrix {self.labels.shape} is needed, {matrix.shape}")
        return np.bincount(self.labels.ravel(), matrix.ravel(), self.dim) / self.sizes

    def project(self, matrix: np.ndarray) -> np.ndarray:
        """Frobenius-orthogonal projection, which is the average of g'^-1 W g over the group."""
        return self.coordinates(matrix)[self.labels]


def commutant(generators: np.ndarray, generators_out: np.ndarray | None = None) -> CommutantBasis:
    """Orbitals by connected components of pairs under the generators; exact, of any group size.

    generators: (g, n) integers; row r sends point j to generators[r, j]. No rows: the trivial
    group. generators_out: (g, n_out), the same group elements acting on the rows of the matrices;
    left out, they act as `generators` do. One generator's two actions share a row number.

    Only permutations: a matrix action is refused with ValueError.
    """
    inner = _permutations("generators", generators)
    outer = inner if generators_out is None else _permutations("generators_out", generators_out)
    if len(inner) != len(outer):
        raise ValueError(
            f"commutant: generators and generators_out must list the same elements, "
            f"got {len(inner)} and {len(outer)}"
        )
    n_out, n_in = outer.shape[1], inner.shape[1]
    pairs = np.arange(n_out * n_in)
    images = (outer[:, :, None] * n_in + inner[:, None, :]).reshape(len(inner), len(pairs))
    links = (np.ones(images.size, bool), (np.tile(pairs, len(inner)), images.ravel()))
    _, found = connected_components(coo_array(links, shape=(len(pairs), len(pairs))), False)
    _, first, labels = np.unique(found, return_index=True, return_inverse=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    labels = rank[labels].reshape(n_out, n_in)
    sizes = np.bincount(labels.ravel())
    labels.flags.writeable = sizes.flags.writeable = False
    return CommutantBasis(labels=labels, sizes=sizes)


def _permutations(name: str, generators: np.ndarray) -> np.ndarray:
    array = np.asarray(generators)
    if array.ndim != 2 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise ValueError(
            f"commutant: {name} must be permutations as integers (g, n), got {array.dtype} "
            f"{array.shape}; write a permutation matrix g as the column of the 1 in each row"
        )
    array = array.astype(int)
    broken = (np.sort(array, axis=1) != np.arange(array.shape[1])).any(axis=1)
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        raise ValueError(
            f"commutant: {name}[{row}] must permute 0..{array.shape[1] - 1}, got {array[row]}"
        )
    return array
