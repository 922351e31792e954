"""Phase diagrams: where training ends over two parameters, from zero and from in context.

Where the two starts end apart there is hysteresis, and the boundary is a fold; where they end
together, a change from weights to context is a crossover (theory, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.continuation import Branch, continue_equations, equilibrium, positive
from manifold.dynamics.crossover import crossovers, undecided
from manifold.dynamics.cusp import Cusp, FoldCurve, continue_folds
from manifold.dynamics.equations import PARAMETERS, FieldEquations
from manifold.dynamics.field import CHEAP, ReducedField
from manifold.dynamics.suppression import parts

FLAGS = ("weights", "context", "neither", "bistable", "unsettled")
CIRCUIT = {"alpha": 3.0, "beta": 3.6, "gamma": 3.9, "delta": 2.3}
"""Sizes at which the induction circuit comes to rest in context wherever it can, at n = 3."""
Progress = Callable[[float, str], None]
"""progress(fraction done, what is happening)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseDiagram:
    """Final states over a grid of two parameters, the branches through them, and their folds.

    parameters: along the rows (x), and from row to row (y). states: x, y, start (zero or context),
    answer (weights, context, neither), accuracy on each kind, loss, stable, leading (largest real
    part of an eigenvalue) and the coordinates; NaN where the flow did not settle. grid: x, y and
    the flag: bistable where the two starts end in different states, else what the one state
    answers mismatch queries with, or unsettled. marks: y, kind (fold, crossover, ..), x, and
    whether a state that attracts ends there: every bifurcation and crossover on a branch that a
    final state lies on. curves: the folds in both parameters; empty where the field has more than 8
    coordinates, whose folds are among the marks alone. notes: what failed, in sentences.
    """

    parameters: tuple[str, str]
    states: pd.DataFrame
    grid: pd.DataFrame
    marks: pd.DataFrame
    curves: tuple[FoldCurve, ...]
    notes: tuple[str, ...]

    @property
    def cusps(self) -> tuple[Cusp, ...]:
        return tuple(cusp for curve in self.curves for cusp in curve.cusps)

    def switch(self, y: float) -> str:
        """How the answer changes along the row y: fold, crossover or none."""
        row = self.marks[self.marks[self.parameters[1]] == y]
        kinds = set(row["kind"])
        return next((kind for kind in ("fold", "crossover") if kind in kinds), "none")


def in_context(field: ReducedField) -> np.ndarray:
    """A start in context, (dim,): the induction circuit with its answer from weights, all else 0.

    ValueError where the field has none of its coordinates.
    """
    index = parts(field.names)
    if index is None:
        raise ValueError(
            f"the field of {type(field.task).__name__} has no coordinates alpha, beta, gamma and "
            "delta to put an induction circuit in; give the start in context"
        )
    start = np.zeros(field.dim)
    for part, size in CIRCUIT.items():
        start[list(index[part])] = size
    return start


def phase_diagram(
    field: ReducedField,
    grid: Mapping[str, Sequence[float]],
    *,
    weight_decay: float = 1e-3,
    context: np.ndarray | None = None,
    progress: Progress | None = None,
) -> PhaseDiagram:
    """Final states on a grid of two of f_v, f_r (of the query) and weight_decay.

    grid: the parameter along the rows, then the one from row to row, each with two or more
    increasing values. weight_decay: where it is not swept. context: the second start, (dim,),
    `in_context(field)` unless given.

    At every point of the grid the flow is followed from both starts until it is at rest. In every
    row each branch that a final state lies on is continued both ways, which gives its folds and
    crossovers (mismatch queries, where weights and context disagree, answered with probability
    one half); folds are then continued in both parameters.

    ValueError for other parameters, fewer than two values, values out of range or out of order,
    and without weight decay, where no fixed point lies at finite distance.
    """
    names, values = _checked(field, grid, weight_decay)
    second = in_context(field) if context is None else context
    starts = {"zero": np.zeros(field.dim), "context": second}
    work = _Work(field, names, values, weight_decay, starts, progress or (lambda *_: None))
    return work.diagram()


