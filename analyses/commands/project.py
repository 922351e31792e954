"""`kappalens project`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analyses.commands.base import Json, bars, find_own_modules

if TYPE_CHECKING:
    import xarray as xr

EXAMPLES = (
    "Examples: kappalens project runs/study/4f0c | kappalens project runs/study --out coords.nc | "
    "kappalens project runs/a runs/b --quick --json"
)


def project(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or of studies.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write every coordinate of every checkpoint here, as netCDF."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not run the models rebuilt from coordinates.")
    ] = False,
    json_: Json = False,
) -> None:
    """Read every checkpoint in the coordinates of the invariant manifold.

    Runs of one task and family are read together. State tracking is read in the coordinates of
    its group. What an audit of the files finds goes to stderr, and into the JSON.
    """
    from analyses.coordinates import facts, open_runs, read, together
    from analyses.page import plain
    from training import audit_read

    find_own_modules()
    runs = open_runs(folders)
    groups = together(runs)
    if out is not None and len(groups) > 1:
        raise ValueError(
            f"--out {out}: the runs have {len(groups)} different tasks or families, which share no"
            " coordinates; name the folders of one"
        )
    amiss = audit_read(runs, sorted({step for run in runs for step in run.steps}))
    for finding in amiss:
        typer.echo(f"audit: {finding}", err=True)
    rows: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    with bars(json_) as shown:
        for group in groups:
            name = type(group[0].task).__name__
            total = sum(len(run.steps) for run in group)
            bar = shown.add_task(f"{total} checkpoints", name=name, total=total)
            try:
                data = read(
                    group, not quick, lambda done, _, bar=bar: shown.update(bar, completed=done)
                )
            except ValueError as error:
                refused.append({"runs": [run.run_id for run in group], "why": str(error)})
                continue
            shown.update(bar, completed=total)
            rows += facts(data)
            if out is not None:
                _write(data, out)
    if not rows:
        raise ValueError("; ".join(entry["why"] for entry in refused))
    for entry in refused:
        typer.echo(f"not read: {', '.join(entry['runs'])}: {entry['why']}", err=True)
    if json_:
        audited = [asdict(finding) for finding in amiss]
        found = {"runs": rows, "not_read": refused, "audit": audited}
        typer.echo(json.dumps(plain(found), allow_nan=False))
    else:
        typer.echo("\n\n".join(_text(row) for row in rows))
        if out is not None:
            typer.echo(f"\nCoordinates: {out.resolve()}")


def _write(data: xr.Dataset, out: Path) -> None:
    """Whole or not at all; lists among the attributes become text, which netCDF can hold."""
    listed = {name: "; ".join(v) for name, v in data.attrs.items() if isinstance(v, list)}
    partial = out.with_name(out.name + ".partial")
    try:
        data.assign_attrs(listed).to_netcdf(partial)
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ValueError(f"--out {out}: cannot be written ({error.strerror or error})") from error


def _text(row: dict[str, Any]) -> str:
    """One run: a line for each variable, at its first and at its last step."""
    steps = row["steps"]
    lines = [f"Run {row['run']}: {len(steps)} checkpoints, steps {steps[0]} to {steps[-1]}"]
    for name, value in row.items():
        if name in ("run", "steps"):
            continue
        ends = value if isinstance(value, dict) and set(value) == {"first", "last"} else None
        said = f"{_say(ends['first'])}  ->  {_say(ends['last'])}" if ends else _say(value)
        lines.append(f"  {name:<22} {said}")
    return "\n".join(lines)


def _say(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_say(part)}" for name, part in value.items())
    return "-" if value is None or value != value else f"{value:.3g}"
