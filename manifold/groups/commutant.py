"""The commutant of a group given as data: all matrices W with W rho_in(g) = rho_out(g) W."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

from manifold.groups.intertwiners import Intertwiners, intertwiners
from manifold.groups.orbitals import CommutantBasis, orbitals

ORTHOGONAL = 1e-11
"""Largest entry of R^T R - 1 that a generator may have."""


@overload
def commutant(
    generators: NDArray[np.integer], generators_out: NDArray[np.integer] | None = None
) -> CommutantBasis: ...
@overload
def commutant(
    generators: np.ndarray, generators_out: np.ndarray | None = None
) -> CommutantBasis | Intertwiners: ...
def commutant(
    generators: np.ndarray, generators_out: np.ndarray | None = None
) -> CommutantBasis | Intertwiners:
    """A basis of the space of intertwiners, from the group's generators; of any group size.

    generators: permutations as integers (g, n), row r sends point j to generators[r, j]; or
    orthogonal matrices (g, n, n), signed permutations among them. No rows: the trivial group.
    generators_out: the same group elements acting on the rows of the matrices, in either form;
    left out, they act as `generators` do. One element's two actions share a row number.

    Permutations on both sides give `CommutantBasis`, the 0/1 matrices of the orbitals, exact;
    otherwise `Intertwiners`, an orthonormal basis with its residual. Both have dim, [k],
    coordinates, project, norms, orthonormal() and residual.

    Any two lists of equal length are two actions of one group, so lists in different orders are
    not refused here and give few elements: `check_homomorphism` tells where the output's action
    should follow from the input's.

    ValueError naming the generator that is no permutation, or how far from orthogonal it is, and
    the sizes of lists that differ.
    """
    inner, outer = as_pair(generators, generators_out)
    if inner.ndim == outer.ndim == 2:
        return orbitals(inner, outer)
    return intertwiners(as_matrices(inner), None if outer is inner else as_matrices(outer))


def as_pair(
    generators: np.ndarray, generators_out: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Both actions as `as_action` gives them, of equally many elements; else ValueError."""
    inner = as_action("generators", generators)
    outer = inner if generators_out is None else as_action("generators_out", generators_out)
    if len(inner) != len(outer):
        raise ValueError(
            f"commutant: generators and generators_out must list the same elements, "
            f"got {len(inner)} of size {inner.shape[1]} and {len(outer)} of size {outer.shape[1]}"
        )
    return inner, outer


def as_action(name: str, generators: np.ndarray) -> np.ndarray:
    """Permutations (g, n) as int or orthogonal matrices (g, n, n) as float64; else ValueError."""
    array = np.asarray(generators)
    if array.ndim == 3 and array.shape[1] == array.shape[2] and array.dtype.kind in "iuf":
        return _orthogonal(name, array)
    if array.ndim == 2 and (array.dtype.kind in "iu" or array.size == 0):
        return _permutations(name, array)
    raise ValueError(
        f"commutant: {name} must be permutations as integers (g, n) or orthogonal matrices "
        f"(g, n, n), got {array.dtype} {array.shape}; a single matrix r goes in as r[None]"
    )


def as_matrices(action: np.ndarray) -> np.ndarray:
    """(g, n, n) of an action: a permutation's matrix has its 1s at (g[j], j)."""
    return action if action.ndim == 3 else np.eye(action.shape[1])[action].transpose(0, 2, 1)


def _permutations(name: str, array: np.ndarray) -> np.ndarray:
    array = array.astype(int)
    broken = (np.sort(array, axis=1) != np.arange(array.shape[1])).any(axis=1)
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        raise ValueError(
            f"commutant: {name}[{row}] must permute 0..{array.shape[1] - 1}, got {array[row]}"
        )
    return array


def _orthogonal(name: str, array: np.ndarray) -> np.ndarray:
    array = array.astype(float)
    for row, matrix in enumerate(array):
        off = np.abs(matrix.T @ matrix - np.eye(len(matrix))).max(initial=0.0)
        if not off <= ORTHOGONAL:
            raise ValueError(
                f"commutant: {name}[{row}] must be orthogonal, its R^T R is off the identity by "
                f"{off:.1e}, at most {ORTHOGONAL:.0e} is allowed; use float64, and a basis in "
                f"which the group acts by orthogonal matrices"
            )
    return array