def _checked(
    field: ReducedField, grid: Mapping[str, Sequence[float]], weight_decay: float
) -> tuple[tuple[str, str], tuple[list[float], list[float]]]:
    if len(grid) != 2:
        raise ValueError(
            f"the grid has {len(grid)} parameters ({', '.join(grid) or 'none'}); give two different"
            f" ones of {', '.join(PARAMETERS)}"
        )
    for name, values in grid.items():
        if name not in PARAMETERS:
            raise ValueError(f"the grid has {name!r}; allowed: two of {', '.join(PARAMETERS)}")
        given = np.asarray(values, dtype=float)
        if given.ndim != 1 or len(given) < 2 or not (np.diff(given) > 0).all():
            raise ValueError(
                f"{name} has the values {list(values)}; two or more are needed, in increasing order"
            )
        for value in given[[0, -1]]:
            if name == "weight_decay":
                positive("weight_decay on the grid", value)
            else:
                field.at(**{name: float(value)})
    if "weight_decay" not in grid:
        positive("weight_decay", weight_decay)
    first, second = grid
    return (first, second), ([float(v) for v in grid[first]], [float(v) for v in grid[second]])


class _Work:
    """The diagram as it is made."""

    def __init__(
        self,
        field: ReducedField,
        names: tuple[str, str],
        values: tuple[list[float], list[float]],
        weight_decay: float,
        starts: Mapping[str, np.ndarray],
        progress: Progress,
    ) -> None:
        self.field, self.names, self.values = field, names, values
        self.starts, self.progress, self.notes = starts, progress, []
        self.base = FieldEquations(field=field, parameter=names[0], weight_decay=weight_decay)
        self.curves: list[FoldCurve] = []
        self.marks: list[dict[str, Any]] = []

    def diagram(self) -> PhaseDiagram:
        rows, states = self.values[1], []
        for number, y in enumerate(rows):
            done = number / (len(rows) + 1)
            found = self._row(y, done)
            states += found
            self.progress(done, f"{self.names[1]} = {y:.3g}: branches")
            for branch in self._branches(y, found):
                self._events(y, branch)
        table = pd.DataFrame(states)
        return PhaseDiagram(
            parameters=self.names,
            states=table,
            grid=_flagged(table, self.names, self.field.names),
            marks=pd.DataFrame(self.marks, columns=[self.names[1], "kind", self.names[0], "ends"]),
            curves=tuple(self.curves),
            notes=tuple(self.notes),
        )

    def _row(self, y: float, done: float) -> list[dict[str, Any]]:
        """Final states of one row, a record for each x and start."""
        equations, found = self.base.moved(self.names[1], y), []
        for number, x in enumerate(self.values[0]):
            part = number / len(self.values[0]) / (len(self.values[1]) + 1)
            self.progress(done + part, f"{self.names[1]} = {y:.3g}, {self.names[0]} = {x:.3g}")
            here, decay = equations.at(x)
            for start, state in self.starts.items():
                record = {self.names[0]: x, self.names[1]: y, "start": start}
                try:
                    rest = equilibrium(here, state, decay)
                except RuntimeError as error:
                    self.notes.append(
                        f"{self.names[0]} = {x:.6g}, {self.names[1]} = {y:.6g}, from {start}: "
                        f"{error}"
                    )
                    rest = np.full(self.field.dim, np.nan)
                found.append(record | _read(here, rest, decay))
        return found

    def _branches(self, y: float, found: Sequence[Mapping[str, Any]]) -> list[Branch]:
        """Each branch of the row that a final state lies on, followed to both ends of the row."""
        equations, branches = self.base.moved(self.names[1], y), []
        low, high = self.values[0][0], self.values[0][-1]
        for record in found:
            x = float(str(record[self.names[0]]))
            state = np.array([record[name] for name in self.field.names], dtype=float)
            if not np.isfinite(state).all() or any(_passes(b, x, state) for b in branches):
                continue
            for span in ((low, high), (high, low)):
                try:
                    branches.append(continue_equations(equations, state, span=span, at=x, step=0.2))
                except RuntimeError as error:
                    self.notes.append(f"{self.names[1]} = {y:.6g}: {error}")
        return branches

    def _events(self, y: float, branch: Branch) -> None:
        """Marks of a branch's bifurcations and crossovers, and curves of its folds."""
        self.notes += [f"{self.names[1]} = {y:.6g}: {sentence}" for sentence in branch.unresolved]
        for one in (*branch.bifurcations, *crossovers(branch, undecided(self.field))):
            mark: dict[str, Any] = {self.names[1]: y, "kind": one.kind, self.names[0]: one.value}
            if any(_same(mark, other) for other in self.marks):
                continue
            self.marks.append(mark | {"ends": bool((np.real(one.eigenvalues[1:]) < 0).all())})
            if one.kind == "fold" and self.field.dim <= CHEAP:
                self._curve(y, branch, one)

    def _curve(self, y: float, branch: Branch, fold: Bifurcation) -> None:
        """The fold in both parameters, unless a curve already passes through it."""
        if any(_on(curve, y, fold) for curve in self.curves):
            return
        low, high = self.values[1][0], self.values[1][-1]
        done = self.values[1].index(y) / (len(self.values[1]) + 1)
        self.progress(done, f"a curve of folds through {self.names[0]} = {fold.value:.4g}")
        for span in ((low, high), (high, low)):
            if y == span[1]:
                continue
            try:
                curve = continue_folds(
                    branch, fold, second_parameter=self.names[1], span=span, at=y, step=0.2
                )
            except ValueError as error:
                self.notes.append(f"the fold at {fold.value:.6g} is not followed: {error}")
                continue
            self.curves.append(curve)


