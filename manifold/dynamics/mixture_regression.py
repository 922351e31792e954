"""Which weights of the query kinds' fields, and which decay, move a run as it moved.

c(t_i+1) - c(t_i) = sum_k theta_k int F_k(c) dt - theta_0 int c dt, theta >= 0: least squares in the
norm of the matrices, over the root of the time between, since the noise of SGD has equal variance
in equal times. Integrals take Lobatto's rule on a cubic Hermite path whose slopes at the
checkpoints are those of the run's own fit before, so gaps may be uneven or log-spaced.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator
from scipy.optimize import nnls

from manifold.dynamics.field import ReducedField
from manifold.dynamics.rollout import RESAMPLES, blocks
from manifold.dynamics.sample_parts import sample_parts
from manifold.dynamics.trajectory import Trajectory

INNER = np.array([0.5 - 0.1 * 5**0.5, 0.5 + 0.1 * 5**0.5])
OUTER_WEIGHT, INNER_WEIGHT = 1 / 12, 5 / 12
"""Lobatto's rule with four points: exact for polynomials of degree 5."""
GROUPS = 8
"""Parts of a sampled field's sample, which are drawn anew for what sampling does to a fit."""


def columns(field: ReducedField, c: np.ndarray) -> np.ndarray:
    """F_k(c) and then -c, (kinds + 1, dim)."""
    return np.vstack([field.kind_flows(c), -c])


def regression(run: Trajectory, field: ReducedField, deadline: float) -> np.ndarray | None:
    """(A y D)^T (A y D) of each interval between checkpoints, (n - 1, m, m).

    A: kinds + 1 columns; y: the increment; D, where the field is a sample: kinds * GROUPS columns,
    how far the field of each part of the sample is from the whole's. None when the CPU time passes
    `deadline`.
    """
    metric, steps = root(field.basis.gram), np.diff(run.times)
    parts = [] if field.exact else sample_parts(field, GROUPS)
    ends, apart = [], []
    for c in run.states:
        if time.process_time() > deadline:
            return None
        ends.append(columns(field, c))
        if parts:
            kinds = [
                field.basis.raise_index(np.stack([-field._gradient(c, w) for w in of_kind]))
                for of_kind in parts
            ]
            apart.append(np.concatenate([f - f0 for f, f0 in zip(kinds, ends[-1], strict=False)]))
    ends, width = np.array(ends), ends[0].shape[0]
    normal = np.empty(0)
    for again in (False, True):
        path = PchipInterpolator(run.times, run.states)
        if again:
            theta = solve(normal.sum(0)[: width + 1, : width + 1])
            path = CubicHermiteSpline(run.times, run.states, np.einsum("k,nkd->nd", theta, ends))
        integrals = OUTER_WEIGHT * (ends[:-1] + ends[1:])
        for fraction in INNER:
            for i, c in enumerate(path(run.times[:-1] + fraction * steps)):
                if time.process_time() > deadline:
                    return None
                integrals[i] += INNER_WEIGHT * columns(field, c)
        increments = np.diff(run.states, axis=0)[:, None]
        rows = np.concatenate([integrals * steps[:, None, None], increments], axis=1)
        if again and parts:
            wide = np.array(apart)
            rows = np.concatenate([rows, (wide[:-1] + wide[1:]) / 2 * steps[:, None, None]], axis=1)
        rows = rows @ metric / np.sqrt(steps)[:, None, None]
        normal = rows @ rows.transpose(0, 2, 1)
    return normal


def solve(normal: np.ndarray) -> np.ndarray:
    """theta >= 0 of least squares from (A y)^T (A y)."""
    scale = np.sqrt(np.diag(normal))
    scale[scale == 0] = 1.0
    square = root(normal / np.outer(scale, scale))
    return nnls(square[:, :-1], square[:, -1])[0] * scale[-1] / scale[:-1]


def bootstrap(parts: Sequence[np.ndarray], width: int, rng: np.random.Generator) -> np.ndarray:
    """theta of RESAMPLES draws, (draws, width): blocks of intervals of each run, and at once the
    parts of the field's sample, each kind's by itself. parts: what `regression` gave each run."""
    extra = parts[0].shape[-1] - width - 1
    found, wider = np.empty((RESAMPLES, width)), (GROUPS / (GROUPS - 1)) ** 0.5
    for i in range(RESAMPLES):
        normal = np.concatenate([part[blocks(len(part), rng)] for part in parts]).sum(0)
        if extra:
            change = np.zeros((width + 1, extra))
            for kind in range(extra // GROUPS):
                drawn = rng.multinomial(GROUPS, np.full(GROUPS, 1 / GROUPS)) / GROUPS
                change[kind, kind * GROUPS : (kind + 1) * GROUPS] = wider * (drawn - 1 / GROUPS)
            mix = np.hstack([np.eye(width + 1), change])
            normal = mix @ normal @ mix.T
        found[i] = solve(normal)
    return found


def root(square: np.ndarray) -> np.ndarray:
    """Symmetric root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(square)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
