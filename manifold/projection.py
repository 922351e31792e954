"""Checkpoints to coordinates along training, with what the coordinates leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from manifold.basis import READOUT, Basis
from manifold.effective import effective_matrices, frame_of, gauge_projectors, remove_gauge
from manifold.invariant import invariant_basis
from training.run import Run
from training.tasks.base import generator


def project(runs: Run | Sequence[Run], basis: Basis | None = None) -> xr.Dataset:
    """Every checkpoint of one run or several, in the coordinates of the invariant manifold.

    Effective matrices, gauge removed, then c = Gram^+ <B, W>, in the exact commutant of the runs'
    task and family unless another basis is given. Variables, NaN at steps that a run has not kept:

    c (run, step, coordinate): coordinates, float64.
    captured (run, step, matrix): ||P W||^2 / ||W||^2; 1 where W is zero.
    off_manifold (run, step): ||(1 - P) W||^2 / ||W||^2 over all matrices together.

    Coordinates: run (run ids), step, coordinate (names) with block, head, query, key and element;
    time (run, step), the sum of learning rates; init_seed and data_seed of each run.

    Raises ValueError where the family has no effective matrices, and where runs do not share one
    basis.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("project: got no run; give one Run or a sequence of them")
    basis = _shared_basis(runs) if basis is None else basis
    steps = sorted({step for run in runs for step in run.steps})
    c, captured, off_manifold, time = _measured(runs, steps, basis)
    seeds = [run.config.seeds for run in runs]
    share = {"units": "share of the squared Frobenius norm"}
    return xr.Dataset(
        {
            "c": (("run", "step", "coordinate"), c, {"long_name": "coordinate", "units": "1"}),
            "captured": (
                ("run", "step", "matrix"),
                captured,
                {"long_name": "captured on the manifold", **share},
            ),
            "off_manifold": (
                ("run", "step"),
                off_manifold,
                {"long_name": "off the manifold, all matrices", **share},
            ),
        },
        coords={
            "run": ("run", [run.run_id for run in runs], {"long_name": "run id"}),
            "step": ("step", steps, {"long_name": "updates", "units": "1"}),
            "matrix": ("matrix", list(basis.blocks), {"long_name": "effective matrix"}),
            "time": (
                ("run", "step"),
                time,
                {"long_name": "gradient-flow time", "units": "sum of learning rates"},
            ),
            "init_seed": ("run", [seed.init for seed in seeds]),
            "data_seed": ("run", [seed.data for seed in seeds]),
            **_direction_coordinates(basis),
        },
        attrs={"frame": basis.family, "layers": basis.layers, "heads": basis.heads},
    )


def _measured(
    runs: Sequence[Run], steps: Sequence[int], basis: Basis
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """c, captured, off_manifold and time of every kept step, as `project` has them."""
    shape = (len(runs), len(steps))
    c = np.full((*shape, basis.dim), np.nan)
    captured = np.full((*shape, len(basis.blocks)), np.nan)
    off_manifold, time = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, run in enumerate(runs):
        for step in run.steps:
            at, checkpoint = (i, steps.index(step)), run[step]
            matrices = remove_gauge(basis, effective_matrices(checkpoint))
            c[at] = basis.coordinates(matrices)
            rest = basis.off_manifold(matrices)
            captured[at] = [1.0 - rest[block] for block in basis.blocks]
            off_manifold[at], time[at] = rest["all"], checkpoint.time
    return c, captured, off_manifold, time


def captured_by_chance(
    basis: Basis, matrices: Mapping[str, np.ndarray], *, draws: int = 200, seed: int = 0
) -> dict[str, dict[str, float]]:
    """What `basis.captured` finds in random matrices of the same spectrum: per block and "all".

    Each head's matrix becomes U S V^T, S its singular values, U and V uniform orthogonal (Haar) in
    the range of the gauge projectors: everything in which two models can differ. Returns
    {"mean", "low", "high"}, the mean over draws and the interval that holds 95% of them.
    """
    rng = generator(seed, *b"captured_by_chance")
    frames, spectra = {}, {}
    for block, matrix in remove_gauge(basis, matrices).items():
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
                u = left @ _orthogonal(rng, left.shape[1], len(values))
                v = right @ _orthogonal(rng, right.shape[1], len(values))
                heads.append((u * values) @ v.T)
            sample[block] = np.stack(heads).reshape(basis.shape(block))
        drawn.append(basis.captured(sample))
    found = {}
    for block in drawn[0]:
        shares = np.array([captured[block] for captured in drawn])
        low, high = np.quantile(shares, [0.025, 0.975])
        found[block] = {"mean": float(shares.mean()), "low": float(low), "high": float(high)}
    return found


def _shared_basis(runs: Sequence[Run]) -> Basis:
    """The exact commutant, if it is the same for all."""
    bases: list[Basis] = []
    for run in runs:
        family: Any = run.family
        frame = frame_of(family)
        bases.append(invariant_basis(run.task, frame, family.layers, family.heads))
        if bases[-1].names != bases[0].names or not np.array_equal(
            bases[-1].elements, bases[0].elements
        ):
            raise ValueError(
                f"project: runs {runs[0].run_id} and {run.run_id} do not share a basis (their "
                f"tasks' symmetry, family, layers and heads must agree); project them apart"
            )
    return bases[0]


def _direction_coordinates(basis: Basis) -> dict[str, tuple[str, list]]:
    """Names along `coordinate`, and where each direction acts."""
    columns: dict[str, tuple[str, list]] = {
        name: ("coordinate", [])
        for name in ("coordinate", "block", "head", "query", "key", "element")
    }
    for direction in basis.directions:
        readout = direction.block == READOUT
        below = basis.paths(direction.block)
        names = basis.readout_names if readout else basis.element_names
        row = {
            "coordinate": direction.name,
            "block": direction.block,
            "head": direction.head,
            "query": "" if readout else below[direction.query],
            "key": below[direction.key],
            "element": names[direction.element],
        }
        for name, value in row.items():
            columns[name][1].append(value)
    return columns


def _range(projector: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span an orthogonal projector's range."""
    values, vectors = np.linalg.eigh(projector)
    return vectors[:, values > 0.5]


def _orthogonal(rng: np.random.Generator, size: int, columns: int) -> np.ndarray:
    """The first columns of a Haar orthogonal matrix: QR of a Gaussian, signs of R fixed."""
    q, r = np.linalg.qr(rng.standard_normal((size, columns)))
    return q * np.sign(np.diagonal(r))
