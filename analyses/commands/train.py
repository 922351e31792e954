"""`kappalens train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from analyses.commands.base import Json, bars, find_own_modules

EXAMPLES = "Example: kappalens train config.yaml --root runs"


def train(
    config: Annotated[Path, typer.Argument(help="YAML file of a run's configuration.")],
    root: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    json_: Json = False,
) -> None:
    """Train one run and save its checkpoints. Calling again resumes."""
    from training import RunConfig
    from training import train as run_train

    find_own_modules()
    parsed = RunConfig.from_yaml(config)
    with bars(json_) as shown:
        rows: list[TaskID] = []

        def progress(step: int, total: int, latest: Mapping[str, float]) -> None:
            loss = latest.get("validation_loss")
            text = f"step {step}" + (f", loss {loss:.4f}" if loss is not None else "")
            if not rows:
                rows.append(shown.add_task(text, name=parsed.run_id, total=total))
            shown.update(rows[0], completed=step, total=total, description=text)

        run = run_train(parsed, root=root, progress=progress)
    if json_:
        typer.echo(json.dumps({"path": str(run.path), **run.status}))
    else:
        typer.echo(f"Run: {run.path} ({run.status['state']} at step {run.status['step']})")
