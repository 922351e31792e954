"""What happens along training: onsets, swaps, saturation, transience, suppression, eigenvalues.

Every event has its step with an interval and its evidence. Whether it is a bifurcation can only
be said of a continued branch (theory, section 5): along training alone an event is a `crossover`
where the reduced field shows that no eigenvalue changes sign there, and else `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

from manifold.dynamics.change_point import ChangePoint, change_point
from manifold.dynamics.continuation import Branch
from manifold.dynamics.field import ReducedField
from manifold.dynamics.suppression import parts, suppression_along
from training.tasks.base import Task

MATTERS = 0.05
"""A coordinate matters where it ever reaches this share of the largest coordinate."""
MOST = 12
"""At most so many coordinates, the largest."""
SETTLED = 0.95
"""A series is saturated from the first step on at which it stays above this share of its end."""
FALL = 0.1
"""A fall of the ICL score from its peak by at least this much, and no noise, is transience."""
NEAR = 0.1
"""How near a fold an event must be, relative to it, in the parameter and in the state."""
CHECKED = 24
"""Checkpoints at which eigenvalues are computed."""

Bifurcation = Literal["bifurcation", "crossover", "unknown"]
KINDS = ("onset", "swap", "saturation", "transience", "suppression", "eigenvalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: kind (of KINDS) at `step`, certain to lie in [low, high].

    what: the coordinate or score. evidence: in words, with its numbers. bifurcation: only with an
    eigenvalue that changes sign on a continued branch.
    """

    kind: str
    what: str
    step: float
    low: float
    high: float
    evidence: str
    bifurcation: Bifurcation = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """Events in order of step. unanswered: what could not be asked, and why, in words."""

    events: tuple[Event, ...]
    unanswered: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        columns = ["kind", "what", "step", "low", "high", "bifurcation", "evidence"]
        return pd.DataFrame([asdict(event) for event in self.events], columns=columns)

    def of(self, kind: str) -> tuple[Event, ...]:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; one of {', '.join(KINDS)}")
        return tuple(event for event in self.events if event.kind == kind)


def events(
    trajectory: xr.Dataset,
    *,
    task: Task | None = None,
    field: ReducedField | None = None,
    weight_decay: float = 0.0,
    branch: Branch | None = None,
    level: float = 0.05,
) -> Events:
    """The events of one run.

    trajectory: `project` of one run; with rebuilt=True its accuracies by kind give the ICL and the
    IWL score. task: for recall, swaps of delta against alpha beta gamma. field: the reduced field
    on the trajectory's coordinates: with it gradient suppression and eigenvalues are measured, and
    scores where the trajectory has none; weight_decay as in training. branch: of fixed points, from
    `continue_branch` in the run's own task: the only ground for calling an event a bifurcation.
    level: rate of false alarms over all the onsets that are looked for together.

    One checkpoint or few give no events, and say so. ValueError for a dataset of several runs or
    without coordinates, for steps that do not increase, values that are not finite, and a field
    of other coordinates.
    """
    data = _one_run(trajectory)
    names = [str(name) for name in data["coordinate"].values]
    if field is not None and tuple(names) != tuple(field.names):
        raise ValueError(
            f"events: the trajectory has {len(names)} coordinates ({', '.join(names[:3])}, ..), "
            f"the field {field.dim} ({', '.join(field.names[:3])}, ..); make the field with "
            f"coordinates= the basis that `project` used"
        )
    steps, states = data["step"].values.astype(float), data["c"].values
    scores, unanswered = _scores(data, field, states)
    series = {**_that_matter(names, states), **scores}
    found: list[Event] = []
    changes = {
        name: change_point(steps, values, level / max(len(series), 1))
        for name, values in series.items()
    }
    for name, values in series.items():
        found += _onset(name, changes[name])
        found += _saturation(name, steps, values, changes[name])
    if not changes:
        unanswered.append("onset: no coordinate ever moves from zero")
    elif not any(change.found for change in changes.values()):
        reasons = dict.fromkeys(change.reason for change in changes.values())
        unanswered.append("onset: " + "; ".join(list(reasons)[:3]))
    found += _swap(steps, dict(zip(names, states.T, strict=True)), task, unanswered)
    found += _transience(steps, scores.get("ICL"), unanswered)
    signs: list[Event] = []
    if field is None:
        unanswered.append("suppression, eigenvalue: no reduced field was given")
    elif len(states):
        found += _suppression(steps, states, field, unanswered)
        signs = _eigenvalues(steps, states, field, weight_decay)
        run = _Run(steps, states, field, weight_decay, branch)
        found = [run.judged(event, signs) for event in [*found, *signs]]
    order = sorted(found, key=lambda event: (event.step, KINDS.index(event.kind), event.what))
    return Events(events=tuple(order), unanswered=tuple(unanswered))


