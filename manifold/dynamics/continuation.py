"""Branches of fixed points by pseudo-arclength continuation, and their folds.

A fixed point of the flow with weight decay is followed through a parameter of the data or the
decay, around folds. Theory, section 5; the method is Keller's pseudo-arclength continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from manifold.dynamics.field import ReducedField
from manifold.dynamics.fold import NEWTON_STEPS, Equations, Fold, newton, refine_fold

PARAMETERS = ("f_v", "f_r", "weight_decay")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEquations:
    """The flow of a reduced field as a function of the state and one parameter."""

    field: ReducedField
    parameter: str
    weight_decay: float

    def _at(self, p: float) -> tuple[ReducedField, float]:
        if self.parameter == "weight_decay":
            return self.field, p
        return self.field.extended(self.parameter, p), self.weight_decay

    def residual(self, x: np.ndarray, p: float) -> np.ndarray:
        field, decay = self._at(p)
        return field.flow(x, decay)

    def jacobian(self, x: np.ndarray, p: float) -> np.ndarray:
        field, decay = self._at(p)
        return field.jacobian(x, decay)

    def parameter_derivative(self, x: np.ndarray, p: float) -> np.ndarray:
        field, _ = self._at(p)
        return field.parameter_derivative(x, self.parameter)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Branch:
    """A branch of fixed points in order of arclength.

    table: the parameter, each coordinate, stable, leading (largest real part of an eigenvalue),
    unstable (how many are positive) and, for a reduced field, loss. folds: in the order met.
    ended: why the branch stops, in words.
    """

    parameter: str
    table: pd.DataFrame
    folds: tuple[Fold, ...]
    ended: str


def equilibrium(
    field: ReducedField, start: np.ndarray, weight_decay: float, longest: float = 1e6
) -> np.ndarray:
    """Follow the flow from `start` until its speed is below 1e-6, then Newton: a fixed point.

    Metastable states relax at 1e-3 and slower, hence the small speed before Newton may take over.
    ValueError without weight decay: then there is no fixed point at finite distance. RuntimeError
    where the flow has not come to rest by time `longest`.
    """
    _positive("weight_decay", weight_decay)
    state, elapsed, stretch = np.asarray(start, dtype=float), 0.0, 500.0
    while np.linalg.norm(field.flow(state, weight_decay)) > 1e-6:
        if elapsed >= longest:
            raise RuntimeError(
                f"the flow still moves at time {elapsed:.0f} (weight_decay is {weight_decay}); "
                "give it longer"
            )
        state = field.integrate(state, [stretch], weight_decay)[-1]
        elapsed, stretch = elapsed + stretch, 2 * stretch
    equations = FieldEquations(field=field, parameter="weight_decay", weight_decay=weight_decay)
    found = newton(equations, state, weight_decay)
    if found is None:
        raise RuntimeError("Newton's method does not converge from where the flow came to rest")
    return found


def continue_branch(
    field: ReducedField,
    start: np.ndarray,
    *,
    parameter: str = "f_v",
    span: tuple[float, float],
    weight_decay: float,
    step: float = 0.05,
) -> Branch:
    """The branch of fixed points through the state that the flow from `start` reaches at span[0].

    parameter: "f_v" or "f_r" of the query (distractors stay where the task put them), or
    "weight_decay", which then takes its values from `span`. The branch sets out towards span[1],
    turns at folds, and ends where it leaves the span. step: largest arclength of a step,
    parameter measured in lengths of the span, coordinates in their own units divided by 10.

    ValueError for another parameter, a span of no length or outside the parameter's range, and
    where the weight decay is not above 0 all along. RuntimeError as in `equilibrium`.
    """
    if parameter not in PARAMETERS:
        raise ValueError(f"parameter is {parameter!r}; one of {', '.join(PARAMETERS)}")
    first, last = map(float, span)
    if first == last:
        raise ValueError(f"span is ({first}, {last}); its ends must differ")
    for end in (first, last):
        if parameter == "weight_decay":
            _positive("span of weight_decay", end)
        else:
            field.at(**{parameter: end})
    equations = FieldEquations(field=field, parameter=parameter, weight_decay=weight_decay)
    here, decay = equations._at(first)
    state = equilibrium(here, start, decay)
    branch = continue_equations(equations, state, span=(first, last), step=step)
    loss = [
        equations._at(p)[0].loss(x)
        for p, x in zip(branch.table["parameter"], _states(branch.table), strict=True)
    ]
    names = {f"x{i}": name for i, name in enumerate(field.names)}
    table = branch.table.rename(columns={"parameter": parameter, **names}).assign(loss=loss)
    return Branch(parameter=parameter, table=table, folds=branch.folds, ended=branch.ended)


def continue_equations(
    equations: Equations,
    start: np.ndarray,
    *,
    span: tuple[float, float],
    step: float = 0.05,
    scale: float = 10.0,
    most: int = 2000,
) -> Branch:
    """Follow F(x, p) = 0 from x near `start` at p = span[0] towards span[1].

    Works in y = (x / scale, (p - span[0]) / (span[1] - span[0])): prediction along the tangent,
    Newton in the hyperplane through the prediction, step halved where Newton fails or the tangent
    turns by more than 0.2, grown by 1.3 otherwise. A sign change of dp/ds is refined to a fold.
    """
    walk = _Walk(equations, span, scale)
    x = newton(equations, np.asarray(start, dtype=float), span[0])
    if x is None:
        raise RuntimeError(f"no fixed point near the start at parameter {span[0]}")
    here = walk.point(np.append(x / scale, 0.0), np.append(np.zeros_like(x), 1.0))
    points, folds, length, ended = [here], [], step / 10, f"{most} points were computed"
    for _ in range(most):
        ahead = walk.step(here, length)
        if ahead is None or ahead.tangent @ here.tangent < 0.98:
            length /= 2
            if length < 1e-9:
                ended = "the step became too small: the branch is not smooth here"
                break
            continue
        if ahead.tangent[-1] * here.tangent[-1] < 0:
            fold = walk.fold(here, ahead)
            folds += [fold] if fold is not None else []
        if not 0.0 <= ahead.y[-1] <= 1.0:
            edge = walk.edge(here, ahead)
            points += [edge] if edge is not None else []
            ended = f"the branch leaves the span at {span[int(ahead.y[-1] > 1)]}"
            break
        points.append(ahead)
        here, length = ahead, min(1.3 * length, step)
    return Branch(parameter="parameter", table=walk.table(points), folds=tuple(folds), ended=ended)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Point:
    """y = (x / scale, parameter along the span), dF/dy (n, n + 1) and the unit tangent there."""

    y: np.ndarray
    rows: np.ndarray
    tangent: np.ndarray


class _Walk:
    """The scaled equations y -> F, and the moves along their curve of zeros."""

    def __init__(self, equations: Equations, span: tuple[float, float], scale: float) -> None:
        self.equations, self.first, self.length = equations, span[0], span[1] - span[0]
        self.scale = scale

    def state(self, y: np.ndarray) -> tuple[np.ndarray, float]:
        return y[:-1] * self.scale, self.first + y[-1] * self.length

    def rows(self, y: np.ndarray) -> np.ndarray:
        x, p = self.state(y)
        by_parameter = self.equations.parameter_derivative(x, p) * self.length
        return np.column_stack([self.equations.jacobian(x, p) * self.scale, by_parameter])

    def point(self, y: np.ndarray, before: np.ndarray) -> _Point:
        """y with its tangent, pointing the way of `before`."""
        rows = self.rows(y)
        bordered = np.vstack([rows, before])
        direction = np.linalg.solve(bordered, np.append(np.zeros(len(rows)), 1.0))
        return _Point(y=y, rows=rows, tangent=direction / np.linalg.norm(direction))

    def step(self, here: _Point, length: float) -> _Point | None:
        """The zero of F in the hyperplane across the tangent, `length` ahead, or None.

        Newton's method that keeps its matrix while each move is a fifth of the one before.
        """
        tangent, before = here.tangent, np.inf
        guess = y = here.y + length * tangent
        bordered = np.vstack([here.rows, tangent])
        for _ in range(NEWTON_STEPS):
            gap = np.append(self.equations.residual(*self.state(y)), tangent @ (y - guess))
            move = np.linalg.solve(bordered, -gap)
            y, size = y + move, float(np.linalg.norm(move))
            if size < 1e-9:
                return self.point(y, tangent)
            if not np.isfinite(size) or size > max(before, length):
                return None
            if size > before / 5:
                bordered = np.vstack([self.rows(y), tangent])
            before = size
        return None

    def edge(self, inside: _Point, outside: _Point) -> _Point | None:
        """The branch's point on the end of the span that was crossed."""
        end = float(outside.y[-1] > 1)
        part = (end - inside.y[-1]) / (outside.y[-1] - inside.y[-1])
        x, p = self.state(np.append((inside.y + part * (outside.y - inside.y))[:-1], end))
        found = newton(self.equations, x, p)
        if found is None:
            return None
        return self.point(np.append(found / self.scale, end), inside.tangent)

    def fold(self, here: _Point, ahead: _Point) -> Fold | None:
        """Refine from where dp/ds, linear between the two points, is zero."""
        part = here.tangent[-1] / (here.tangent[-1] - ahead.tangent[-1])
        x, p = self.state(here.y + part * (ahead.y - here.y))
        along = here.tangent + part * (ahead.tangent - here.tangent)
        return refine_fold(self.equations, x, p, along[:-1])

    def table(self, points: Sequence[_Point]) -> pd.DataFrame:
        rows = []
        for point in points:
            x, p = self.state(point.y)
            values = np.linalg.eigvals(point.rows[:, :-1] / self.scale).real
            rows.append(
                {
                    "parameter": p,
                    **{f"x{i}": value for i, value in enumerate(x)},
                    "stable": bool(values.max() < 0),
                    "leading": values.max(),
                    "unstable": int((values > 0).sum()),
                }
            )
        return pd.DataFrame(rows)


def _positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise ValueError(
            f"{name} got {value}; allowed: above 0, since without decay the weights grow for ever "
            "and no fixed point lies at finite distance"
        )


def _states(table: pd.DataFrame) -> np.ndarray:
    return table[[name for name in table if str(name).startswith("x")]].to_numpy()
