"""`kappalens kappa`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analyses.commands.base import Json, bars, find_own_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.studies.scale_out import Update
    from training.studies.study import KappaStudy

EXAMPLES = (
    "Examples: kappalens kappa --preset small --dry-run | kappalens kappa --preset small | "
    "kappalens kappa --config study.yaml --cell lstm-acot --json | "
    "kappalens kappa --preset paper --scheduler tcp://head:8786 --root /shared/runs"
)


def kappa(
    preset: Annotated[str | None, typer.Option(help="small or paper.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of a study of your own.")] = None,
    root: Annotated[Path, typer.Option(help="Where the study's folder goes.")] = Path("runs"),
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a dask scheduler; without it, this machine.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine, else one per core."),
    ] = None,
    cell: Annotated[
        list[str] | None, typer.Option(help="Only this cell; may be given several times.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how much there is to do.")
    ] = False,
    json_: Json = False,
) -> None:
    """Search N* of every cell and length of a study; table.json and table.parquet in its folder.

    Calling again goes on where it stopped; what is on record is not run again. Exit code 1 where a
    search failed.
    """
    find_own_modules()
    study = _study(preset, config)
    cells = cell or None
    if dry_run:
        _say(_plan(study, root, cells), json_, _plan_text)
        return
    from analyses.kappa_table import write_table
    from training.studies.scale_out import run_study

    with _watching(study, root, quiet=json_) as watch:
        failures = run_study(
            study, root, scheduler=scheduler, workers=workers, cells=cells, watch=watch
        )
    table = write_table(study, root)
    _say(table, json_, lambda found: _table_text(found, root / study.study))
    if failures:
        name, said = next(iter(failures.items()))
        line = (
            f"{len(failures)} of the searches failed, first {name}: {said}. The same command tries"
            f" them again; {root / study.study / 'failures'} has the details"
        )
        typer.echo(" ".join(line.split()), err=True)
        raise typer.Exit(1)


def _study(preset: str | None, config: Path | None) -> KappaStudy:
    from training.studies.study import KappaStudy, presets
    from training.studies.study import preset as load

    if (preset is None) == (config is None):
        raise ValueError(
            f"give --preset ({', '.join(presets())}) or --config with a file, and not both"
        )
    return KappaStudy.from_yaml(config) if config is not None else load(preset or "")


def _say(value: dict[str, Any], json_: bool, text: Callable[[dict[str, Any]], str]) -> None:
    typer.echo(json.dumps(value) if json_ else text(value))


def _plan(study: KappaStudy, root: Path, cells: Sequence[str] | None) -> dict[str, Any]:
    """What is left to do, by cell and together."""
    from training.studies.estimate import NOTHING, estimate
    from training.studies.scale_out import left_to_do

    left = left_to_do(study, root, cells)
    estimates = estimate(study, left)
    rows = []
    for chosen in study.chosen(cells):
        own = [estimates[job.name] for job in left if job.cell == chosen.name]
        total = sum(own, NOTHING)
        rows.append({"cell": chosen.name, "searches": len(own), **total.record()})
    total = sum(estimates.values(), NOTHING)
    return {"study": study.study, "searches": len(left), **total.record(), "cells": rows}


def _plan_text(plan: dict[str, Any]) -> str:
    lines = [f"{'cell':<34} searches   runs   CPU time   disk"]
    rows: list[dict[str, Any]] = [*plan["cells"], plan | {"cell": "together"}]
    for row in rows:
        lines.append(
            f"{row['cell']:<34} {row['searches']:>8} {row['runs']:>6}"
            f" {_time(row['cpu_seconds']):>10} {row['bytes'] / 1e6:>7,.0f} MB"
        )
    return "\n".join([*lines, "Estimates from a few timed steps; half or twice as much is usual."])


def _table_text(table: dict[str, Any], folder: Path) -> str:
    lines = [f"{'cell':<34} {'N* alone':<22} joint  kappa (95%)            kappa_sep  beyond"]
    for row in table["rows"]:
        if row["data_seed"] is not None:
            continue
        stars = dict(row["n_star"])
        joint = stars.pop("joint")
        alone = ", ".join(map(_number, stars.values()))
        lines.append(
            f"{row['cell']:<34} {alone:<22} {_number(joint):>5}  {_kappa(row):<22}"
            f" {_decimal(row['kappa_sep']):>9}  {_decimal(row['beyond']):>6}"
        )
    if table["missing"]:
        lines.append(f"{len(table['missing'])} searches are not on record yet.")
    return "\n".join([*lines, f"Table: {folder / 'table.json'}, {folder / 'table.parquet'}"])


def _kappa(row: dict[str, Any]) -> str:
    if row["kappa"] is None:
        return row["bound"] or ""
    sign = "" if row["bound"] == "=" else f"{row['bound']} "
    high = "inf" if row["kappa_high"] is None else f"{row['kappa_high']:.2f}"
    return f"{sign}{row['kappa']:.2f} ({row['kappa_low']:.2f} to {high})"


def _number(value: float | None) -> str:
    return "censored" if value is None else f"{value:.0f}"


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def _watching(study: KappaStudy, root: Path, quiet: bool) -> Iterator[Callable[[Update], None]]:
    """Bars of the whole and of each running search; the table after every finished cell."""
    from analyses.kappa_table import write_table

    with bars(quiet) as shown:
        rows: dict[str, Any] = {}
        said: set[str] = set()

        def show(name: str, share: float, text: str) -> None:
            if name not in rows:
                rows[name] = shown.add_task("", name=name[-24:], total=1.0)
            shown.update(rows[name], completed=share, description=text)

        def watch(update: Update) -> None:
            if update.idle is not None:
                if update.idle not in said:
                    typer.echo(update.idle, err=True)
                said.add(update.idle)
                return
            left = "" if update.seconds_left is None else f", {_time(update.seconds_left)} left"
            show(study.study, update.share, f"{update.done} of {update.total} searches{left}")
            show(update.job, update.job_share, update.text)
            if update.job_share >= 1.0 and not update.text.startswith("failed"):
                shown.remove_task(rows.pop(update.job))
            if update.cell is not None:
                write_table(study, root)

        yield watch
