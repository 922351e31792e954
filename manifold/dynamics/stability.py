"""The largest learning rate at which descent on the manifold is stable (theory, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from manifold.dynamics.field import ReducedField

DENSE = 24
"""Up to so many independent coordinates the whole Hessian is taken apart."""
TOLERANCE = 1e-6
"""Relative, of an eigenvalue by Lanczos."""
DEPENDENT = 1e-12
"""Relative to the largest: eigenvalues of the Gram matrix below it are dependent directions."""


def stable_rate(
    field: ReducedField, states: Sequence | np.ndarray, weight_decay: float = 0.0
) -> float:
    """2 / (the largest curvature over the states + weight_decay); inf where none is positive.

    A step W - rate (dL/dW + weight_decay W) magnifies a small deviation along an eigenvector of
    curvature h by 1 - rate (h + weight_decay): above this rate it grows while it changes sign at
    each step, whatever the flow does, and gradient descent on the full matrices does not follow
    the flow. It is a bound for plain SGD along the manifold: directions off it may be steeper,
    and momentum has another bound.

    states: (S, dim), or one (dim,), for example of `field.integrate`.
    """
    if not np.isfinite(weight_decay) or weight_decay < 0:
        raise ValueError(f"weight_decay is {weight_decay!r}; allowed: a finite number from 0 on")
    steepest = float(curvatures(field, states).max()) + weight_decay
    return 2.0 / steepest if steepest > 0 else float("inf")


def curvatures(field: ReducedField, states: Sequence | np.ndarray) -> np.ndarray:
    """The largest eigenvalue of Gram^(-1/2) Hessian Gram^(-1/2) at each state, (S,).

    That is of the Hessian in the full matrices, restricted to the manifold: the metric of W, not
    of c, so that the names' scale does not matter. By Lanczos on Hessian-vector products (to 1e-6)
    above 24 coordinates, each state from the eigenvector of the one before.

    states: (S, dim), or one (dim,). ValueError for another shape, none, or what is not finite.
    """
    points = np.atleast_2d(np.asarray(states, dtype=float))
    if points.ndim != 2 or not len(points) or points.shape[1] != field.dim:
        raise ValueError(
            f"states has shape {np.shape(states)}; allowed: (states, {field.dim}), at least one, "
            f"or ({field.dim},)"
        )
    if not np.isfinite(points).all():
        bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
        raise ValueError(f"states are not finite at {bad.tolist()}; leave these out")
    size, vectors = np.linalg.eigh(field.basis.gram)
    independent = size > DEPENDENT * size[-1]
    root = vectors[:, independent] / np.sqrt(size[independent])  # root root^T = Gram^+
    guess = np.random.default_rng(0).standard_normal(root.shape[1])
    found = np.empty(len(points))
    for i, point in enumerate(points):
        if root.shape[1] <= DENSE:
            found[i] = np.linalg.eigvalsh(root.T @ field.hessian(point) @ root)[-1]
        else:
            found[i], guess = _largest(field, point, root, guess)
    return found


def _largest(
    field: ReducedField, point: np.ndarray, root: np.ndarray, guess: np.ndarray
) -> tuple[float, np.ndarray]:
    """Largest eigenvalue of root^T H root, and where to begin at a state nearby."""
    size = root.shape[1]

    def product(v: np.ndarray) -> np.ndarray:
        return root.T @ field.hessian_product(point, root @ v.ravel())

    make: Any = LinearOperator  # scipy's own signatures are not those that it documents
    solve: Any = eigsh
    operator = make((size, size), matvec=product, dtype=float)
    start = guess + 0.1 * np.random.default_rng(1).standard_normal(size)
    values, vectors = solve(operator, k=1, which="LA", v0=start, tol=TOLERANCE)
    return float(values[0]), np.sqrt(size) * vectors[:, 0]
