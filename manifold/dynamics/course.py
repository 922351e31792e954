"""The curve of fixed points in scaled units, followed, with what happens on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.branch_point import refine_branch_point
from manifold.dynamics.curve import Point, point, trace, turned
from manifold.dynamics.equations import Equations, newton, rows
from manifold.dynamics.fold import refine_fold
from manifold.dynamics.hopf import refine_hopf

MOST = 2000
FINEST = 64
"""Two eigenvalues that cross in one step are told apart down to this part of the largest step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trail:
    """Points in order, bifurcations in the order met, what stayed unresolved, and why it ends."""

    points: list[Point]
    bifurcations: list[Bifurcation]
    unresolved: list[str]
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """F(x, p) = 0 in y = (x / scale, (p - span[0]) / (span[1] - span[0]))."""

    equations: Equations
    span: tuple[float, float]
    scale: float
    step: float

    def lengths(self, dim: int) -> np.ndarray:
        """Units of (x, p), (dim + 1,)."""
        return np.append(np.full(dim, self.scale), self.span[1] - self.span[0])

    def state(self, y: np.ndarray) -> tuple[np.ndarray, float]:
        p = self.span[0] + y[-1] * (self.span[1] - self.span[0])
        return y[:-1] * self.scale, float(p)

    def scaled(self, x: np.ndarray, p: float) -> np.ndarray:
        return np.append(x / self.scale, (p - self.span[0]) / (self.span[1] - self.span[0]))

    def gap(self, y: np.ndarray) -> np.ndarray:
        return self.equations.residual(*self.state(y))

    def rows(self, y: np.ndarray) -> np.ndarray:
        return rows(self.equations, *self.state(y)) * self.lengths(len(y) - 1)

    def spectrum(self, here: Point) -> np.ndarray:
        """Eigenvalues of J."""
        return np.linalg.eigvals(here.rows[:, :-1] / self.scale)

    def follow(self, here: Point) -> Trail:
        """The curve from `here` in the direction of its tangent, until it leaves the span."""
        points, found, unresolved = [here], [], []
        for before, ahead in trace(self, here, self.step, self._too_much):
            events, notes = self._between(before, ahead)
            inside = [e for e in events if 0 <= self.scaled(e.state, e.value)[-1] <= 1]
            found, unresolved = found + inside, unresolved + notes
            if not 0.0 <= ahead.y[-1] <= 1.0:
                edge = self._edge(before, ahead)
                points += [edge] if edge is not None else []
                ended = f"the branch leaves the span at {self.span[int(ahead.y[-1] > 1)]}"
                break
            points.append(ahead)
            if len(points) > MOST:
                ended = f"{MOST} points were computed"
                break
        else:
            ended = self._why_stuck(points[-1])
        return Trail(points=points, bifurcations=found, unresolved=unresolved, ended=ended)

    def table(self, points: list[Point]) -> pd.DataFrame:
        records = []
        for one in points:
            x, p = self.state(one.y)
            real = np.real(self.spectrum(one))
            records.append(
                {
                    "parameter": p,
                    **{f"x{i}": value for i, value in enumerate(x)},
                    "stable": bool(real.max() < 0),
                    "leading": real.max(),
                    "unstable": int((real > 0).sum()),
                }
            )
        return pd.DataFrame(records)

    def _too_much(self, here: Point, ahead: Point, length: float) -> bool:
        """Two eigenvalues changed sign in one step: shorter steps may tell them apart."""
        return abs(self._gained(here, ahead)) > 1 and length > self.step / FINEST

    def _gained(self, here: Point, ahead: Point) -> int:
        counts = [int((np.real(self.spectrum(one)) > 0).sum()) for one in (here, ahead)]
        return counts[1] - counts[0]

    def _between(self, here: Point, ahead: Point) -> tuple[list[Bifurcation], list[str]]:
        """Bifurcations between neighbouring points, and signs of one that was not resolved."""
        found, gained, crossing = [], self._gained(here, ahead), turned(here, ahead)
        if crossing is not None:
            found += self._near(here, ahead, crossing, self._branch_point(here, ahead, crossing))
        ends = here.tangent[-1], ahead.tangent[-1]
        branches = [one.kind for one in found]
        if ends[0] * ends[1] < 0 and "pitchfork" not in branches:
            part = ends[0] / (ends[0] - ends[1])
            found += self._near(here, ahead, part, self._fold(here, ahead, part))
        if abs(gained) > 1 or self._swinging(here) != self._swinging(ahead):
            x, p = self.state((here.y + ahead.y) / 2)
            found += self._near(here, ahead, 0.5, refine_hopf(self.equations, x, p))
        expected = {"fold": ends[0] * ends[1] < 0, "branch point": crossing is not None}
        missed = [name for name, seen in expected.items() if seen]
        if found or not (missed or gained):
            return found, []
        what = missed[0] if missed else f"change of {gained} in the number of unstable directions"
        bounds = [self.state(one.y)[1] for one in (here, ahead)]
        return [], [
            f"between {bounds[0]:.6g} and {bounds[1]:.6g} a {what} was seen but not resolved: "
            "several eigenvalues may cross together there, as a symmetry makes them"
        ]

    def _near(
        self, here: Point, ahead: Point, part: float, event: Bifurcation | None
    ) -> list[Bifurcation]:
        """The event, where it lies within twice the step of where it was expected."""
        if event is None:
            return []
        expected = here.y + part * (ahead.y - here.y)
        away = np.linalg.norm(self.scaled(event.state, event.value) - expected)
        return [event] if away <= 2 * np.linalg.norm(ahead.y - here.y) else []

    def _fold(self, here: Point, ahead: Point, part: float) -> Bifurcation | None:
        """Refine from where dp/ds, linear between the two points, is zero."""
        x, p = self.state(here.y + part * (ahead.y - here.y))
        along = here.tangent + part * (ahead.tangent - here.tangent)
        return refine_fold(self.equations, x, p, along[:-1])

    def _branch_point(self, here: Point, ahead: Point, part: float) -> Bifurcation | None:
        x, p = self.state(here.y + part * (ahead.y - here.y))
        lengths = self.lengths(len(x))
        towards = here.tangent * lengths
        return refine_branch_point(self.equations, np.append(x, p), towards, lengths)

    def _swinging(self, here: Point) -> int:
        """How many pairs of complex eigenvalues are unstable."""
        values = self.spectrum(here)
        level = 1e-7 * np.abs(values).max()
        return int(((np.imag(values) > level) & (np.real(values) > 0)).sum())

    def _edge(self, inside: Point, outside: Point) -> Point | None:
        """The branch's point on the end of the span that was crossed."""
        end = float(outside.y[-1] > 1)
        part = (end - inside.y[-1]) / (outside.y[-1] - inside.y[-1])
        x, p = self.state(np.append((inside.y + part * (outside.y - inside.y))[:-1], end))
        found = newton(self.equations, x, p)
        if found is None:
            return None
        return point(self, np.append(found / self.scale, end), inside.tangent)

    def _why_stuck(self, here: Point) -> str:
        beyond = self.gap(here.y + 1e-6 * here.tangent)
        p = self.state(here.y)[1]
        if not np.isfinite(beyond).all():
            return f"the equations are not finite beyond parameter {p:.6g}"
        return f"the step became too small at parameter {p:.6g}: the branch is not smooth here"
