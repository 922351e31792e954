"""The rows of the first layer's scores, each different one once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.tasks.program import merge


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstRows:
    """Scores of layer 1 depend on a place's own token and those before it: few rows differ.

    grams: (K, T, R), x_i^T B x_j for j down, one column for each different
    (i, x_i^T B x_0 .. x_i^T B x_i); future: (T, R), where j > i; row: (T, s), which column place i
    of each sequence has.
    """

    grams: Tensor
    future: Tensor
    row: Tensor


def first_rows(elements: np.ndarray, tokens: np.ndarray) -> FirstRows:
    """elements: (K, n + T, n + T) on n tokens and T places; tokens: (s, T) in range(n)."""
    time = tokens.shape[1]
    seen = elements.shape[1] - time
    left, right = tokens[:, :, None], tokens[:, None, :]
    row, column = np.ogrid[:time, :time]
    row, column = seen + row, seen + column

    def gram(matrix: np.ndarray) -> np.ndarray:
        by_place = matrix[left, column] + matrix[row, right] + matrix[row, column]
        return (matrix[left, right] + by_place).reshape(-1, time)

    mixed = gram(np.tensordot(np.random.default_rng(0).random(len(elements)), elements, 1))
    place = np.arange(len(mixed)) % time
    past = np.tril(np.ones((time, time), dtype=bool))[place]
    _, alike = np.unique(np.round(mixed, 9), return_inverse=True)
    keys = np.where(past, alike.reshape(mixed.shape) + 1, 0)
    first, group = merge(np.column_stack([place, keys]))
    grams = np.array([gram(matrix)[first].T for matrix in elements])
    grams = grams.reshape(len(elements), time, len(first))  # of no elements too
    return FirstRows(
        grams=torch.from_numpy(np.ascontiguousarray(grams)),
        future=torch.from_numpy(np.ascontiguousarray(~past[first].T)),
        row=torch.from_numpy(np.ascontiguousarray(group.reshape(tokens.shape).T)),
    )
