"""`kappalens prune`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from analyses.commands.base import Json, find_own_modules

EXAMPLES = (
    "Examples: kappalens prune runs/study --dry-run | kappalens prune runs/study --keep last | "
    "kappalens prune runs/study --keep every --every 1024 --json"
)


def prune(
    folder: Annotated[Path, typer.Argument(help="A run's folder, a study's, or one of studies.")],
    keep: Annotated[
        str,
        typer.Option(
            help="ends: the first and the last step. every: these and the multiples of --every. "
            "last: the weights of the first and the last step, without the optimiser's vectors."
        ),
    ] = "ends",
    every: Annotated[int | None, typer.Option(min=1, help="With --keep every.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would free.")
    ] = False,
    json_: Json = False,
) -> None:
    """Remove checkpoints of runs that have ended; those that have not are left as they are."""
    from training import prune as run_prune

    find_own_modules()
    pruned = run_prune(folder, keep=keep, every=every, dry_run=dry_run)
    if json_:
        typer.echo(json.dumps(pruned.record()))
        return
    for path, reason in pruned.left_alone.items():
        typer.echo(f"left alone: {path}: {reason}")
    done = "Would free" if dry_run else "Freed"
    typer.echo(
        f"{done} {pruned.bytes / 1e6:,.1f} MB: {pruned.checkpoints} checkpoints of"
        f" {pruned.runs} runs."
    )
