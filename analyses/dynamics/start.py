"""Full matrices that start from given coordinates: a state of the reduced field, made flesh."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from manifold import invariant_basis
from training import AttentionOnly
from training.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAt(AttentionOnly):
    """attention_only whose weights are W = sum_i c_i B_i at the start, plus noise of `scale`.

    coordinates: c in the exact commutant of the task, in the order of its basis. scale: standard
    deviation of what is added to every entry, as attention_only draws it; 0 starts on the
    manifold. In a RunConfig by `module:attribute`.

    ValueError, before anything is trained, for coordinates that are not finite or not as many as
    the task's commutant has.
    """

    coordinates: tuple[float, ...]

    def __post_init__(self) -> None:
        AttentionOnly.__post_init__(self)
        wrong = [c for c in self.coordinates if not math.isfinite(c)]
        if wrong:
            raise ValueError(f"start: coordinates must be finite, got {wrong[:3]}")

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        basis = invariant_basis(task, "attention_only", self.layers, self.heads)
        if len(self.coordinates) != basis.dim:
            raise ValueError(
                f"start: {len(self.coordinates)} coordinates, but this task and shape have "
                f"{basis.dim}; give one for each name of invariant_basis(task, ..)"
            )
        matrices = basis.matrices(torch.tensor(self.coordinates, dtype=torch.float64).numpy())
        params = AttentionOnly.initialise(self, task, seed, dtype)
        named = {f"blocks.{i}.attn.W": f"W{i + 1}" for i in range(self.layers)}
        for name, block in {**named, "unembed.W": "Wbar"}.items():
            params[name] = params[name] + torch.from_numpy(matrices[block]).to(dtype)
        return params
