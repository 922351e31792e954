"""`kappalens audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from analyses.commands.base import Json, find_own_modules

EXAMPLES = (
    "Examples: kappalens audit runs/study | kappalens audit runs/study/4f0c --quick | "
    "kappalens audit ~/downloads/checkpoints --json"
)


def audit(
    folder: Annotated[Path, typer.Argument(help="A run, a study, or any folder of safetensors.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Read the small files of our own runs only.")
    ] = False,
    json_: Json = False,
) -> None:
    """Look for copied, misplaced, damaged or foreign checkpoints. Exit code 1: something found."""
    from training import audit as run_audit

    find_own_modules()
    found = run_audit(folder, read_weights=not quick)
    if json_:
        typer.echo(json.dumps(found.record()))
    else:
        for each in found.findings:
            typer.echo(str(each))
        looked = f"{found.checkpoints} checkpoints of {found.runs} runs"
        judged = "" if quick else f", descent from the first step judged in {found.descent}"
        typer.echo(f"{len(found.findings)} findings in {looked}{judged}.")
    if found.findings:
        raise typer.Exit(1)
