"""Tokens that no sequence holds: equal read-out rows are read once, with how many they are."""

from __future__ import annotations

import numpy as np

ALIKE = 12
"""Digits, relative to the largest entry, in which the rows of one class agree."""


def readout_classes(elements: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the seen tokens in their order, then one of each class of the others' rows.

    elements: (K, N, b), the read-out of every token on what the sequences hold. Tokens of one
    class have the same logit whatever the coefficients of the K elements, so that m of them enter
    the log-sum-exp as one logit plus log m.

    Returns (tokens (r,), one for each row; how many tokens each stands for (r,), 1 where seen).
    """
    others = np.setdiff1d(np.arange(elements.shape[1]), seen)
    rows = elements[:, others].swapaxes(0, 1).reshape(len(others), elements[:, 0].size)
    scale = np.abs(rows).max(initial=0.0) or 1.0
    digits = np.round(rows / scale, ALIKE) + 0.0  # -0 is 0
    _, first, count = np.unique(digits, axis=0, return_index=True, return_counts=True)
    return np.append(seen, others[first]), np.append(np.ones(len(seen)), count)
