"""Branches of fixed points by pseudo-arclength continuation, and their bifurcations.

A fixed point of the flow with weight decay is followed through a parameter of the data or the
decay, around folds. Theory, section 5; the method is Keller's pseudo-arclength continuation.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as attribute

import numpy as np
import pandas as pd

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.course import Course, Trail
from manifold.dynamics.curve import point
from manifold.dynamics.equations import PARAMETERS, Equations, FieldEquations, newton
from manifold.dynamics.field import ReducedField


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Branch:
    """A branch of fixed points in order of arclength.

    table: the parameter, each coordinate, stable, leading (largest real part of an eigenvalue),
    unstable (how many are positive) and, for a reduced field, loss. bifurcations: in the order
    met. unresolved: a sentence for each place where something degenerates that could not be
    refined. ended: why the branch stops, in words.
    """

    parameter: str
    table: pd.DataFrame
    bifurcations: tuple[Bifurcation, ...]
    unresolved: tuple[str, ...]
    ended: str
    course: Course = attribute(repr=False)

    @property
    def folds(self) -> tuple[Bifurcation, ...]:
        """The saddle-nodes among the bifurcations."""
        return tuple(one for one in self.bifurcations if one.kind == "fold")

    @property
    def states(self) -> np.ndarray:
        """(points, coordinates)."""
        return self.table[list(self._names)].to_numpy()

    @property
    def _names(self) -> tuple[str, ...]:
        names = list(map(str, self.table.columns))
        return tuple(names[1 : names.index("stable")])

    def columns(self, state: np.ndarray, value: float) -> dict[str, float]:
        """A state at a value of the parameter under the names of the table, its loss included."""
        named = {self.parameter: value, **dict(zip(self._names, map(float, state), strict=True))}
        equations = self.course.equations
        if isinstance(equations, FieldEquations):
            named["loss"] = equations.at(value)[0].loss(state)
        return named


def equilibrium(
    field: ReducedField, start: np.ndarray, weight_decay: float, longest: float = 1e6
) -> np.ndarray:
    """Follow the flow from `start` until its speed is below 1e-6, then Newton: a fixed point.

    Metastable states relax at 1e-3 and slower, hence the small speed before Newton may take over.
    ValueError without weight decay: then there is no fixed point at finite distance. RuntimeError
    where the flow has not come to rest by time `longest`.
    """
    positive("weight_decay", weight_decay)
    state, elapsed, stretch = np.asarray(start, dtype=float), 0.0, 500.0
    if not np.isfinite(state).all():
        raise ValueError(f"the start is {state}; its coordinates must be finite")
    while np.linalg.norm(field.flow(state, weight_decay)) > 1e-6:
        if elapsed >= longest:
            raise RuntimeError(
                f"the flow still moves at time {elapsed:.0f} (weight_decay is {weight_decay}); "
                "give it longer"
            )
        state = field.integrate(state, [stretch], weight_decay, rtol=1e-4)[-1]
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
    at: float | None = None,
    step: float = 0.05,
) -> Branch:
    """The branch of fixed points through the state that the flow from `start` reaches at `at`.

    parameter: "f_v" or "f_r" of the query (distractors stay where the task put them), or
    "weight_decay", which then takes its values from `span`. at: where in the span the branch
    begins, span[0] unless given. It sets out towards span[1], turns at folds, and ends where it
    leaves the span. step: largest arclength of a step, parameter measured in lengths of the span,
    coordinates in their own units divided by 10.

    ValueError for another parameter, a span of no length or outside the parameter's range, `at`
    outside the span, and where the weight decay is not above 0 all along. RuntimeError as in
    `equilibrium`.
    """
    if parameter not in PARAMETERS:
        raise ValueError(f"parameter is {parameter!r}; one of {', '.join(PARAMETERS)}")
    first, last = map(float, span)
    _apart(first, last)
    begin = inside(at, (first, last))
    for end in (first, last):
        if parameter == "weight_decay":
            positive("span of weight_decay", end)
        else:
            field.at(**{parameter: end})
    equations = FieldEquations(field=field, parameter=parameter, weight_decay=weight_decay)
    here, decay = equations.at(begin)
    state = equilibrium(here, start, decay)
    return continue_equations(equations, state, span=(first, last), at=begin, step=step)


def continue_equations(
    equations: Equations,
    start: np.ndarray,
    *,
    span: tuple[float, float],
    at: float | None = None,
    step: float = 0.05,
    scale: float = 10.0,
) -> Branch:
    """Follow F(x, p) = 0 from x near `start` at p = `at`, span[0] unless given, towards span[1].

    Works in y = (x / scale, (p - span[0]) / (span[1] - span[0])): prediction along the tangent,
    Newton in the hyperplane through the prediction, step halved where Newton fails or the tangent
    turns by more than 0.2, grown by 1.3 otherwise.

    Found between neighbouring points and refined by Newton: fold (dp/ds changes sign),
    transcritical and pitchfork (the determinant of the bordered system does), Hopf (a pair of
    complex eigenvalues crosses). ValueError where the equations are not finite at the start;
    RuntimeError where no fixed point is near it, or it is itself a bifurcation.
    """
    _apart(*span)
    course, x, begin = (
        Course(equations=equations, span=span, scale=scale, step=step),
        _array(start),
        inside(at, span),
    )
    if not np.isfinite(course.rows(course.scaled(x, begin))).all():
        raise ValueError(
            f"the equations or their derivatives are not finite at the start {x}, parameter "
            f"{begin}; start where they are defined"
        )
    found, resting = newton(equations, x, begin), equations.residual(x, begin)
    if found is None and np.abs(resting).max() > 1e-9:
        raise RuntimeError(
            f"no fixed point near the start at parameter {begin}: Newton's method does not "
            "converge from there; fixed_points searches from many starts"
        )
    here = None
    if found is not None:
        towards = np.append(np.zeros_like(found), 1.0)
        here = point(course, course.scaled(found, begin), towards)
    if here is None:
        raise RuntimeError(
            f"the start is itself a bifurcation, at parameter {begin}; start beside it"
        )
    return branch_of(course, course.follow(here))


def branch_of(course: Course, trail: Trail) -> Branch:
    """The trail as a record; that of a reduced field with its names and its loss."""
    table, equations, name = course.table(trail.points), course.equations, "parameter"
    if isinstance(equations, FieldEquations):
        name = equations.parameter
        states = [course.state(one.y) for one in trail.points]
        table = table.assign(loss=[equations.at(p)[0].loss(x) for x, p in states])
        names = {f"x{i}": each for i, each in enumerate(equations.field.names)}
        table = table.rename(columns={"parameter": name, **names})
    return Branch(
        parameter=name,
        table=table,
        bifurcations=tuple(trail.bifurcations),
        unresolved=tuple(trail.unresolved),
        ended=trail.ended,
        course=course,
    )


def positive(name: str, value: float) -> None:
    """ValueError where a weight decay leaves no fixed point at finite distance."""
    if not 0 < value < np.inf:
        raise ValueError(
            f"{name} got {value}; allowed: above 0, since without decay the weights grow for ever "
            "and no fixed point lies at finite distance"
        )


def _apart(first: float, last: float) -> None:
    if first == last or not np.isfinite([first, last]).all():
        raise ValueError(f"span is ({first}, {last}); its ends must differ and be finite")


def inside(at: float | None, span: tuple[float, float]) -> float:
    """Where on its span a curve begins: `at`, or else span[0]."""
    begin = float(span[0]) if at is None else float(at)
    if not min(span) <= begin <= max(span):
        raise ValueError(f"at is {at}; a curve begins inside its span {span}, or leave it out")
    return begin


def _array(start: np.ndarray) -> np.ndarray:
    x = np.asarray(start, dtype=float)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"the start is {x}; it must be one state of finite coordinates")
    return x
