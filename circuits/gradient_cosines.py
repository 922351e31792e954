"""Where lengths meet: cosines between gradients of single steps at different lengths."""

from __future__ import annotations

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

    table: a row per pair (length n, step k), (length m, step l) with n < m: its group, the mean
    cosine over checkpoints weighted by the time (sum of learning rates) each stands for, and the
    absolute positions. means, intervals: by group ("same step"; "same position": different steps
    at the same absolute position; "neither"), with a 95% bootstrap interval over pairs; a group
    without pairs is missing. steps: the checkpoints used.
    """

    table: pd.DataFrame
    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    steps: tuple[int, ...]


def gradient_cosines(
    run: Run, *, samples: int = 256, above: float = 0.1, seed: int = 0
) -> GradientCosines:
    """Over the checkpoints whose joint validation loss is above `above` of chance, log(n_answers).

    Theory, section 8, step-resolved: same step, different step at the same absolute position,
    neither. A step's gradient is that of the mean cross-entropy at that step over sequences of
    one length, with respect to every trained parameter.
    """
    losses = run.metrics.dropna(subset=["validation_loss"]).set_index("step")["validation_loss"]
    if losses.empty:
        raise ValueError("the run has no validation loss on record: set eval_every in its config")
    task = length_task(run.task)
    chance = np.log(task.n_answers)
    clock = {step: run[step].time for step in run.steps}
    used = [s for s in run.steps if np.interp(s, losses.index, losses) > above * chance]
    used = [s for s in used if s != run.steps[-1]]
    after = {s: run.steps[run.steps.index(s) + 1] for s in used}
    weight = np.array([clock[after[s]] - clock[s] for s in used])
    batches = {n: task.sequences(n, samples, seed) for n in task.lengths}
    cells = _cells(task, batches)
    stacked = [_cosines(run.family, run[s].params(), batches, cells) for s in used]
    cosine = np.average(stacked, axis=0, weights=weight) if used else None
    return _summary(cells, cosine, tuple(used), seed)


def _cells(task: LengthTask, batches: dict[int, Batch]) -> list[tuple[int, int, int, int]]:
    """(length, step, time index, absolute position) of every supervised step of every length."""
    cells = []
    for length, batch in batches.items():
        steps = task.step(batch)[0]
        for index in np.flatnonzero(steps):
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


def _summary(cells, cosine: np.ndarray | None, steps, seed: int) -> GradientCosines:
    rows = []
    for i, (n, k, _, p) in enumerate(cells):
        for j, (m, l, _, q) in enumerate(cells):
            if n < m and cosine is not None:
                group = GROUPS[0] if k == l else GROUPS[1] if p == q else GROUPS[2]
                rows.append((n, k, p, m, l, q, group, cosine[i, j]))
    names = ["n", "step_n", "position_n", "m", "step_m", "position_m", "group", "cosine"]
    table = pd.DataFrame(rows, columns=names)
    rng = np.random.default_rng(seed)
    means, intervals = {}, {}
    for group, values in table.groupby("group")["cosine"]:
        x = values.to_numpy()
        boot = x[rng.integers(0, len(x), (1000, len(x)))].mean(1)
        means[str(group)] = float(x.mean())
        intervals[str(group)] = tuple(float(v) for v in np.percentile(boot, [2.5, 97.5]))
    return GradientCosines(table=table, means=means, intervals=intervals, steps=steps)
