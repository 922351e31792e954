"""Curves G(y) = 0 of n equations in n + 1 unknowns, by pseudo-arclength (Keller)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from manifold.dynamics.equations import NEWTON_STEPS, solve

SMALLEST = 1e-9


class Curve(Protocol):
    """n functions of n + 1 unknowns, in units in which an arclength means something."""

    def gap(self, y: np.ndarray) -> np.ndarray: ...
    def rows(self, y: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """A point of a curve, dG/dy (n, n + 1) and the unit tangent there."""

    y: np.ndarray
    rows: np.ndarray
    tangent: np.ndarray


def point(curve: Curve, y: np.ndarray, before: np.ndarray) -> Point | None:
    """y with its tangent, pointing the way of `before`; None where the tangent is not unique."""
    rows = curve.rows(y)
    direction = solve(np.vstack([rows, before]), np.append(np.zeros(len(rows)), 1.0))
    if direction is None:
        return None
    return Point(y=y, rows=rows, tangent=direction / np.linalg.norm(direction))


def advance(curve: Curve, here: Point, length: float) -> Point | None:
    """The curve's point in the hyperplane across the tangent, `length` ahead, or None."""
    guess = here.y + length * here.tangent
    return correct(curve, guess, here.tangent, here.rows, abs(length))


def correct(
    curve: Curve, guess: np.ndarray, tangent: np.ndarray, rows: np.ndarray, longest: float
) -> Point | None:
    """The curve's point in the hyperplane through `guess` across `tangent`.

    Newton's method that keeps its matrix, at first [rows; tangent], while each move is a fifth of
    the one before; None where a move is longer than `longest` or than the one before.
    """
    y, before, bordered = guess, np.inf, np.vstack([rows, tangent])
    for _ in range(NEWTON_STEPS):
        move = solve(bordered, -np.append(curve.gap(y), tangent @ (y - guess)))
        if move is None:
            return None
        y, size = y + move, float(np.linalg.norm(move))
        if size < SMALLEST:
            return point(curve, y, tangent)
        if size > max(before, longest):
            return None
        if size > before / 5:
            bordered = np.vstack([curve.rows(y), tangent])
        before = size
    return None


def trace(
    curve: Curve, here: Point, step: float, refuse: Callable[[Point, Point, float], bool]
) -> Iterator[tuple[Point, Point]]:
    """Pairs of neighbouring points, from `here` on, until the step becomes too small.

    The step is halved where Newton fails, where the tangent turns by more than 0.2 and where
    `refuse(here, ahead, length)`; it grows by 1.3 otherwise, up to `step`.
    """
    length = step / 10
    while length > SMALLEST:
        ahead = advance(curve, here, length)
        if ahead is None or ahead.tangent @ here.tangent < 0.98 or refuse(here, ahead, length):
            length /= 2
            continue
        yield here, ahead
        here, length = ahead, min(1.3 * length, step)


def turned(here: Point, ahead: Point) -> float | None:
    """Where det [dG/dy; tangent] changes sign, as a part of the way; None where it does not.

    It keeps its sign past folds and changes it where another branch crosses.
    """
    signs, sizes = [], []
    for one in (here, ahead):
        sign, size = np.linalg.slogdet(np.vstack([one.rows, one.tangent]))
        signs, sizes = [*signs, sign], [*sizes, size]
    if signs[0] * signs[1] >= 0:
        return None
    return float(1 / (1 + np.exp(np.clip(sizes[1] - sizes[0], -700, 700))))
