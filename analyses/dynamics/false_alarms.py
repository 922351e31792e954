"""How often are events found where nothing happens, and how large must a change be to be found?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import binomtest

from analyses.claim import Claim, Comparison
from analyses.dynamics.base import Say
from manifold import change_point, events, reduced_field
from manifold.dynamics.change_point import FEWEST
from manifold.dynamics.event import Event
from manifold.dynamics.monitor import GROWTH, LIVE
from training.tasks import AssociativeRecall

TITLE: str = "False alarms of events, and what they miss"
LEVEL = 0.05
SERIES, SINGLE, PLANTED = 200, 400, 100
"""Runs of each null; single series of each null; series with a change of each height."""
KINDS = ("onset", "swap", "saturation", "transience", "overfitting", "suppression", "any")
HEIGHTS = (1.0, 2.0, 4.0, 8.0)
"""Of a planted step, in standard deviations of the noise."""
NAMES = ("alpha", "beta", "gamma", "delta")
SCORES = ("rare", "mismatch", "iwl")
AXES: Mapping[str, np.ndarray] = {
    "even": np.arange(75) * 25.0,
    "log-spaced": np.append(0.0, np.unique(np.geomspace(1, 1850, 90).round())),
}
TASK = AssociativeRecall(n_blocks=2, n_common=6, n_rare=5, track_slots=4, f_r=0.1, f_v=0.1)
DECAY = 1e-3

Null = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""(steps,) to noise (steps, 4 coordinates and 3 scores) of variance 1."""


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Counts by null, steps and kind; of the live monitor; of single series; of planted steps."""
    series, single, planted = (4, 6, 4) if quick else (SERIES, SINGLE, PLANTED)
    field = reduced_field(TASK, coordinates="four")
    at = field.integrate(np.full(4, 0.1), [0.0, 4000.0], weight_decay=DECAY)[-1]
    nulls = {
        "white": _memory(0.0),
        "memory .97": _memory(0.97),
        "SGD at a fixed point": _fixed_point(field.jacobian(at, DECAY)),
    }
    rows, live, alone = [], [], []
    for name, null in nulls.items():
        for axis, steps in AXES.items():
            say(f"{name}, {axis} steps")
            rng = np.random.default_rng(list(f"{name} {axis}".encode()))
            given = field if name.startswith("SGD") else None
            found = [
                events(one, field=given, weight_decay=DECAY, level=LEVEL).events
                for one in (_run(rng, null, steps, at) for _ in range(series))
            ]
            rows += [_row(name, axis, kind, _count(found, kind), series) for kind in KINDS]
            hits = [change_point(steps, null(rng, steps)[:, 0], LEVEL) for _ in range(single)]
            alone.append(_row(name, axis, "onset", sum(hit.found for hit in hits), single))
        say(f"{name}, live")
        rng = np.random.default_rng(list(f"{name} live".encode()))
        raised = [live_events(_run(rng, null, AXES["even"], at)) for _ in range(series)]
        live.append(_row(name, "even", "any", sum(map(bool, raised)), series))
    say("planted steps")
    power = [
        _row(name, axis, f"{height:g}", _planted(nulls[name], steps, height, planted), planted)
        for name in ("white", "memory .97")
        for axis, steps in AXES.items()
        for height in HEIGHTS
    ]
    return {"level": LEVEL, "rows": rows, "live": live, "single": alone, "power": power}


def live_events(data: xr.Dataset) -> list[Event]:
    """What a Monitor would have raised while these checkpoints came in."""
    raised, looks, due = [], 0, FEWEST
    for n in range(1, data.sizes["step"] + 1):
        if n < due:
            continue
        looks, due = looks + 1, int(np.ceil(GROWTH * n))
        found = events(data.isel(step=slice(n)), level=LEVEL / (looks * (looks + 1))).events
        raised += [event for event in found if event.kind in LIVE]
    return raised


def _memory(memory: float) -> Null:
    def draw(rng: np.random.Generator, steps: np.ndarray) -> np.ndarray:
        noise = rng.normal(size=(len(steps), len(NAMES) + len(SCORES)))
        noise[1:] *= np.sqrt(1 - memory**2)
        for i in range(1, len(steps)):
            noise[i] += memory * noise[i - 1]
        return noise

    return draw


def _fixed_point(jacobian: np.ndarray) -> Null:
    """Noise of the linear flow around a stable state, x' = J x + white noise, from its stationary
    law, at the times of the steps: directions that relax slowly remember for long."""
    values, vectors = np.linalg.eigh((jacobian + jacobian.T) / 2)
    rates = np.maximum(-values, 1e-6)
    spread = np.sqrt(np.einsum("ij,j->i", vectors**2, 1 / (2 * rates)))

    def draw(rng: np.random.Generator, steps: np.ndarray) -> np.ndarray:
        z = rng.normal(size=(len(steps), len(rates))) / np.sqrt(2 * rates)
        for i in range(1, len(steps)):
            kept = np.exp(-rates * (steps[i] - steps[i - 1]))
            z[i] = kept * z[i - 1] + np.sqrt(1 - kept**2) * z[i]
        x = z @ vectors.T / spread
        scores = x[:, [0, 2, 3]] + 0.3 * rng.normal(size=(len(steps), len(SCORES)))
        return np.column_stack([x, scores])

    return draw


def _run(rng: np.random.Generator, null: Null, steps: np.ndarray, at: np.ndarray) -> xr.Dataset:
    """Noise of a tenth of each coordinate around a state, and scores around a half."""
    noise = null(rng, steps)
    states = at * (1 + 0.1 * noise[:, :4])
    scores = np.clip(0.5 + 0.1 * noise[:, 4:], 0, 1)
    return xr.Dataset(
        {
            "c": (("run", "step", "coordinate"), states[None]),
            "accuracy": (("run", "step", "kind"), scores[None]),
        },
        coords={
            "run": ["null"],
            "step": steps,
            "coordinate": list(NAMES),
            "kind": list(SCORES),
        },
    )


def _count(found: list[tuple[Event, ...]], kind: str) -> int:
    """Runs with such an event; eigenvalues are computed and not tested."""
    tested = [[e for e in one if e.kind != "eigenvalue"] for one in found]
    return sum(any(kind in ("any", event.kind) for event in one) for one in tested)


def _planted(null: Null, steps: np.ndarray, height: float, count: int) -> int:
    rng = np.random.default_rng(int(100 * height))
    x = np.log(steps + steps[1] - steps[0])
    u = (x - x[0]) / np.ptp(x)
    step = height / (1 + np.exp(-(u - 0.6) / 0.02))
    return sum(change_point(steps, null(rng, steps)[:, 0] + step).found for _ in range(count))


def _row(null: str, axis: str, kind: str, found: int, of: int) -> dict[str, Any]:
    low, high = binomtest(found, of).proportion_ci(method="wilson")
    return {
        "null": null,
        "axis": axis,
        "kind": kind,
        "found": found,
        "of": of,
        "low": float(low),
        "high": float(high),
    }


def text(facts: Mapping[str, Any]) -> str:
    worst = max(facts["rows"], key=lambda row: row["found"] / row["of"])
    live = max(facts["live"], key=lambda row: row["found"] / row["of"])
    intro = (
        f"Runs of {worst['of']} without change, four coordinates and three accuracies each, asked "
        f"for events at level {facts['level']:g} over all of a run. Most alarms: {_said(worst)} "
        f"({worst['kind']}, {worst['null']}, {worst['axis']} steps). The live monitor, over all "
        f"its looks of a run: at most {_said(live)} ({live['null']}). SGD at a fixed point is the "
        "linear flow of the four-coordinate field with noise; suppression is asked there alone, "
        "and there the field's own answer counts only with an onset of delta."
    )
    alone = (
        "Single series at the level, which says more of the test itself than runs do: "
        + "; ".join(f"{r['null']}, {r['axis']} steps {_said(r)}" for r in facts["single"])
        + ". What is held possible without change is noise that remembers from checkpoint to "
        "checkpoint alike or in time (Ornstein-Uhlenbeck), alone or under white noise."
    )
    head = "| null | steps | " + " | ".join(KINDS) + " |\n|" + "---|" * (2 + len(KINDS))
    table = "\n".join([head, *_lines(facts["rows"], KINDS)])
    heights = [f"{height:g}" for height in HEIGHTS]
    head = "| noise | steps | " + " | ".join(heights) + " |\n|" + "---|" * (2 + len(heights))
    power = "\n".join([head, *_lines(facts["power"], heights)])
    return "\n\n".join(
        [intro, alone, table, "Planted steps found, by their height in deviations:", power]
    )


def _said(row: Mapping[str, Any]) -> str:
    return f"{row['found']} of {row['of']} [{row['low']:.3f}, {row['high']:.3f}]"


def _lines(rows: list[Mapping[str, Any]], columns: tuple[str, ...] | list[str]) -> list[str]:
    cells = {(row["null"], row["axis"], row["kind"]): _said(row) for row in rows}
    return [
        f"| {null} | {axis} | {' | '.join(cells[null, axis, column] for column in columns)} |"
        for null, axis in dict.fromkeys((row["null"], row["axis"]) for row in rows)
    ]


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    return {}


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """At most the level, in every null: decided where the whole interval lies on one side."""
    rows = [row for row in facts["rows"] if row["kind"] == "any"] + facts["live"]
    comparisons = tuple(
        Comparison(
            what=f"{row['null']}, {row['axis']} steps" + (", live" if row in facts["live"] else ""),
            value=row["found"] / row["of"],
            low=row["low"],
            high=row["high"],
            expected=(0.0, facts["level"]),
        )
        for row in rows
    )
    return (
        Claim(
            number="alarms",
            source="ours",
            statement="events of a run without change are false alarms in at most 5% of runs",
            comparisons=comparisons,
        ),
    )
