"""Is a basis of this task, of these runs? The one basis that several runs are read in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manifold.coordinates.basis import Basis
from manifold.coordinates.effective import frame_of
from manifold.coordinates.invariant import frame_projector, invariant_basis
from manifold.coordinates.sequences import check_sequences
from manifold.groups.generators import generators
from training.run import Run
from training.tasks.base import Task

SEQUENCES = 512
"""Held-out sequences that runs are looked at on."""
COMMUTES = 1e-9
"""Largest entry by which an element of a given basis may change under a generator."""


def basis_of(runs: Sequence[Run], basis: Basis | None, order: int | None) -> Basis:
    """The basis given, or else the runs' exact commutant.

    ValueError unless it is of every run's frame, sizes and symmetry, all have the same kinds of
    sequences, and no token is hidden.
    """
    basis = _shared_basis(runs, order) if basis is None else basis
    for run in runs:
        _check_basis(run, basis)
        held_out = run.task.evaluation(0, SEQUENCES)
        check_sequences(held_out.tokens, held_out.positions, basis.vocabulary, basis.n_positions)
        if run.task.kinds != runs[0].task.kinds:
            raise ValueError(
                f"project: run {run.run_id} has kinds {', '.join(run.task.kinds)} and run "
                f"{runs[0].run_id} {', '.join(runs[0].task.kinds)}; project them apart"
            )
    return basis


def check_task(who: str, task: Task, basis: Basis) -> None:
    """ValueError, in the name of `who`, unless the basis has as many tokens and positions."""
    sizes = {
        "vocabulary": (basis.vocabulary, task.vocabulary),
        "positions": (basis.n_positions, task.n_positions),
    }
    wrong = [
        f"{name} {has}, the task {needs}" for name, (has, needs) in sizes.items() if has != needs
    ]
    if wrong:
        raise ValueError(
            f"{who}: the basis is not of this task, it has {'; '.join(wrong)}; give "
            f"invariant_basis(task, ..)"
        )


def _check_basis(run: Run, basis: Basis) -> None:
    """ValueError unless the basis is of the run's frame, sizes and symmetry."""
    family: Any = run.family
    frame = frame_of(family)
    wanted = {
        "family": (basis.family, frame),
        "layers": (basis.layers, family.layers),
        "heads": (basis.heads, family.heads),
        "vocabulary": (basis.vocabulary, run.task.vocabulary),
        "positions": (basis.n_positions, run.task.n_positions),
    }
    wrong = [
        f"{name} {has!r}, the run {needs!r}"
        for name, (has, needs) in wanted.items()
        if has != needs
    ]
    if wrong:
        raise ValueError(
            f"project: run {run.run_id} is not of this basis, which has {'; '.join(wrong)}; "
            f"give invariant_basis(run.task, ..) of its family, layers and heads"
        )
    if not np.allclose(basis.frame, frame_projector(run.task, frame), rtol=0, atol=COMMUTES):
        raise ValueError(
            f"project: the task of run {run.run_id} embeds with other classes or tracks than the "
            f"basis' frame; give a basis of the run's own task"
        )
    for g in generators(run.task):
        for names, stack in (
            (basis.element_names, basis.elements),
            (basis.readout_names, basis.readouts),
        ):
            moved = stack[:, g[: stack.shape[1]]][:, :, g]
            off = np.abs(moved - stack).max((1, 2), initial=0)
            if off.max(initial=0) > COMMUTES:
                raise ValueError(
                    f"project: element {names[off.argmax()]!r} of the basis does not commute with "
                    f"the symmetry of the task of run {run.run_id} (off by {off.max():.2g}); give "
                    f"a basis of the run's own task"
                )


def _shared_basis(runs: Sequence[Run], order: int | None) -> Basis:
    """The exact commutant, if it is the same for all."""
    bases: list[Basis] = []
    for run in runs:
        family: Any = run.family
        frame = frame_of(family)
        bases.append(invariant_basis(run.task, frame, family.layers, family.heads, order))
        if bases[-1].names != bases[0].names or not np.array_equal(
            bases[-1].elements, bases[0].elements
        ):
            raise ValueError(
                f"project: runs {runs[0].run_id} and {run.run_id} do not share a basis (their "
                f"tasks' symmetry, family, layers and heads must agree); project them apart"
            )
    return bases[0]
