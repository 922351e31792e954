"""Gradient confinement: on the invariant manifold the population gradient does not leave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.effective import Matrices
from manifold.coordinates.invariant import invariant_basis, paper_basis
from manifold.coordinates.run_basis import check_task
from manifold.symmetry.exact_law import LIMIT, ExactLaw, exact_law
from manifold.symmetry.full_loss import loss_gradient
from training.tasks.base import Task, generator


def gradient_confinement(
    task: Task,
    *,
    layers: int = 2,
    heads: int = 1,
    batch_sizes: Sequence[int] = (1_000, 10_000, 100_000),
    bases: Mapping[str, Basis] | None = None,
    on_manifold: bool = True,
    scale: float = 0.5,
    seed: int = 0,
    repeats: int = 1,
) -> pd.DataFrame:
    """Off-manifold share ||(1 - P) g||^2 / ||g||^2 of the gradient of attention_only, by batch.

    P: Frobenius-orthogonal projection on a basis' span (theory, section 3). Where a basis is
    closed, the share is sampling noise and falls as 1 / batch; where not, it stalls.

    bases: by name; left out, "exact_commutant" and "paper". on_manifold: each basis is tested at a
    random point of its own span, coordinates normal with standard deviation `scale`; otherwise all
    are tested at one point whose matrix entries are normal with that deviation.
    repeats: independent batches of the largest size. Smaller batches are cut from the same
    sequences, so that every size uses all of them.

    Returns rows basis, batch, matrix (W1, .., Wbar, "all"), share (mean over batches), batches.
    """
    sizes = sorted(batch_sizes)
    if repeats < 1 or (sizes and sizes[0] < 1):
        raise ValueError(f"batch_sizes {tuple(batch_sizes)} and repeats {repeats}: at least 1 each")
    if not sizes or any(size % sizes[0] for size in sizes) or any(sizes[-1] % s for s in sizes):
        raise ValueError(
            f"batch_sizes: each must be a multiple of the smallest and divide the largest, "
            f"got {tuple(batch_sizes)}; powers of ten do"
        )
    bases = _bases(task, layers, heads) if bases is None else bases
    for basis in bases.values():
        check_task("confinement", task, basis)
    rows, chunks = [], None
    for name, basis in bases.items():
        if on_manifold or chunks is None:
            point = random_point(basis, on_manifold=on_manifold, scale=scale, seed=seed)
            chunks = _chunks(task, basis, point, seed, sizes[0], repeats * sizes[-1] // sizes[0])
        for size in sizes:
            shares = [basis.off_manifold(g) for g in _means(chunks, size // sizes[0])]
            rows += [
                {
                    "basis": name,
                    "batch": size,
                    "matrix": matrix,
                    "share": float(np.mean([share[matrix] for share in shares])),
                    "batches": len(shares),
                }
                for matrix in (*basis.blocks, "all")
            ]
    return pd.DataFrame(rows)


def exact_confinement(
    task: Task,
    *,
    layers: int = 2,
    heads: int = 1,
    bases: Mapping[str, Basis] | None = None,
    on_manifold: bool = True,
    scale: float = 0.5,
    seed: int = 0,
    limit: int = LIMIT,
) -> pd.DataFrame:
    """Off-manifold share of the population gradient, as `gradient_confinement`, without sampling.

    Every sequence at every placement, weighted by its probability and never averaged over the
    group, so that a task whose law breaks its declared symmetry is not hidden. Rounding leaves
    about 1e-28 where a basis is closed. Cost: outcomes (at most `limit`) times the full model.

    Returns rows basis, matrix (W1, .., Wbar, "all"), share, outcomes.
    """
    law = exact_law(task, limit)
    bases = _bases(task, layers, heads) if bases is None else bases
    for basis in bases.values():
        check_task("confinement", task, basis)
    rows = []
    for name, basis in bases.items():
        gradient = law_gradient(
            law, basis, random_point(basis, on_manifold=on_manifold, scale=scale, seed=seed)
        )
        rows += [
            {"basis": name, "matrix": matrix, "share": share, "outcomes": len(law)}
            for matrix, share in basis.off_manifold(gradient).items()
        ]
    return pd.DataFrame(rows)


def law_gradient(law: ExactLaw, basis: Basis, matrices: Mapping[str, np.ndarray]) -> Matrices:
    """dL/dW of the population's loss, summed over every outcome of the law."""
    total = {block: np.zeros(basis.shape(block)) for block in basis.blocks}
    for batch, weights in law.parts():
        for block, part in loss_gradient(basis, matrices, batch, weights).items():
            total[block] += part
    return total


def confinement_slopes(table: pd.DataFrame) -> pd.Series:
    """Slope of log(off / on) against log batch, per (basis, matrix); -1 is pure sampling noise.

    off / on = share / (1 - share), the squared gradient off the manifold over that on it. Noise
    off the manifold falls exactly as 1 / batch; the share itself does so only once it is small.
    ValueError where a share is 0 or 1 exactly, as where the gradient is 0 (at scale 0): no slope.
    """
    flat = table.loc[~table["share"].between(0, 1, inclusive="neither")].to_dict("records")
    if flat:
        names = dict.fromkeys(f"{row['basis']} {row['matrix']}" for row in flat)
        raise ValueError(
            f"confinement slopes: the share of {', '.join(names)} is {flat[0]['share']} at a batch "
            f"of {flat[0]['batch']}, which has no slope; 0 is also what is found where the "
            f"gradient is 0, as at scale=0: leave these rows out or take scale > 0"
        )
    slopes = {
        key: np.polyfit(np.log(rows["batch"]), np.log(rows["share"] / (1 - rows["share"])), 1)[0]
        for key, rows in table.groupby(["basis", "matrix"], sort=False)
    }
    return pd.Series(slopes, name="slope")


def _bases(task: Task, layers: int, heads: int) -> dict[str, Basis]:
    return {
        "exact_commutant": invariant_basis(task, layers=layers, heads=heads),
        "paper": paper_basis(task, layers=layers, heads=heads),
    }


def random_point(
    basis: Basis, *, on_manifold: bool = True, scale: float = 0.5, seed: int = 0
) -> Matrices:
    """Where gradients are tested: coordinates, or all entries, normal with deviation `scale`."""
    rng = generator(seed, *b"confinement")
    if on_manifold:
        return basis.matrices(scale * rng.standard_normal(basis.dim))
    return {block: scale * rng.standard_normal(basis.shape(block)) for block in basis.blocks}


def _chunks(
    task: Task, basis: Basis, point: Matrices, seed: int, size: int, count: int
) -> Matrices:
    """Gradients of `count` independent batches of `size`, per block (count, ...)."""
    gradients = [loss_gradient(basis, point, task.batch(seed, k, size)) for k in range(count)]
    return {block: np.stack([g[block] for g in gradients]) for block in basis.blocks}


def _means(chunks: Matrices, group: int) -> list[Matrices]:
    """Means over consecutive groups of batches: the gradients of batches `group` times as large."""
    count = len(chunks[READOUT]) // group
    means = {b: g.reshape(count, group, *g.shape[1:]).mean(1) for b, g in chunks.items()}
    return [{block: g[i] for block, g in means.items()} for i in range(count)]
