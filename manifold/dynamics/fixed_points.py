"""Fixed points from many starts: what a flow can end in, and what parts its basins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manifold.dynamics.bifurcation import by_size
from manifold.dynamics.continuation import positive
from manifold.dynamics.equations import Equations, FieldEquations, newton, solve
from manifold.dynamics.field import ReducedField
from training.tasks.base import generator

STEPS = 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedPoint:
    """F = 0. state: (n,). eigenvalues: of J, nearest to zero first. reached: by how many starts."""

    state: np.ndarray
    eigenvalues: np.ndarray
    residual: float
    reached: int

    def __post_init__(self) -> None:
        self.state.setflags(write=False)
        self.eigenvalues.setflags(write=False)

    @property
    def stable(self) -> bool:
        return bool((np.real(self.eigenvalues) < 0).all())

    @property
    def unstable(self) -> int:
        """How many eigenvalues have a positive real part."""
        return int((np.real(self.eigenvalues) > 0).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedPoints:
    """Distinct fixed points, stable ones first, then by how many starts reached them.

    failed: searches that ended nowhere, two for each start (Newton and the flow). The list is of
    what was reached; more starts may reach more.
    """

    points: tuple[FixedPoint, ...]
    searches: int
    failed: int

    @property
    def stable(self) -> tuple[FixedPoint, ...]:
        return tuple(point for point in self.points if point.stable)

    def __str__(self) -> str:
        return (
            f"{len(self.points)} fixed points, {len(self.stable)} stable, from {self.searches} "
            f"searches of which {self.failed} found none"
        )


def fixed_points(
    system: ReducedField | Equations,
    at: float,
    *,
    starts: int | np.ndarray = 32,
    spread: float = 3.0,
    seed: int = 0,
) -> FixedPoints:
    """Distinct fixed points of a field at weight decay `at`, or of equations at parameter `at`.

    Two searches from every start: damped Newton, which finds saddles as well, and the flow with
    implicit steps that grow until they are Newton's, which finds what the flow falls into. Two
    solutions are the same within 1e-6 of their size. starts: how many to draw, normal with
    standard deviation `spread`, and zero besides (fields only); or the starts, (k, n).

    ValueError for a field without weight decay (no fixed point at finite distance), for starts of
    a wrong shape, and where the equations are not finite at any start.
    """
    if isinstance(system, ReducedField):
        positive("weight_decay", at)
        equations = FieldEquations(field=system, parameter="weight_decay", weight_decay=at)
        points = _starts(starts, system.dim, spread, seed)
    else:
        if isinstance(starts, int):
            raise ValueError(
                f"starts is {starts}; equations do not say how many coordinates they have: give "
                "the starts as an array (starts, coordinates)"
            )
        equations, points = system, _starts(starts, None, spread, seed)
    usable = [x for x in points if np.isfinite(equations.residual(x, at)).all()]
    if not usable:
        raise ValueError(
            f"the equations are not finite at any of the {len(points)} starts; give starts where "
            "they are defined"
        )
    found = [search(equations, x, at) for x in usable for search in (_damped, _flowing)]
    solutions = [x for x in found if x is not None]
    groups: list[list[np.ndarray]] = []
    for x in solutions:
        same = (g for g in groups if np.abs(g[0] - x).max() < 1e-6 * max(1, np.abs(x).max()))
        group = next(same, None)
        if group is None:
            groups.append([x])
        else:
            group.append(x)
    records = [_record(equations, at, group) for group in groups]
    return FixedPoints(
        points=tuple(sorted(records, key=lambda r: (r.unstable, -r.reached, tuple(r.state)))),
        searches=2 * len(points),
        failed=2 * len(points) - len(solutions),
    )


def _starts(starts: int | np.ndarray, dim: int | None, spread: float, seed: int) -> np.ndarray:
    if isinstance(starts, int) and dim is not None:
        if starts < 0:
            raise ValueError(f"starts is {starts}; allowed: 0 (zero alone) or more")
        drawn = generator(seed, *b"fixed points").normal(scale=spread, size=(starts, dim))
        return np.vstack([np.zeros(dim), drawn])
    points = np.asarray(starts, dtype=float)
    if points.ndim != 2 or not len(points) or (dim is not None and points.shape[1] != dim):
        wanted = "coordinates" if dim is None else dim
        raise ValueError(f"starts have shape {points.shape}; allowed: (1 or more, {wanted})")
    return points


def _damped(equations: Equations, x: np.ndarray, p: float) -> np.ndarray | None:
    """Newton whose step is halved until |F| falls; None where it no longer does."""
    gap = equations.residual(x, p)
    size = float(np.linalg.norm(gap))
    for _ in range(STEPS // 4):
        move = solve(equations.jacobian(x, p), -gap)
        if move is None:
            return None
        if np.abs(move).max() < 1e-6 * max(1.0, np.abs(x).max()):
            return newton(equations, x, p)
        part = 1.0
        while part > 1e-4:
            ahead = equations.residual(x + part * move, p)
            if np.linalg.norm(ahead) < (1 - part / 4) * size:
                break
            part /= 2
        else:
            return None
        x, gap, size = x + part * move, ahead, float(np.linalg.norm(ahead))
    return None


def _flowing(equations: Equations, x: np.ndarray, p: float) -> np.ndarray | None:
    """Implicit Euler along the flow, (1/dt - J) move = F, dt growing as |F| falls."""
    gap, dt = equations.residual(x, p), 1.0
    size = float(np.linalg.norm(gap))
    for _ in range(STEPS):
        if size < 1e-7:
            return newton(equations, x, p)
        move = solve(np.eye(len(x)) / dt - equations.jacobian(x, p), gap)
        ahead = None if move is None else equations.residual(x + move, p)
        if move is None or ahead is None or not np.isfinite(ahead).all():
            dt /= 4
        elif np.linalg.norm(move) > 0.5 * max(1.0, float(np.linalg.norm(x))):
            dt /= 2
        else:
            before, x, gap, size = size, x + move, ahead, float(np.linalg.norm(ahead))
            dt *= float(np.clip(before / size if size else 2.0, 1.3, 4.0))
        if dt < 1e-9:
            return None
    return None


def _record(equations: Equations, p: float, group: list[np.ndarray]) -> FixedPoint:
    gaps = [float(np.abs(equations.residual(x, p)).max()) for x in group]
    best = int(np.argmin(gaps))
    return FixedPoint(
        state=np.array(group[best]),
        eigenvalues=by_size(np.linalg.eigvals(equations.jacobian(group[best], p))),
        residual=gaps[best],
        reached=len(group),
    )
