"""The exact fields of the task's query kinds, mixed with weights that the checkpoints choose."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from manifold.dynamics.field import ReducedField
from manifold.dynamics.mixture_regression import bootstrap, columns, regression, solve
from manifold.dynamics.rollout import Judgement, Rollout, far, judge, rollout
from manifold.dynamics.rollout import interval as percentiles
from manifold.dynamics.trajectory import Trajectory

SINGULAR = 1e-6
"""Columns of the regression, scaled to 1, are dependent below this ratio of singular values."""
STILL = 1e-12
"""A run whose states differ by less, relative to their size, does not move."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StructuredFit:
    """dc/dt = time_scale (sum_k w_k F_k(c) - weight_decay c), F_k the exact flow of query kind k.

    mixture: w_k, which sum to 1, with intervals (rows: kinds; columns value, low, high; 95%, block
    bootstrap over checkpoint intervals and, where the field is a sample, over that sample; without
    bound where not identified). statistics: the same for what it implies: f_r and f_v
    where the task has them, weight_decay, and time_scale, which is 1 for SGD whose time is the
    sum of learning rates and 1 / (1 - momentum) with momentum.
    field: the reduced field at the fitted f_r and f_v, for `equilibrium` and `continue_branch`;
    its own time and decay are time_scale and weight_decay of this fit.
    identified: False where the checkpoints cannot tell the weights apart; `verdict` says why.
    """

    names: tuple[str, ...]
    field: ReducedField = dataclasses.field(repr=False)
    mixture: pd.DataFrame
    statistics: pd.DataFrame
    identified: bool
    judgement: Judgement | None
    verdict: str
    _scaled: np.ndarray = dataclasses.field(repr=False)  # time_scale (w_k .., weight_decay)
    _bound: float = dataclasses.field(repr=False)

    @property
    def error(self) -> float:
        """Mean relative rollout error of the runs held out; NaN where no equation was found."""
        return float("nan") if self.judgement is None else self.judgement.error

    @property
    def weight_decay(self) -> float:
        return float(self.statistics.at["weight_decay", "value"])

    @property
    def time_scale(self) -> float:
        return float(self.statistics.at["time_scale", "value"])

    def flow(self, c: np.ndarray) -> np.ndarray:
        """dc/dt, (dim,), in the time of the checkpoints."""
        return self._scaled @ columns(self.field, np.asarray(c, dtype=float))

    def integrate(self, c0: np.ndarray, times: np.ndarray, seconds: float = 60.0) -> Rollout:
        """States at `times` of the fitted equation that is at c0 at times[0]."""
        times = np.asarray(times, dtype=float)
        start = np.asarray(c0, dtype=float)
        bound = max(self._bound, 10 * float(np.abs(start).max()))
        return rollout(self.flow, start, times, bound=bound, seconds=seconds)


def structured_fit(
    fitted: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    field: ReducedField,
    *,
    seconds: float,
) -> StructuredFit:
    """The weights, decay and clock with which `field` moves as the fitted runs do."""
    still = [run for run in fitted if _is_still(run)]
    if len(still) == len(fitted):
        whose = "the run does" if len(fitted) == 1 else "the runs do"
        why = (
            f"{whose} not move, so that no equation can be read from them; give checkpoints of a "
            f"time in which training moved"
        )
        return _result(field, fitted, _none(field), None, None, f"not identified: {why}")
    deadline, parts = time.process_time() + seconds / 2, []
    for run in fitted:
        part = regression(run, field, deadline)
        if part is None:
            why = f"stopped: {seconds:g} s are over"
            return _result(field, fitted, _none(field), None, None, why)
        parts.append(part)
    return conclude(field, fitted, held_out, parts, seconds=seconds / 2)


def conclude(
    field: ReducedField,
    fitted: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    parts: Sequence[np.ndarray],
    *,
    seconds: float,
) -> StructuredFit:
    """What the fitted runs' regressions together say, how surely, and where their rollouts end.

    parts: what `regression` gave each fitted run, so that other choices of runs cost little.
    fitted may be empty: then only the runs held out are followed.
    """
    runs, width = [*fitted, *held_out], len(field.drawn_kinds) + 1
    total = np.concatenate(parts).sum(0)[: width + 1, : width + 1]
    theta, problem = solve(total), _problem(field, total, sum(map(len, parts)))
    if theta[:-1].sum() == 0:
        problem = problem or "not identified: no kind's field moves as these runs do"
        return _result(field, runs, _none(field), None, None, problem)
    draws = None if problem else bootstrap(parts, width, np.random.default_rng(0))
    judgement = judge(lambda c: theta @ columns(field, c), fitted, held_out, seconds=seconds)
    return _result(field, runs, theta, draws, judgement, problem)


