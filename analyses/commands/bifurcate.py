"""`kappalens bifurcate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analyses.commands.base import Json, bars, find_own_modules

if TYPE_CHECKING:
    from manifold import PhaseDiagram, ReducedField

EXAMPLES = (
    "Examples: kappalens bifurcate | kappalens bifurcate config.yaml --y f_r:0:0.2:4 --out "
    "runs/phases | kappalens bifurcate --task burstiness=2 --x f_v:0.02:1:8 "
    "--y weight_decay:5e-4:4e-3:6 --runs runs/hysteresis --json"
)
RECALL = {
    "name": "associative_recall",
    "n_blocks": 3,
    "n_common": 6,
    "n_rare": 5,
    "track_slots": 4,
    "f_r": 0.0,
    "f_v": 0.2,
    "burstiness": 1,
    "distractor_f_r": 0.3,
    "distractor_f_v": 0.3,
}
"""The recall setting of the theory, section 5."""
MOST = 200
"""Points along a row: each takes seconds."""


def bifurcate(
    config: Annotated[
        Path | None, typer.Argument(help="YAML file of a run; its task is swept. Else recall.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the task to change; may be given several times."),
    ] = None,
    x: Annotated[
        str, typer.Option(help="What is swept along a row: NAME:FROM:TO:POINTS.")
    ] = "f_v:0.02:1:6",
    y: Annotated[
        str, typer.Option(help="What is swept from row to row.")
    ] = "weight_decay:5e-4:4e-3:4",
    weight_decay: Annotated[
        float | None, typer.Option(help="Where it is not swept; else the file's, or 1e-3.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="All coordinates, not four; a hundred times the time.")
    ] = False,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Folders of trained runs to draw on top.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of report.html and report.json.")] = Path(
        "runs/bifurcate"
    ),
    json_: Json = False,
) -> None:
    """Where training ends over two of f_v, f_r and weight_decay, with hysteresis and folds.

    Points are spread by the logarithm where TO is more than 5 times FROM. The grid as it is takes
    about two minutes; nothing is written before it is done.
    """
    from analyses.page import SCHEMA_VERSION, plain, render, versions, write_json, write_text
    from analyses.phase_figure import phase_section
    from analyses.phase_runs import trained
    from manifold import phase_diagram, reduced_field

    find_own_modules()
    grid = dict([_axis("--x", x), _axis("--y", y)])
    if len(grid) < 2:
        raise ValueError(f"--x {x} and --y {y} sweep one parameter; give two different ones")
    resolved, own = _task(config, task or [])
    decay = _decay(weight_decay, own, config, grid)
    field = reduced_field(resolved, coordinates="all" if full else "four")
    points = trained(runs or [], field, grid, decay)
    _writable(out)
    with bars(json_) as shown:
        bar = shown.add_task("", name="phases", total=1.0)

        def watch(fraction: float, text: str) -> None:
            shown.update(bar, completed=fraction, description=text)

        diagram = phase_diagram(field, grid, weight_decay=decay, progress=watch)
        watch(1.0, "done")
    setting = f"{field.task}: {field}, {_where(grid, decay)}"
    section = phase_section(diagram, field.exact, setting, points)
    page = render(
        title="Phase diagram",
        lead=f"{type(field.task).__name__}, {' and '.join(grid)}.",
        sections=[section],
        notes={"field": str(field), "task": str(field.task), **versions()},
    )
    facts = {"schema_version": SCHEMA_VERSION, **_facts(diagram, field, decay), "runs": points}
    facts["findings"] = list(section.findings)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "report.json", facts)
    path = write_text(out / "report.html", page)
    if json_:
        typer.echo(json.dumps(plain(facts), allow_nan=False))
    else:
        typer.echo("\n".join([*section.findings, f"Report: {path.resolve()}"]))


def _axis(option: str, text: str) -> tuple[str, list[float]]:
    """NAME:FROM:TO:POINTS as a name and its values."""
    import numpy as np

    parts = text.split(":")
    try:
        name, low, high, count = parts[0], float(parts[1]), float(parts[2]), int(parts[3])
    except (IndexError, ValueError):
        count, name, low, high = -1, "", 0.0, 0.0
    if len(parts) != 4 or count < 0:
        raise ValueError(
            f"{option} is {text!r}; allowed: NAME:FROM:TO:POINTS, as in f_v:0.02:1:6, with NAME one"
            " of f_v, f_r, weight_decay"
        )
    if count < 2 or not low < high:
        raise ValueError(
            f"{option} is {text!r}: {count} points from {low:g} to {high:g}; allowed: two or more,"
            " FROM below TO"
        )
    if count > MOST:
        raise ValueError(f"{option} is {text!r}: {count:,} points; allowed: at most {MOST}")
    values = np.geomspace(low, high, count) if 0 < 5 * low < high else np.linspace(low, high, count)
    return name, values.tolist()


def _task(config: Path | None, changes: list[str]) -> tuple[Any, float]:
    """The task, and the weight decay of its file (1e-3 without a file, or where it names none)."""
    import yaml

    from training import RunConfig

    changed: dict[str, Any] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--task is {change!r}; allowed: NAME=VALUE, as in n_blocks=4")
        changed[name] = yaml.safe_load(value)
    if config is None:
        run, decay = RunConfig(task=RECALL, family="attention_only", steps=1), 1e-3
    else:
        run = RunConfig.from_yaml(config)
        told = "weight_decay" in run.optimiser.model_fields_set
        decay = run.optimiser.weight_decay if told else 1e-3
    return (run.replace(task=changed) if changed else run).task, decay


def _decay(
    asked: float | None, own: float, config: Path | None, grid: dict[str, list[float]]
) -> float:
    """The weight decay where it is not swept: as asked, or the file's own."""
    if "weight_decay" in grid:
        if asked is not None:
            raise ValueError(
                f"--weight-decay {asked:g} would not be used: the diagram sweeps weight_decay; "
                "leave it out, or sweep f_r with --y f_r:0:0.2:4"
            )
        return own
    decay = own if asked is None else asked
    if decay == 0:
        whose = f"{config} has" if asked is None else "--weight-decay is"
        raise ValueError(
            f"{whose} weight decay 0: weights grow for ever, no fixed point lies at finite "
            "distance, and there are no states to compare; give --weight-decay above 0, as 1e-3, "
            "or sweep weight_decay"
        )
    return decay


def _writable(out: Path) -> None:
    """Found out before minutes of work, and nothing made."""
    import os

    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"--out {out}: {there} is no folder that you may write; give another")


def _where(grid: dict[str, list[float]], decay: float) -> str:
    fixed = "" if "weight_decay" in grid else f", weight decay {decay:g}"
    return " by ".join(f"{n} {v[0]:g} to {v[-1]:g}" for n, v in grid.items()) + fixed


def _facts(diagram: PhaseDiagram, field: ReducedField, decay: float) -> dict[str, Any]:
    return {
        "parameters": list(diagram.parameters),
        "weight_decay": None if "weight_decay" in diagram.parameters else decay,
        "field": str(field),
        "states": diagram.states.to_dict(orient="records"),
        "grid": diagram.grid.to_dict(orient="records"),
        "marks": diagram.marks.to_dict(orient="records"),
        "curves": [
            {"ended": curve.ended, **curve.table.to_dict(orient="list")} for curve in diagram.curves
        ],
        "cusps": [{"values": c.values, "error": c.error} for c in diagram.cusps],
        "notes": list(diagram.notes),
    }
