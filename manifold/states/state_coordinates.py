"""Checkpoints of state-tracking runs to the coordinates of their group, along training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from manifold.states.isotypic import Isotypic, isotypic
from manifold.states.recurrent_states import RecurrentStates, has_states
from manifold.states.token_directions import left_out, token_directions, token_matrices
from manifold.states.transition_operators import operators, phase_error
from manifold.states.transitions import coincidence, representation_error, value_subspace
from training.checkpoint import Checkpoint
from training.families.transformer import Transformer
from training.run import Run
from training.tasks.state_tracking import StateTracking

ACCURACY_SIZE = 200
"""Held-out sequences of each length that the accuracy is measured on, at most."""

Measured = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Name to the dimensions beside run and step, and the values."""


def state_coordinates(runs: Run | Sequence[Run]) -> xr.Dataset:
    """Every kept checkpoint of one run or several, in coordinates of the group that it tracks.

    Variables have dims run and step first, and are NaN at steps that a run has not kept:

    accuracy (length): of the final answer on held-out sequences. A length that is not learnt is
        read like any other: look here before reading more into what is below.

    A transformer (`token_directions`): c (matrix, side, element), share and chance_high
    (matrix, side, part), and chance (part) without run and step. What the matrices leave out is in
    attrs["left_out"].

    A recurrent family (`transitions`), each (subspace), for "reachable", the whole state on the
    sequences of the task, and "value", the directions in which it codes the value:
    representation_error and its chance, growth; coincidence and its shuffled control; dimension;
    and (subspace, element): phase_error, its chance, turned, and r_squared of the operators.

    Coordinates: run ids, step, time (run, step), init_seed and data_seed, as in `project`.

    Raises ValueError for no run; a task that is no state tracking; a family that is neither a
    transformer nor recurrent; runs that do not share group, lengths and matrices; NaN in weights.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("state_coordinates: got no run; give one Run or a sequence of them")
    kinds = [_kind(run) for run in runs]
    for run, kind in zip(runs, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"state_coordinates: runs {runs[0].run_id} and {run.run_id} differ in "
                f"{', '.join(k for k in kind if kind[k] != kinds[0][k])}; read them apart"
            )
    task: Any = runs[0].task
    parts = isotypic(task) if kinds[0]["family"] == "transformer" else None
    steps = sorted({step for run in runs for step in run.steps})
    data = xr.Dataset(coords=_coordinates(runs, steps, task, kinds[0]["matrices"], parts))
    rows = {
        (i, steps.index(step)): _measure(run[step], parts)
        for i, run in enumerate(runs)
        for step in run.steps
    }
    first = next(iter(rows.values()))
    for name, (dims, value) in first.items():
        values = np.full((len(runs), len(steps), *value.shape), np.nan)
        for at, row in rows.items():
            values[at] = row[name][1]
        data[name] = (("run", "step", *dims), values, _LABELS[name])
    if parts is not None:
        q = task.n_elements
        label = {"long_name": "share of random matrices", "units": _SHARE}
        data["chance"] = ("part", parts.dimensions[1:] / (q * (q - 1)), label)
    family: Any = runs[0].family
    data.attrs = {"group": task.label, "family": type(family).__name__}
    if parts is not None:
        data.attrs["left_out"] = list(left_out(family))
    return data


def _kind(run: Run) -> dict[str, Any]:
    """What runs read together must have in common."""
    task, family = run.task, run.family
    if not isinstance(task, StateTracking):
        raise ValueError(
            f"state_coordinates: run {run.run_id} has the task {type(task).__name__}; allowed are "
            "state-tracking tasks (modular_addition, permutation_composition); for others: project"
        )
    matrices: tuple[str, ...] = ()
    if isinstance(family, Transformer):
        heads = [f"{l}.{h}" for l in range(family.layers) for h in range(family.heads)]
        matrices = ("direct", *(f"{kind} {head}" for head in heads for kind in ("OV", "QK")))
    elif not has_states(family):
        raise ValueError(
            f"state_coordinates: run {run.run_id} has the family {type(family).__name__}, which is "
            "no Transformer and has no states (hooks hook_state.0, ..); allowed: transformer, "
            "dense_ssm, lstm, mamba"
        )
    recurrent = type(family).__name__
    return {
        "group": (task.label, task.n_elements),
        "lengths": task.lengths,
        "family": "transformer" if matrices else recurrent,
        "matrices": matrices,
    }


def _measure(checkpoint: Checkpoint, parts: Isotypic | None) -> Measured:
    weights, task, family = checkpoint.weights, checkpoint.task, checkpoint.family
    broken = [name for name, value in weights.items() if not np.isfinite(value).all()]
    if broken:
        raise ValueError(
            f"{checkpoint.path}: {', '.join(broken)} has entries that are not finite, so nothing "
            "can be read; leave this run out"
        )
    assert isinstance(task, StateTracking)
    found: Measured = {"accuracy": (("length",), _accuracy(checkpoint, task))}
    if parts is not None:
        assert isinstance(family, Transformer)
        read = token_directions(token_matrices(weights, family, task), parts)
        return found | {
            "c": (("matrix", "side", "element"), read.c),
            "share": (("matrix", "side", "part"), read.share),
            "chance_high": (("matrix", "side", "part"), read.chance_high),
        }
    states = RecurrentStates.of(weights, family, task)
    return found | _recurrent(states, task)


def _recurrent(states: RecurrentStates, task: StateTracking) -> Measured:
    """What `transitions` measures, on all that is reachable and where the value is coded."""
    scalars, columns = [], []
    for part in (states, value_subspace(states)):
        maps = operators(part)
        scalars.append(
            [*representation_error(part), *coincidence(part), float(maps.basis.shape[1])]
        )
        columns.append([*phase_error(maps, task), maps.r_squared])
    found: Measured = {
        name: (("subspace",), value)
        for name, value in zip(_SCALARS, np.array(scalars).T, strict=True)
    }
    for name, value in zip(_COLUMNS, np.array(columns).swapaxes(0, 1), strict=True):
        found[name] = (("subspace", "element"), value)
    return found


def _accuracy(checkpoint: Checkpoint, task: StateTracking) -> np.ndarray:
    """(lengths,): of the last answer, on held-out sequences of each length."""
    params = checkpoint.params()
    found = []
    for n in task.lengths:
        batch = task.sequences(n, ACCURACY_SIZE, seed=0)
        with torch.no_grad():
            logits = checkpoint.family.forward(
                params, torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
            ).numpy()
        at = np.arange(len(batch)), task.final(batch)
        found.append((logits[at].argmax(-1) == batch.targets[at]).mean())
    return np.array(found)


def _coordinates(
    runs: Sequence[Run],
    steps: Sequence[int],
    task: StateTracking,
    matrices: Sequence[str],
    parts: Isotypic | None,
) -> dict[str, Any]:
    time = np.full((len(runs), len(steps)), np.nan)
    for i, run in enumerate(runs):
        for step in run.steps:
            time[i, steps.index(step)] = run[step].time
    seeds = [run.config.seeds for run in runs]
    unit = {"long_name": "gradient-flow time", "units": "sum of learning rates"}
    found: dict[str, Any] = {
        "run": ("run", [run.run_id for run in runs], {"long_name": "run id"}),
        "step": ("step", steps, {"long_name": "updates", "units": "1"}),
        "length": ("length", list(task.lengths), {"long_name": "inputs", "units": "1"}),
        "element": ("element", np.arange(task.n_elements), {"long_name": "group element"}),
        "time": (("run", "step"), time, unit),
        "init_seed": ("run", [seed.init for seed in seeds]),
        "data_seed": ("run", [seed.data for seed in seeds]),
    }
    if parts is not None:
        found |= {
            "matrix": ("matrix", list(matrices), {"long_name": "token matrix"}),
            "side": ("side", ["left", "right"], {"long_name": "commutes with translations from"}),
            "part": ("part", list(parts.names[1:]), {"long_name": "isotypic part"}),
            "part_dimension": ("part", parts.dimensions[1:]),
        }
    else:
        found["subspace"] = ("subspace", ["reachable", "value"], {"long_name": "of the state"})
    return found


_SCALARS = (
    *("representation_error", "representation_chance", "growth"),
    *("coincidence", "coincidence_shuffled", "dimension"),
)
_COLUMNS = ("phase_error", "phase_chance", "turned", "r_squared")
_SHARE = "share of the squared Frobenius norm"
_LABELS: Mapping[str, Mapping[str, str]] = {
    "accuracy": {"long_name": "accuracy of the final answer", "units": "1"},
    "c": {"long_name": "coefficient of the translation by the element", "units": "1"},
    "share": {"long_name": "share of an isotypic part", "units": _SHARE},
    "chance_high": {"long_name": "97.5% of random matrices are below", "units": _SHARE},
    "representation_error": {"long_name": "representation error", "units": "relative"},
    "representation_chance": {"long_name": "the same for wrong products", "units": "relative"},
    "growth": {"long_name": "growth of the state per input", "units": "1"},
    "coincidence": {
        "long_name": "distance at equal values across lengths",
        "units": "relative to different values",
    },
    "coincidence_shuffled": {
        "long_name": "the same for shuffled values",
        "units": "relative to different values",
    },
    "dimension": {"long_name": "dimension of the operators", "units": "1"},
    "phase_error": {
        "long_name": "eigenphases' distance from the group's",
        "units": "relative to uniform phases",
    },
    "phase_chance": {
        "long_name": "the same for random orthogonal matrices",
        "units": "relative to uniform phases",
    },
    "turned": {"long_name": "share of eigenvalues turned by a multiple", "units": "1"},
    "r_squared": {"long_name": "R^2 of the affine operators on unseen pairs", "units": "1"},
}
