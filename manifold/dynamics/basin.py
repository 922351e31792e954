"""Which circuit wins from where: basins in two coordinates, and the boundary between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from manifold.dynamics.field import ReducedField
from manifold.dynamics.rivalry import Rivalry
from manifold.dynamics.winner import predict_winner

HALVINGS = 6
"""Bisections of a line between two neighbouring points of the grid: 1/64 of its spacing."""


def basin(
    field: ReducedField,
    rivalry: Rivalry,
    at: np.ndarray,
    axes: tuple[str, str],
    spans: tuple[tuple[float, float], tuple[float, float]],
    grid: tuple[int, int] = (9, 9),
    horizon: float = 2000.0,
) -> xr.Dataset:
    """The winner from each start that is `at` but for two coordinates.

    axes: names of the two. spans: from where to where, each. grid: points along each.

    winner, dominance, onset (first axis, second axis): as `predict_winner`.
    boundary (point, axis): where the winner changes, along every line of the grid in either
    direction, each between two starts with different winners that are 1/64 of the grid's spacing
    apart; tolerance (axis): half of that. No point where one circuit wins everywhere.

    ValueError as `predict_winner`, for axes that are not two different coordinates of the field,
    spans that do not increase, and grids of fewer than 2.
    """
    at = np.asarray(at, dtype=float)
    _check(field, at, axes, spans, grid)
    where = [field.names.index(name) for name in axes]
    sides = [np.linspace(*span, count) for span, count in zip(spans, grid, strict=True)]

    def starts(points: np.ndarray) -> np.ndarray:
        found = np.repeat(at[None], len(points), axis=0)
        found[:, where] = points
        return found

    def winner(point: np.ndarray) -> str:
        won = predict_winner(field, starts(point[None]), rivalry, horizon)["winner"]
        return str(won.values[0])

    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
    flat = predict_winner(field, starts(points.reshape(-1, 2)), rivalry, horizon)
    winners = flat["winner"].values.reshape(grid)
    boundary = [
        _between(points[here], points[there], str(winners[here]), winner)
        for here, there in _neighbours(grid)
        if winners[here] != winners[there]
    ]
    return xr.Dataset(
        {
            **{name: (axes, flat[name].values.reshape(grid)) for name in
               ("winner", "dominance", "onset")},
            "boundary": (("point", "axis"), np.array(boundary).reshape(-1, 2)),
            "tolerance": ("axis", [(s[1] - s[0]) / 2 ** (HALVINGS + 1) for s in sides]),
        },
        coords={axes[0]: sides[0], axes[1]: sides[1], "axis": list(axes)},
        attrs={"horizon": horizon},
    )  # fmt: skip


def _neighbours(grid: tuple[int, int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    across = [((i, j), (i + 1, j)) for i in range(grid[0] - 1) for j in range(grid[1])]
    along = [((i, j), (i, j + 1)) for i in range(grid[0]) for j in range(grid[1] - 1)]
    return across + along


def _between(
    here: np.ndarray, there: np.ndarray, won: str, winner: Callable[[np.ndarray], str]
) -> np.ndarray:
    """The middle of the last interval at whose ends different circuits win; `won` wins here."""
    for _ in range(HALVINGS):
        middle = (here + there) / 2
        here, there = (middle, there) if winner(middle) == won else (here, middle)
    return (here + there) / 2


def _check(field: ReducedField, at: np.ndarray, axes, spans, grid) -> None:
    wrong = []
    if at.shape != (field.dim,):
        wrong.append(f"at got an array {at.shape}; allowed: the field's {field.dim} coordinates")
    if len(set(axes)) != 2 or not set(axes) <= set(field.names):
        wrong.append(f"axes got {axes!r}; allowed: two of {', '.join(field.names)}")
    if len(spans) != 2 or not all(np.isfinite(s).all() and s[0] < s[1] for s in spans):
        wrong.append(f"spans got {spans!r}; allowed: (low, high) for each axis, low below high")
    if len(grid) != 2 or any(count < 2 for count in grid):
        wrong.append(f"grid got {grid!r}; allowed: two numbers of points, each 2 or more")
    if wrong:
        raise ValueError("basin: " + "; ".join(wrong))
