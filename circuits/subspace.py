"""Subspace circuits: the smallest subspace of the final state that carries the answer."""

from __future__ import annotations

import torch
from torch import Tensor

from circuits.contrast import Contrast
from probes import run_with_state
from training.families.base import Family, Params


def principal_directions(pair: Contrast) -> Tensor:
    """Right singular vectors (width, width) of the clean-minus-corrupt states, as columns."""
    difference = pair.clean_state - pair.corrupt_state
    return torch.linalg.svd(difference, full_matrices=True).Vh.mT


def kept(family: Family, params: Params, pair: Contrast, subspace: Tensor) -> Tensor:
    """Faithfulness per pair (batch,) when only `subspace` (width, size) of the state is clean.

    Everything outside it is the corrupted run's (theory, section 8).
    """
    difference = (pair.clean_state - pair.corrupt_state) @ subspace @ subspace.mT
    state = pair.corrupt_state + difference
    return pair.faithfulness(run_with_state(family, params, pair.pair.corrupt, pair.site, state))


def smallest_subspace(
    family: Family, params: Params, pair: Contrast, faithfulness: float
) -> Tensor:
    """The first principal directions, as few as reach `faithfulness` on `pair`: (width, size).

    The whole state always does: keeping all of it is the clean state at the only site read.
    """
    directions = principal_directions(pair)
    width = directions.shape[1]
    for size in range(1, width):
        if kept(family, params, pair, directions[:, :size]).mean() >= faithfulness:
            return directions[:, :size]
    return directions


def random_subspace(width: int, size: int, generator: torch.Generator, dtype) -> Tensor:
    """A uniformly random subspace (width, size) with orthonormal columns."""
    return torch.linalg.qr(torch.randn(width, size, generator=generator, dtype=dtype)).Q
