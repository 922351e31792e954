"""`kappalens ode`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from analyses.commands.base import Json, bars, find_own_modules

EXAMPLES = (
    "Examples: kappalens ode runs/study | kappalens ode runs/a runs/b --held-out 1 --out runs/ode "
    "| kappalens ode runs/study --method sparse --coordinates four --json"
)


def ode(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or of studies.")],
    method: Annotated[
        str,
        typer.Option(
            help="structured: the task's exact fields with unknown data statistics, decay and time "
            "scale. sparse: terms of a library."
        ),
    ] = "structured",
    coordinates: Annotated[
        str,
        typer.Option(help="all of the invariant manifold, or four: alpha to delta of recall."),
    ] = "all",
    library: Annotated[
        str,
        typer.Option(help="Of sparse: linear, quadratic, cubic, quintic, or sigmoid products."),
    ] = "sigmoid products",
    held_out: Annotated[
        int | None,
        typer.Option(help="The last so many runs are kept for the verdict; else a quarter."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write ode.html, with the figure, and ode.json here.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="CPU seconds after which the fit ends.")] = 600.0,
    json_: Json = False,
) -> None:
    """Say which equation runs follow, read from their checkpoints alone.

    The fit is judged by following it from the first checkpoint of runs that it has not seen. What
    it implies of the data (which share of queries is rare, match, mismatch), of weight decay and of
    time is printed beside what the configuration says. Runs share a task and an optimiser.
    """
    from analyses.coordinates import open_runs
    from analyses.page import plain
    from analyses.run_equation import read_equation, sentences, write_equation
    from training import audit_read

    find_own_modules()
    runs = open_runs(folders)
    amiss = audit_read(runs, sorted({step for run in runs for step in run.steps}))
    for finding in amiss:
        typer.echo(f"audit: {finding}", err=True)
    with bars(json_) as shown:
        row = shown.add_task("", name="ode", total=None)
        facts, figure = read_equation(
            runs,
            method=method,
            coordinates=coordinates,
            library=library,
            held_out=held_out,
            seconds=seconds,
            say=lambda text: shown.update(row, description=text),
        )
    facts["audit"] = [asdict(finding) for finding in amiss]
    page = None if out is None else write_equation(facts, figure, out)
    if json_:
        typer.echo(json.dumps(plain(facts), allow_nan=False))
        return
    typer.echo("\n".join(sentences(facts)))
    if page is not None:
        typer.echo(f"Report: {page.resolve()}")
