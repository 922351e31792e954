"""What a study will cost, before it is run: runs, CPU time and disk, from a few timed steps."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from training.config import RunConfig
from training.naming import describe
from training.optimiser import slots
from training.schedule import checkpoint_steps, evaluation_steps
from training.sharing.sample_size import grid_of
from training.sharing.searches import SEARCHES
from training.stack import DTYPES, Member, Stack
from training.studies.study import Cell, Job, KappaStudy

SOLVED, FAILED = 0.5, 0.7
"""Shares of the steps that a size takes on average: who solves it ends the others, who fails
mostly runs out of patience. Guesses from small searches; a factor of 2 either way is usual."""
LEADER = 0.5
"""Time of a step of one member against that of a stack of a few: who solved the size before is
tried alone, and the others only if it fails."""
COMPLETED = 2
"""Sizes at and above N* whose halted members go on for N50, each for another SOLVED steps."""
LARGE = 5_000_000
"""Trained numbers in a stack above which one member is timed and the rest multiplied."""
ROW, FOLDER = 160, 8_000
"""Bytes of a row of metrics, and of what else a run's folder holds beside its arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """runs: folders. cpu_seconds: on cores like this one. bytes: on disk."""

    runs: float
    cpu_seconds: float
    bytes: float

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            runs=self.runs + other.runs,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            bytes=self.bytes + other.bytes,
        )

    def record(self) -> dict[str, float]:
        """Plain values for JSON."""
        return {
            "runs": round(self.runs),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "bytes": round(self.bytes),
        }


NOTHING = Estimate(runs=0, cpu_seconds=0, bytes=0)


def estimate(study: KappaStudy, jobs: Sequence[Job]) -> dict[str, Estimate]:
    """Estimate of each search, by its name; equal shapes are timed once.

    N* is taken to lie anywhere on the grid of sizes with equal odds.
    """
    cells: Mapping[str, Cell] = {cell.name: cell for cell in study.cells}
    shapes: dict[str, str] = {}
    timed: dict[str, tuple[float, float]] = {}
    found = {}
    for job in jobs:
        config = study.config(cells[job.cell])
        members = len(job.lrs) * len(job.seeds)
        if job.cell not in shapes:
            shapes[job.cell] = json.dumps([_shape(config), members])
        shape = shapes[job.cell]
        if shape not in timed:
            timed[shape] = seconds_per_step(config, members), _bytes(config)
        found[job.name] = _of(job, members, *timed[shape])
    return found


def seconds_per_step(config: RunConfig, members: int) -> float:
    """Time of one update of a stack, on one thread, the fastest of up to three."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        drawn = config.family.initialise(config.task, 0, DTYPES[config.dtype])
        weights = {name: value.numpy() for name, value in drawn.items()}
        size = members * sum(value.size for value in weights.values())
        timed = 1 if size > LARGE else members
        stack = Stack([Member(config=config, weights=weights, optimiser={})] * timed)
        batch = config.task.batch(0, 0, config.batch_size, _few(config))
        elapsed: list[float] = []
        while len(elapsed) < 3 and sum(elapsed) < 2:
            start = time.perf_counter()
            stack.step([batch] * timed, len(elapsed) + 1)
            elapsed.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return min(elapsed) * members / timed


def _few(config: RunConfig) -> int | None:
    """A training size that is quick to draw: what the sequences are does not change the time."""
    task = config.task
    return min(1000, task.pool()) if hasattr(task, "pool") else None  # type: ignore[attr-defined]


def _shape(config: RunConfig) -> list[object]:
    """What the time of a step depends on."""
    batch = config.task.batch(0, 0, 1, _few(config))
    form = getattr(config.task, "format", None)
    family = describe("family", config.family)
    sizes = [*batch.tokens.shape, config.task.vocabulary, config.task.n_positions]
    return [family, sizes, form, config.batch_size, config.dtype]


def _bytes(config: RunConfig) -> float:
    """Of the arrays of one checkpoint."""
    drawn = config.family.initialise(config.task, 0, DTYPES[config.dtype]).values()
    return sum(v.nbytes for v in drawn) * (1 + len(slots(config.optimiser)))


def _of(job: Job, members: int, seconds: float, arrays: float) -> Estimate:
    config = job.config
    solved, failed = _asked(job.search, grid_of(job.config, largest=job.largest))
    completed = COMPLETED if job.n50 else 0
    shares = SOLVED * (LEADER * solved + completed) + (LEADER + 1) * FAILED * failed
    steps = shares * config.steps
    runs = solved + members * (failed + completed)
    rows = len(evaluation_steps(config)) * SOLVED
    per_run = len(checkpoint_steps(config)) * arrays + rows * ROW + FOLDER
    return Estimate(runs=runs, cpu_seconds=steps * seconds, bytes=runs * per_run)


@lru_cache(maxsize=256)
def _asked(search: str, grid: tuple[int, ...]) -> tuple[float, float]:
    """Sizes that succeed and that fail, mean over where on the grid N* lies."""
    counts = np.zeros(2)
    for first in grid:
        asked: dict[int, bool] = {}

        def solves(size: int, first: int = first, asked: dict[int, bool] = asked) -> bool:
            asked[size] = size >= first
            return asked[size]

        SEARCHES[search](solves, grid, None)
        counts += [sum(asked.values()), len(asked) - sum(asked.values())]
    solved, failed = (counts / len(grid)).tolist()
    return solved, failed
