"""Theorems 2 and 3 of arXiv 2607.11875 measured: what slows in-context learning, what speeds it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from analyses.claim import Claim, Comparison
from analyses.dynamics.base import Say
from analyses.dynamics.share import mean
from analyses.dynamics.theorems_text import never, scaled_times, write
from analyses.figures import canvas, line_style, svg
from manifold import ReducedField, burstiness, reduced_field, suppression
from manifold.dynamics.suppression import ICL, INFINITY, suppressed_share
from training.tasks import AssociativeRecall

TITLE: str = "What slows in-context learning, and what speeds it: Theorems 2 and 3"
SOURCE = "arXiv 2607.11875"
WITHIN = (0.95, 1.05)
"""Where a slope or an exponent is taken to be 1, of Theorem 2 (issue: 1.00 within 0.05)."""
PROPORTIONAL = (0.8, 1.25)
"""The gradient over b times that of b = 1 which is taken to be proportionality, of Theorem 3: an
exponent within 0.1 of 1 between b = 1 and 8; n is only 6 times that b."""
GRID = {"f_r": (0.0, 0.1, 0.3, 0.6), "f_v": (0.05, 0.1, 0.2, 0.4, 0.8)}
STATES = (0.1, 0.5, 1.0, 2.0)
"""alpha = beta = gamma, from hardly any circuit to a working one."""
BURSTS = (1, 2, 4, 8)
SWEEPS = {
    "f_v, with f_r = 0": [{"f_r": 0.0, "f_v": v} for v in (0.02, 0.05, 0.1, 0.2, 0.4)],
    "f_r, with f_v = 0": [{"f_r": r, "f_v": 0.0} for r in (0.05, 0.1, 0.2, 0.4)],
}
START = (0.1, 0.1, 0.1, 0.0)
ARRIVED = 4.0
"""alpha beta from which on the context circuit is there."""
LONGEST = 1e6


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Facts: `ratio` (Theorem 2), `time` (what it does to t_ICL), `burst` (Theorem 3)."""
    say("gradients with and without in-weights learning")
    states = STATES[1:3] if quick else STATES
    task, samples = (_recall(3, 6, 5), 300) if quick else (_recall(8, 16, 16), 6000)
    ratio = _ratio(task, samples, states)
    fields: dict[str, tuple[AssociativeRecall, int | None, tuple[int, ...]]]
    fields = {"n = 3, exact": (_recall(3, 6, 5), None, (0,))}
    if not quick:
        fields["n = 8, sampled"] = (_recall(8, 16, 16), 1500, (0, 1, 2))
    time = {}
    for name, (task, samples, draws) in fields.items():
        say(f"times until the context circuit is there, {name}")
        time[name] = _times(task, samples, draws)
    burst = {}
    for n in (8,) if quick else (16, 48):
        say(f"burstiness among {n} blocks")
        task, samples = _recall(n, 8 if quick else 16, 8 if quick else 16), 60 if quick else 1800
        burst[str(n)] = {
            "samples": samples,
            "states": {
                str(state): burstiness(task, _at(state), BURSTS, samples=samples)
                .rename_axis("b")
                .reset_index()
                .to_dict("records")
                for state in states
            },
        }
    return {"ratio": ratio, "time": time, "burst": burst}


def _recall(n: int, common: int, rare: int) -> AssociativeRecall:
    return AssociativeRecall(
        n_blocks=n, n_common=common, n_rare=rare, track_slots=4, f_r=0.3, f_v=0.3
    )


def _at(state: float) -> np.ndarray:
    return np.array([state, state, state, 0.0])


def _ratio(task: AssociativeRecall, samples: int, states: Sequence[float]) -> dict[str, Any]:
    field = reduced_field(task, coordinates="four", samples=samples)
    found: dict[str, Any] = {"task": task.n_blocks, "n": task.n_common, "samples": samples}
    for name, delta in (("infinite", INFINITY), ("best", None)):
        found[name] = {}
        for state in states:
            one = suppression(field, _at(state), **GRID, delta=delta)
            found[name][str(state)] = {
                "table": one.table.to_dict("records"),
                "slopes": one.slopes.to_dict("index"),
            }
    return found


