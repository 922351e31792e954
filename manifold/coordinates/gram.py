"""The Gram matrix of a basis and its pseudo-inverse, sparse."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from manifold.coordinates.factored import READOUT

if TYPE_CHECKING:
    from manifold.coordinates.basis import Basis


def gram_and_inverse(basis: Basis) -> tuple[csr_array, csr_array]:
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
