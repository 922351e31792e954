"""Which sequences effective matrices can run on."""

from __future__ import annotations

import numpy as np

from training.tasks.layouts import ABSENT


def check_sequences(
    tokens: np.ndarray, positions: np.ndarray, vocabulary: int, n_positions: int
) -> None:
    """ValueError for no sequence at all, tokens or positions beyond these sizes, and hidden tokens.

    A token at position -1 is hidden from the others (masked layouts). Matrices between tokens and
    positions have no row for that, and their attention knows no mask.
    """
    if not len(tokens):
        raise ValueError("sequences: the batch is empty; at least one sequence is needed")
    hidden = int((positions == ABSENT).sum())
    if hidden:
        raise ValueError(
            f"sequences: {hidden} of {positions.size} tokens are hidden (position {ABSENT}: padding"
            f" in the layouts aligned_masked and right_aligned_masked), and matrices hide "
            f"none; allowed: a layout without a mask"
        )
    for name, values, size in (
        ("tokens", tokens, vocabulary),
        ("positions", positions, n_positions),
    ):
        if values.min() < 0 or values.max() >= size:
            raise ValueError(
                f"sequences: {name} run from {values.min()} to {values.max()}; the basis has "
                f"0 to {size - 1}: take the basis of the task that made them"
            )
