"""`kappalens report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyses.commands.base import Json, find_own_modules

EXAMPLES = (
    "Examples: kappalens report runs/demo | kappalens report runs/study/4f0c | "
    "kappalens report runs/demo --json"
)


def report(
    folder: Annotated[Path, typer.Argument(help="A demo's folder or a run's folder.")],
    json_: Json = False,
) -> None:
    """Write report.html and report.json of a demo or of one run, from its checkpoints."""
    from analyses.reporting import report as write

    find_own_modules()
    page = write(folder)
    if json_:
        typer.echo((page.parent / "report.json").read_text(), nl=False)
    else:
        typer.echo(f"Report: {page.resolve()}")