def _one_run(trajectory: xr.Dataset) -> xr.Dataset:
    """The only run, the steps it has kept."""
    missing = [name for name in ("step", "coordinate", "c") if name not in trajectory.variables]
    if missing:
        raise ValueError(
            f"events: the dataset has no {', '.join(missing)}; give what `manifold.project` returns"
        )
    if "run" in trajectory.dims:
        if trajectory.sizes["run"] != 1:
            raise ValueError(
                f"events: got {trajectory.sizes['run']} runs; take one, trajectory.isel(run=0)"
            )
        trajectory = trajectory.isel(run=0)
    kept = ~np.isnan(trajectory["c"].values).all(axis=-1)
    data = trajectory.isel(step=np.flatnonzero(kept))
    if (np.diff(data["step"].values) <= 0).any():
        raise ValueError("events: steps must increase; sort the checkpoints and keep each once")
    if not np.isfinite(data["c"].values).all():
        raise ValueError("events: coordinates are not finite; training has diverged there")
    return data


def _that_matter(names: Sequence[str], states: np.ndarray) -> dict[str, np.ndarray]:
    if not len(states):
        return {}
    largest = np.abs(states).max(0)
    order = [int(i) for i in np.argsort(-largest)[:MOST] if largest[i] > MATTERS * largest.max()]
    return {str(names[i]): np.asarray(states[:, i]) for i in order}