def _problem(field: ReducedField, total: np.ndarray, intervals: int) -> str:
    """Why the regression does not tell the weights, or nothing."""
    names = (*field.drawn_kinds, "decay")
    scale = np.sqrt(np.diag(total)[:-1])
    used = scale > 0
    normal = total[:-1, :-1][np.ix_(used, used)] / np.outer(scale[used], scale[used])
    values = np.sqrt(np.abs(np.linalg.eigvalsh(normal)))
    if intervals < len(names):
        return (
            f"not identified: {intervals} interval{'s' * (intervals > 1)} between checkpoints for "
            f"{len(names)} unknowns ({', '.join(names)}), so that nothing bounds their error; give "
            f"more checkpoints or more runs"
        )
    if not used.all():
        lost = [name for name, on in zip(names, used, strict=True) if not on]
        return f"not identified: nothing in these runs depends on {', '.join(lost)}"
    if values.min() < SINGULAR * values.max():
        return (
            "not identified: along these runs the kinds' fields are multiples of each other; "
            "give runs that go further"
        )
    return ""


def _none(field: ReducedField) -> np.ndarray:
    return np.full(len(field.drawn_kinds) + 1, np.nan)


def _is_still(run: Trajectory) -> bool:
    moved = np.abs(run.states - run.states[0]).max()
    return bool(moved <= STILL * max(np.abs(run.states).max(), STILL))


def _result(
    field: ReducedField,
    fitted: Sequence[Trajectory],
    theta: np.ndarray,
    draws: np.ndarray | None,
    judgement: Judgement | None,
    problem: str,
) -> StructuredFit:
    kinds = field.drawn_kinds
    rows = _statistics(field, theta)
    many = _statistics(field, draws) if draws is not None else {}
    table = pd.DataFrame(
        {
            name: (float(value), *(percentiles(many[name]) if many else (-np.inf, np.inf)))
            for name, value in rows.items()
        },
        index=["value", "low", "high"],
    ).T
    mixture, statistics = table.loc[list(kinds)], table.drop(index=list(kinds))
    at = field
    if {"f_r", "f_v"} <= set(statistics.index) and np.isfinite(theta).all():
        f_r, f_v = (float(rows[name]) for name in ("f_r", "f_v"))
        at = field.at(f_r=f_r, f_v=f_v if np.isfinite(f_v) else 0.0)
    sure = "{value:.3f} ({low:.3f} to {high:.3f})" if many else "{value:.3f}"
    told = ", ".join(f"{sure.format(**mixture.loc[kind])} {kind}" for kind in kinds)
    told = f"mixture {told}; " if len(kinds) > 1 else ""
    sentences = [problem] if problem else []
    if judgement is not None:
        sentences.append(told + judgement.sentence)
    return StructuredFit(
        names=field.names,
        field=at,
        mixture=mixture,
        statistics=statistics,
        identified=not problem,
        judgement=judgement,
        verdict="; ".join(sentences),
        _scaled=theta,
        _bound=far(fitted),
    )


def _statistics(field: ReducedField, theta: np.ndarray) -> dict[str, np.ndarray]:
    """What theta (.., kinds + 1) says: weights, f_r and f_v, weight decay and time scale."""
    kinds = field.drawn_kinds
    with np.errstate(all="ignore"):
        scale = theta[..., :-1].sum(-1)
        weights = theta[..., :-1] / scale[..., None]
        of = {kind: weights[..., i] for i, kind in enumerate(kinds)}
        found = dict(of)
        if len(kinds) > 1 or "f_r" in field.task.program.parameters:
            rare, other = of.get("rare", 0.0 * scale), of.get("mismatch", 0.0 * scale)
            found |= {"f_r": rare, "f_v": other / (1.0 - rare)}
        return found | {"weight_decay": theta[..., -1] / scale, "time_scale": scale}
