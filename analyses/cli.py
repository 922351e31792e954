"""The `kappalens` command."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, cast

import typer

from analyses.commands import COMMANDS

app = typer.Typer(
    name="kappalens",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How sequence models learn: coordinates, dynamics, circuits and kappa from checkpoints.",
)
MISTAKES = cast(tuple[type[Exception], ...], (ValueError, OSError, *typer.BadParameter.__bases__))
"""What a caller can get wrong; the last is the parser's usage error, which formats itself."""


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


for _name, (_command, _examples) in COMMANDS.items():
    app.command(_name, epilog=_examples)(_command)


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
