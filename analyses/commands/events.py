"""`kappalens events`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from analyses.commands.base import Json, bars, find_own_modules

EXAMPLES = (
    "Examples: kappalens events runs/study/4f0c | kappalens events runs/study --json | "
    "kappalens events runs/a runs/b --quick"
)
CHEAP = 200
"""Coordinates up to which the reduced field is asked as well."""


def events(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or of studies.")],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Coordinates alone: no models are run, no reduced field."),
    ] = False,
    json_: Json = False,
) -> None:
    """What happened along each run: onsets, swaps, transience, overfitting in weights, ..

    Every event has its step, the interval it lies in and its evidence. The reduced field of the
    run's task is asked where it is cheap (exact, and few coordinates).
    """
    from analyses.coordinates import open_runs, together
    from analyses.page import plain
    from manifold import events as find
    from manifold import project

    find_own_modules()
    rows: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    with bars(json_) as shown:
        for group in together(open_runs(folders)):
            total = sum(len(run.steps) for run in group)
            bar = shown.add_task("projecting", name=type(group[0].task).__name__, total=total)
            try:
                data = project(
                    group,
                    rebuilt=not quick,
                    progress=lambda done, _, bar=bar: shown.update(bar, completed=done),
                )
            except ValueError as error:
                refused.append({"runs": [run.run_id for run in group], "why": str(error)})
                continue
            fields: dict[str, tuple[Any, str]] = {}
            for i, run in enumerate(group):
                shown.update(bar, description=f"events of run {i + 1} of {len(group)}")
                rule = run.config.optimiser.name
                if rule not in fields:
                    fields[rule] = (None, "--quick") if quick else _field(run)
                field, why = fields[rule]
                found = find(
                    data.isel(run=[i]),
                    task=run.task,
                    field=field,
                    weight_decay=run.config.optimiser.weight_decay,
                )
                rows.append(
                    {
                        "run": run.run_id,
                        "steps": list(run.steps),
                        "events": [asdict(event) for event in found.events],
                        "unanswered": list(found.unanswered),
                        "field": why,
                    }
                )
    if not rows:
        raise ValueError("; ".join(entry["why"] for entry in refused))
    for entry in refused:
        typer.echo(f"not read: {', '.join(entry['runs'])}: {entry['why']}", err=True)
    if json_:
        typer.echo(json.dumps(plain({"runs": rows, "not_read": refused}), allow_nan=False))
    else:
        typer.echo("\n\n".join(_text(row) for row in rows))


def _field(run: Any) -> tuple[Any, str]:
    """The exact reduced field on the run's own coordinates, or None; and how it stands."""
    from manifold import invariant_basis, reduced_field
    from manifold.coordinates.effective import frame_of

    if frame_of(run.family) != "attention_only":
        return None, "the field is attention_only's"
    if run.config.optimiser.name != "sgd":
        return None, f"the field is SGD's, the run has {run.config.optimiser.name}"
    shape = run.family.layers, run.family.heads
    basis = invariant_basis(run.task, "attention_only", *shape)
    if basis.dim > CHEAP:
        return None, f"{basis.dim} coordinates are not cheap (up to {CHEAP} are)"
    try:
        field = reduced_field(run.task, layers=shape[0], heads=shape[1])
    except ValueError as error:
        return None, str(error)
    return (field, str(field)) if field.exact else (None, "only a sample of it would be cheap")


def _text(row: dict[str, Any]) -> str:
    steps = row["steps"]
    lines = [f"Run {row['run']}: {len(steps)} checkpoints, steps {steps[0]} to {steps[-1]}"]
    for event in row["events"]:
        judged = "" if event["bifurcation"] == "unknown" else f" ({event['bifurcation']})"
        lines.append(
            f"  {event['kind']:<12} {event['what']:<28} step {event['step']:.4g} "
            f"[{event['low']:.4g}, {event['high']:.4g}]{judged}: {event['evidence']}"
        )
    if not row["events"]:
        lines.append("  nothing")
    lines += [f"  not asked: {why}" for why in row["unanswered"]]
    return "\n".join([*lines, f"  reduced field: {row['field']}"])
