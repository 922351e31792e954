"""The page on dynamics in the docs: `make dynamics-page`.

    python -m analyses.dynamics.page [--runs runs/dynamics] [--quick] [study ..]

measures the studies named (without names, those that are not on record yet) into
docs/dynamics/<study>.json, and writes the numbers of docs/dynamics.md between its markers, with
the drawings beside their records.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.claim_table import claims_table
from analyses.dynamics import STUDIES
from analyses.page import insert, write_drawing, write_json
from training.checkpoint import read_json

BEGIN, END = "<!-- numbers: written by `make dynamics-page` -->", "<!-- /numbers -->"
PAGE, FOLDER = "dynamics.md", "dynamics"


def measure(names: Sequence[str], runs: Path, docs: Path, quick: bool = False) -> None:
    """Put each study on record, with the CPU seconds that it took.

    ValueError for a name that no study has.
    """
    unknown = sorted(set(names) - set(STUDIES))
    if unknown:
        raise ValueError(f"no study is named {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    (docs / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in names:
        start = time.process_time()
        facts = STUDIES[name].measure(
            runs / name, lambda text, name=name: print(f"{name}: {text}"), quick
        )
        seconds = time.process_time() - start
        write_json(_record(docs, name), {"quick": quick, "seconds": seconds, "facts": facts})


def on_record(docs: Path) -> dict[str, dict[str, Any]]:
    """Study to its record, of those that have one."""
    return {
        name: read_json(_record(docs, name)) for name in STUDIES if _record(docs, name).exists()
    }


def write_page(docs: Path) -> None:
    """Put every record's section between the page's markers, and draw its figures.

    Errors: ValueError where a record is damaged or the markers are missing.
    """
    records = on_record(docs)
    parts, claims = [], []
    for name, record in records.items():
        study, facts = STUDIES[name], record["facts"]
        for file, svg in study.figures(facts).items():
            write_drawing(docs / FOLDER / file, svg)
        claims += [claim.record() for claim in study.claims(facts)]
        file = f"{FOLDER}/{name}.json"
        took = f"*{record['seconds']:,.0f} seconds of one core; all numbers: [{name}.json]({file})*"
        parts += [f"## {study.TITLE}", study.text(facts), took]
    if claims:
        parts += ["## What this says of the claims", claims_table(claims)]
    insert(docs / PAGE, BEGIN, END, "\n" + "\n\n".join(parts) + "\n")


def _record(docs: Path, name: str) -> Path:
    return docs / FOLDER / f"{name}.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure studies of dynamics, and write their page."
    )
    parser.add_argument("study", nargs="*", help="; ".join(STUDIES))
    parser.add_argument("--runs", type=Path, default=Path("runs/dynamics"), help="where runs go")
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), help="where records and page are"
    )
    parser.add_argument("--quick", action="store_true", help="check the path; no numbers to keep")
    options = parser.parse_args()
    missing = [name for name in STUDIES if not _record(options.docs, name).exists()]
    measure(options.study or missing, options.runs, options.docs, options.quick)
    write_page(options.docs)


if __name__ == "__main__":
    main()
