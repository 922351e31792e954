"""Is the invariant manifold left? The fastest growth rate of small deviations from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from manifold.coordinates.basis import Basis
from manifold.coordinates.effective import Matrices, effective_matrices, remove_gauge
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.run_basis import check_task
from manifold.symmetry.exact_law import exact_law
from manifold.symmetry.full_loss import check_matrices, curvature_product, flat, unflat
from training.families.attention_only import AttentionOnly
from training.run import Run
from training.tasks.base import Batch, Task, generator

CHUNK = 4096
"""Sequences whose graph is held at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransverseGrowth:
    """rate: the largest eigenvalue of -(1 - P) H (1 - P), per unit of gradient-flow time.

    error: an eigenvalue lies within so much of `rate`. direction: the deviation that grows so,
    of unit length over all matrices; shares: its squared norm by block.
    """

    rate: float
    error: float
    shares: Mapping[str, float]
    direction: Matrices


def transverse_growth(
    task: Task,
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    *,
    samples: int | None = 2000,
    seed: int = 0,
    tolerance: float = 1e-5,
    iterations: int = 150,
) -> TransverseGrowth:
    """How fast gradient flow magnifies the fastest small deviation from the span of `basis`.

    H: Hessian of the loss in the effective matrices, at `matrices`, on the manifold or not; P: the
    Frobenius-orthogonal projection on the span (theory, section 3). Positive: deviations grow as
    exp(rate t). Directions that no sequence can tell apart (gauge) are left out: they neither grow
    nor shrink. By Lanczos with full reorthogonalisation, until the residual is below `tolerance`
    or after `iterations` products; a float64 Hessian-vector product each, by differentiating twice.

    samples: held-out sequences; None, the exact law of a small task. A sample breaks the symmetry
    a little, so that its rate exceeds the population's by an amount that falls with `samples`.

    ValueError for matrices with NaN or of another size, and where nothing lies off the span.
    """
    check_task("transverse growth", task, basis)
    check_matrices(basis, matrices)
    if iterations < 1 or (samples is not None and samples < 1):
        raise ValueError(
            f"transverse growth: samples is {samples}, iterations {iterations}; at least 1 each "
            f"(samples may be None for the exact law)"
        )
    if samples is None:
        parts = list(exact_law(task).parts(CHUNK))
    else:
        batch = task.evaluation(seed, samples)
        starts = range(0, len(batch), CHUNK)
        cuts = [batch[start : start + CHUNK] for start in starts]
        parts = [(cut, np.full(len(cut), 1.0 / len(batch))) for cut in cuts]

    def off(vector: np.ndarray) -> np.ndarray:
        free = remove_gauge(basis, unflat(basis, vector))
        return flat(basis, free) - flat(basis, basis.matrices(basis.coordinates(free)))

    def product(vector: np.ndarray) -> np.ndarray:
        return -_curved(basis, matrices, unflat(basis, vector), parts)

    size = sum(int(np.prod(basis.shape(block))) for block in basis.blocks)
    start = off(generator(seed, *b"transverse").standard_normal(size))
    if np.linalg.norm(start) < 1e-9 * np.sqrt(size):
        raise ValueError("transverse growth: the basis spans all matrices, nothing lies off it")
    rate, vector, error = _largest(product, off, start, tolerance, iterations)
    direction = unflat(basis, vector)
    return TransverseGrowth(
        rate=rate,
        error=error,
        shares={block: float(np.sum(part**2)) for block, part in direction.items()},
        direction=direction,
    )


def growth_along(
    run: Run,
    *,
    steps: Sequence[int] | None = None,
    basis: Basis | None = None,
    samples: int | None = 2000,
    seed: int = 0,
) -> pd.Series:
    """The transverse growth rate at each kept step of an attention_only run, index step.

    Other families are refused: their flow is not that of the effective matrices.
    """
    family: Any = run.family
    if not isinstance(family, AttentionOnly):
        raise ValueError(
            f"growth along a run: {type(family).__name__} is not trained in its effective "
            f"matrices, so their curvature is not its growth; allowed: AttentionOnly"
        )
    if basis is None:
        basis = invariant_basis(run.task, layers=family.layers, heads=family.heads)
    chosen = run.steps if steps is None else steps
    rates = {
        step: transverse_growth(
            run.task, basis, effective_matrices(run[step]), samples=samples, seed=seed
        ).rate
        for step in chosen
    }
    return pd.Series(rates, name="transverse_growth", dtype=float).rename_axis("step")


def _curved(
    basis: Basis,
    matrices: Mapping[str, np.ndarray],
    direction: Matrices,
    parts: Sequence[tuple[Batch, np.ndarray]],
) -> np.ndarray:
    return np.sum(
        [
            flat(basis, curvature_product(basis, matrices, direction, batch, weights))
            for batch, weights in parts
        ],
        axis=0,
    )


def _largest(
    product: Callable[[np.ndarray], np.ndarray],
    project: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    tolerance: float,
    iterations: int,
) -> tuple[float, np.ndarray, float]:
    """Largest eigenvalue of a projected symmetric product on the Krylov space of `start`, its unit
    vector and the residual norm. Every vector is projected again once it is orthogonal to the
    others: what is left of a short one is rounding, which would enter the kernel, with its 0."""
    known = np.empty((iterations, len(start)))
    known[0] = start / np.linalg.norm(start)
    diagonal, beside = [], []
    value, vector, residual = 0.0, np.ones(1), np.inf
    for step in range(iterations):
        image = project(product(known[step]))
        diagonal.append(float(known[step] @ image))
        span = known[: step + 1]
        for _ in range(2):
            image = project(image - (span @ image) @ span)
        length = float(np.linalg.norm(image))
        if step % 5 == 4 or length < 1e-12 or step == iterations - 1:
            small = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
            values, vectors = np.linalg.eigh(small)
            value, vector = float(values[-1]), vectors[:, -1]
            residual = length * abs(float(vector[-1]))
            if residual < tolerance or length < 1e-12:
                break
        beside.append(length)
        known[step + 1] = image / length
    found = vector @ known[: len(vector)]
    return value, found / np.linalg.norm(found), residual
