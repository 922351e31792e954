"""The exact fields of the task's query kinds, mixed with weights that the checkpoints choose."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator
from scipy.optimize import nnls

from manifold.dynamics.field import ReducedField
from manifold.dynamics.rollout import RESAMPLES, Judgement, Rollout, blocks, far, judge, rollout
from manifold.dynamics.rollout import interval as percentiles
from manifold.dynamics.trajectory import Trajectory

PASSES = 2
"""Times that the path between checkpoints is redrawn with the slopes of the last fit."""
INNER = np.array([0.5 - 0.1 * 5**0.5, 0.5 + 0.1 * 5**0.5])
OUTER_WEIGHT, INNER_WEIGHT = 1 / 12, 5 / 12
"""Lobatto's rule with four points: exact for polynomials of degree 5."""
SINGULAR = 1e-6
"""Columns of the regression, scaled to 1, are dependent below this ratio of singular values."""
STILL = 1e-12
"""A run whose states differ by less, relative to their size, does not move."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StructuredFit:
    """dc/dt = time_scale (sum_k w_k F_k(c) - weight_decay c), F_k the exact flow of query kind k.

    mixture: w_k, which sum to 1, with intervals (rows: kinds; columns value, low, high; 95% block
    bootstrap over checkpoint intervals). statistics: the same for what it implies: f_r and f_v
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
        return _velocity(self.field, self._scaled, c)

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
    """Least squares on c(t_i+1) - c(t_i) = sum_k theta_k int F_k(c) dt - theta_0 int c dt.

    theta >= 0. Residuals in the norm of the matrices, over the root of the time between: the
    noise of SGD has equal variance in equal times. The integrals take Lobatto's rule on a cubic
    Hermite path whose slopes at the checkpoints are those of the fit before, so gaps may be uneven
    or log-spaced.
    """
    deadline = time.process_time() + seconds / 2
    kinds = field.drawn_kinds
    still = [run for run in fitted if _is_still(run)]
    if len(still) == len(fitted):
        none = np.full(len(kinds) + 1, np.nan)
        whose = "the run does" if len(fitted) == 1 else "the runs do"
        return _result(
            field,
            fitted,
            none,
            None,
            None,
            f"not identified: {whose} not move, so that no "
            f"equation can be read from them; give checkpoints of a time in which training moved",
        )
    metric = _root(field.basis.gram)
    at = [np.stack([_columns(field, c) for c in run.states]) for run in fitted]
    theta, parts = None, []
    for _ in range(PASSES):
        parts = []
        for run, ends in zip(fitted, at, strict=True):
            part = _regression(run, ends, field, theta, metric, deadline)
            if part is None:
                none = np.full(len(kinds) + 1, np.nan)
                return _result(field, fitted, none, None, None, f"stopped: {seconds:g} s are over")
            parts.append(part)
        theta = _solve(np.concatenate(parts).sum(0))
    assert theta is not None
    return _conclude(field, fitted, held_out, theta, parts, seconds)


def _conclude(
    field: ReducedField,
    fitted: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    theta: np.ndarray,
    parts: list[np.ndarray],
    seconds: float,
) -> StructuredFit:
    """What theta is worth: whether it is told by the runs, its intervals, its rollouts."""
    total = np.concatenate(parts).sum(0)
    scale = np.sqrt(np.diag(total)[:-1])
    used = scale > 0
    normal = total[:-1, :-1][np.ix_(used, used)] / np.outer(scale[used], scale[used])
    values = np.sqrt(np.abs(np.linalg.eigvalsh(normal)))
    lost = [name for name, on in zip((*field.drawn_kinds, "decay"), used, strict=True) if not on]
    rng = np.random.default_rng(0)
    draws = np.array([_solve(_resampled(parts, rng)) for _ in range(RESAMPLES)])
    problem = ""
    if lost:
        problem = f"not identified: nothing in these runs depends on {', '.join(lost)}"
    elif values.min() < SINGULAR * values.max():
        problem = (
            "not identified: along these runs the kinds' fields are multiples of each other; "
            "give runs that go further"
        )
    elif theta[:-1].sum() == 0:
        problem = "not identified: no kind's field moves as these runs do"
    if theta[:-1].sum() == 0:
        return _result(field, fitted, theta * np.nan, None, None, problem)
    verdict = judge(lambda c: _velocity(field, theta, c), fitted, held_out, seconds=seconds / 2)
    return _result(field, fitted, theta, draws, verdict, problem)


def _velocity(field: ReducedField, theta: np.ndarray, c: np.ndarray) -> np.ndarray:
    return theta @ _columns(field, np.asarray(c, dtype=float))


def _columns(field: ReducedField, c: np.ndarray) -> np.ndarray:
    """F_k(c) and then -c, (kinds + 1, dim)."""
    return np.vstack([field.kind_flows(c), -c])


def _regression(
    run: Trajectory,
    ends: np.ndarray,
    field: ReducedField,
    theta: np.ndarray | None,
    metric: np.ndarray,
    deadline: float,
) -> np.ndarray | None:
    """(A y)^T (A y) of each interval, (n - 1, columns + 1, columns + 1); None when time is over."""
    slopes = None if theta is None else np.einsum("k,nkd->nd", theta, ends)
    path = (
        PchipInterpolator(run.times, run.states)
        if slopes is None
        else CubicHermiteSpline(run.times, run.states, slopes)
    )
    steps = np.diff(run.times)
    integrals = OUTER_WEIGHT * (ends[:-1] + ends[1:])
    for fraction in INNER:
        for i, c in enumerate(path(run.times[:-1] + fraction * steps)):
            if time.process_time() > deadline:
                return None
            integrals[i] += INNER_WEIGHT * _columns(field, c)
    rows = np.concatenate(
        [integrals * steps[:, None, None], np.diff(run.states, axis=0)[:, None]], axis=1
    )
    rows = rows @ metric / np.sqrt(steps)[:, None, None]
    return rows @ rows.transpose(0, 2, 1)


def _solve(normal: np.ndarray) -> np.ndarray:
    """theta >= 0 of least squares from (A y)^T (A y)."""
    scale = np.sqrt(np.diag(normal))
    scale[scale == 0] = 1.0
    root = _root(normal / np.outer(scale, scale))
    return nnls(root[:, :-1], root[:, -1])[0] * scale[-1] / scale[:-1]


def _root(square: np.ndarray) -> np.ndarray:
    """Symmetric root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(square)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def _resampled(parts: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([part[blocks(len(part), rng)] for part in parts]).sum(0)


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
            name: (float(value), *(percentiles(many[name]) if many else (np.nan, np.nan)))
            for name, value in rows.items()
        },
        index=["value", "low", "high"],
    ).T
    mixture, statistics = table.loc[list(kinds)], table.drop(index=list(kinds))
    at = field
    if {"f_r", "f_v"} <= set(statistics.index) and np.isfinite(theta).all():
        f_r, f_v = (float(rows[name]) for name in ("f_r", "f_v"))
        at = field.at(f_r=f_r, f_v=f_v if np.isfinite(f_v) else 0.0)
    words = ", ".join(f"{float(rows[kind]):.3f} {kind}" for kind in kinds)
    told = f"mixture {words}; " if len(kinds) > 1 else ""
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
