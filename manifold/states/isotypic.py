"""A finite group's functions split by its irreducible representations, from the products alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.tasks.base import generator
from training.tasks.products import Group

LARGEST = 720
"""Largest order of a group, that of S_6: what is drawn to compare with stays below 1 GB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Isotypic:
    """The regular representation over the reals, as a sum of its isotypic parts.

    A function on the group is split as f = sum_r f * e_r with (f * e)(g) = sum_h f(h) e(h^-1 g).
    A matrix that commutes with the left translations x -> g x is W[y, x] = f(x^-1 y), one that
    commutes with the right ones is W[y, x] = f(y x^-1): circulant matrices for Z_m, where both are
    the same; and splitting f splits W.

    names: "rho_0" .. "rho_(r-1)", in descending order of the normalised character at element 1,
        then 2, ..: rho_0 is the trivial one; for Z_m rho_j is frequency j (with m - j, its
        conjugate); for S_3 trivial, standard, sign; for S_k with k < 6 descending content.
    dimensions: (r,), of each part: d^2 for a representation of dimension d that is real, as all of
        S_k are; 2 d^2 for a pair of complex conjugates (Z_m: 2, or 1 at frequency 0 and m / 2).
    idempotents: (r, q), e_r, functions on the group; e_r(g) is the sum over the pair or the one of
        (d / q) times the character at g^-1.
    left, right: (q, q) integers [y, x], the elements x^-1 y and y x^-1.
    """

    names: tuple[str, ...]
    dimensions: np.ndarray
    idempotents: np.ndarray
    left: np.ndarray
    right: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.dimensions, self.idempotents, self.left, self.right):
            array.flags.writeable = False

    def coefficients(self, matrices: np.ndarray) -> np.ndarray:
        """(..., 2, q): f of the nearest matrices that commute with the left and right translations.

        matrices: (..., q, q), [y, x]. f(g) is the mean of the entries with x^-1 y = g, or
        y x^-1 = g: the coefficient of the translation by g.
        """
        q = len(self.left)
        flat = matrices.reshape(*matrices.shape[:-2], q * q)
        orders = [np.argsort(table.ravel(), kind="stable") for table in (self.left, self.right)]
        sides = [flat[..., order].reshape(*flat.shape[:-1], q, q).mean(-1) for order in orders]
        return np.stack(sides, axis=-2)

    def squares(self, coefficients: np.ndarray) -> np.ndarray:
        """(..., r): squared Frobenius norm of each part of the matrix that f (..., q) makes."""
        q = len(self.left)
        parts = [np.square(coefficients @ e[self.left.T]).sum(-1) for e in self.idempotents]
        return q * np.stack(parts, axis=-1)


def isotypic(group: Group) -> Isotypic:
    """The isotypic parts of a group, by diagonalising one generic element of its centre.

    The element is sum_c z_c (c + c^-1) over classes c with random z_c from a fixed seed; left
    multiplication by it is symmetric, and its eigenspaces are the parts. Raises ValueError for more
    than LARGEST elements, and where the products are no group's.
    """
    q = group.n_elements
    if q > LARGEST:
        raise ValueError(f"isotypic: {group.label} has {q} elements, allowed at most {LARGEST}")
    every = np.arange(q)
    products = np.asarray(group.compose(every[:, None], every[None]))
    inverse = np.asarray(group.inverse(every))
    if (products[every, inverse] != 0).any() or (np.sort(products, 1) != every).any():
        raise ValueError(f"isotypic: the products of {group.label} do not make a group with unit 0")
    conjugates = products[products, inverse[:, None]]  # [g, h] = g h g^-1
    classes = np.minimum(conjugates.min(0), conjugates[:, inverse].min(0))
    central = generator(q, *b"isotypic").standard_normal(q)[classes]
    left = products[inverse].T
    values, vectors = np.linalg.eigh(central[products[:, inverse]])
    scale = np.abs(central).sum()
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > 1e-10 * scale)
    found = [part @ part[0] for part in np.split(vectors, starts[1:], axis=1)]
    sizes = np.diff(starts, append=q)
    rounded = [tuple(np.round(-e / e[0], 6)) for e in found]
    order = sorted(range(len(found)), key=rounded.__getitem__)
    return Isotypic(
        names=tuple(f"rho_{r}" for r in range(len(order))),
        dimensions=sizes[order],
        idempotents=np.array(found)[order],
        left=left,
        right=products[:, inverse],
    )
