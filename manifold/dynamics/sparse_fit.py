"""Sparse terms of a library, when no field is known: pysindy in integral form."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from manifold.dynamics.rollout import Judgement, Rollout, far, judge, rollout
from manifold.dynamics.trajectory import Trajectory

if TYPE_CHECKING:
    import pysindy

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(4)
THRESHOLDS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Tried from dense to sparse, on terms scaled to unit size."""
RIDGE = 1e-6
WORST = 1.0
"""Relative rollout error above which the equation is worth less than the state zero throughout."""
STILL = 1e-12
"""A coordinate that varies less, relative to the largest, does not move."""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -50.0, 50.0)))


def _same(x: np.ndarray) -> np.ndarray:
    return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A key, the degree of a polynomial and what it is a polynomial of; `symbol` names that."""

    name: str
    degree: int
    of: Callable[[np.ndarray], np.ndarray] = _same
    symbol: str = "{}"
    linear: bool = False  # the coordinates themselves beside the polynomial


LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        one.name: one
        for one in (
            Library(name="linear", degree=1),
            Library(name="quadratic", degree=2),
            Library(name="cubic", degree=3),
            Library(name="quintic", degree=5),
            Library(name="sigmoid products", degree=3, of=_sigmoid, symbol="s({})", linear=True),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseFit:
    """dc_i/dt = sum_j coefficients_ij term_j(c), with the terms that a threshold left.

    coefficients: a row for each coordinate, a column for each term of the library.
    thresholds: for each that was tried the terms it left and the rollout error it was chosen by.
    status: "fitted"; "divergent", rollouts do not arrive, or end up farther from the runs than
    zero is (a relative error above 1); "unidentified", more unknowns than the checkpoints have
    equations, or nothing moves.
    """

    names: tuple[str, ...]
    library: str
    threshold: float
    coefficients: pd.DataFrame
    thresholds: pd.DataFrame
    status: str
    judgement: Judgement | None
    verdict: str
    _flow: Callable[[np.ndarray], np.ndarray] = dataclasses.field(repr=False)
    _bound: float = dataclasses.field(repr=False)

    @property
    def error(self) -> float:
        """Mean relative rollout error of the runs held out; inf where one diverges, NaN where
        no equation was found."""
        return float("nan") if self.judgement is None else self.judgement.error

    def flow(self, c: np.ndarray) -> np.ndarray:
        """dc/dt, (dim,), in the time of the checkpoints."""
        return self._flow(np.asarray(c, dtype=float))

    def integrate(self, c0: np.ndarray, times: np.ndarray, seconds: float = 60.0) -> Rollout:
        """States at `times` of the fitted equation that is at c0 at times[0]."""
        start = np.asarray(c0, dtype=float)
        bound = max(self._bound, 10 * float(np.abs(start).max()))
        return rollout(self.flow, start, np.asarray(times, float), bound=bound, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Terms:
    """The library on the coordinates that move, each scaled to unit root mean square."""

    library: Library
    moving: np.ndarray
    size: np.ndarray
    made: pysindy.PolynomialLibrary

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """(points, terms) of states (points, dim)."""
        scaled = (states / self.size)[:, self.moving]
        inside = self.library.of(scaled)[:, None]
        terms = np.prod(inside**self.made.powers_, axis=-1)
        return np.hstack([terms, scaled]) if self.library.linear else terms

    def names(self, names: Sequence[str]) -> list[str]:
        """Of terms, for people: in coordinates over their size."""
        of = [name for name, on in zip(names, self.moving, strict=True) if on]
        inside = [self.library.symbol.format(one) for one in of]
        told = self.made.get_feature_names(inside)
        return [*told, *of] if self.library.linear else told


def sparse_fit(
    fitted: Sequence[Trajectory],
    held_out: Sequence[Trajectory],
    library: str,
    *,
    seconds: float,
) -> SparseFit:
    """Sequential thresholding (pysindy's STLSQ) of c(t_i+1) - c(t_i) = sum_j xi_j int term_j dt.

    Integrals by Gauss's rule on a monotone path through the checkpoints; rows over the root of
    the time between them. The threshold is chosen by rollout on the last fitted run (on all, where
    there is one), with the equations fitted to the others; runs held out are not looked at.
    A coordinate that never moves is held where it is.
    """
    import pysindy  # a second of CPU time, which `import manifold` need not take

    deadline = time.process_time() + seconds
    everything = np.concatenate([run.states for run in fitted])
    spread = np.ptp(everything, axis=0)
    moving = spread > STILL * max(np.abs(everything).max(), STILL)
    size = np.sqrt((everything**2).mean(0))
    size[~moving] = 1.0
    names = fitted[0].coordinates or tuple(f"c{i}" for i in range(len(moving)))
    chosen = LIBRARIES[library]
    if not moving.any():
        return _nothing(fitted, names, chosen, "nothing moves in these runs")
    count = int(moving.sum())
    unknowns = math.comb(count + chosen.degree, chosen.degree) + count * chosen.linear
    equations = sum(len(run) - 1 for run in fitted)
    if equations < unknowns:
        return _nothing(
            fitted,
            names,
            chosen,
            f"{equations} interval{'s' * (equations > 1)} between checkpoints "
            f"for {unknowns:,} terms",
        )
    made = pysindy.PolynomialLibrary(degree=chosen.degree)
    made.fit([pysindy.AxesArray(np.zeros((2, count)), {"ax_sample": 0, "ax_coord": 1})])
    terms = _Terms(library=chosen, moving=moving, size=size, made=made)
    parts = [_rows(run, terms) for run in fitted]
    dense = _threshold(parts, 0.0, moving)
    parts = [_rows(run, terms, dense) for run in fitted]
    inside = parts[:-1] or parts
    tests = fitted[-1:]
    scores, best = {}, None
    for threshold in THRESHOLDS:
        left = (deadline - time.process_time()) / 2
        if left <= 0:
            break
        xi = _threshold(inside, threshold, moving)
        found = judge(_flow(xi, terms), (), tests, seconds=left / len(THRESHOLDS))
        scores[threshold] = (int((xi != 0).sum()), found.error)
        if best is None or found.error <= scores[best][1]:
            best = threshold
    if best is None:
        return _nothing(fitted, names, chosen, f"{seconds:g} s are over")
    xi = _threshold(parts, best, moving)
    judgement = judge(
        _flow(xi, terms), fitted, held_out, seconds=max(1.0, deadline - time.process_time())
    )
    divergent = not judgement.error <= WORST  # nor where it is no number
    still = [name for name, on in zip(names, moving, strict=True) if not on]
    kept = f"{int((xi != 0).sum())} of {xi.size} terms of the library {library}"
    held = f"; {', '.join(still)} never move and are held" if still else ""
    return SparseFit(
        names=names,
        library=library,
        threshold=best,
        coefficients=pd.DataFrame(xi, index=list(names), columns=terms.names(names)),
        thresholds=pd.DataFrame.from_dict(scores, orient="index", columns=["terms", "error"]),
        status="divergent" if divergent else "fitted",
        judgement=judgement,
        verdict=f"{'divergent: ' if divergent else ''}{kept}; {judgement.sentence}{held}",
        _flow=_flow(xi, terms),
        _bound=far(fitted),
    )


def _rows(
    run: Trajectory, terms: _Terms, xi: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Integrals (n - 1, terms) and increments (n - 1, dim), over the root of the time between."""
    path, steps = PchipInterpolator(run.times, run.states), np.diff(run.times)
    if xi is not None:
        path = CubicHermiteSpline(run.times, run.states, terms(run.states) @ xi.T)
    integrals = 0.0
    for node, weight in zip(NODES, NODE_WEIGHTS, strict=True):
        at = run.times[:-1] + (node + 1) / 2 * steps
        integrals = integrals + weight / 2 * terms(path(at))
    root = np.sqrt(steps)[:, None]
    return integrals * root, np.diff(run.states, axis=0) / root


def _threshold(parts: Sequence[tuple], threshold: float, moving: np.ndarray) -> np.ndarray:
    """Coefficients (dim, terms)."""
    rows, increments = (np.concatenate(side) for side in zip(*parts, strict=True))
    columns = np.linalg.norm(rows, axis=0)
    columns[columns == 0] = 1.0
    sizes = np.linalg.norm(increments, axis=0)
    sizes[sizes == 0] = 1.0
    import pysindy

    rule = pysindy.STLSQ(threshold=threshold, alpha=RIDGE, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every term removed: a rollout that stands still
        rule.fit(rows / columns, increments / sizes)
    return np.where(moving[:, None], np.asarray(rule.coef_) * sizes[:, None] / columns, 0.0)


def _flow(xi: np.ndarray, terms: _Terms) -> Callable[[np.ndarray], np.ndarray]:
    return lambda c: xi @ terms(c[None])[0]


def _nothing(fitted: Sequence[Trajectory], names, library: Library, why: str) -> SparseFit:
    return SparseFit(
        names=names,
        library=library.name,
        threshold=float("nan"),
        coefficients=pd.DataFrame(index=list(names)),
        thresholds=pd.DataFrame(columns=["terms", "error"]),
        status="unidentified",
        judgement=None,
        verdict=f"unidentified with the library {library.name}: {why}",
        _flow=lambda c: np.full(len(c), np.nan),
        _bound=far(fitted),
    )