def _times(task: AssociativeRecall, samples: int | None, seeds: Sequence[int]) -> dict[str, Any]:
    """Every time, and of each sweep the exponent of t_ICL in 1 / s, seed by seed."""
    rows, exponents = [], {}
    for seed in seeds:
        field = reduced_field(task, coordinates="four", samples=samples, seed=seed)
        for sweep, points in SWEEPS.items():
            for query in points:
                rows.append(
                    {
                        "sweep": sweep,
                        **query,
                        "seed": seed,
                        "share": suppressed_share(**query),
                        "time": time_to_icl(field.at(**query), np.array(START)),
                    }
                )
    for sweep in SWEEPS:
        each = []
        for seed in seeds:
            mine = [row for row in rows if row["sweep"] == sweep and row["seed"] == seed]
            found = exponent([row["share"] for row in mine], [row["time"] for row in mine])
            if found is not None:
                each.append(found)
        exponents[sweep] = {"each": each, **dict(zip(("low", "high"), _spread(each), strict=True))}
    return {"samples": samples, "rows": rows, "exponents": exponents}


def exponent(shares: Sequence[float], times: Sequence[float]) -> float | None:
    """Of the time in 1 / s, without those in which context never came; None for fewer than two."""
    came = np.isfinite(times)
    if came.sum() < 2:
        return None
    inverse, took = 1 / np.asarray(shares)[came], np.asarray(times)[came]
    return float(np.polyfit(np.log(inverse), np.log(took), 1)[0])


def time_to_icl(field: ReducedField, start: np.ndarray) -> float:
    """When alpha beta passes ARRIVED along the flow without decay; infinite past LONGEST."""

    def there(_: float, c: np.ndarray) -> float:
        return c[0] * c[1] - ARRIVED

    setattr(there, "terminal", True)  # noqa: B010 - how scipy is told to stop
    found = solve_ivp(
        lambda _, c: field.flow(c),
        (0.0, LONGEST),
        start,
        method="LSODA",
        jac=lambda _, c: field.jacobian(c),
        events=there,
        rtol=1e-6,
        atol=1e-8,
    )
    return float(found.t_events[0][0]) if len(found.t_events[0]) else math.inf


def _spread(values: list[float]) -> tuple[float, float]:
    """95% around the mean over fields of other samples; the value where there is one.

    Infinite where there is none.
    """
    if not values:
        return -math.inf, math.inf
    if len(values) == 1:
        return values[0], values[0]
    found = mean(values)
    return found["low"], found["high"]


