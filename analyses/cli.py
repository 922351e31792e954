"""The `kappalens` command."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

app = typer.Typer(
    name="kappalens",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How sequence models learn: coordinates, dynamics, circuits and kappa from checkpoints.",
)
MISTAKES = cast(tuple[type[Exception], ...], (ValueError, OSError, *typer.BadParameter.__bases__))
"""What a caller can get wrong; the last is the parser's usage error, which formats itself."""
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kappalens {metadata.version('kappalens')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _bars(quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.fields[name]:<24}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        disable=quiet,
    )


@app.command(
    epilog="Examples: kappalens demo | kappalens demo --out runs/second --seed 1 | "
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

    with _bars(json_) as bars:
        rows: dict[str, TaskID] = {}

        def watch(job: str, fraction: float, text: str) -> None:
            if job not in rows:
                rows[job] = bars.add_task(text, name=job, total=1.0)
            bars.update(rows[job], completed=fraction, description=text)

        page = run_demo(out, seed=seed, quick=quick, watch=watch)
    if json_:
        typer.echo((out / "report.json").read_text(), nl=False)
    else:
        typer.echo(f"Report: {page.resolve()}")


@app.command(epilog="Example: kappalens train config.yaml --root runs")
def train(
    config: Annotated[Path, typer.Argument(help="YAML file of a run's configuration.")],
    root: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    json_: Json = False,
) -> None:
    """Train one run and save its checkpoints. Calling again resumes."""
    from training import RunConfig
    from training import train as run_train

    _find_own_modules()
    parsed = RunConfig.from_yaml(config)
    with _bars(json_) as bars:
        rows: list[TaskID] = []

        def progress(step: int, total: int, latest: Mapping[str, float]) -> None:
            loss = latest.get("validation_loss")
            text = f"step {step}" + (f", loss {loss:.4f}" if loss is not None else "")
            if not rows:
                rows.append(bars.add_task(text, name=parsed.run_id, total=total))
            bars.update(rows[0], completed=step, total=total, description=text)

        run = run_train(parsed, root=root, progress=progress)
    if json_:
        typer.echo(json.dumps({"path": str(run.path), **run.status}))
    else:
        typer.echo(f"Run: {run.path} ({run.status['state']} at step {run.status['step']})")


@app.command(
    epilog="Examples: kappalens report runs/demo | kappalens report runs/study/4f0c | "
    "kappalens report runs/demo --json"
)
def report(
    folder: Annotated[Path, typer.Argument(help="A demo's folder or a run's folder.")],
    json_: Json = False,
) -> None:
    """Write report.html and report.json of a demo or of one run, from its checkpoints."""
    from analyses.reporting import report as write

    _find_own_modules()
    page = write(folder)
    if json_:
        typer.echo((page.parent / "report.json").read_text(), nl=False)
    else:
        typer.echo(f"Report: {page.resolve()}")


def _find_own_modules() -> None:
    """So that `module:attribute` finds a task or family in the folder the command is run in."""
    sys.path.append(str(Path.cwd()))


def _check_rooms() -> None:
    """Unrelated distributions named like our rooms overwrite them silently when installed."""
    rooms = ("training", "manifold", "probes", "circuits", "analyses")
    specs = {room: importlib.util.find_spec(room) for room in rooms}
    places = {r: s.submodule_search_locations for r, s in specs.items() if s is not None}
    parents = {str(Path(next(iter(place))).parent) for place in places.values() if place}
    if len(parents) != 1:
        raise ValueError(
            f"the packages {', '.join(rooms)} come from different places ({sorted(parents)}): "
            "another distribution overwrote one; install kappalens in an environment of its own"
        )


def main() -> None:
    """Run the command; a caller's mistake is one line on stderr and exit code 2."""
    interrupted = 130
    try:
        _check_rooms()
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupted
    except MISTAKES as error:
        text = getattr(error, "format_message", error.__str__)()
        typer.echo("error: " + " ".join(text.split()), err=True)
        sys.exit(2)
    if code == interrupted:  # the parser catches the key and returns this
        typer.echo("Interrupted; the same command goes on from here.", err=True)
    sys.exit(code or 0)