def _scores(
    data: xr.Dataset, field: ReducedField | None, states: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """ICL: mean accuracy of rare and mismatch; IWL: of iwl. Measured, or else by the field."""
    accuracy: Mapping[str, np.ndarray]
    if "accuracy" in data and "kind" in data["accuracy"].dims:
        kinds = [str(kind) for kind in data["kind"].values]
        accuracy = dict(zip(kinds, data["accuracy"].values.T, strict=True))
    elif field is not None and len(states):
        tables = [field.kinds(state)["accuracy"] for state in states]
        accuracy = {kind: np.array([t[kind] for t in tables]) for kind in map(str, tables[0].index)}
    else:
        return {}, ["ICL and IWL: accuracies need project(.., rebuilt=True) or a reduced field"]
    known = {k: v for k, v in accuracy.items() if np.isfinite(v).all()}
    scores = {}
    if context := [known[kind] for kind in ("rare", "mismatch") if kind in known]:
        scores["ICL"] = np.mean(context, axis=0)
    if "iwl" in known:
        scores["IWL"] = known["iwl"]
    lacking = [name for name in ("ICL", "IWL") if name not in scores]
    return scores, [f"{name}: the data has no accuracy of its kinds" for name in lacking]


def _onset(name: str, change: ChangePoint) -> list[Event]:
    if not change.found:
        return []
    evidence = (
        f"{change.shape} of size {change.size:.3g}, p {change.p:.3g}, BIC {change.evidence:.1f} "
        "better than a smooth curve"
    )
    return [
        Event(
            kind="onset",
            what=name,
            step=change.step,
            low=change.low,
            high=change.high,
            evidence=evidence,
        )
    ]


def _saturation(
    name: str, steps: np.ndarray, values: np.ndarray, change: ChangePoint
) -> list[Event]:
    """From where the series stays within 5% of the way to its last level; only after an onset.

    It has saturated only if the last quarter of log step moves by no more than that either.
    """
    if not change.found:
        return []
    way = values[-1] - values[0]
    inside = np.abs(values - values[-1]) <= (1 - SETTLED) * abs(way)
    outside = np.flatnonzero(~inside)
    first = int(outside[-1]) + 1 if len(outside) else 0
    x = np.log(steps + steps[1] - steps[0])
    if way == 0 or not 0 < first < len(steps) - 2 or x[first] > x[-1] - 0.1 * np.ptp(x):
        return []
    return [
        Event(
            kind="saturation",
            what=name,
            step=float(steps[first]),
            low=float(steps[first - 1]),
            high=float(steps[first]),
            evidence=f"within {1 - SETTLED:.0%} of its last value {values[-1]:.3g} from here on",
        )
    ]


def _swap(
    steps: np.ndarray,
    by_name: Mapping[str, np.ndarray],
    task: Task | None,
    unanswered: list[str],
) -> list[Event]:
    """Where the copying circuit overtakes the answer from weights, or falls behind it.

    delta against the product alpha beta gamma (theory, section 5), beta and gamma the mean over
    token classes.
    """
    pair = contenders(by_name)
    if pair is None:
        why = "no coordinates delta and alpha, beta, gamma among them"
        if task is not None and "C" not in task.symmetry.token_directions:
            why = "the task has no in-weights answer C"
        unanswered.append(f"swap: {why}")
        return []
    ahead = pair[1] > pair[0]
    found = []
    for i in np.flatnonzero(ahead[1:] != ahead[:-1]):
        leader = pair[int(ahead[i + 1])]
        if leader[i + 1] <= MATTERS * min(pair[0].max(), pair[1].max()):
            continue  # neither is there yet
        gap = (pair[1] - pair[0])[[i, i + 1]]
        at = steps[i] + gap[0] / (gap[0] - gap[1]) * (steps[i + 1] - steps[i])
        now = "alpha beta gamma over delta" if ahead[i + 1] else "delta over alpha beta gamma"
        found.append(
            Event(
                kind="swap",
                what=now,
                step=float(at),
                low=float(steps[i]),
                high=float(steps[i + 1]),
                evidence=f"delta {pair[0][i + 1]:.3g}, alpha beta gamma "
                f"{pair[1][i + 1]:.3g} at step {steps[i + 1]:g}",
            )
        )
    return found


def contenders(by_name: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """(delta, alpha beta gamma) of recall, or None where the coordinates are not there.

    0 where a factor is negative: then nothing is copied.
    """
    found = parts(tuple(by_name))
    if found is None:
        return None
    columns = np.array(list(by_name.values()))
    groups = [columns[list(index)] for index in found.values()]
    alpha, beta, gamma, delta = (np.maximum(np.mean(group, axis=0), 0.0) for group in groups)
    return delta, alpha * beta * gamma


def _transience(steps: np.ndarray, score: np.ndarray | None, unanswered: list[str]) -> list[Event]:
    """A fall of the ICL score from its peak that stays: the median after the fall is below the
    peak's neighbourhood by 0.1 and by 4 times the scatter between neighbours."""
    if score is None or len(score) < 8:
        unanswered.append("transience: it needs an ICL score at 8 checkpoints or more")
        return []
    smooth = np.array([np.median(score[max(0, i - 1) : i + 2]) for i in range(len(score))])
    scatter = 1.4826 * float(np.median(np.abs(np.diff(score))))
    peak = int(smooth.argmax())
    end = float(np.median(score[-3:]))
    fall = smooth[peak] - end
    if peak >= len(score) - 3 or fall < max(FALL, 4 * scatter):
        return []
    half = end + fall / 2
    below = peak + np.flatnonzero(smooth[peak:] <= half)[0]
    return [
        Event(
            kind="transience",
            what="ICL",
            step=float(steps[below]),
            low=float(steps[peak]),
            high=float(steps[below]),
            evidence=f"falls from {smooth[peak]:.2f} at step {steps[peak]:g} to {end:.2f} at the "
            f"end; neighbours scatter by {scatter:.2f}",
        )
    ]


def _suppression(
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


def _eigenvalues(
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
class _Run:
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