def text(facts: Mapping[str, Any]) -> str:
    return write(facts, {"start": START, "arrived": ARRIVED, "longest": LONGEST})


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    ratio, found = facts["ratio"], []
    for name in ICL:
        found.append(
            Claim(
                number=f"Theorem 2, {name}",
                source=f"{SOURCE}, Theorem 2",
                statement=f"with in-weights recall complete the gradient of {name} is "
                "f_r + (1 - f_r) f_v of what it was (slope 1 within 0.05)",
                comparisons=tuple(
                    Comparison(
                        what=f"slope at alpha = beta = gamma = {state}",
                        value=one["slopes"][name]["slope"],
                        low=one["slopes"][name]["low"],
                        high=one["slopes"][name]["high"],
                        expected=WITHIN,
                    )
                    for state, one in ratio["infinite"].items()
                ),
            )
        )
    found.append(
        Claim(
            number="Theorem 2, time",
            source=f"{SOURCE}, Theorem 2",
            statement="so the time until the context circuit is there goes as 1/s "
            "(exponent 1 within 0.05)",
            comparisons=tuple(
                Comparison(
                    what=f"exponent along {sweep}, {name}",
                    value=float(np.mean(one["each"])) if one["each"] else None,
                    low=one["low"] if one["each"] else -math.inf,
                    high=one["high"] if one["each"] else math.inf,
                    expected=WITHIN,
                    short_of="times at which context came" * (never(times["rows"], sweep) > 0),
                )
                for name, times in facts["time"].items()
                for sweep, one in times["exponents"].items()
            ),
        )
    )
    most = max(facts["burst"], key=int)
    for name in ICL:
        last = {state: rows[-1] for state, rows in facts["burst"][most]["states"].items()}
        found.append(
            Claim(
                number=f"Theorem 3, {name}",
                source=f"{SOURCE}, Theorem 3",
                statement=f"the gradient of {name} is proportional to burstiness while n is far "
                f"above b (n = {most}; a share of {PROPORTIONAL[0]} to {PROPORTIONAL[1]})",
                comparisons=tuple(
                    Comparison(
                        what=f"at b = {row['b']} over {row['b']} times that at b = 1, "
                        f"alpha = beta = gamma = {state}",
                        value=row[name] / row["b"],
                        low=row[f"{name}_low"] / row["b"],
                        high=row[f"{name}_high"] / row["b"],
                        expected=PROPORTIONAL,
                    )
                    for state, row in last.items()
                ),
            )
        )
    return tuple(found)


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    return {"theorems.svg": _figure(facts)}


def _figure(facts: Mapping[str, Any]) -> str:
    ratio = facts["ratio"]["infinite"]["1.0"]["table"]
    most = max(facts["burst"], key=int)
    with canvas(columns=3, width=9.6, height=3.2) as (figure, axes):
        suppressed, times, bursts = axes
        for index, name in enumerate(ICL):
            mine = [row for row in ratio if row["coordinate"] == name]
            suppressed.plot(
                [row["share"] for row in mine],
                [row["ratio"] for row in mine],
                "osv"[index],
                ms=3.5,
                label=name,
                color=line_style(index)["color"],
            )
            burst = facts["burst"][most]["states"]["0.5"]
            bursts.errorbar(
                [row["b"] for row in burst],
                [row[name] for row in burst],
                yerr=[
                    [row[name] - row[f"{name}_low"] for row in burst],
                    [row[f"{name}_high"] - row[name] for row in burst],
                ],
                marker="osv"[index],
                ms=3.5,
                capsize=2,
                label=name,
                **line_style(index),
            )
        suppressed.plot([0, 1], [0, 1], color="0.5", lw=0.8)
        suppressed.set(
            xlabel="s = f_r + (1 - f_r) f_v", ylabel="gradient kept", title="suppression"
        )
        suppressed.legend()
        sets = [(n, sweep) for n in facts["time"] for sweep in SWEEPS]
        for index, (name, sweep) in enumerate(sets):
            scaled = scaled_times(facts["time"][name]["rows"], sweep)
            times.plot(
                [1 / share for share in scaled],
                list(scaled.values()),
                marker="osv^"[index],
                ms=3.5,
                label=f"along {sweep.split(',')[0]}, {name}",
                **line_style(index),
            )
        times.set(xscale="log", ylim=(0, None), xlabel="1 / s", ylabel="t_ICL s", title="time")
        times.set_xticks((2, 5, 10, 20, 50), ("2", "5", "10", "20", "50"))
        times.minorticks_off()
        times.legend(fontsize=6.5, loc="upper right", bbox_to_anchor=(1, 0.92))
        bursts.plot(BURSTS, BURSTS, color="0.5", lw=0.8)
        bursts.set(
            xscale="log",
            yscale="log",
            xticks=BURSTS,
            xticklabels=BURSTS,
            xlabel="burstiness b",
            ylabel="gradient over that of b = 1",
            title=f"burstiness, n = {most}",
        )
        bursts.minorticks_off()
        return svg(figure)
