"""Hold a direction of training at a value, or shrink it, after each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.effective import gauge_projectors
from manifold.coordinates.invariant import invariant_basis
from training.families.attention_only import AttentionOnly
from training.families.base import Family
from training.tasks.base import Task


class Control:
    """control(params) after each update; stop calling it, and the directions are let go.

        control = Control(task, family, ["out:C I"])
        for step in ..:
            ...                 # one update of params
            control(params)     # W += sum_i (value - c_i) B_i, in place

    names: coordinates of `invariant_basis(task, family ..)`, or those of `basis`. value: what each
    is held at. shrink: instead, the factor by which each is multiplied, e.g. 0.99.

    Since c is linear in W and c_j(B_i) is 1 for j = i and else 0, all other coordinates and all
    that lies off the manifold stay as they are, to rounding of the parameters' own precision. The
    optimiser is not touched: momentum and Adam's moments remember the gradient along what is held.

    attention_only alone. A transformer's effective matrices are products of embeddings, heads and
    unembedding that every path shares: no change of its weights moves one coordinate alone, and
    holding it along the gradient of the lift is not exact; a transformer is refused.
    ValueError for other families, unknown names, and settings that make no sense.
    """

    def __init__(
        self,
        task: Task,
        family: Family,
        names: Sequence[str],
        *,
        value: float = 0.0,
        shrink: float | None = None,
        basis: Basis | None = None,
    ) -> None:
        if not isinstance(family, AttentionOnly):
            raise ValueError(
                f"control: {type(family).__name__} cannot be held: its effective matrices are "
                "products of weights that all paths share, so no change of weights moves one "
                "coordinate alone; allowed: AttentionOnly, whose matrices are its weights"
            )
        if isinstance(names, str) or not names:
            raise ValueError(
                f"control: names is {names!r}; a list of coordinates, e.g. ['out:C I']"
            )
        if not np.isfinite(value) or (shrink is not None and not 0 <= shrink <= 1):
            raise ValueError(
                f"control: value is {value} and shrink {shrink}; a finite number, and a factor "
                "from 0 to 1 or None"
            )
        if shrink is not None and value != 0.0:
            raise ValueError("control: value holds and shrink scales; give one of them")
        self.basis = basis or invariant_basis(task, "attention_only", family.layers, family.heads)
        unknown = [name for name in names if name not in self.basis.names]
        if unknown:
            raise ValueError(
                f"control: no coordinate {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(self.basis.names[:60])}"
            )
        self.names, self.value, self.shrink = tuple(dict.fromkeys(names)), value, shrink
        self._held = _directions(self.basis, self.names)

    def coordinates(self, params: Mapping[str, Tensor]) -> dict[str, float]:
        """The held coordinates as they are now."""
        found = {}
        for name, (_, duals, members) in self._held.items():
            c = torch.einsum("k...,...->k", duals, params[name].detach().to(duals))
            found.update(zip(members, c.tolist(), strict=True))
        return {name: found[name] for name in self.names}

    def __call__(self, params: Mapping[str, Tensor]) -> None:
        """Change the weights in place. ValueError where one is missing or of another size."""
        for name, (elements, duals, _) in self._held.items():
            weight = params.get(name)
            if weight is None or tuple(weight.shape) != tuple(elements.shape[1:]):
                has = "missing" if weight is None else f"of shape {tuple(weight.shape)}"
                raise ValueError(
                    f"control: {name} is {has}; needed {tuple(elements.shape[1:])}, the weights "
                    "of one attention_only model of this task"
                )
            with torch.no_grad():
                c = torch.einsum("k...,...->k", duals, weight.detach().to(duals))
                move = (self.value - c) if self.shrink is None else (self.shrink - 1.0) * c
                weight += torch.einsum("k,k...->...", move, elements).to(weight)


def _directions(
    basis: Basis, names: Sequence[str]
) -> dict[str, tuple[Tensor, Tensor, tuple[str, ...]]]:
    """By parameter: B_i, the duals D_i with c_i = <D_i, W>, (k, ..) each, float64, and names."""
    c = np.eye(basis.dim)
    at = {name: i for i, name in enumerate(basis.names)}
    gram = basis.gram
    if not np.allclose(basis.raise_index(gram), c, atol=1e-8):
        raise ValueError(
            "control: the directions of this basis depend on one another, so that none has a "
            "coordinate of its own; give the exact commutant, invariant_basis(task, ..)"
        )
    found: dict[str, Any] = {}
    for block in basis.blocks:
        members = tuple(name for name in names if basis[name][0].block == block)
        if not members:
            continue
        rows = [at[name] for name in members]
        left, right = gauge_projectors(basis, block)
        elements = basis.matrices(c[rows])[block]
        duals = left.T @ basis.matrices(basis.raise_index(c[rows]))[block] @ right.T
        parameter = "unembed.W" if block == READOUT else f"blocks.{int(block[1:]) - 1}.attn.W"
        sides: list[Tensor] = [torch.from_numpy(np.array(side)) for side in (elements, duals)]
        found[parameter] = (sides[0], sides[1], members)
    return found
