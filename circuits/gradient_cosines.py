"""Where lengths meet: cosines between gradients of single steps at different lengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from circuits.contrast import length_task
from training import Run
from training.families.base import Family
from training.tasks.base import Batch, LengthTask

GROUPS = ("same step", "same position", "neither")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientCosines:
    """Cosines of single-step gradients at different lengths, averaged along training.

    table: a row per run and pair (length n, step k), (length m, step l) with n < m: its group, the
    mean cosine over checkpoints weighted by the time (sum of learning rates) each stands for, and
    the absolute positions. means, intervals: by group ("same step"; "same position": different
    steps at the same absolute position; "neither"), of each pair's mean over runs, with a 95%
    bootstrap interval over pairs; a group without pairs is missing. by_run: the group's mean in
    each run, whose range is to be read beside it: runs that share seeds are not independent.
    runs: run id to the checkpoints used, those without any left out.
    """

    table: pd.DataFrame
    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    by_run: dict[str, dict[str, float]]
    runs: dict[str, tuple[int, ...]]


def gradient_cosines(
    runs: Run | Sequence[Run], *, samples: int = 256, above: float = 0.1, seed: int = 0
) -> GradientCosines:
    """Over the checkpoints whose joint validation loss is above `above` of chance, log(n_answers).

    Theory, section 8, step-resolved: same step, different step at the same absolute position,
    neither. A step's gradient is that of the mean cross-entropy at that step over sequences of
    one length, with respect to every trained parameter. Several runs must share one task.

    Errors: ValueError for different tasks, and for the layout random_offset, where a step has no
    one position.
    """
    runs = list(runs) if isinstance(runs, Sequence) else [runs]
    if not runs or any(run.task != runs[0].task for run in runs):
        raise ValueError("gradient_cosines needs one run, or several runs of one task")
    task = length_task(runs[0].task)
    batches = {n: task.sequences(n, samples, seed) for n in task.lengths}
    cells = _cells(task, batches)
    rows, used = [], {}
    for run in runs:
        steps, weights = _training(run, above * float(np.log(task.n_answers)))
        if steps:
            used[run.run_id] = steps
            stacked = [_cosines(run.family, run[s].params(), batches, cells) for s in steps]
            cosine = np.average(stacked, axis=0, weights=weights)
            rows += [(run.run_id, *row) for row in _pairs(cells, cosine)]
    names = ["run", "n", "step_n", "position_n", "m", "step_m", "position_m", "group", "cosine"]
    return _summary(pd.DataFrame(rows, columns=names), used, seed)


def _training(run: Run, least: float) -> tuple[tuple[int, ...], list[float]]:
    """Kept steps at a validation loss above `least`, but the last, and the time to the next one."""
    losses = run.metrics.dropna(subset=["validation_loss"]).set_index("step")["validation_loss"]
    if losses.empty:
        raise ValueError("the run has no validation loss on record: set eval_every in its config")
    steps = run.steps
    used = [
        (step, run[after].time - run[step].time)
        for step, after in itertools.pairwise(steps)
        if np.interp(step, losses.index, losses) > least
    ]
    return tuple(step for step, _ in used), [weight for _, weight in used]


def _cells(task: LengthTask, batches: dict[int, Batch]) -> list[tuple[int, int, int, int]]:
    """(length, step, time index, absolute position) of every supervised step of every length."""
    cells = []
    for length, batch in batches.items():
        steps = task.step(batch)[0]
        for index in np.flatnonzero(steps):
            if len(np.unique(batch.positions[:, index])) > 1:
                raise ValueError(
                    f"task: its sequences of length {length} start at different positions (layout "
                    "random_offset), so that no step has one absolute position to compare at"
                )
            cells.append((length, int(steps[index]), int(index), int(batch.positions[0, index])))
    return cells


def _cosines(family: Family, params: dict[str, Tensor], batches, cells) -> np.ndarray:
    trained = {k: v.requires_grad_() for k, v in params.items() if k not in family.frozen}
    rows: list[Tensor] = []
    for length, batch in batches.items():
        logits = family.forward(
            {**params, **trained},
            torch.from_numpy(batch.tokens),
            torch.from_numpy(batch.positions),
        )
        for n, _, index, _ in cells:
            if n == length:
                target = torch.from_numpy(batch.targets[:, index])
                loss = F.cross_entropy(logits[:, index], target)
                grads = torch.autograd.grad(loss, list(trained.values()), retain_graph=True)
                rows.append(torch.cat([g.flatten() for g in grads]).double())
    unit = F.normalize(torch.stack(rows), dim=1)
    return (unit @ unit.mT).numpy()


def _pairs(cells: Sequence[tuple[int, int, int, int]], cosine: np.ndarray) -> list[tuple]:
    """Rows of the table, one for each pair of cells at different lengths."""
    rows = []
    for i, (n, k, _, p) in enumerate(cells):
        for j, (m, l, _, q) in enumerate(cells):
            if n < m:
                group = GROUPS[0] if k == l else GROUPS[1] if p == q else GROUPS[2]
                rows.append((n, k, p, m, l, q, group, cosine[i, j]))
    return rows


def _summary(table: pd.DataFrame, used: dict[str, tuple[int, ...]], seed: int) -> GradientCosines:
    rng = np.random.default_rng(seed)
    means, intervals, by_run = {}, {}, {}
    for name in [group for group in GROUPS if group in set(table["group"])]:
        wide = table[table["group"] == name].pivot_table(
            index=["n", "step_n", "m", "step_m"], columns="run", values="cosine"
        )
        x = wide.to_numpy().mean(1)
        boot = x[rng.integers(0, len(x), (1000, len(x)))].mean(1)
        low, high = np.percentile(boot, [2.5, 97.5])
        means[name], intervals[name] = float(x.mean()), (float(low), float(high))
        alone = wide.to_numpy().mean(0).tolist()
        by_run[name] = dict(zip(map(str, wide.columns), alone, strict=True))
    return GradientCosines(table=table, means=means, intervals=intervals, by_run=by_run, runs=used)
