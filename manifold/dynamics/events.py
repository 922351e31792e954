"""What happens along training: onsets, swaps, saturation, transience, overfitting in weights,
suppression, eigenvalues.

Every event has its step with an interval and its evidence. Whether it is a bifurcation can only
be said of a continued branch (theory, section 5): along training alone an event is a `crossover`
where the reduced field shows that no eigenvalue changes sign there, and else `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from manifold.dynamics.change_point import ChangePoint, change_point
from manifold.dynamics.continuation import Branch
from manifold.dynamics.event import KINDS, Event, Events
from manifold.dynamics.field import ReducedField
from manifold.dynamics.field_events import RunOnField, eigenvalues, suppressed
from manifold.dynamics.score_events import overfitting, transience
from manifold.dynamics.suppression import PARTS, contenders
from manifold.dynamics.swap import MATTERS, swaps
from training.tasks.base import Task

MOST = 12
"""At most so many coordinates, the largest."""
SCORES = ("ICL", "IWL")
SETTLED = 0.95
"""A series is saturated from the first step on at which it stays above this share of its end."""


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
    level: rate of false alarms over all that is looked for together: every kind but saturation,
    which only follows an onset, and eigenvalues, which the field computes, rests on `change_point`.

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
    by_name = dict(zip(names, states.T, strict=True))
    series = {**_that_matter(names, states), **{k: scores[k] for k in SCORES if k in scores}}
    more = [contenders(by_name) is not None, "ICL" in scores, {"mismatch", "IWL"} <= set(scores)]
    share = level / max(len(series) + sum(more), 1)
    found: list[Event] = []
    changes = {name: change_point(steps, values, share) for name, values in series.items()}
    for name, values in series.items():
        found += _onset(name, changes[name])
        found += _saturation(name, steps, values, changes[name])
    if not changes:
        unanswered.append("onset: no coordinate ever moves from zero")
    elif not any(changes[name].found for name in series):
        reasons = dict.fromkeys(changes[name].reason for name in series)
        unanswered.append("onset: " + "; ".join(list(reasons)[:3]))
    found += _swap(swaps(steps, by_name, share), task, unanswered)
    found += transience(steps, scores, share, unanswered)
    found += overfitting(steps, scores, share, unanswered)
    signs: list[Event] = []
    if field is None:
        unanswered.append("suppression, eigenvalue: no reduced field was given")
    elif len(states):
        if any(changes[name].found for name in PARTS["delta"] if name in changes):
            found += suppressed(steps, states, field, unanswered)
        else:
            unanswered.append("suppression: delta has no onset")
        signs = eigenvalues(steps, states, field, weight_decay)
        run = RunOnField(steps, states, field, weight_decay, branch)
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
    """ICL: mean accuracy of rare and mismatch; IWL: of iwl; mismatch. By the network, by the model
    rebuilt from the coordinates where only that is there, and kinds without either by the field."""
    known: dict[str, np.ndarray] = {}
    measured = [name for name in ("accuracy", "rebuilt_accuracy") if name in data]
    if measured and "kind" in data[measured[0]].dims:
        kinds = [str(kind) for kind in data["kind"].values]
        accuracy = zip(kinds, data[measured[0]].values.T, strict=True)
        known = {kind: values for kind, values in accuracy if np.isfinite(values).all()}
    if field is not None and len(states) and not {"rare", "mismatch", "iwl"} <= set(known):
        tables = [field.kinds(state)["accuracy"] for state in states]
        by_field = {kind: np.array([t[kind] for t in tables]) for kind in map(str, tables[0].index)}
        known = by_field | known
    if not known:
        return {}, ["ICL and IWL: accuracies need project(.., rebuilt=True) or a reduced field"]
    scores = {}
    if context := [known[kind] for kind in ("rare", "mismatch") if kind in known]:
        scores["ICL"] = np.mean(context, axis=0)
    if "iwl" in known:
        scores["IWL"] = known["iwl"]
    if "mismatch" in known:
        scores["mismatch"] = known["mismatch"]
    lacking = [name for name in SCORES if name not in scores]
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


def _swap(found: list[Event] | None, task: Task | None, unanswered: list[str]) -> list[Event]:
    if found is not None:
        return found
    why = "no coordinates delta and alpha, beta, gamma among them"
    if task is not None and "C" not in task.symmetry.token_directions:
        why = "the task has no in-weights answer C"
    unanswered.append(f"swap: {why}")
    return []
