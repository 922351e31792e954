"""Equations F(x, p) = 0 that can be continued, Newton's method, and derivatives along a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from manifold.dynamics.field import ReducedField

PARAMETERS = ("f_v", "f_r", "weight_decay")
NEWTON_STEPS = 12


class Equations(Protocol):
    """F(x, p) = 0 with its derivatives; anything that has these three can be continued."""

    def residual(self, x: np.ndarray, p: float) -> np.ndarray: ...
    def jacobian(self, x: np.ndarray, p: float) -> np.ndarray: ...
    def parameter_derivative(self, x: np.ndarray, p: float) -> np.ndarray: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEquations:
    """The flow of a reduced field as a function of the state and one parameter."""

    field: ReducedField
    parameter: str
    weight_decay: float

    def moved(self, parameter: str, value: float) -> FieldEquations:
        """The same equations with another parameter, one that does not continue them, at `value`.

        Data statistics may leave [0, 1] and the decay may fall below 0: Newton may step there.
        """
        if parameter == "weight_decay":
            return replace(self, weight_decay=value)
        return replace(self, field=self.field.extended(parameter, value))

    def at(self, p: float) -> tuple[ReducedField, float]:
        """The field and the weight decay at parameter p."""
        here = self.moved(self.parameter, p)
        return here.field, here.weight_decay

    def residual(self, x: np.ndarray, p: float) -> np.ndarray:
        field, decay = self.at(p)
        return field.flow(x, decay)

    def jacobian(self, x: np.ndarray, p: float) -> np.ndarray:
        field, decay = self.at(p)
        return field.jacobian(x, decay)

    def parameter_derivative(self, x: np.ndarray, p: float) -> np.ndarray:
        field, _ = self.at(p)
        return field.parameter_derivative(x, self.parameter)


def rows(equations: Equations, x: np.ndarray, p: float) -> np.ndarray:
    """dF/d(x, p), (n, n + 1)."""
    return np.column_stack([equations.jacobian(x, p), equations.parameter_derivative(x, p)])


def newton(equations: Equations, x: np.ndarray, p: float) -> np.ndarray | None:
    """A zero of F(., p) near x, to rounding, or None."""
    for _ in range(NEWTON_STEPS):
        move = solve(equations.jacobian(x, p), -equations.residual(x, p))
        if move is None:
            return None
        x = x + move
        if np.abs(move).max() < 1e-11 * max(1.0, np.abs(x).max()):
            return x
    return x if np.abs(equations.residual(x, p)).max() < 1e-9 else None


def solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """matrix^-1 right, or None where the matrix is singular or anything is not finite."""
    try:
        found = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def second(equations: Equations, x: np.ndarray, p: float, direction: np.ndarray) -> np.ndarray:
    """D^2 F(direction, .) over (x, p), (n, n + 1): a central difference of order 4.

    direction: (n + 1,), of any length. Steps of 1e-3 of the state: error about 1e-12.
    """

    def at(y: np.ndarray) -> np.ndarray:
        return rows(equations, y[:-1], float(y[-1]))

    return difference(at, np.append(x, p), direction)


def curvature(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> np.ndarray:
    """D^2 F(v, .) over x alone, (n, n)."""
    return difference(lambda y: equations.jacobian(y, p), x, v)


def third(equations: Equations, x: np.ndarray, p: float, v: np.ndarray) -> np.ndarray:
    """D^3 F(v, v, .) over x, (n, n): a second difference of order 4 (steps 1e-2, error 1e-8)."""
    h, length = _step(x, 1e-2), float(np.linalg.norm(v))
    if length == 0:
        return np.zeros((len(x), len(x)))
    unit = v / length

    def at(k: int) -> np.ndarray:
        return equations.jacobian(x + k * h * unit, p)

    bent = (16 * (at(1) + at(-1)) - (at(2) + at(-2)) - 30 * at(0)) / (12 * h**2)
    return bent * length**2


def difference(
    function: Callable[[np.ndarray], np.ndarray], y: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """d function(y + t direction) / dt at t = 0, by the central difference of order 4."""
    length = float(np.linalg.norm(direction))
    h = _step(y, 1e-3)
    if length == 0:
        return np.zeros_like(function(y))
    unit = direction / length
    near = function(y + h * unit) - function(y - h * unit)
    far = function(y + 2 * h * unit) - function(y - 2 * h * unit)
    return (8 * near - far) * (length / (12 * h))


def _step(y: np.ndarray, relative: float) -> float:
    return relative * max(1.0, float(np.abs(y).max()))
