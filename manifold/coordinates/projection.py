"""Checkpoints to coordinates along training, with what the coordinates leave out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from manifold.coordinates.basis import READOUT, Basis
from manifold.coordinates.chance import expected_by_chance
from manifold.coordinates.effective import effective_matrices, remove_gauge
from manifold.coordinates.function_space import function_agreement
from manifold.coordinates.lift import arrays, lift
from manifold.coordinates.rebuild import run_matrices, score
from manifold.coordinates.run_basis import SEQUENCES, basis_of
from training.checkpoint import Checkpoint
from training.run import Run

Progress = Callable[[int, int], None]
"""progress(checkpoints done, checkpoints in all)."""
TOGETHER = 2**24
"""Numbers of the largest array of activations: as many checkpoints at once as stay below."""

SHARE = {"units": "share of the squared Frobenius norm"}
RELATIVE = {"units": "rms of the difference over rms"}
NATS, FRACTION = {"units": "nats per supervised token"}, {"units": "share of supervised tokens"}
VARIABLES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "c": (("coordinate",), {"long_name": "coordinate", "units": "1"}),
    "captured": (("matrix",), {"long_name": "captured on the manifold", **SHARE}),
    "off_manifold": ((), {"long_name": "off the manifold, all matrices", **SHARE}),
    "left_out": (("matrix",), {"long_name": "on path blocks without a coordinate", **SHARE}),
    "logit_error": ((), {"long_name": "error of the lift's logits", **RELATIVE}),
    "lift_agreement": ((), {"long_name": "lift and network have one largest logit", **FRACTION}),
    "loss": ((), {"long_name": "loss of the network", **NATS}),
    "accuracy": (("kind",), {"long_name": "accuracy of the network", **FRACTION}),
    "rebuilt_loss": ((), {"long_name": "loss rebuilt from coordinates alone", **NATS}),
    "rebuilt_accuracy": (
        ("kind",),
        {"long_name": "accuracy rebuilt from coordinates alone", **FRACTION},
    ),
    "function_error": (
        ("matrix",),
        {"long_name": "scores or logits of the projected matrix against its own", **RELATIVE},
    ),
    "attention_distance": (
        ("matrix",),
        {
            "long_name": "attention of the projected matrix against its own",
            "units": "total variation",
        },
    ),
}
"""Dimensions after run and step, and the attributes, of every variable."""


def project(
    runs: Run | Sequence[Run],
    basis: Basis | None = None,
    *,
    order: int | None = None,
    rebuilt: bool = False,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Every checkpoint of one run or several, in the coordinates of the invariant manifold.

    Effective matrices, gauge removed, then c = Gram^+ <B, W>, in the exact commutant of the runs'
    task and family unless another basis is given. order: as in `invariant_basis`, for deep models
    with many heads. Variables, NaN at steps that a run has not kept:

    c (run, step, coordinate): coordinates, float64.
    captured (run, step, matrix): ||P W||^2 / ||W||^2; 1 where W is zero.
    captured_by_chance (matrix): its mean over random matrices of the same spectrum;
        `captured_by_chance` has the interval that holds 95% of them.
    off_manifold (run, step): ||(1 - P) W||^2 / ||W||^2 over all matrices together.
    left_out (run, step, matrix): the share of ||W||^2 on path blocks that have no coordinate.
    logit_error, lift_agreement (run, step): how far the effective matrices as they are, before any
        projection, are from the network: `Lift`. 0 and 1 but for rounding without norms and MLPs.

    With rebuilt=True, which takes a few times as long, on 512 held-out sequences:

    loss, accuracy (run, step, kind): the network's own.
    rebuilt_loss, rebuilt_accuracy: of the model made from the coordinates alone.
    function_error, attention_distance (run, step, matrix): `function_agreement` of each effective
        matrix with its projection. The latter is NaN for the read-out.

    Coordinates: run (run ids), step, coordinate (names) with block, head, query, key and element;
    time (run, step), the sum of learning rates; init_seed and data_seed of each run.
    progress(done, all): called after every few checkpoints.

    Raises ValueError where the family has no effective matrices, the task no symmetry or hidden
    tokens (masked layouts), where weights are not finite or not of the sizes of task and family,
    and where runs do not share kinds of sequences and one basis, or a given one is not theirs.
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("project: got no run; give one Run or a sequence of them")
    basis = basis_of(runs, basis, order)
    steps = sorted({step for run in runs for step in run.steps})
    kinds = runs[0].task.kinds
    sizes = {"coordinate": basis.dim, "matrix": len(basis.blocks), "kind": len(kinds)}
    shape = (len(runs), len(steps))
    time, found = np.full(shape, np.nan), {}
    done, total = 0, sum(len(run.steps) for run in runs)
    for i, run in enumerate(runs):
        for chunk in _chunks(run, basis, rebuilt):
            at = (i, np.searchsorted(steps, [checkpoint.step for checkpoint in chunk]))
            time[at] = [checkpoint.time for checkpoint in chunk]
            for name, values in _measured(chunk, basis, rebuilt).items():
                whole = (*shape, *(sizes[dim] for dim in VARIABLES[name][0]))
                found.setdefault(name, np.full(whole, np.nan))[at] = values
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    variables: dict[str, Any] = {
        name: (("run", "step", *VARIABLES[name][0]), values, VARIABLES[name][1])
        for name, values in found.items()
    }
    variables["captured_by_chance"] = (
        "matrix",
        list(expected_by_chance(basis).values()),
        {"long_name": "captured of random matrices of the same spectrum, mean", **SHARE},
    )
    named = {"kind": ("kind", list(kinds), {"long_name": "kind of sequence"})} if rebuilt else {}
    matrix = {"matrix": ("matrix", list(basis.blocks), {"long_name": "effective matrix"})}
    return xr.Dataset(
        variables,
        coords={**_axes(runs, steps, time), **matrix, **named, **_direction_coordinates(basis)},
        attrs={"frame": basis.family, "layers": basis.layers, "heads": basis.heads},
    )


def _axes(runs: Sequence[Run], steps: Sequence[int], time: np.ndarray) -> dict[str, Any]:
    seeds = [run.config.seeds for run in runs]
    unit = {"long_name": "gradient-flow time", "units": "sum of learning rates"}
    return {
        "run": ("run", [run.run_id for run in runs], {"long_name": "run id"}),
        "step": ("step", steps, {"long_name": "updates", "units": "1"}),
        "time": (("run", "step"), time, unit),
        "init_seed": ("run", [seed.init for seed in seeds]),
        "data_seed": ("run", [seed.data for seed in seeds]),
    }


def _chunks(run: Run, basis: Basis, rebuilt: bool) -> list[list[Checkpoint]]:
    """As many checkpoints together as keep arrays of activations small."""
    family: Any = run.family
    width = getattr(family, "width", 0) * (4 if getattr(family, "mlp", False) else 3)
    width = max(width, basis.vocabulary, family.heads * run.task_time)
    if rebuilt:
        width = max(width, *(basis.shape(block)[-1] for block in basis.blocks))
    together = max(1, TOGETHER // (SEQUENCES * run.task_time * width))
    return [
        [run[step] for step in run.steps[start : start + together]]
        for start in range(0, len(run.steps), together)
    ]


def _measured(chunk: list[Checkpoint], basis: Basis, rebuilt: bool) -> dict[str, np.ndarray]:
    """Every variable of a few checkpoints of one run, (checkpoints, ..)."""
    if basis.family == "transformer":
        lifted = lift(chunk)
        free = remove_gauge(basis, lifted.factored)
        inner = basis.inner(free)
        c, rest = basis.raise_index(inner), basis.share_off(free, inner)
        found = {"logit_error": lifted.logit_error, "lift_agreement": lifted.agreement}
        left_out = {} if basis.complete else basis.left_out(free)
        matrices = free.matrices() if rebuilt else {}
    else:
        members = [remove_gauge(basis, effective_matrices(one)) for one in chunk]
        c = np.stack([basis.coordinates(member) for member in members])
        shares = [basis.off_manifold(member) for member in members]
        rest = {block: np.array([share[block] for share in shares]) for block in shares[0]}
        found = {"logit_error": np.zeros(len(chunk)), "lift_agreement": np.ones(len(chunk))}
        lost = [{} if basis.complete else basis.left_out(member) for member in members]
        left_out = {block: np.array([one[block] for one in lost]) for block in lost[0]}
        matrices = {block: np.stack([member[block] for member in members]) for block in members[0]}
    zero = np.zeros(len(chunk))
    found |= {
        "c": c,
        "captured": 1.0 - np.stack([rest[block] for block in basis.blocks], axis=-1),
        "off_manifold": rest["all"],
        "left_out": np.stack([left_out.get(block, zero) for block in basis.blocks], axis=-1),
    }
    return found | _function(chunk, basis, matrices, c) if rebuilt else found


def _function(
    chunk: list[Checkpoint], basis: Basis, matrices: dict[str, np.ndarray], c: np.ndarray
) -> dict[str, np.ndarray]:
    """The network, the model rebuilt from c, and each matrix beside its projection."""
    task, family = chunk[0].task, chunk[0].family
    batch = task.evaluation(0, SEQUENCES)
    members = [arrays(checkpoint, family, task) for checkpoint in chunk]
    params = {
        name: torch.from_numpy(np.stack([member[name] for member in members]))
        for name in members[0]
    }
    tokens, positions = (
        torch.from_numpy(side).expand(len(chunk), *side.shape)
        for side in (batch.tokens, batch.positions)
    )
    with torch.no_grad():
        loss, accuracy = score(task, family.forward(params, tokens, positions), batch)
    nearest = basis.matrices(c)
    rebuilt_loss, rebuilt_accuracy = run_matrices(task, basis, nearest, batch)
    apart = function_agreement(basis, matrices, nearest, batch)
    none = np.full(len(chunk), np.nan)
    return {
        "loss": loss,
        "accuracy": np.stack([accuracy.get(kind, none) for kind in task.kinds], axis=-1),
        "rebuilt_loss": rebuilt_loss,
        "rebuilt_accuracy": np.stack(
            [rebuilt_accuracy.get(kind, none) for kind in task.kinds], axis=-1
        ),
        "function_error": np.stack([apart.error[block] for block in basis.blocks], axis=-1),
        "attention_distance": np.stack(
            [apart.distance.get(block, none) for block in basis.blocks], axis=-1
        ),
    }


def _direction_coordinates(basis: Basis) -> dict[str, tuple[str, list]]:
    """Names along `coordinate`, and where each direction acts."""
    columns: dict[str, tuple[str, list]] = {
        name: ("coordinate", [])
        for name in ("coordinate", "block", "head", "query", "key", "element")
    }
    below = {block: basis.paths(block) for block in basis.blocks}
    for direction in basis.directions:
        readout = direction.block == READOUT
        names = basis.readout_names if readout else basis.element_names
        row = {
            "coordinate": direction.name,
            "block": direction.block,
            "head": direction.head,
            "query": "" if readout else below[direction.block][direction.query],
            "key": below[direction.block][direction.key],
            "element": names[direction.element],
        }
        for name, value in row.items():
            columns[name][1].append(value)
    return columns
