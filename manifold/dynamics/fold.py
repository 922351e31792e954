"""Folds (saddle-nodes), where two fixed points meet and vanish, by Moore and Spence's system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

NEWTON_STEPS = 12


class Equations(Protocol):
    """F(x, p) = 0 with its derivatives; anything that has these three can be continued."""

    def residual(self, x: np.ndarray, p: float) -> np.ndarray: ...
    def jacobian(self, x: np.ndarray, p: float) -> np.ndarray: ...
    def parameter_derivative(self, x: np.ndarray, p: float) -> np.ndarray: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fold:
    """A saddle-node: F = 0, J v = 0, |v| = 1.

    transversality: w . dF/dp and quadratic: w . D^2 F(v, v), w the left null vector with
    w . v = 1; both differ from 0 at a non-degenerate fold. residual: largest entry of the
    extended system. eigenvalues: of J, the one that crosses zero first.
    """

    value: float
    state: np.ndarray
    eigenvalues: np.ndarray
    null_vector: np.ndarray
    transversality: float
    quadratic: float
    residual: float


def newton(equations: Equations, x: np.ndarray, p: float) -> np.ndarray | None:
    """A zero of F(., p) near x, to rounding, or None."""
    for _ in range(NEWTON_STEPS):
        move = np.linalg.solve(equations.jacobian(x, p), -equations.residual(x, p))
        x = x + move
        if not np.isfinite(move).all():
            return None
        if np.abs(move).max() < 1e-11 * max(1.0, np.abs(x).max()):
            return x
    return x if np.abs(equations.residual(x, p)).max() < 1e-9 else None


def refine_fold(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> Fold | None:
    """Moore and Spence's system F = 0, J v = 0, v . v = 1 by Newton to rounding.

    Second derivatives are central differences of J: D^2 F(v, .) is its derivative along v. They
    only steer Newton; the equations themselves are exact. None where it does not converge.
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
        system[n : 2 * n, :n] = _along(equations, x, p, v)
        system[n : 2 * n, n] = _in_parameter(equations, x, p, v)
        system[-1, n + 1 :] = v
        move = np.linalg.lstsq(system, -gap, rcond=None)[0]
        x, p, v = x + move[:n], p + move[n], v + move[n + 1 :]
    size, x, p, v = best
    return _fold(equations, x, p, v, size) if size < 1e-8 else None


def _fold(equations: Equations, x: np.ndarray, p: float, v: np.ndarray, residual: float) -> Fold:
    jacobian = equations.jacobian(x, p)
    left = np.linalg.svd(jacobian)[0][:, -1]
    left = left / (left @ v)
    values = np.linalg.eigvals(jacobian)
    return Fold(
        value=float(p),
        state=x,
        eigenvalues=values[np.argsort(np.abs(values))],
        null_vector=v if v[np.argmax(np.abs(v))] > 0 else -v,
        transversality=float(left @ equations.parameter_derivative(x, p)),
        quadratic=float(left @ _along(equations, x, p, v) @ v),
        residual=residual,
    )


def _along(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> np.ndarray:
    """D^2 F(v, .), (n, n)."""
    h = 1e-4 * max(1.0, float(np.abs(x).max()))
    return (equations.jacobian(x + h * v, p) - equations.jacobian(x - h * v, p)) / (2 * h)


def _in_parameter(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> np.ndarray:
    """d(J v)/dp = D_x (dF/dp) v."""
    h = 1e-4 * max(1.0, float(np.abs(x).max()))
    slopes = [equations.parameter_derivative(x + s * h * v, p) for s in (1, -1)]
    return (slopes[0] - slopes[1]) / (2 * h)
