"""The commutant of a permutation action: orbits of the group on pairs of points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
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

    @property
    def residual(self) -> float:
        """Largest ||W rho_in(g) - rho_out(g) W||: exactly 0, labels are equal along generators."""
        return 0.0

    @property
    def norms(self) -> np.ndarray:
        """Frobenius norm of each element, (dim,)."""
        return np.sqrt(self.sizes)

    def __len__(self) -> int:
        return self.dim

    def __getitem__(self, k: int) -> np.ndarray:
        """Basis matrix k, (n_out, n_in), float64."""
        if not -self.dim <= k < self.dim:
            raise IndexError(f"commutant element {k} of {self.dim}")
        return (self.labels == k % self.dim).astype(float)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(self.dim))

    def orthonormal(self) -> np.ndarray:
        """All elements divided by their norms, (dim, n_out, n_in)."""
        return np.stack(list(self)) / self.norms[:, None, None]

    def coordinates(self, matrix: np.ndarray) -> np.ndarray:
        """Mean of each orbital's entries: the coefficients of the projection, (dim,)."""
        if matrix.shape != self.labels.shape:
            raise ValueError(f"commutant: a matrix {self.labels.shape} is needed, {matrix.shape}")
        return np.bincount(self.labels.ravel(), matrix.ravel(), self.dim) / self.sizes

    def project(self, matrix: np.ndarray) -> np.ndarray:
        """Frobenius-orthogonal projection, which is the average of g'^-1 W g over the group."""
        return self.coordinates(matrix)[self.labels]

    def _repr_html_(self) -> str:
        rows = {
            "commutant of": "permutations",
            "matrices": " x ".join(map(str, self.labels.shape)),
            "dimension": self.dim,
            "pairs in an orbital": f"{self.sizes.min()} to {self.sizes.max()}"
            if self.dim
            else "none",
            "residual": "0 (exact)",
        }
        return pd.Series(rows).to_frame().to_html(header=False)


def orbitals(inner: np.ndarray, outer: np.ndarray) -> CommutantBasis:
    """Connected components of pairs under the generators; exact, of any group size.

    inner (g, n_in), outer (g, n_out): valid permutations, row r of both from one group element.
    Links are gathered until there are as many as components, then merged: generators that move
    little share a merge, and one that joins nothing new costs a comparison.
    """
    n_out, n_in = outer.shape[1], inner.shape[1]
    labels = np.arange(n_out * n_in, dtype=np.int32).reshape(n_out, n_in)
    count, links = labels.size, []
    for r, (there, here) in enumerate(zip(outer, inner, strict=True), 1):
        images = labels.take(there, 0).take(here, 1)
        moved = images != labels
        links.append(np.stack([labels[moved], images[moved]]))
        joined = sum(part.shape[1] for part in links)
        if joined >= count or (joined and r == len(inner)):
            ends = np.concatenate(links, axis=1)
            graph = coo_array((np.ones(ends.shape[1], bool), tuple(ends)), shape=(count, count))
            count, merged = connected_components(graph, directed=False)
            labels, links = merged[labels], []
    _, first, found = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    labels = rank[found].reshape(n_out, n_in)
    sizes = np.bincount(labels.ravel())
    labels.flags.writeable = sizes.flags.writeable = False
    return CommutantBasis(labels=labels, sizes=sizes)
