"""Sequences of a task up to renaming, with exact weights that follow the task's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from training.tasks.base import IGNORE, Batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """Sequences: tokens (states, time), answer at the last position and kind, each (states,)."""

    tokens: np.ndarray
    target: np.ndarray
    kind: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orbits:
    """Sequences up to renaming, each with its exact probability as a polynomial in the factors.

    tokens (S, T), target (S,), kind (S,): one representative of each orbit; positions (T,): one
    representative placement (block i on track i, offset 0), exact because placements are one
    orbit. weight_s = sum over monomials r with orbit_r = s of coefficient_r prod_f
    factor_f^exponents_rf.
    """

    tokens: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    positions: np.ndarray
    coefficient: np.ndarray
    exponents: np.ndarray
    orbit: np.ndarray
    factor_names: tuple[str, ...]
    factors: Callable[..., Mapping[str, Any]]
    parameters: Mapping[str, float]

    def __len__(self) -> int:
        return len(self.tokens)

    def weights(self, **parameters: Any) -> Any:
        """Probability of each orbit (S,); parameters not given stay where the task has them.

        A torch parameter gives a torch tensor, differentiable in it; floats give numpy.
        """
        unknown = set(parameters) - set(self.parameters)
        if unknown:
            raise ValueError(f"unknown parameters {sorted(unknown)}; has {sorted(self.parameters)}")
        values = self.factors(**{**self.parameters, **parameters})
        if any(isinstance(value, torch.Tensor) for value in values.values()):
            table = torch.stack(
                [torch.as_tensor(values[n], dtype=torch.float64) for n in self.factor_names]
            )
            monomials = torch.as_tensor(self.coefficient) * torch.prod(
                table ** torch.as_tensor(self.exponents), dim=1
            )
            return torch.zeros(len(self), dtype=torch.float64).index_add(
                0, torch.as_tensor(self.orbit), monomials
            )
        table = np.array([values[n] for n in self.factor_names], dtype=float)
        monomials = self.coefficient * np.prod(table**self.exponents, axis=1)
        return np.bincount(self.orbit, weights=monomials, minlength=len(self))

    def batch(self) -> Batch:
        """The representatives at the representative placement, as sequences for a model."""
        positions = np.broadcast_to(self.positions, self.tokens.shape)
        return as_batch(Laid(tokens=self.tokens, target=self.target, kind=self.kind), positions)


def as_batch(laid: Laid, positions: np.ndarray) -> Batch:
    """The sequences with positions (states, time), supervised at the last token."""
    targets = np.full(laid.tokens.shape, IGNORE)
    targets[:, -1] = laid.target
    return Batch(tokens=laid.tokens, positions=positions, targets=targets, kind=laid.kind)
