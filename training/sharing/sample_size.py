"""N*: the smallest training set from which a model learns its task (theory section 7).

Protocol of arXiv 2602.18333: a size succeeds if at least one member of a grid of learning rates and
seeds of the initial weights brings the validation loss under a threshold; the sizes are a geometric
grid. N* is a minimum over the grid of members, so only equal grids compare. All members of a size
share its training set, so a data seed is one replicate, and data seeds are searched one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.config import RunConfig
from training.engine import train_many
from training.run import Run, open_run, state_of
from training.sharing.beyond import accuracy_beyond
from training.sharing.n_star import MemberOutcome, NStar, Trial, bracket
from training.sharing.searches import SEARCHES

BOTTOM = 12
RATIO = 1.3
"""Sizes are BOTTOM * RATIO^k, rounded, and all the data there is."""
FITTED = 5.0
"""A training loss below FITTED times the threshold means that the training set was learnt."""

Progress = Callable[[float, str], None]
"""progress(share of the work done, estimated; what was just found)."""


MOST = 2**24
"""Training sequences above which a search must be told the largest size: its first one is drawn."""


def size_grid(pool: int) -> tuple[int, ...]:
    """BOTTOM * RATIO^k below `pool`, then the pool itself (in place of a size just below it)."""
    if pool < 1:
        raise ValueError(f"pool: got {pool} training sequences, allowed 1 or more")
    sizes = []
    while (size := round(BOTTOM * RATIO ** len(sizes))) * RATIO**0.5 < pool:
        sizes.append(size)
    return (*sizes, pool)


def sample_size(
    config: RunConfig,
    *,
    root: str | Path,
    lrs: Sequence[float],
    seeds: Sequence[int],
    sizes: Sequence[int] | None = None,
    largest: int | None = None,
    search: str = "descent",
    n50: bool = False,
    progress: Progress | None = None,
) -> NStar:
    """N* of `config` for its data seed; learning rate, seed of the weights and size are varied.

    config: its stop.loss is the threshold of success; stop.patience ends members that no longer
    improve. root: where runs go, in the folder of config.study; a size that is finished there is
    not trained again. lrs x seeds are the members of every size, seeds being those of the initial
    weights. sizes: the grid; None for `size_grid(task.pool())`. largest: no size above it.
    search: a name in SEARCHES; a size is over once one of its members succeeds. The member that
    solved the size before is tried first, and the others only if it fails: a solved size then costs
    one member, and verdicts do not depend on it.
    n50: afterwards, up the grid from N* in strides that double, then by bisection, members whose
    verdict is open go on to their own ends until the smallest size is found that half of them
    solve; and each seed is tried further up, at sizes of the search, until it solves one.

    Errors: ValueError for an empty grid, sizes that do not exist, an unknown search, no threshold.
    """
    grid = grid_of(config, sizes, largest)
    _check(config, lrs, seeds, search)
    trials = _Trials(config, root, grid, lrs, seeds, progress)
    SEARCHES[search](trials.solves, grid, second_start(config))
    if n50:
        trials.complete()
    if progress:
        progress(1.0, "done")
    found = trials.all()
    return _n_star(grid, found, config, lrs, seeds, search, n50, _beyond(found))


class _Trials:
    """Sizes that were tried, in order, and the runs behind them."""

    def __init__(
        self,
        config: RunConfig,
        root: str | Path,
        grid: tuple[int, ...],
        lrs: Sequence[float],
        seeds: Sequence[int],
        progress: Progress | None,
    ) -> None:
        self.config, self.root, self.grid = config, root, grid
        self.seeds, self.progress = seeds, progress
        self.members = [(lr, seed) for seed in seeds for lr in lrs]
        self.tried: dict[int, Trial] = {}
        self.leader: tuple[float, int] | None = None
        self.share = 0.0

    def all(self) -> list[Trial]:
        return list(self.tried.values())

    def solves(self, size: int) -> bool:
        """Whether one member solves this size: the leader, or else one of all, who leads then."""
        if size not in self.tried:
            self.share = min(0.95, len(self.tried) / (3 + math.log2(len(self.grid))))
            if self.leader is not None:
                self.train(size, [self.leader], halt=True)
            if self.leader is None or not self.tried[size].solved:
                self.train(size, self.members, halt=True)
                winner = self.tried[size].winner
                self.leader = (winner.lr, winner.seed) if winner else self.leader
        return self.tried[size].solved

    def complete(self) -> None:
        """Bracket n50 from N* upward, then N* of each seed by sizes that were tried."""
        value = bracket(self.all(), self.seeds)[1]
        if value is None:
            return
        first = place = self.grid.index(value)
        low, reach, top = first - 1, 1, len(self.grid) - 1
        while not self.half(place) and place < top:
            low, place, reach = place, min(first + reach, top), 2 * reach + 1
        while place - low > 1 and self.half(place):
            middle = (low + place) // 2
            low, place = (low, middle) if self.half(middle) else (middle, place)
        for seed in self.seeds:
            skip = 0
            while between := self.between(seed):
                size = between[min(skip, len(between) - 1)]
                self.train(size, [m for m in self.members if m[1] == seed], halt=True)
                failed = bracket([self.tried[size]], {seed})[1] is None
                skip = 2 * skip + 1 if failed else 0

    def between(self, seed: int) -> list[int]:
        """Sizes tried between the largest failure and the smallest success of one seed."""
        low, high = bracket(self.all(), {seed})
        top = self.grid[-1] + 1 if high is None else high
        return sorted(size for size in self.tried if low < size < top)

    def half(self, place: int) -> bool:
        """Whether half of the members solve a size, each trained to its own end."""
        self.train(self.grid[place], self.members, halt=False)
        return self.tried[self.grid[place]].half

    def train(self, size: int, members: Sequence[tuple[float, int]], halt: bool) -> None:
        """Train some (lr, seed) of a size, then read how all of its members stand."""

        def at(step: int, total: int, latest: Mapping[str, float]) -> None:
            if self.progress and "validation_loss" in latest:
                loss = f"validation loss {latest['validation_loss']:.3f}"
                self.progress(self.share, f"{size} sequences, step {step} of {total}, {loss}")

        configs = {
            (lr, seed): self.config.replace(
                train_size=size, optimiser={"lr": lr}, seeds={"init": seed}
            )
            for lr, seed in self.members
        }
        train_many(
            [configs[m] for m in members], root=self.root, progress=at, stop_at_first_success=halt
        )
        outcomes = [_outcome(config, Path(self.root)) for config in configs.values()]
        self.tried[size] = trial = _trial(self.config, size, outcomes)
        ended = trial.solved or len(members) == len(self.members)
        if self.progress and ended:
            outcome = "learnt" if trial.solved else f"not learnt ({trial.cause})"
            self.progress(self.share, f"{size} sequences: {outcome}")


def grid_of(
    config: RunConfig, sizes: Sequence[int] | None = None, largest: int | None = None
) -> tuple[int, ...]:
    """The sizes that a search may ask, ascending. ValueError where there are none, or too many."""
    if largest is not None and largest < 1:
        raise ValueError(f"largest: got {largest}, allowed 1 or more sequences, or None")
    pool = config.task.pool() if hasattr(config.task, "pool") else None  # type: ignore[attr-defined]
    limits = [limit for limit in (pool, largest) if limit is not None]
    if sizes is None:
        if not limits:
            raise ValueError(
                f"sizes: {type(config.task).__name__} has no finite pool of sequences, so a grid "
                "of sizes, or the largest of them, must be given"
            )
        if largest is None and min(limits) > MOST:
            raise ValueError(
                f"largest: {type(config.task).__name__} has {min(limits):.3g} training sequences;"
                f" say how many to try at most (above {MOST:,} it must be said)"
            )
        return size_grid(min(limits))
    grid = tuple(sorted(set(sizes)))
    if not grid or grid[0] < 1 or (limits and grid[-1] > min(limits)):
        allowed = f" to {min(limits)}, of the training sequences there are" if limits else ""
        raise ValueError(f"sizes: got {tuple(sizes)}, allowed one or more numbers from 1{allowed}")
    return grid


def _check(config: RunConfig, lrs: Sequence[float], seeds: Sequence[int], search: str) -> None:
    if config.stop.loss is None:
        raise ValueError("config.stop.loss: got None, but it is the threshold of success; set it")
    for name, values in (("lrs", lrs), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name}: got {tuple(values)}, allowed one or more different values")
    if search not in SEARCHES:
        raise ValueError(f"search: got {search!r}, allowed {', '.join(SEARCHES)}")


def second_start(config: RunConfig) -> int | None:
    """Number of lengths times the smallest pool: the last size with a uniform mixture."""
    task: Any = config.task
    lengths = getattr(task, "lengths", ())
    return len(lengths) * min(map(task.pool, lengths)) if len(lengths) > 1 else None


def _trial(config: RunConfig, size: int, members: Sequence[MemberOutcome]) -> Trial:
    cause = None
    if not any(member.state == "solved" for member in members):
        fitted = FITTED * (config.stop.loss or 0.0)
        losses = [m.train_loss for m in members if m.train_loss is not None]
        cause = "data" if min(losses, default=fitted) < fitted else "optimisation"
    return Trial(size=size, members=tuple(members), mixture=_mixture(config, size), cause=cause)


def _outcome(config: RunConfig, root: Path) -> MemberOutcome:
    """As its folder tells; of a run that has not begun, where its folder would be."""
    run = Run(path=root / config.study / config.run_id, run_id=config.run_id, config=config)
    begun = state_of(run) is not None
    status: Mapping[str, Any] = run.status if begun else {"state": "waiting", "step": 0}
    last = status.get("metrics", {})
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


def _mixture(config: RunConfig, size: int) -> dict[str, int]:
    task: Any = config.task
    return dict(task.mixture(config.seeds.data, size)) if hasattr(task, "mixture") else {}


def _n_star(
    grid: tuple[int, ...],
    trials: Sequence[Trial],
    config: RunConfig,
    lrs: Sequence[float],
    seeds: Sequence[int],
    search: str,
    complete: bool,
    beyond: float | None,
) -> NStar:
    interval = bracket(trials, seeds)
    value = interval[1]
    solved = [trial for trial in trials if trial.solved]
    half = [trial.size for trial in solved if trial.half]
    return NStar(
        value=value,
        interval=interval,
        censored=value is None,
        bottom=value == grid[0],
        monotone=value is None or all(t.solved for t in trials if t.size > value),
        n50=min(half, default=None) if complete else None,
        complete=complete,
        beyond=beyond,
        grid=grid,
        trials=tuple(trials),
        data_seed=config.seeds.data,
        lrs=tuple(lrs),
        seeds=tuple(seeds),
        threshold=config.stop.loss or 0.0,
        search=search,
    )


def _beyond(trials: Sequence[Trial]) -> float | None:
    """Of the winner of the largest solved size."""
    winners = {trial.size: trial.winner for trial in trials if trial.winner}
    return accuracy_beyond(open_run(winners[max(winners)].run)) if winners else None
