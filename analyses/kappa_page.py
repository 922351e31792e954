"""The page on kappa in the docs, out of a study's table: `make kappa-page`.

    python -m analyses.kappa_page runs/kappa-small

copies the table to docs/kappa-small.json, packs the searches behind it, and writes the numbers of
docs/kappa.md between its markers, with the drawing beside it.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses.claim_table import claims_table, with_interval
from analyses.kappa_figure import Mark, kappa_drawing
from analyses.kappa_table import JSON
from analyses.page import insert, write_drawing
from training.checkpoint import read_json
from training.studies.folder import SEARCHES, STUDY

BEGIN, END = "<!-- numbers: written by `make kappa-page` -->", "<!-- /numbers -->"
RECORD, PAGE, DRAWING = "kappa-small.json", "kappa.md", "kappa-small.svg"
ARCHIVE = "kappa-small-searches.tar.xz"


def keep(study: Path, docs: Path) -> None:
    """Copy a study's table into the docs, and pack its configuration and searches."""
    shutil.copyfile(study / JSON, docs / RECORD)
    with tarfile.open(docs / ARCHIVE, "w:xz") as archive:
        for file in [study / STUDY, *sorted((study / SEARCHES).glob("*.json"))]:
            archive.add(file, Path(study.name, file.relative_to(study)), filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def write_page(docs: Path) -> None:
    """Put the record's table and claims between the page's markers, and draw it.

    Errors: ValueError where the record is damaged or the markers are missing.
    """
    table = read_json(docs / RECORD)
    numbers = "\n\n".join([_table(_cells(table)), claims_table(table["claims"])])
    insert(docs / PAGE, BEGIN, END, f"\n{numbers}\n")
    drawing = kappa_drawing([_mark(row) for row in _cells(table) if row["bound"] is not None])
    write_drawing(docs / DRAWING, drawing)


def _cells(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each cell, without its data seeds'."""
    return [row for row in table["rows"] if row["data_seed"] is None]


def _mark(row: Mapping[str, Any]) -> Mark:
    return Mark(
        name=row["cell"],
        kappa=row["kappa"],
        bound=row["bound"],
        low=row["kappa_low"],
        high=row["kappa_high"],
        kappa_sep=row["kappa_sep"],
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "| cell | lengths | N\\* alone | N\\* joint | kappa (95%) | kappa_sep | kappa / kappa_sep"
        " (95%) | twice the length | censored for want of; not monotone |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *map(_line, rows)])


def _line(row: Mapping[str, Any]) -> str:
    stars = dict(row["n_star"])
    joint = stars.pop("joint")
    cells = [
        row["cell"],
        ", ".join(map(str, row["lengths"])),
        ", ".join(map(_size, stars.values())),
        _size(joint),
        with_interval(row["kappa"], row["bound"], row["kappa_low"], row["kappa_high"]),
        _decimal(row["kappa_sep"]),
        with_interval(row["ratio"], row["bound"], row["ratio_low"], row["ratio_high"]),
        _decimal(row["beyond"]),
        "; ".join([*(_shortage(row, name) for name in row["censored"]), *_not_monotone(row)]),
    ]
    return "| " + " | ".join(cells) + " |"


def _not_monotone(row: Mapping[str, Any]) -> list[str]:
    """Searches that failed at a size above one that succeeded."""
    names = ["joint" if name == "joint" else f"length {name}" for name in row["not_monotone"]]
    return [f"not monotone: {', '.join(names)}"] if names else []


def _shortage(row: Mapping[str, Any], search: str) -> str:
    """Why the largest size of a censored search failed."""
    largest, cause = max(row["causes"][search].items(), key=lambda entry: int(entry[0]))
    name = "joint" if search == "joint" else f"length {search}"
    return f"{name}: {cause} (at {int(largest):,})"


def _size(value: float | None) -> str:
    return "censored" if value is None else f"{value:,.0f}"


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    folder = Path("docs")
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]), folder)
    write_page(folder)
