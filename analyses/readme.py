"""The README's findings and pictures, out of a demo's folder: `make readme`."""

from __future__ import annotations

import re
from pathlib import Path

from analyses.demo import load_facts, sections_of
from analyses.page import write_text

BEGIN, END = "<!-- findings: written by `make readme` -->", "<!-- /findings -->"
PICTURES = {"trajectories": "reduced", "folds": "folds"}
"""Picture's file name to the section whose first figure it is."""


def write_readme(demo: Path, readme: Path, pictures: Path) -> None:
    """Put the demo's findings between the README's markers, and two figures into `pictures`.

    Errors: ValueError where the demo is unfinished or the markers are missing.
    """
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{readme} must hold the markers {BEGIN} and {END} once each")
    sections = {section.anchor: section for section in sections_of(load_facts(demo))}
    lines = [line.replace("*", r"\*") for s in sections.values() for line in s.findings]
    findings = "\n".join(f"- {line}" for line in lines)
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    pictures.mkdir(exist_ok=True)
    for name, anchor in PICTURES.items():
        drawing = sections[anchor].figures[0].svg
        ground = re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>',
                        drawing, count=1)  # fmt: skip
        write_text(pictures / f"{name}.svg", ground + "\n")
    write_text(readme, f"{before}{BEGIN}\n{findings}\n{END}{after}")


if __name__ == "__main__":
    write_readme(Path("runs/demo"), Path("README.md"), Path("docs"))
