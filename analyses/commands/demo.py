"""`kappalens demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from analyses.commands.base import Json, bars

EXAMPLES = (
    "Examples: kappalens demo | kappalens demo --out runs/second --seed 1 | "
    "kappalens demo --quick --json"
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, facts and the report.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of every study.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes: checks the path only.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train small models, analyse their checkpoints, write a report. Resumes where it stopped."""
    from analyses.demo import demo as run_demo

    with bars(json_) as shown:
        rows: dict[str, TaskID] = {}

        def watch(job: str, fraction: float, text: str) -> None:
            if job not in rows:
                rows[job] = shown.add_task(text, name=job, total=1.0)
            shown.update(rows[job], completed=fraction, description=text)

        page = run_demo(out, seed=seed, quick=quick, watch=watch)
    if json_:
        typer.echo((out / "report.json").read_text(), nl=False)
    else:
        typer.echo(f"Report: {page.resolve()}")
