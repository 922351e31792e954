"""Greedy backward elimination on manifold coordinates: the few that a circuit needs, by name."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from manifold.dynamics.field import ReducedField

CUT = 0.1
"""Share of the budget tau - L(c) that dropping several at once may use; the rest is for the search.
"""
LOOSE = 6.0
"""Before a refit a cut by size may take the loss to so many tau."""
REFIT_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Elimination:
    """essential: {name: value} of the coordinates left, largest contribution to the norm first.

    loss: of the model rebuilt from these alone. path: one row per step, with the name dropped
    ("" where a step dropped none or several), how, how many are left, and the loss after it.
    note: why it stopped, in words.
    """

    essential: dict[str, float]
    loss: float
    tau: float
    path: pd.DataFrame
    note: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.essential)

    def _repr_html_(self) -> str:
        """The coordinates left with their values, and why it stopped."""
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(name)}</td><td>{value:.3g}</td></tr>"
            for name, value in self.essential.items()
        )
        return (
            f"<p><b>{len(self.essential)} coordinates</b>, loss {self.loss:.3g} (at most "
            f"{self.tau:g})</p><table>{rows}</table><p>{escape(self.note)}</p>"
        )


def eliminate(
    field: ReducedField, c: np.ndarray, tau: float = 0.05, refit: bool = False
) -> Elimination:
    """Drop coordinates of the model rebuilt from c while its loss stays at most tau, in nats.

    1. Cut: those with the smallest |c_i| ||B_i|| at once, as many as keep the loss within a tenth
       of the budget tau - L(c), by bisection. It spares the search most of its work.
    2. Search: drop the one whose removal raises the loss least, and with it as many of the next
       as together stay within that tenth, until every removal would take the loss above tau.
    refit: let the coordinates left adapt (L-BFGS on the loss, at most 60 steps): cuts may then go
    to 6 tau, and are kept while refitting brings the loss below tau again; and whenever the search
    stops it is refitted and goes on while that drops any (arXiv 2607.11875, Algorithm 1).

    A c whose loss is above tau to begin with is returned whole, with a note (with refit, only if
    refitting does not bring it below). ValueError unless tau is positive.
    """
    if not tau > 0:
        raise ValueError(f"tau is {tau}; a loss in nats, above 0")
    search = _Search(field, np.array(c, dtype=float), tau)
    if refit and search.loss > tau:
        search.refit()
    if search.loss > tau:
        note = f"the model's own loss {search.loss:.3g} is above tau = {tau:g}: nothing was dropped"
        return search.result(note)
    if refit:
        search.cut_and_refit()
    search.cut()
    search.greedy()
    while refit:
        left = search.left.sum()
        search.refit()
        search.greedy()
        if search.left.sum() == left:
            break
    if not search.left.any():
        return search.result(f"no coordinate is needed for a loss of tau = {tau:g}")
    return search.result(f"dropping any further one would take the loss above tau = {tau:g}")


class _Search:
    """The coordinates left, the loss of the model rebuilt from them, and how it came to this."""

    def __init__(self, field: ReducedField, c: np.ndarray, tau: float) -> None:
        self.field, self.c, self.tau = field, c, tau
        self.norms = np.sqrt(np.diag(field.basis.gram))
        self.left = c != 0
        self.loss = field.loss(c)
        self.path: list[dict] = []
        self._note("", "start")

    def cut_and_refit(self) -> None:
        """By size, far, as long as what is left can adapt to it."""
        while True:
            before = self.c.copy(), self.left.copy(), self.loss, len(self.path)
            self.cut(LOOSE * self.tau)
            self.refit()
            if self.loss > self.tau:
                self.c, self.left, self.loss = before[:3]
                del self.path[before[3] :]
                return
            if self.left.sum() == before[1].sum():
                return

    def cut(self, allowed: float | None = None) -> None:
        """The smallest by size, as many as keep the loss at most `allowed`."""
        order = np.argsort(np.abs(self.c) * self.norms)
        self._drop_first(order[self.left[order]], allowed, "cut")

    def greedy(self) -> None:
        while self.left.any():
            candidates = np.flatnonzero(self.left)
            losses = np.array([self._loss_without(np.array([i])) for i in candidates])
            order = candidates[np.argsort(losses, kind="stable")]
            if losses.min() > self.tau:
                return
            if not self._drop_first(order, None, "dropped"):
                self._drop(order[:1], float(losses.min()))
                self._note(self.field.names[order[0]], "dropped")

    def _drop_first(self, order: np.ndarray, allowed: float | None, how: str) -> int:
        """Drop as many of the first as keep the loss at most `allowed` (a tenth of the budget
        unless given), by bisection; how many."""
        allowed = self.loss + CUT * (self.tau - self.loss) if allowed is None else allowed
        low, high, loss = 0, len(order) + 1, self.loss  # low may go, high may not
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._loss_without(order[:middle])
            if tried <= allowed:
                low, loss = middle, tried
            else:
                high = middle
        if low or how == "cut":
            self._drop(order[:low], loss)
            self._note(self.field.names[order[0]] if low == 1 and how == "dropped" else "", how)
        return low

    def refit(self) -> None:
        free = np.flatnonzero(self.left)
        if not len(free):
            return

        def value_and_slope(values: np.ndarray) -> tuple[float, np.ndarray]:
            point = self.c.copy()
            point[free] = values
            return self.field.loss(point), self.field.gradient(point)[free]

        found = minimize(
            value_and_slope,
            self.c[free],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": REFIT_STEPS},
        )
        if found.fun < self.loss:
            self.c[free], self.loss = found.x, float(found.fun)
            self._note("", "refit")

    def result(self, note: str) -> Elimination:
        left = np.flatnonzero(self.left)
        left = left[np.argsort(-np.abs(self.c[left]) * self.norms[left])]
        return Elimination(
            essential={self.field.names[i]: float(self.c[i]) for i in left},
            loss=self.loss,
            tau=self.tau,
            path=pd.DataFrame(self.path),
            note=note,
        )

    def _loss_without(self, some: np.ndarray) -> float:
        point = self.c.copy()
        point[some] = 0.0
        return self.field.loss(point)

    def _drop(self, some: np.ndarray, loss: float) -> None:
        self.c[some], self.left[some], self.loss = 0.0, False, loss

    def _note(self, name: str, how: str) -> None:
        self.path.append(
            {"dropped": name, "how": how, "left": int(self.left.sum()), "loss": self.loss}
        )
