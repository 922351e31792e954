"""Events that take the reduced field: suppression, eigenvalues, and what is a bifurcation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from manifold.dynamics.continuation import Branch
from manifold.dynamics.event import Event
from manifold.dynamics.field import ReducedField
from manifold.dynamics.suppression import contenders, suppression_along

NEAR = 0.1
"""How near a fold an event must be, relative to it, in the parameter and in the state."""
CHECKED = 24
"""Checkpoints at which eigenvalues are computed."""


def suppressed(
    steps: np.ndarray, states: np.ndarray, field: ReducedField, unanswered: list[str]
) -> list[Event]:
    """The ratio of the ICL gradient to what it is with delta = 0, where it is smallest.

    Only while delta is past half of its largest value and ahead of alpha beta gamma.
    """
    measured = suppression_along(field, states)
    if measured is None:
        unanswered.append("suppression: the field has no delta and alpha, or no f_r and f_v")
        return []
    ratio, predicted = measured
    pair = contenders(dict(zip(field.names, states.T, strict=True)))
    if pair is not None:
        ratio = np.where((pair[0] > pair[1]) & (pair[0] > pair[0].max() / 2), ratio, np.nan)
    if not np.isfinite(ratio).any():
        return []
    lowest = int(np.nanargmin(ratio))
    if ratio[lowest] > 0.9:
        return []
    # certain only as far as checkpoints and the field's own scatter tell: where it stays so low
    near = np.flatnonzero(ratio <= ratio[lowest] + 0.1 * (1 - ratio[lowest]))
    return [
        Event(
            kind="suppression",
            what="alpha",
            step=float(steps[lowest]),
            low=float(steps[near.min()]),
            high=float(steps[near.max()]),
            evidence=f"gradient of alpha is {ratio[lowest]:.3f} of what it is at delta = 0; "
            f"f_r + (1 - f_r) f_v = {predicted:.3f} at delta to infinity",
        )
    ]


def eigenvalues(
    steps: np.ndarray, states: np.ndarray, field: ReducedField, weight_decay: float
) -> list[Event]:
    """Where the number of growing directions of the flow's Jacobian changes along the trajectory.

    Away from fixed points this is no bifurcation, only where the flow starts or stops to spread.
    """
    if len(states) < 2:
        return []
    rows = np.unique(np.linspace(0, len(states) - 1, CHECKED).round().astype(int))
    spectra = [np.linalg.eigvals(field.jacobian(states[r], weight_decay)).real for r in rows]
    size = max(float(np.abs(values).max()) for values in spectra)
    counts = [int((values > 1e-6 * size).sum()) for values in spectra]
    found = []
    for i in range(1, len(rows)):
        before, after, old, new, spectrum = (
            rows[i - 1],
            rows[i],
            counts[i - 1],
            counts[i],
            spectra[i],
        )
        if old == new:
            continue
        speed = float(np.linalg.norm(field.flow(states[after], weight_decay)))
        found.append(
            Event(
                kind="eigenvalue",
                what=f"{old} -> {new} growing",
                step=float(steps[after]),
                low=float(steps[before]),
                high=float(steps[after]),
                evidence=f"leading {spectrum.max():.2e}; the flow moves at {speed:.1e} there, so "
                "this is no fixed point",
            )
        )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RunOnField:
    """A run with the field it follows: is an event a bifurcation? (theory, section 5, its end)"""

    steps: np.ndarray
    states: np.ndarray
    field: ReducedField
    weight_decay: float
    branch: Branch | None

    def judged(self, event: Event, signs: Sequence[Event]) -> Event:
        """bifurcation: beside a fold while an eigenvalue changes sign. crossover: without weight
        decay, since nothing then is at rest at finite distance, and where every eigenvalue is
        negative at both ends and in the middle of the event. Else unknown."""
        if event.kind in ("saturation", "suppression"):
            return event
        if self.weight_decay == 0:
            return replace(event, bifurcation="crossover")
        fold = self._fold(event)
        if fold is not None and any(s.low <= event.high and event.low <= s.high for s in signs):
            return replace(event, bifurcation="bifurcation", evidence=f"{event.evidence}; {fold}")
        rows = {int(np.abs(self.steps - at).argmin()) for at in (event.low, event.step, event.high)}
        if all(self._leading(row) < 0 for row in rows):
            return replace(event, bifurcation="crossover")
        return event

    def _fold(self, event: Event) -> str | None:
        """A non-degenerate fold of the branch within a tenth of the run's own parameter, whose
        state the run passes within a tenth of its norm during the event."""
        if self.branch is None:
            return None
        own, name, gram = self.weight_decay, self.branch.parameter, self.field.basis.gram
        if name != "weight_decay":
            own = float(getattr(self.field.task, name))
        during = self.states[(self.steps >= event.low) & (self.steps <= event.high)]
        for fold in self.branch.folds:
            apart = during - fold.state
            nearest = np.einsum("ti,ij,tj->t", apart, gram, apart).min(initial=np.inf)
            if (
                fold.transversality * fold.quadratic != 0
                and abs(fold.value - own) <= NEAR * abs(fold.value)
                and nearest <= NEAR**2 * (fold.state @ gram @ fold.state)
            ):
                return f"beside the fold at {name} = {fold.value:.4g}"
        return None

    def _leading(self, row: int) -> float:
        jacobian = self.field.jacobian(self.states[row], self.weight_decay)
        return float(np.linalg.eigvals(jacobian).real.max())
