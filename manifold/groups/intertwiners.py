"""The intertwiners of orthogonal actions: an orthonormal basis kept as factors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from manifold.groups.irreducible import Part, irreducible_parts
from training.tasks.base import generator

ATTEMPTS = 12
"""Generic elements are drawn again while their eigenvalues happen to lie close together."""
SETTLED, LARGEST = 2e-11, 1e-10
"""Residual below which no further attempt is made; residual that is refused."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intertwiners:
    """Orthonormal basis of the matrices with W rho_in(g) = rho_out(g) W.

    shape: (n_out, n_in). parts: the irreducible representations that both actions contain; their
    maps divided by sqrt(size) are the elements, made when asked for: memory is that of a few
    (n_out, n_in) matrices whatever the dimension.
    residual: no element has ||W rho_in(g) - rho_out(g) W|| (Frobenius, ||W|| = 1) above this, for
    any generator g.
    """

    shape: tuple[int, int]
    parts: tuple[Part, ...]
    residual: float

    @property
    def dim(self) -> int:
        return sum(part.dim for part in self.parts)

    @property
    def norms(self) -> np.ndarray:
        """Frobenius norm of each element, (dim,): 1."""
        return np.ones(self.dim)

    def __len__(self) -> int:
        return self.dim

    def __getitem__(self, k: int) -> np.ndarray:
        """Basis matrix k, (n_out, n_in), float64."""
        if not -self.dim <= k < self.dim:
            raise IndexError(f"commutant element {k} of {self.dim}")
        ends = np.cumsum([part.dim for part in self.parts])
        at = int(np.searchsorted(ends, k % self.dim, "right"))
        part = self.parts[at]
        i, j = divmod(k % self.dim - int(ends[at]) + part.dim, part.right.shape[2])
        return part.left[:, :, i] @ part.right[:, :, j].T / np.sqrt(part.size)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(self.dim))

    def orthonormal(self) -> np.ndarray:
        """All elements, (dim, n_out, n_in)."""
        return np.array(list(self)).reshape(self.dim, *self.shape)

    def coordinates(self, matrix: np.ndarray) -> np.ndarray:
        """<B_k, W>, (dim,): the coefficients of the projection."""
        if matrix.shape != self.shape:
            raise ValueError(f"commutant: a matrix {self.shape} is needed, {matrix.shape}")
        found = [np.empty(0)]
        for part in self.parts:
            moved = np.tensordot(matrix, part.right, 1)
            table = np.tensordot(part.left, moved, ((0, 1), (0, 1)))
            found.append(table.ravel() / np.sqrt(part.size))
        return np.concatenate(found)

    def project(self, matrix: np.ndarray) -> np.ndarray:
        """Frobenius-orthogonal projection, which is the average of g'^-1 W g over the group."""
        c, nearest = self.coordinates(matrix), np.zeros(self.shape)
        for part in self.parts:
            own, c = np.split(c, [part.dim])
            table = own.reshape(part.left.shape[2], part.right.shape[2]) / np.sqrt(part.size)
            nearest += np.tensordot(part.left @ table, part.right, ((1, 2), (1, 2)))
        return nearest

    def _repr_html_(self) -> str:
        shown = [f"{p.size}: {p.copies[0]}, {p.copies[1]}" for p in self.parts[:8]]
        more = [f"and {len(self.parts) - 8} more"] * (len(self.parts) > 8)
        rows = {
            "commutant of": "orthogonal matrices",
            "matrices": " x ".join(map(str, self.shape)),
            "dimension": self.dim,
            "irreducible parts (size: copies in, out)": "; ".join(shown + more) or "none shared",
            "residual": f"{self.residual:.1e}",
        }
        return pd.Series(rows).to_frame().to_html(header=False)


def intertwiners(inner: np.ndarray, outer: np.ndarray | None = None) -> Intertwiners:
    """The orthonormal basis for orthogonal inner (g, n_in, n_in) and outer (g, n_out, n_out).

    Row r of both is one group element; outer left out is inner. Infinite groups too: nothing is
    enumerated. A few eigendecompositions, so n^3 in time and n^2 in memory (and the generators),
    whatever the dimension. Never too few elements (`irreducible_parts`), and none that does not
    commute: each is bounded against every generator.

    ValueError where no attempt commutes to 1e-10: parts that differ by less than rounding lets
    one see, such as a plane turned by 1e-6 beside one at rest.
    """
    actions = (inner,) if outer is None else (inner, outer)
    shape = actions[-1].shape[1], inner.shape[1]
    best, least = None, np.inf
    for attempt in range(ATTEMPTS):
        parts = irreducible_parts(actions, generator(attempt, *b"intertwiners"))
        residual = np.inf if parts is None else _residual(parts, inner, actions[-1])
        if residual < least:
            best, least = parts, residual
        if least < SETTLED:
            break
    if best is None or least > LARGEST:
        raise ValueError(
            f"commutant: no basis of {shape} matrices commutes with the generators to "
            f"{LARGEST:.0e}, the best to {least:.1e}; they may be close to a larger symmetry (a "
            f"plane turned by a tiny angle) or not orthogonal to rounding; give exact angles"
        )
    for part in best:
        part.left.flags.writeable = part.right.flags.writeable = False
    return Intertwiners(shape=shape, parts=best, residual=float(least))


def _residual(parts: Sequence[Part], inner: np.ndarray, outer: np.ndarray) -> float:
    """A bound on ||W rho_in - rho_out W|| over all elements and generators.

    With D the irreducible's own matrix of a generator, R F = F D + N on a copy F of the input and
    R' G = G D + N' on one of the output, the element G F^T / sqrt(size) is off by at most
    (||N|| + ||N'||) / sqrt(size), since F and G are orthonormal.
    """
    largest = 0.0
    for part in parts:
        moved = np.tensordot(inner, part.right, 1)
        own = np.tensordot(moved, part.right, ((1, 3), (0, 2))) / part.right.shape[2]
        off = _off(moved, part.right, own) + _off(np.tensordot(outer, part.left, 1), part.left, own)
        largest = max(largest, off.max(initial=0.0) / np.sqrt(part.size))
    return float(largest)


def _off(moved: np.ndarray, frame: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Largest norm over copies of R F - F D, (g,); moved (g, n, s, j) = R F, own (g, s, r) = D."""
    off = moved.transpose(0, 2, 1, 3) - np.tensordot(own, frame, (2, 1))
    return np.sqrt((off**2).sum((1, 2)).max(1))
