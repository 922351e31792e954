"""The README's findings and pictures, out of a demo's folder: `make readme`."""

from __future__ import annotations

from pathlib import Path

from analyses.demo import load_facts, sections_of
from analyses.page import insert, write_drawing

BEGIN, END = "<!-- findings: written by `make readme` -->", "<!-- /findings -->"
PICTURES = {"trajectories": "reduced", "folds": "folds"}
"""Picture's file name to the section whose first figure it is."""


def write_readme(demo: Path, readme: Path, pictures: Path) -> None:
    """Put the demo's findings between the README's markers, and two figures into `pictures`.

    Errors: ValueError where the demo is unfinished or the markers are missing.
    """
    sections = {section.anchor: section for section in sections_of(load_facts(demo))}
    lines = [line.replace("*", r"\*") for s in sections.values() for line in s.findings]
    insert(readme, BEGIN, END, "\n".join(f"- {line}" for line in lines))
    pictures.mkdir(exist_ok=True)
    for name, anchor in PICTURES.items():
        write_drawing(pictures / f"{name}.svg", sections[anchor].figures[0].svg)


if __name__ == "__main__":
    write_readme(Path("runs/demo"), Path("README.md"), Path("docs"))