def _read(field: ReducedField, state: np.ndarray, weight_decay: float) -> dict[str, Any]:
    """What a final state answers with, how well, and whether it attracts."""
    named = dict(zip(field.names, map(float, state), strict=True))
    if not np.isfinite(state).all():
        return {"answer": "unsettled", "stable": False, "leading": np.nan, **named}
    accuracy = field.kinds(state)["accuracy"].to_dict()
    leading = float(np.linalg.eigvals(field.jacobian(state, weight_decay)).real.max())
    answer = "neither"
    if accuracy.get("mismatch", 0.0) > 0.5:
        answer = "context"
    elif accuracy.get("iwl", 0.0) > 0.5:
        answer = "weights"
    return {
        "answer": answer,
        **{str(kind): value for kind, value in accuracy.items()},
        "loss": field.loss(state),
        "stable": leading < 0,
        "leading": leading,
        **named,
    }


def _flagged(
    states: pd.DataFrame, names: tuple[str, str], coordinates: Sequence[str]
) -> pd.DataFrame:
    records = []
    for y, x in sorted(set(zip(states[names[1]], states[names[0]], strict=True))):
        pair = states[(states[names[0]] == x) & (states[names[1]] == y)]
        answers, points = list(pair["answer"]), np.asarray(pair[list(coordinates)], float)
        alike = np.allclose(points[0], points[1], atol=1e-4, rtol=1e-4)
        settled = answers[0] if alike else "bistable"
        flag = "unsettled" if "unsettled" in answers else settled
        records.append({names[0]: x, names[1]: y, "flag": flag})
    return pd.DataFrame(records)


def _passes(branch: Branch, x: float, state: np.ndarray) -> bool:
    """Does the branch pass the state at x, by the line between its neighbouring points?"""
    at, points = np.asarray(branch.table[branch.parameter]), branch.states
    for i in np.flatnonzero((at[:-1] - x) * (at[1:] - x) <= 0):
        part = 0.0 if at[i] == at[i + 1] else (x - at[i]) / (at[i + 1] - at[i])
        here = points[i] + part * (points[i + 1] - points[i])
        far = np.linalg.norm(points[i + 1] - points[i]) + 1e-3 * np.linalg.norm(state) + 1e-6
        if np.linalg.norm(here - state) <= 0.3 * far:
            return True
    return False


def _same(mark: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Two branches that cover one stretch meet the same events."""
    return all(
        value == other[name]
        if isinstance(value, str)
        else bool(np.isclose(float(str(value)), float(str(other[name])), rtol=1e-6, atol=1e-12))
        for name, value in mark.items()
    )


def _on(curve: FoldCurve, y: float, fold: Bifurcation) -> bool:
    """Does the curve pass the fold at y, by the line between its neighbouring points?"""
    first, second = curve.parameters
    p, q = np.asarray(curve.table[first]), np.asarray(curve.table[second])
    for i in np.flatnonzero((q[:-1] - y) * (q[1:] - y) <= 0):
        part = 0.0 if q[i] == q[i + 1] else (y - q[i]) / (q[i + 1] - q[i])
        here = p[i] + part * (p[i + 1] - p[i])
        if abs(here - fold.value) <= 0.3 * abs(p[i + 1] - p[i]) + 1e-3 * abs(fold.value):
            return True
    return False
