"""Coordinates along full-batch training with the run's own optimiser (theory, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from manifold.coordinates.basis import READOUT, Basis
from manifold.dynamics.field import ReducedField
from training.config import Optimiser
from training.optimiser import FlatOptimiser


def follow_optimiser(
    field: ReducedField,
    c0: np.ndarray,
    steps: Sequence[int] | np.ndarray,
    optimiser: Optimiser,
) -> np.ndarray:
    """States (step, dim) after these numbers of updates, from c0 at step 0.

    sgd: the flow at time step * lr / (1 - momentum), with the optimiser's weight decay: exact as
    lr goes to 0. adam, adamw: the updates themselves, each orbital with its own m and v, driven by
    (dL/dc) / (the orbital's size): full-batch Adam on the matrices, exactly, where the group
    permutes entries, so only in a one-hot frame. Rounding is not harmless there: in entries whose
    gradient vanishes by symmetry Adam divides it by its epsilon, 1e-8, and a full model in
    floating point leaves the manifold along them, step by step; this one cannot.

    ValueError for adam in a centred frame, and where coordinates are not the indicators of
    disjoint orbitals; and for steps that do not increase from 0 on.
    """
    steps = np.asarray(steps)
    whole = np.issubdtype(steps.dtype, np.integer)
    if steps.ndim != 1 or not len(steps) or not whole or steps[0] < 0 or (np.diff(steps) < 0).any():
        raise ValueError(
            f"steps got {steps.tolist()!r}; allowed: a list of integers that increases, from 0 on"
        )
    if optimiser.name == "sgd":
        clock = optimiser.lr / (1 - optimiser.momentum)
        return field.integrate(c0, steps * clock, optimiser.weight_decay)
    size = orbital_sizes(field.basis)
    state = torch.tensor(field._point(c0), dtype=torch.float64)
    rule = FlatOptimiser(
        rule=optimiser,
        lr=torch.full_like(state, optimiser.lr),
        weight_decay=torch.full_like(state, optimiser.weight_decay),
    )
    found, step = np.empty((len(steps), field.dim)), 0
    for i, until in enumerate(steps):
        while step < until:
            step += 1
            slope = field.gradient(state.numpy()) / size
            rule.update(state, torch.from_numpy(slope), step)
        found[i] = state.numpy()
    return found


def orbital_sizes(basis: Basis) -> np.ndarray:
    """Number of entries of each coordinate's orbital, (dim,).

    ValueError where elementwise rules are not exact on the coordinates: in a centred frame, and
    where elements are not indicators of disjoint sets of entries.
    """
    used = {
        readout: sorted({d.element for d in basis.directions if (d.block == READOUT) == readout})
        for readout in (False, True)
    }
    stacks = basis.elements[used[False]], basis.readouts[used[True]]
    reasons = []
    if not np.array_equal(basis.frame, np.eye(len(basis.frame))):
        reasons.append(f"the frame of {basis.family} centres tokens and positions")
    elif not all(np.isin(stack, (0.0, 1.0)).all() for stack in stacks):
        reasons.append("its elements are not indicators of sets of entries")
    elif any(len(stack) and stack.sum(0).max() > 1 for stack in stacks):
        reasons.append("its elements share entries")
    if reasons:
        raise ValueError(
            f"Adam is elementwise and so not exact on the coordinates of this basis: {reasons[0]}; "
            f"allowed: the invariant_basis of family 'transformer' (one-hot); for others use sgd, "
            f"whose flow is exact in every frame"
        )
    return np.diag(basis.gram)
