"""Folds followed in two parameters, to the cusps where they end in pairs.

Moore and Spence's system F = 0, J v = 0, v . v = 1 is n + n + 1 equations in x, v and two
parameters: a curve, smooth through a cusp, where w . D^2 F(v, v) changes sign along it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import root_scalar

from manifold.dynamics.bifurcation import Bifurcation, by_size
from manifold.dynamics.continuation import Branch, inside, positive
from manifold.dynamics.course import MOST
from manifold.dynamics.curve import Point, advance, point, trace
from manifold.dynamics.equations import Equations, FieldEquations, rows, second, third
from manifold.dynamics.fold import left_null_vector, refine_fold

Family = Callable[[float], Equations]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cusp:
    """A fold whose quadratic coefficient is zero: two folds meet there and end.

    values: of the first and the second parameter. cubic: w . (D^3 F(v, v, v) + 3 D^2 F(v, h)),
    J h = -D^2 F(v, v); not 0 at a non-degenerate cusp, negative where the outer states attract.
    residual: largest entry of F, J v, v . v - 1 and w . D^2 F(v, v). error: how far the
    parameters move if the residual is off by as much again.
    """

    values: tuple[float, float]
    state: np.ndarray
    null_vector: np.ndarray
    eigenvalues: np.ndarray
    cubic: float
    residual: float
    error: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldCurve:
    """Folds in two parameters, in order of arclength.

    table: both parameters, each coordinate, quadratic (changes sign at a cusp), transversality
    w . dF/dp (changes sign where the curve turns in the second parameter without a cusp: there
    two folds meet because branches reconnect) and nearest, the next eigenvalue to zero. cusps:
    in the order met. ended: why it stops, in words.
    """

    parameters: tuple[str, str]
    table: pd.DataFrame
    cusps: tuple[Cusp, ...]
    ended: str


def continue_folds(
    branch: Branch,
    fold: Bifurcation,
    *,
    second_parameter: str | Family,
    span: tuple[float, float],
    at: float | None = None,
    step: float = 0.05,
) -> FoldCurve:
    """The curve of folds through a fold of `branch`, in its parameter and a second one.

    second_parameter: "weight_decay", "f_r" or "f_v" for a reduced field; else a function of its
    value that gives equations in the branch's parameter. at: its value on the branch, span[0]
    unless given. The curve sets out towards span[1], and ends where it leaves this span, or the
    first parameter its range. step: arclength, lengths of both spans and tenths of coordinates as
    in continue_branch.

    ValueError for a bifurcation that is no fold, the branch's own parameter, a value `at` that is
    not where the branch is, or a weight decay not above 0. No cusp found is an empty tuple.
    """
    if fold.kind != "fold" or fold.null_vector is None:
        raise ValueError(f"got a {fold.kind}; folds alone are continued in two parameters")
    equations, names, bounds = (
        branch.course.equations,
        (branch.parameter, "second"),
        (-np.inf, np.inf),
    )
    if isinstance(second_parameter, str):
        if not isinstance(equations, FieldEquations):
            raise ValueError(
                f"second_parameter is {second_parameter!r}; for equations of one's own give a "
                "function from its value to equations"
            )
        family, names = _moved(equations, second_parameter, span), (names[0], second_parameter)
        bounds = (0.0, np.inf) if names[0] == "weight_decay" else (0.0, 1.0)
    else:
        family = second_parameter
    system = _Folds(family, branch, fold, span)
    start = system.start(fold, inside(at, span))
    points, cusps, ended = [start], [], ""
    for here, ahead in trace(system, start, step, lambda *_: False):
        cusp = system.cusp(here, ahead)
        p, q = system.parameters(ahead.y)
        if cusp is not None:
            cusps.append(cusp)
        if not bounds[0] <= p <= bounds[1]:
            ended = f"the curve leaves the range of {names[0]} at {names[1]} {q:.6g}"
        elif not 0.0 <= ahead.y[-1] <= 1.0:
            ended = f"the curve leaves the span of {names[1]} at {span[int(ahead.y[-1] > 1)]}"
            edge = system.edge(here, ahead)
            points += [edge] if edge is not None else []
        elif len(points) > MOST:
            ended = f"{MOST} points were computed"
        if ended:
            break
        points.append(ahead)
    else:
        ended = "the step became too small: the curve of folds is not smooth here"
    return FoldCurve(
        parameters=names,
        table=system.table(points, names, _coordinates(branch)),
        cusps=tuple(cusps),
        ended=ended,
    )


def _moved(equations: FieldEquations, second: str, span: tuple[float, float]) -> Family:
    if second == equations.parameter:
        raise ValueError(f"second_parameter is {second!r}, which the branch itself moves along")
    for end in span:
        if second == "weight_decay":
            positive("span of weight_decay", end)
        else:
            equations.field.at(**{second: end})
    return lambda q: equations.moved(second, q)


def _coordinates(branch: Branch) -> list[str]:
    names = list(map(str, branch.table.columns))
    return names[1 : names.index("stable")]


class _Folds:
    """z = (x / scale, v, p in lengths of the branch's span, q along its span)."""

    def __init__(
        self, family: Family, branch: Branch, fold: Bifurcation, span: tuple[float, float]
    ) -> None:
        first, last = map(float, span)
        if first == last or not np.isfinite([first, last]).all():
            raise ValueError(f"span is ({first}, {last}); its ends must differ and be finite")
        course = branch.course
        self.family, self.dim, self.scale = family, len(fold.state), course.scale
        self.origin = np.array([fold.value, first])
        self.lengths = np.array([course.span[1] - course.span[0], last - first])

    def parameters(self, y: np.ndarray) -> tuple[float, float]:
        p, q = self.origin + y[-2:] * self.lengths
        return float(p), float(q)

    def split(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return y[: self.dim] * self.scale, y[self.dim : 2 * self.dim]

    def start(self, fold: Bifurcation, begin: float) -> Point:
        there = refine_fold(self.family(begin), fold.state, fold.value, np.array(fold.null_vector))
        if there is None or abs(there.value - fold.value) > 1e-6 * abs(self.lengths[0]):
            raise ValueError(
                f"the curve is to begin at {begin}, where the branch's equations have no fold at "
                f"{fold.value:.6g}; begin at the value that the branch was computed for"
            )
        along = (begin - self.origin[1]) / self.lengths[1]
        null = np.array(there.null_vector)
        y = np.concatenate([there.state / self.scale, null, [0.0, along]])
        # of the two ways along the curve the one on which the second parameter sets out
        here = point(self, y, np.append(np.zeros(len(y) - 1), 1.0))
        if here is None:
            raise ValueError("the fold is degenerate in the second parameter; start beside it")
        return here

    def edge(self, inside: Point, outside: Point) -> Point | None:
        """The curve's point on the end of the span of the second parameter that was crossed."""
        end = float(outside.y[-1] > 1)
        part = (end - inside.y[-1]) / (outside.y[-1] - inside.y[-1])
        y = inside.y + part * (outside.y - inside.y)
        (x, v), (p, q) = self.split(y), self.parameters(y)
        fold = refine_fold(self.family(q), x, p, v)
        if fold is None:
            return None
        null = np.array(fold.null_vector) * np.sign(np.array(fold.null_vector) @ v)
        ratio = (fold.value - self.origin[0]) / self.lengths[0]
        there = np.concatenate([fold.state / self.scale, null, [ratio, end]])
        return point(self, there, inside.tangent)

    def gap(self, y: np.ndarray) -> np.ndarray:
        (x, v), (p, q) = self.split(y), self.parameters(y)
        equations = self.family(q)
        jacobian = equations.jacobian(x, p)
        return np.concatenate([equations.residual(x, p), jacobian @ v, [(v @ v - 1) / 2]])

    def rows(self, y: np.ndarray) -> np.ndarray:
        (x, v), (p, q), n = self.split(y), self.parameters(y), self.dim
        equations, h = self.family(q), 1e-4 * self.lengths[1]
        slopes, bent = rows(equations, x, p), second(equations, x, p, np.append(v, 0.0))
        above, below = self.family(q + h), self.family(q - h)
        system = np.zeros((2 * n + 1, 2 * n + 2))
        system[:n, :n], system[:n, -2] = slopes[:, :n] * self.scale, slopes[:, n] * self.lengths[0]
        system[n : 2 * n, :n] = bent[:, :n] * self.scale
        system[n : 2 * n, n : 2 * n] = slopes[:, :n]
        system[n : 2 * n, -2] = bent[:, n] * self.lengths[0]
        per = self.lengths[1] / (2 * h)
        system[:n, -1] = (above.residual(x, p) - below.residual(x, p)) * per
        system[n : 2 * n, -1] = (above.jacobian(x, p) - below.jacobian(x, p)) @ v * per
        system[-1, n : 2 * n] = v
        return system

    def jacobian(self, here: Point) -> np.ndarray:
        """J, of which the rows of the curve already hold a copy."""
        return here.rows[self.dim : 2 * self.dim, self.dim : 2 * self.dim]

    def quadratic(self, here: Point) -> float:
        """w . D^2 F(v, v), from the rows as well."""
        v = self.split(here.y)[1]
        bent = here.rows[self.dim : 2 * self.dim, : self.dim] / self.scale
        return float(left_null_vector(self.jacobian(here), v) @ bent @ v)

    def transversality(self, here: Point) -> float:
        """w . dF/dp, from the rows as well."""
        w = left_null_vector(self.jacobian(here), self.split(here.y)[1])
        return float(w @ here.rows[: self.dim, -2] / self.lengths[0])

    def cusp(self, here: Point, ahead: Point) -> Cusp | None:
        """Where the quadratic coefficient is zero between two points, by Brent's method.

        None where it has one sign, or jumps through infinity (w . v = 0, Bogdanov-Takens).
        """
        ends = self.quadratic(here), self.quadratic(ahead)
        if ends[0] * ends[1] >= 0:
            return None
        length = float((ahead.y - here.y) @ here.tangent)

        def at(part: float) -> Point | None:
            return {0.0: here, 1.0: ahead}.get(part) or advance(self, here, part * length)

        def value(part: float) -> float:
            one = at(part)
            return np.nan if one is None else self.quadratic(one)

        there = at(root_scalar(value, bracket=(0.0, 1.0), method="brentq", xtol=1e-12).root)
        if there is None or abs(self.quadratic(there)) > 1e-4 * max(map(abs, ends)):
            return None
        return self._record(there, abs(ends[1] - ends[0]) / abs(length))

    def _record(self, here: Point, slope: float) -> Cusp:
        (x, v), (p, q) = self.split(here.y), self.parameters(here.y)
        equations = self.family(q)
        jacobian, bent = self.jacobian(here), here.rows[self.dim : 2 * self.dim, : self.dim]
        bent = bent / self.scale
        w = left_null_vector(jacobian, v)
        h = -np.linalg.pinv(jacobian, rcond=1e-8) @ (bent @ v)
        gap, left = self.gap(here.y), abs(float(w @ bent @ v))
        # the parameters stand still at the cusp: they move with the square of the arclength
        along = left / slope
        moved = np.linalg.pinv(np.vstack([here.rows, here.tangent])) @ np.append(gap, along)
        error = (np.abs(moved[-2:]) + along**2) * np.abs(self.lengths)
        return Cusp(
            values=(p, q),
            state=x,
            null_vector=v,
            eigenvalues=by_size(np.linalg.eigvals(jacobian)),
            cubic=float(w @ (third(equations, x, p, v) @ v + 3 * bent @ h)),
            residual=max(float(np.abs(gap).max()), left),
            error=(float(error[0]), float(error[1])),
        )

    def table(self, points: list[Point], names: tuple[str, str], states: list[str]) -> pd.DataFrame:
        records = []
        for one in points:
            (x, _), (p, q) = self.split(one.y), self.parameters(one.y)
            values = by_size(np.linalg.eigvals(self.jacobian(one)))
            records.append(
                {
                    names[0]: p,
                    names[1]: q,
                    **dict(zip(states, map(float, x), strict=True)),
                    "quadratic": self.quadratic(one),
                    "transversality": self.transversality(one),
                    "nearest": float(values[1].real) if len(values) > 1 else float("nan"),
                }
            )
        return pd.DataFrame(records)
