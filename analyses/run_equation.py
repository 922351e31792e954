"""Runs on disk to the equation they follow, in facts, sentences and a page: `kappalens ode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from analyses.figures import Figure, canvas, line_style, svg
from analyses.page import SCHEMA_VERSION, plain, render, versions, write_json, write_text
from analyses.studies.base import Section
from manifold import (
    ReducedField,
    SparseFit,
    StructuredFit,
    fit_ode,
    four_coordinates,
    project,
    reduced_field,
)
from manifold.coordinates.run_basis import basis_of
from manifold.dynamics.fit import METHODS
from training import AttentionOnly, Run, Transformer
from training.tasks.block_list import BlockList

SHOWN, PANELS = 6, 2
PAGE, FACTS = "ode.html", "ode.json"
Say = Callable[[str], None]


def read_equation(
    runs: Sequence[Run],
    *,
    method: str = "structured",
    coordinates: str = "all",
    library: str = "sigmoid products",
    held_out: int | None = None,
    seconds: float = 600.0,
    say: Say = lambda _: None,
) -> tuple[dict[str, Any], Figure]:
    """Facts, which JSON can hold, and the figure of checkpoints and fitted equation.

    The last `held_out` runs are kept for the verdict. coordinates: "all" of the commutant, or
    "four", the summary of recall, which is all that a sparse fit has checkpoints for.
    ValueError for runs without coordinates, of several tasks or optimisers, and as `project` and
    `fit_ode`.
    """
    _check(runs)
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if coordinates not in ("all", "four"):
        raise ValueError(f"coordinates is {coordinates!r}; allowed: all, four")
    known: Any = runs[0].task
    basis = basis_of(runs, four_coordinates(known) if coordinates == "four" else None, None)
    say("projecting checkpoints")
    data = project(runs, basis)
    if method == "sparse":
        say("fitting the library's terms")
        fit = fit_ode(data, "sparse", library=library, held_out=held_out, seconds=seconds)
        field, quantities = None, []
    else:
        say("building the reduced field")
        field = reduced_field(known, coordinates="four" if coordinates == "four" else basis)
        say(f"fitting the {field}")
        fit = fit_ode(data, field=field, held_out=held_out, seconds=seconds)
        quantities = _quantities(fit, runs[0])
    found = isinstance(fit, StructuredFit) and fit.identified
    facts = {
        "schema_version": SCHEMA_VERSION,
        "runs": [run.run_id for run in runs],
        "task": type(known).__name__,
        "method": method if field is not None else f"{method}, {library}",
        "field": None if field is None else str(field),
        "status": ("identified" if found else "not identified") if field else fit.status,  # type: ignore[union-attr]
        "quantities": quantities,
        "verdict": fit.verdict,
        "rollouts": _rollouts(fit),
        "optimiser": _optimiser(runs[0], field, data),
    }
    return facts, _figure(fit, data, facts)


def _check(runs: Sequence[Run]) -> None:
    for run in runs:
        if not isinstance(run.task, BlockList):
            raise ValueError(
                f"run {run.run_id} is of {type(run.task).__name__}, which has no reduced field; "
                f"allowed: tasks of the block-list class. `kappalens project` reads state tracking "
                f"in the coordinates of its group"
            )
        if not isinstance(run.family, AttentionOnly | Transformer):
            raise ValueError(
                f"run {run.run_id} is of {type(run.family).__name__}; allowed: attention_only and "
                f"transformer, which have effective matrices"
            )
    for name, one in {
        "tasks": lambda run: run.config.canonical()["task"],
        "optimisers": lambda run: run.config.canonical()["optimiser"],
    }.items():
        kinds = []
        for run in runs:
            if one(run) not in kinds:
                kinds.append(one(run))
        if len(kinds) > 1:
            differ = sorted({k for kind in kinds for k in kind if kind[k] != kinds[0].get(k)})
            raise ValueError(
                f"the runs have {len(kinds)} different {name} (they differ in {', '.join(differ)}),"
                f" and so no equation in common; name the folders of one"
            )


def _quantities(fit: StructuredFit, run: Run) -> list[dict[str, Any]]:
    """What the checkpoints imply, beside what the configuration says."""
    task: Any = run.task
    optimiser = run.config.optimiser
    says = {"weight_decay": optimiser.weight_decay, "time_scale": 1.0 / (1 - optimiser.momentum)}
    if optimiser.name != "sgd":
        says = {"weight_decay": optimiser.weight_decay}
    if {"f_r", "f_v"} <= set(task.program.parameters):
        says |= {"f_r": task.f_r, "f_v": task.f_v} | task.kind_probabilities(task.f_r, task.f_v)
    table = pd.concat([fit.mixture, fit.statistics])
    return [
        {
            "name": str(name),
            **{str(k): float(v) for k, v in row.items()},
            "configured": says.get(name),
        }
        for name, row in table.to_dict("index").items()
        if len(fit.mixture) > 1 or name not in fit.mixture.index
    ]


def _rollouts(fit: StructuredFit | SparseFit) -> list[dict[str, Any]]:
    if fit.judgement is None:
        return []
    table = fit.judgement.runs
    return [{"run": str(run), **row} for run, row in table.to_dict("index").items()]


def _optimiser(run: Run, field: ReducedField | None, data: xr.Dataset) -> list[str]:
    """Sentences: what of the equation is exact for this optimiser and family, what approximates."""
    rule, said = run.config.optimiser, []
    if rule.name == "sgd":
        said.append(
            f"Optimiser: SGD at rate {rule.lr:g}, whose limit of small rates the equation is, in "
            f"any frame."
        )
        if rule.momentum:
            said.append(
                f"Momentum {rule.momentum:g} rescales time by 1 / (1 - momentum) = "
                f"{1 / (1 - rule.momentum):g}: the time scale that is expected."
            )
    else:
        said.append(
            f"Optimiser: {rule.name}, which is elementwise and no gradient flow: the equation "
            f"below is SGD's and approximates it, so weights, decay and time scale describe the "
            f"path and need not be the data's. Adam is exact on coordinates only update by update, "
            f"on orbital coordinates of matrices trained in a one-hot frame "
            f"(manifold.follow_optimiser); these are not."
        )
    if not isinstance(run.family, AttentionOnly):
        said.append(
            "Family: the field is that of attention_only, whose effective matrices are trained "
            "themselves; a transformer's are products of its weights and flow in another metric, "
            "so that the equation approximates here."
        )
    elif field is not None and rule.name == "sgd":
        last = data["c"].values[0]
        last = last[np.isfinite(last).all(1)][-1]
        curvature = float(-np.linalg.eigvals(field.jacobian(last)).real.min())
        if curvature > 0:
            limit = 2 * (1 + rule.momentum) / curvature
            said.append(
                f"At the end of the first run the field's largest curvature is {curvature:.3g}: "
                f"rates above {limit:.3g} are unstable there, and the run's is "
                f"{'below' if rule.lr < limit else 'NOT below'} that."
            )
    return said


def sentences(facts: dict[str, Any]) -> list[str]:
    """The verdict, a quantity a line beside its truth, and what the optimiser allows."""
    lines = [
        f"{facts['task']}, {len(facts['runs'])} run{'s' * (len(facts['runs']) > 1)}, "
        f"{facts['method']} fit: {facts['status']}.",
        f"Verdict: {facts['verdict']}.",
    ]
    for row in facts["quantities"]:
        bound = np.isfinite([row["low"], row["high"]]).all()
        sure = f"({row['low']:.4g} to {row['high']:.4g})" if bound else "(no bound)"
        truth = row["configured"]
        value = "not found" if row["value"] != row["value"] else f"{row['value']:.4g} {sure}"
        beside = "" if truth is None else f"; the configuration says {truth:.4g}"
        lines.append(f"{row['name'].replace('_', ' ')}: {value}{beside}.")
    lines += [
        f"Rollout of {'held-out' if row['held_out'] else 'fitted'} run {row['run']}: "
        + (
            f"it {row['ended']}."
            if row["ended"]
            else f"relative error {row['error']:.3f} ({row['low']:.3f} to {row['high']:.3f})."
        )
        for row in facts["rollouts"]
    ]
    return [*lines, *facts["optimiser"]]


def _figure(fit: StructuredFit | SparseFit, data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Checkpoints as markers and the fitted equation from each run's first as lines."""
    outside = [row["run"] for row in facts["rollouts"] if row["held_out"]]
    shown = (outside or [str(run) for run in data["run"].values])[:PANELS]
    names, rows = [str(name) for name in data["coordinate"].values], []
    with canvas(columns=len(shown), width=4.2 * len(shown) + 1.6, sharey=True) as (drawn, axes):
        for axis, run in zip(axes, shown, strict=True):
            one = data.sel(run=run)
            kept = np.isfinite(one["time"].values)
            times, states = one["time"].values[kept], one["c"].values[kept]
            strongest = np.argsort(-np.abs(states).max(0))[:SHOWN]
            fine = np.unique(np.concatenate([times, np.linspace(times[0], times[-1], 200)]))
            lines = np.full((len(fine), len(names)), np.nan)
            if facts["rollouts"]:
                lines = fit.integrate(states[0], fine).states
            for index, column in enumerate(strongest):
                style = line_style(index)
                axis.plot(fine, lines[:, column], lw=1.2, **style)
                axis.plot(
                    times,
                    states[:, column],
                    "osv^DX"[index],
                    ms=3,
                    color=style["color"],
                    label=names[column],
                    markevery=max(1, len(times) // 30),
                )
                followed = lines[np.searchsorted(fine, times), column]
                rows += [
                    {
                        "run": run,
                        "coordinate": names[column],
                        "time": t,
                        "checkpoint": c,
                        "equation": e,
                    }
                    for t, c, e in zip(times, states[:, column], followed, strict=True)
                ]
            whose = "held out" if run in outside else "fitted"
            axis.set(xlabel="time (sum of learning rates)", title=f"run {run}, {whose}")
            axis.legend(fontsize=7)
        axes[0].set_ylabel("coordinate")
        drawing = svg(drawn)
    return Figure(
        svg=drawing,
        alt=f"The strongest coordinates of {len(shown)} runs against time: checkpoints as markers, "
        f"the fitted equation as lines. {facts['verdict']}",
        caption="Markers: checkpoints. Lines: the fitted equation from the run's first checkpoint "
        "on; a line that stops, or is not there, is a rollout that ended.",
        table=pd.DataFrame(rows),
    )


def write_equation(facts: dict[str, Any], figure: Figure, folder: Path) -> Path:
    """ode.html and ode.json in the folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = sentences(facts)
    section = Section(
        anchor="equation",
        title="Checkpoints and the fitted equation",
        findings=tuple(lines[: 2 + len(facts["quantities"])]),
        text=tuple(lines[2 + len(facts["quantities"]) :]),
        figures=(figure,),
    )
    notes = {"runs": ", ".join(facts["runs"]), "field": facts["field"] or "none", **versions()}
    page = render(
        title="The equation that these runs follow",
        lead=f"Read from the checkpoints of {len(facts['runs'])} runs alone.",
        sections=[section],
        notes=notes,
    )
    write_json(folder / FACTS, plain(facts))
    return write_text(folder / PAGE, page)
