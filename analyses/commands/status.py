"""`kappalens status`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from analyses.commands.base import Json, find_own_modules

EXAMPLES = "Examples: kappalens status runs/study | kappalens status runs --json"


def status(
    folder: Annotated[Path, typer.Argument(help="A study's folder, a run's, or one of studies.")],
    json_: Json = False,
) -> None:
    """Runs by state, steps done, searches on record, disk used, and the time left if it runs."""
    from training import study_status

    find_own_modules()
    found = study_status(folder)
    if json_:
        typer.echo(json.dumps(found.record()))
        return
    states = ", ".join(f"{count} {state}" for state, count in found.runs.items())
    typer.echo(f"Runs: {states or 'none yet'}")
    typer.echo(f"Steps: {found.steps:,} done of at most {found.steps_planned:,}")
    if found.searches is not None:
        failed = f", {found.searches['failed']} failed" if found.searches["failed"] else ""
        typer.echo(f"Searches: {found.searches['done']} of {found.searches['total']}{failed}")
    typer.echo(f"Disk: {found.bytes / 1e6:,.1f} MB, {found.checkpoints} checkpoints")
    if found.seconds_left is not None:
        typer.echo(f"Time left: about {timedelta(seconds=round(found.seconds_left))}")
    for line in found.damaged:
        typer.echo(f"damaged: {line}")
