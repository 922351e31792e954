"""A fitted equation followed from a run's start and compared with the run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.integrate import LSODA, RK45

from manifold.dynamics.trajectory import Trajectory

Flow = Callable[[np.ndarray], np.ndarray]
"""dc/dt (dim,) at c (dim,)."""
FAR = 10.0
"""Times the largest |c| of the data: from there on a rollout is called divergent."""
RESAMPLES = 400
LEVEL = (2.5, 97.5)
"""Percentiles of every interval."""
TOLERANCE = 1e-6
CHEAP = 8
"""Up to so many coordinates LSODA, which is safe where the flow is stiff; beyond, RK45."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """states (time, dim), NaN after the rollout ended; ended: why it did, "" where it arrived."""

    states: np.ndarray
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """Rollouts of runs, each from its own first checkpoint.

    runs: a row for each, with `held_out`, `error` = rms over checkpoints of the difference over
    rms of the states (inf where it ended before), its interval (`low`, `high`; block bootstrap over
    checkpoints, 95%) and `ended`. error, low, high: the mean over the runs held out; over the
    fitted ones where none was.
    """

    runs: pd.DataFrame
    error: float
    low: float
    high: float

    @property
    def held_out(self) -> bool:
        return bool(self.runs["held_out"].any())

    @property
    def sentence(self) -> str:
        judged = self.runs[self.runs["held_out"] == self.held_out]
        whose = "held-out" if self.held_out else "fitted"
        count = f"{len(judged)} {whose} run{'s' if len(judged) > 1 else ''}"
        ended = [
            f"{run} {why}" for run, why in zip(judged.index, judged["ended"], strict=True) if why
        ]
        if ended:
            return f"the rollout does not arrive in {len(ended)} of {count}: {ended[0]}"
        note = "" if self.held_out else "; no run was held out, so this says little about others"
        return (
            f"relative rollout error {self.error:.3f} ({self.low:.3f} to {self.high:.3f}) "
            f"on {count}{note}"
        )


class _Ended(Exception):
    pass


def rollout(
    flow: Flow, start: np.ndarray, times: np.ndarray, *, bound: float, seconds: float
) -> Rollout:
    """The flow from `start` at times[0]; it never raises and never hangs.

    It ends where some |c_i| passes `bound`, where the solver fails, and after `seconds`.
    """
    deadline = time.process_time() + seconds

    def velocity(now: float, c: np.ndarray) -> np.ndarray:
        if not (np.abs(c) <= bound).all():
            raise _Ended(f"leaves the bound |c| <= {bound:.3g} at time {now:.4g}")
        if time.process_time() > deadline:
            raise _Ended(f"is at time {now:.4g} when its {seconds:g} s are over")
        return flow(c)

    states, ended, done = np.full((len(times), len(start)), np.nan), "", 1
    states[0] = start
    rule = LSODA if len(start) <= CHEAP else RK45
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the reason is in the message
            solver = rule(
                velocity, times[0], start, times[-1], rtol=TOLERANCE, atol=TOLERANCE / 100
            )
            while solver.status == "running":
                message = solver.step()
                if solver.status == "failed":
                    raise _Ended(f"stops at time {solver.t:.4g}: {message}")
                upto = int(np.searchsorted(times, solver.t, side="right"))
                if upto > done:
                    states[done:upto] = solver.dense_output()(times[done:upto]).T
                    done = upto
    except _Ended as stop:
        ended = str(stop)
    return Rollout(states=states, ended=ended)


def judge(
    flow: Flow,
    fitted: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    *,
    seconds: float,
    seed: int = 0,
) -> Judgement:
    """Rollouts of all runs; `seconds` are for all together, held-out runs first."""
    bound = far([*fitted, *held_out])
    deadline, rows, draws = time.process_time() + seconds, {}, {True: [], False: []}
    rng = np.random.default_rng(seed)
    for outside, runs in ((True, held_out), (False, fitted)):
        for run in runs:
            left = max(0.0, deadline - time.process_time())
            found = rollout(flow, run.states[0], run.times, bound=bound, seconds=left)
            error, spread = _error(run, found, rng)
            low, high = interval(spread)
            rows[run.name] = (outside, error, low, high, found.ended)
            draws[outside].append((error, spread))
    columns = ["held_out", "error", "low", "high", "ended"]
    counted = draws[True] or draws[False]
    low, high = interval(np.mean([spread for _, spread in counted], axis=0))
    return Judgement(
        runs=pd.DataFrame.from_dict(rows, orient="index", columns=columns),
        error=float(np.mean([error for error, _ in counted])),
        low=low,
        high=high,
    )


def far(runs: Sequence[Trajectory]) -> float:
    """The bound of a rollout; 1 where everything is zero."""
    return FAR * max(np.abs(run.states).max() for run in runs) or 1.0


def blocks(count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices (count,) of a circular block bootstrap of a series, blocks of about its root."""
    length = max(1, round(count**0.5))
    starts = rng.integers(0, count, size=-(-count // length))
    return (starts[:, None] + np.arange(length)).ravel()[:count] % count


def interval(draws: np.ndarray) -> tuple[float, float]:
    if not np.isfinite(draws).all():
        return float("inf"), float("inf")
    low, high = np.percentile(draws, LEVEL)
    return float(low), float(high)


def _error(run: Trajectory, found: Rollout, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Relative error over the checkpoints after the first, and its bootstrap draws."""
    if found.ended:
        return float("inf"), np.full(RESAMPLES, np.inf)
    wrong = ((found.states - run.states)[1:] ** 2).sum(1)
    size = np.maximum((run.states[1:] ** 2).sum(1), np.finfo(float).tiny)
    picks = np.array([blocks(len(wrong), rng) for _ in range(RESAMPLES)])
    draws = np.sqrt(wrong[picks].sum(1) / size[picks].sum(1))
    return float(np.sqrt(wrong.sum() / size.sum())), draws
