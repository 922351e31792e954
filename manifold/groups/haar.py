"""Uniform orthogonal matrices."""

from __future__ import annotations

import numpy as np


def haar(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """(.., n, k): the first k columns of Haar orthogonal n x n matrices.

    QR of a Gaussian with the signs of R's diagonal made positive; without that the routine's own
    choice of signs is left in the columns, and products of two draws are not centred.
    """
    q, r = np.linalg.qr(rng.standard_normal(shape))
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
