"""What a basis captures of matrices that know nothing of the symmetry."""

from __future__ import annotations

import numpy as np

from manifold.coordinates.basis import READOUT, Basis, Source
from manifold.coordinates.effective import gauge_projectors, remove_gauge
from manifold.coordinates.factored import Factored
from manifold.coordinates.shares import check_finite
from manifold.groups.haar import haar
from training.tasks.base import generator


def expected_by_chance(basis: Basis) -> dict[str, float]:
    """Mean of `captured_by_chance` by block, exactly: it is the same for every spectrum.

    With singular vectors uniform in the range of the gauge projectors L and R it is
    tr(P (L x R)) / (rank L rank R), P the projection on the span: in an exact commutant, how many
    directions are free of gauge over how many entries are. Heads count equally.
    """
    found = {}
    for block in basis.blocks:
        (left, left_rank), (right, right_rank) = _on_a_path(basis, block)
        stack = basis.readouts if block == READOUT else basis.elements
        table = np.einsum("eab,ac,fcd,db->ef", stack, left, stack, right, optimize=True)
        heads = 1 if block == READOUT else basis.heads
        found[block] = basis.trace(block, table) / (heads * left_rank * right_rank)
    return found


def captured_by_chance(
    basis: Basis, matrices: Source, *, draws: int = 200, seed: int = 0
) -> dict[str, dict[str, float]]:
    """What `basis.captured` finds in random matrices of the same spectrum: per block and "all".

    Each head's matrix becomes U S V^T, S its singular values, U and V uniform orthogonal (Haar) in
    the range of the gauge projectors: everything in which two models can differ. Returns
    {"mean", "low", "high"}, the mean over draws and the interval that holds 95% of them.
    ValueError naming a matrix that has NaN.
    """
    if isinstance(matrices, Factored):
        matrices = matrices.matrices()
    rng = generator(seed, *b"captured_by_chance")
    frames, spectra = {}, {}
    free = remove_gauge(basis, matrices)
    check_finite("captured by chance", {block: np.sum(m**2) for block, m in free.items()})
    for block, matrix in free.items():
        left, right = (_range(projector) for projector in gauge_projectors(basis, block))
        heads = matrix.reshape(-1, *matrix.shape[-2:])
        frames[block] = left, right
        spectra[block] = np.linalg.svd(left.T @ heads @ right, compute_uv=False)
    drawn = []
    for _ in range(draws):
        sample = {}
        for block, (left, right) in frames.items():
            heads = []
            for values in spectra[block]:
                u = left @ haar(rng, left.shape[1], len(values))
                v = right @ haar(rng, right.shape[1], len(values))
                heads.append((u * values) @ v.T)
            sample[block] = np.stack(heads).reshape(basis.shape(block))
        drawn.append(basis.captured(sample))
    found = {}
    for block in drawn[0]:
        shares = np.array([captured[block] for captured in drawn])
        low, high = np.quantile(shares, [0.025, 0.975])
        found[block] = {"mean": float(shares.mean()), "low": float(low), "high": float(high)}
    return found


def _on_a_path(basis: Basis, block: str) -> tuple[tuple[np.ndarray, float], ...]:
    """Left and right gauge projector on one path, all paths being alike, and its whole rank."""
    n, d = basis.vocabulary, basis.vocabulary + basis.n_positions
    count = len(basis.paths(block))
    if basis.family == "attention_only":
        wide = basis.frame, count * np.trace(basis.frame)
        tokens = basis.frame[:n, :n]
        return ((tokens, np.trace(tokens)), wide) if block == READOUT else (wide, wide)
    parts = np.repeat(np.eye(2), [n, d - n], axis=0)
    means = parts / parts.sum(0)
    within, common = np.eye(d) - means @ parts.T, means.sum(1)
    shared = within + np.outer(common, common) / (count * common @ common)
    inside, outside = (within, count * (d - 2)), (shared, count * (d - 2) + 1)
    if block == READOUT:
        return (np.eye(n) - 1.0 / n, n - 1), outside
    return outside, inside


def _range(projector: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span an orthogonal projector's range."""
    values, vectors = np.linalg.eigh(projector)
    return vectors[:, values > 0.5]
