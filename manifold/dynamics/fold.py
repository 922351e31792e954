"""Folds (saddle-nodes), where two fixed points meet and vanish, by Moore and Spence's system."""

from __future__ import annotations

import numpy as np

from manifold.dynamics.bifurcation import Bifurcation, by_size, oriented
from manifold.dynamics.equations import NEWTON_STEPS, Equations, curvature, second


def refine_fold(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> Bifurcation | None:
    """Moore and Spence's system F = 0, J v = 0, v . v = 1 by Newton to rounding.

    Second derivatives are differences of J: D^2 F(v, .) is its derivative along v. They only
    steer Newton; the equations themselves are exact. None where it does not converge.
    """
    x, v, n = np.array(x, dtype=float), v / np.linalg.norm(v), len(x)
    best: tuple[float, np.ndarray, float, np.ndarray] = (np.inf, x, p, v)
    for _ in range(3 * NEWTON_STEPS):
        jacobian = equations.jacobian(x, p)
        gap = np.concatenate([equations.residual(x, p), jacobian @ v, [(v @ v - 1) / 2]])
        size = float(np.abs(gap).max())
        if not np.isfinite(size) or (size >= best[0] and best[0] < 1e-10):
            break
        if size < best[0]:
            best = (size, x, p, v)
        system = np.zeros((2 * n + 1, 2 * n + 1))
        system[:n, :n] = system[n : 2 * n, n + 1 :] = jacobian
        system[:n, n] = equations.parameter_derivative(x, p)
        system[n : 2 * n, : n + 1] = second(equations, x, p, np.append(v, 0.0))
        system[-1, n + 1 :] = v
        if not np.isfinite(system).all():
            break
        move = np.linalg.lstsq(system, -gap, rcond=None)[0]
        x, p, v = x + move[:n], float(p + move[n]), v + move[n + 1 :]
    size, x, p, v = best
    return _fold(equations, x, p, v, size) if size < 1e-8 else None


def left_null_vector(jacobian: np.ndarray, v: np.ndarray) -> np.ndarray:
    """w with w J = 0 as nearly as there is one, w . v = 1."""
    left = np.linalg.svd(jacobian)[0][:, -1]
    return left / (left @ v)


def _fold(
    equations: Equations, x: np.ndarray, p: float, v: np.ndarray, residual: float
) -> Bifurcation:
    jacobian, v = equations.jacobian(x, p), oriented(v)
    left = left_null_vector(jacobian, v)
    return Bifurcation(
        kind="fold",
        value=float(p),
        state=x,
        eigenvalues=by_size(np.linalg.eigvals(jacobian)),
        null_vector=v,
        transversality=float(left @ equations.parameter_derivative(x, p)),
        quadratic=float(left @ curvature(equations, x, p, v) @ v),
        residual=residual,
    )
