"""N*: the smallest training set from which a model learns its task (theory section 7).

Protocol of arXiv 2602.18333: a size succeeds if at least one member of a grid of learning rates and
seeds brings the validation loss under a threshold; the sizes are a geometric grid, searched from
the top. N* is a minimum over the grid of members, so only equal grids compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.config import RunConfig
from training.engine import train_many
from training.n_star import MemberOutcome, NStar, Trial
from training.run import Run

BOTTOM = 12
RATIO = 1.3
"""Sizes are BOTTOM * RATIO^k, rounded, and all the data there is."""
STRIDE = 3
"""Grid steps that the search descends at a time: a factor of about 2.2."""
FITTED = 5.0
"""A training loss below FITTED times the threshold means that the training set was learnt."""

Progress = Callable[[float, str], None]
"""progress(share of the work done, estimated; what was just found)."""


def size_grid(pool: int) -> tuple[int, ...]:
    """BOTTOM * RATIO^k below `pool`, then the pool itself (in place of a size just below it)."""
    if pool < 1:
        raise ValueError(f"pool: got {pool} training sequences, allowed 1 or more")
    sizes = []
    while (size := round(BOTTOM * RATIO ** len(sizes))) * RATIO**0.5 < pool:
        sizes.append(size)
    return (*sizes, pool)


def search(
    solves: Callable[[int], bool], grid: Sequence[int], second_start: int | None = None
) -> None:
    """Ask `solves` about sizes of an ascending grid until N* is bracketed by neighbours.

    From the top down STRIDE grid steps at a time while sizes succeed, then bisection between the
    largest failure and the smallest success of that descent. If the top fails, the same once more
    from the largest size up to `second_start`: with several lengths, success need not be monotone
    once a short one has run out of sequences.
    """
    if _descend(solves, grid, len(grid) - 1) or second_start is None:
        return
    below = [i for i, size in enumerate(grid[:-1]) if size <= second_start]
    if below:
        _descend(solves, grid, below[-1])


def _descend(solves: Callable[[int], bool], grid: Sequence[int], start: int) -> bool:
    success, failure, place = None, -1, start
    while success != 0 and solves(grid[place]):
        success, place = place, max(0, place - STRIDE)
    if success is None:
        return False
    if success > 0:
        failure = place
    while success - failure > 1:
        middle = (success + failure) // 2
        if solves(grid[middle]):
            success = middle
        else:
            failure = middle
    return True


def sample_size(
    config: RunConfig,
    *,
    root: str | Path,
    lrs: Sequence[float],
    seeds: Sequence[int],
    sizes: Sequence[int] | None = None,
    stop_at_first_success: bool = True,
    progress: Progress | None = None,
) -> NStar:
    """N* of `config`, whose learning rate, seeds and training size are varied.

    config: its stop.loss is the threshold of success; stop.patience ends members that no longer
    improve. root: where runs go, in the folder of config.study; a size that is finished there is
    not trained again. lrs x seeds are the members of every size, a seed being both that of the
    weights and that of the data. sizes: the grid; None for `size_grid(task.pool())`.
    stop_at_first_success: False trains every member to its end, which gives n50.

    Errors: ValueError for an empty grid, sizes that do not exist, or no threshold.
    """
    grid = _grid(config, sizes)
    _check(config, lrs, seeds)
    trials: dict[int, Trial] = {}

    def solves(size: int) -> bool:
        if size in trials:
            return trials[size].solved
        share = min(0.95, len(trials) / (len(grid) / STRIDE + 2))

        def at(step: int, total: int, latest: Mapping[str, float]) -> None:
            if progress and "validation_loss" in latest:
                loss = f"validation loss {latest['validation_loss']:.3f}"
                progress(share, f"{size} sequences, step {step} of {total}, {loss}")

        runs = train_many(
            _members(config, size, lrs, seeds),
            root=root,
            progress=at,
            stop_at_first_success=stop_at_first_success,
        )
        trials[size] = _trial(size, runs)
        if progress:
            outcome = "learnt" if trials[size].solved else f"not learnt ({trials[size].cause})"
            progress(share, f"{size} sequences: {outcome}")
        return trials[size].solved

    search(solves, grid, second_start=_second_start(config))
    if progress:
        progress(1.0, "done")
    return _n_star(grid, list(trials.values()), config, lrs, seeds, not stop_at_first_success)


def _grid(config: RunConfig, sizes: Sequence[int] | None) -> tuple[int, ...]:
    pool = getattr(config.task, "pool", None)
    if sizes is None:
        if pool is None:
            raise ValueError(
                f"sizes: {type(config.task).__name__} has no finite pool of sequences, so a grid "
                "of sizes must be given"
            )
        return size_grid(pool())
    grid = tuple(sorted(set(sizes)))
    if not grid or grid[0] < 1 or (pool is not None and grid[-1] > pool()):
        limit = f" to {pool()}, all the training sequences there are" if pool else " and above"
        raise ValueError(f"sizes: got {tuple(sizes)}, allowed one or more numbers from 1{limit}")
    return grid


def _check(config: RunConfig, lrs: Sequence[float], seeds: Sequence[int]) -> None:
    if config.stop.loss is None:
        raise ValueError("config.stop.loss: got None, but it is the threshold of success; set it")
    for name, values in (("lrs", lrs), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name}: got {tuple(values)}, allowed one or more different values")


def _second_start(config: RunConfig) -> int | None:
    """Number of lengths times the smallest pool: the last size with a uniform mixture."""
    lengths = getattr(config.task, "lengths", ())
    if len(lengths) < 2:
        return None
    return len(lengths) * min(config.task.pool(n) for n in lengths)  # type: ignore[attr-defined]


def _members(
    config: RunConfig, size: int, lrs: Sequence[float], seeds: Sequence[int]
) -> list[RunConfig]:
    return [
        config.replace(train_size=size, optimiser={"lr": lr}, seeds={"init": seed, "data": seed})
        for seed in seeds
        for lr in lrs
    ]


def _trial(size: int, runs: Sequence[Run]) -> Trial:
    members = tuple(_outcome(run) for run in runs)
    cause = None
    if not any(member.state == "solved" for member in members):
        fitted = FITTED * (runs[0].config.stop.loss or 0.0)
        lowest = min((m.train_loss for m in members if m.train_loss is not None), default=np.inf)
        cause = "data" if lowest < fitted else "optimisation"
    return Trial(size=size, members=members, mixture=_mixture(size, runs), cause=cause)


def _outcome(run: Run) -> MemberOutcome:
    status, config = run.status, run.config
    last = status["metrics"]
    return MemberOutcome(
        lr=config.optimiser.lr,
        seed=config.seeds.init,
        state=status["state"],
        step=status["step"],
        train_loss=last.get("train_loss"),
        validation_loss=last.get("validation_loss"),
        accuracy=last.get("validation_accuracy"),
        run=str(run.path),
    )


def _mixture(size: int, runs: Sequence[Run]) -> dict[str, float]:
    task: Any = runs[0].task
    if not hasattr(task, "order"):
        return {}
    seeds = sorted({run.config.seeds.data for run in runs})
    kinds = np.concatenate([task.order(seed, size).kind for seed in seeds])
    counts = np.bincount(kinds, minlength=len(task.kinds)) / len(seeds)
    return dict(zip(task.kinds, counts.tolist(), strict=True))


def _n_star(
    grid: tuple[int, ...],
    trials: list[Trial],
    config: RunConfig,
    lrs: Sequence[float],
    seeds: Sequence[int],
    complete: bool,
) -> NStar:
    solved = [trial.size for trial in trials if trial.solved]
    failed = [trial.size for trial in trials if not trial.solved]
    value = min(solved, default=None)
    half = [
        trial.size
        for trial in trials
        if sum(m.state == "solved" for m in trial.members) * 2 >= len(trial.members)
    ]
    return NStar(
        value=value,
        interval=(max((s for s in failed if value is None or s < value), default=0), value),
        censored=value is None,
        bottom=value == grid[0],
        monotone=value is None or not any(size > value for size in failed),
        n50=min(half, default=None) if complete else None,
        grid=grid,
        trials=tuple(trials),
        lrs=tuple(lrs),
        seeds=tuple(seeds),
        threshold=config.stop.loss or 0.0,
    )
