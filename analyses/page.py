"""Facts into one self-contained HTML file, and into the JSON that says the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from analyses.studies.base import Section

SCHEMA_VERSION = 1


def plain(value: object) -> object:
    """What JSON can say: numbers, text, lists and mappings; what is undefined becomes null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_text(path: Path, text: str) -> Path:
    """Written beside its place and renamed, so that a reader never meets half a file."""
    beside = path.with_name(path.name + ".partial")
    beside.write_text(text)
    return beside.replace(path)


def write_json(path: Path, facts: object) -> Path:
    return write_text(path, json.dumps(plain(facts), indent=1, allow_nan=False) + "\n")


def insert(page: Path, begin: str, end: str, text: str) -> Path:
    """Put `text` between two markers of a page, each of which must stand there once."""
    before = page.read_text()
    if before.count(begin) != 1 or before.count(end) != 1:
        raise ValueError(f"{page} must hold the markers {begin} and {end} once each")
    head, rest = before.split(begin)
    return write_text(page, f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def write_drawing(path: Path, svg: str) -> Path:
    """An <svg> element as a file of its own, on white."""
    ground = r'\1<rect width="100%" height="100%" fill="white"/>'
    return write_text(path, re.sub(r"(<svg[^>]*>)", ground, svg, count=1) + "\n")


def versions() -> dict[str, str]:
    names = ("kappalens", "torch", "numpy", "scipy", "transformer-lens")
    return {name: metadata.version(name) for name in names}


def render(*, title: str, lead: str, sections: Sequence[Section], notes: Mapping[str, str]) -> str:
    """The page: what was found, then a section per question, then how it was made."""
    loader = jinja2.BaseLoader()
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["table"] = table_html
    source = resources.files("analyses").joinpath("templates/report.html.j2").read_text()
    return environment.from_string(source).render(
        title=title, lead=lead, sections=sections, notes=notes
    )


def table_html(table: pd.DataFrame, rows: int = 400) -> str:
    """The numbers behind a figure; long tables are thinned evenly, and say so."""
    shown = table
    if len(table) > rows:
        shown = table.iloc[np.unique(np.linspace(0, len(table) - 1, rows).astype(int))]
    html = shown.to_html(index=False, border=0, float_format=lambda v: f"{v:.6g}", na_rep="–")
    thinned = f"<p>{len(shown)} of {len(table)} rows, evenly spaced.</p>"
    return html + (thinned if len(shown) < len(table) else "")
