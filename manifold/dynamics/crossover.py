"""Crossovers: a chosen difference changes sign along a branch where nothing degenerates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from manifold.dynamics.bifurcation import Bifurcation, by_size
from manifold.dynamics.continuation import Branch
from manifold.dynamics.equations import newton
from manifold.dynamics.field import ReducedField


def crossovers(
    branch: Branch, difference: Callable[[Mapping[str, Any]], Any]
) -> tuple[Bifurcation, ...]:
    """Where `difference` of the branch's columns is zero and every eigenvalue is negative.

    difference: from a mapping of column names to numbers or arrays, as in
    `lambda c: c["alpha"] * c["beta"] * c["gamma"] - c["delta"]` or `lambda c: c["loss"] - 0.5`.
    A sign change on an unstable stretch, or beside a bifurcation, is none: there the switch is
    the bifurcation. The state is refined in the parameter until the difference is below 1e-10
    of its size on either side, or the interval is at rounding. ValueError where the difference
    is not one finite number for each point.
    """
    table = branch.table
    values = np.asarray(difference({str(name): table[name].to_numpy() for name in table}), float)
    if values.shape != (len(table),) or not np.isfinite(values).all():
        raise ValueError(
            f"the difference must be one finite number for each of {len(table)} points, got "
            f"{values.shape} with {int((~np.isfinite(values)).sum())} that are not finite"
        )
    stable = table["stable"].to_numpy(bool)
    changes = np.flatnonzero((values[:-1] * values[1:] < 0) & stable[:-1] & stable[1:])
    found = [_refine(branch, difference, int(i), values) for i in changes]
    return tuple(one for one in found if one is not None)


def undecided(field: ReducedField) -> Callable[[Mapping[str, Any]], Any]:
    """A difference for `crossovers`: mean loss of mismatch queries less ln 2.

    0 where what the context says has probability one half while the weights say otherwise.
    """
    conflict = field.at(f_r=0.0, f_v=1.0)

    def difference(columns: Mapping[str, Any]) -> Any:
        states = np.column_stack([np.atleast_1d(columns[name]) for name in field.names])
        found = np.array([conflict.loss(state) for state in states]) - math.log(2)
        return found if np.ndim(columns["loss"]) else float(found[0])

    return difference


def _refine(
    branch: Branch,
    difference: Callable[[Mapping[str, Any]], Any],
    index: int,
    values: np.ndarray,
) -> Bifurcation | None:
    """False position (Illinois) in the parameter, Newton at each value."""
    equations, states = branch.course.equations, branch.states
    parameters = branch.table[branch.parameter].to_numpy()
    low = float(parameters[index]), float(values[index])
    high = float(parameters[index + 1]), float(values[index + 1])
    level, x, p = 1e-10 * max(abs(low[1]), abs(high[1])), states[index], low[0]
    for _ in range(60):
        p = high[0] - high[1] * (high[0] - low[0]) / (high[1] - low[1])
        part = (p - parameters[index]) / (parameters[index + 1] - parameters[index])
        guess = states[index] + part * (states[index + 1] - states[index])
        here = newton(equations, guess, p)
        if here is None:
            return None
        x, value = here, float(difference(branch.columns(here, p)))
        if abs(value) < level or abs(high[0] - low[0]) < 1e-13 * abs(p):
            break
        if value * high[1] < 0:
            low, high = high, (p, value)
        else:
            low, high = (low[0], low[1] / 2), (p, value)
    values_there = np.linalg.eigvals(equations.jacobian(x, p))
    return Bifurcation(
        kind="crossover",
        value=p,
        state=x,
        eigenvalues=by_size(values_there),
        residual=float(np.abs(equations.residual(x, p)).max()),
    )
