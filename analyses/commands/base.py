"""What the commands share: `--json`, progress bars, and tasks and families of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


def bars(quiet: bool) -> Progress:
    """Progress bars on stderr, one row per job with the field `name`; nothing when quiet."""
    return Progress(
        TextColumn("{task.fields[name]:<24}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        disable=quiet,
    )


def find_own_modules() -> None:
    """So that `module:attribute` finds a task or family in the folder the command is run in."""
    sys.path.append(str(Path.cwd()))
