"""Commutant elements by their structure: a block of equal entries and few others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Element:
    """B = left right^T + a sparse rest, (a, b); an orbital is 0/1 and needs few entries of both.

    left, right: vectors, or None. rows: those of the rest that are not empty; rest: these alone.
    """

    left: np.ndarray | None
    right: np.ndarray | None
    rows: np.ndarray
    rest: csr_array


def element(matrix: np.ndarray) -> Element:
    """The cheaper of B as it is and B less a block of its commonest entry."""
    left, right, rest = None, None, matrix
    row, column = matrix.any(1), matrix.any(0)
    if row.any():
        values, counts = np.unique(matrix[np.ix_(row, column)], return_counts=True)
        value = values[counts.argmax()]
        block = np.outer(value * row, column)
        if np.count_nonzero(matrix - block) < np.count_nonzero(matrix):
            left, right, rest = value * row, column.astype(float), matrix - block
    rows = np.flatnonzero(rest.any(1))
    return Element(left=left, right=right, rows=rows, rest=csr_array(rest[rows]))


def contract(elements: list[Element], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """<B_e, left_p right_q^T> for left (.., p, a, k) and right (.., q, b, k): (.., e, p, q)."""
    lead, (p, _, k), q = left.shape[:-3], left.shape[-3:], right.shape[-3]
    found = np.zeros((*lead, len(elements), p, q))
    columns = np.moveaxis(right, -2, 0)
    columns = columns.reshape(len(columns), -1)
    for index, one in enumerate(elements):
        table = found[..., index, :, :]
        if one.left is not None:
            table += (one.left @ left) @ (one.right @ right).mT
        if len(one.rows):
            moved = (one.rest @ columns).reshape(-1, *lead, q, k)
            moved = np.moveaxis(moved, 0, -2).reshape(*lead, q, -1)
            chosen = left[..., one.rows, :].reshape(*lead, p, -1)
            table += chosen @ moved.mT
    return found
