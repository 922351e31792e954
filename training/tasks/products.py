"""Running products in a group, and the symmetry of the tasks that ask for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.tasks.base import Symmetry

Compose = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(later, earlier) to their product, elementwise."""


def running_products(compose: Compose, inputs: np.ndarray) -> np.ndarray:
    """s_k = x_k * .. * x_1 at every k: (rows, n) int64 from inputs (rows, n)."""
    states = np.empty(inputs.shape, dtype=np.int64)
    states[:, 0] = inputs[:, 0]
    for k in range(1, inputs.shape[1]):
        states[:, k] = compose(inputs[:, k].astype(np.int64), states[:, k - 1])
    return states


def product_symmetry(automorphisms: np.ndarray, inverses: np.ndarray, n_positions: int) -> Symmetry:
    """Automorphisms (generators, q) act on the elements and fix the two tokens after them.

    inverses (q,). Directions: I, the identity of the elements; N, x -> 1/x; I_= and I_pad.
    Positions have no symmetry. Centring is within all tokens and within all positions, since an
    orbit of one token would vanish.
    """
    q = len(inverses)
    v = q + 2
    rows = automorphisms.astype(np.int64).reshape(-1, q)
    special = np.broadcast_to([q, q + 1], (len(rows), 2))
    eye = np.eye(v)
    negation = np.zeros((v, v))
    negation[inverses, np.arange(q)] = 1.0
    return Symmetry(
        token_generators=np.concatenate([rows, special], axis=1),
        position_generators=np.zeros((0, n_positions), dtype=np.int64),
        token_classes=(np.arange(v),),
        tracks=(np.arange(n_positions),),
        token_directions={
            "I": np.diag((np.arange(v) < q).astype(np.float64)),
            "N": negation,
            "I_=": np.diag(eye[q]),
            "I_pad": np.diag(eye[q + 1]),
        },
    )
