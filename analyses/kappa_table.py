"""The table of kappa: a row per cell and one per data seed, from what a study has on record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analyses.claim import Claim
from analyses.kappa_claims import Searches, kappa_claims
from training import NStar, SharingFactor
from training.config import SCHEMA_VERSION
from training.naming import describe
from training.run import write_json
from training.sharing.interval import kappa_intervals
from training.sharing.replicate import geometric_mean
from training.studies.folder import read_failure, read_search, searches_of_cell
from training.studies.study import Cell, KappaStudy, preset

TABLE, JSON = "table.parquet", "table.json"


def kappa_table(study: KappaStudy, root: str | Path) -> list[dict[str, Any]]:
    """Rows of all cells whose every search is on record; a cell's own row, then its data seeds'.

    data_seed: None in the cell's own row, where numbers are geometric means over data seeds.
    n_star, n50: by search. kappa with bound and interval, kappa_sep, ratio (kappa / kappa_sep):
    None for a cell of which only the joint search was asked. beyond: accuracy at twice the longest
    length, 0 at chance; None where that does not apply. censored: searches that failed at the
    largest size; bottom: that succeeded at the smallest; not_monotone: that failed at a size above
    one that succeeded. causes: search, then size, to why it failed.
    """
    return _table(study, _finished(study, Path(root)))


def as_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows flat, for parquet: n_star_4, n_star_joint, ...; lists and causes as text."""
    flat = []
    for row in rows:
        causes = [
            f"{search} {size}: {cause}"
            for search, sizes in row["causes"].items()
            for size, cause in sizes.items()
        ]
        columns = dict(row)
        for name in ("n_star", "n50"):
            columns |= {f"{name}_{search}": value for search, value in columns.pop(name).items()}
        for name in ("lengths", "censored", "bottom", "not_monotone", "interval_covers"):
            columns[name] = ", ".join(map(str, columns[name]))
        flat.append(columns | {"causes": "; ".join(causes)})
    frame = pd.DataFrame(flat)
    return frame.astype({"data_seed": "Int64"}) if len(frame) else frame


def write_table(study: KappaStudy, root: str | Path) -> dict[str, Any]:
    """Write table.json and table.parquet into the study's folder; returns what the JSON holds.

    rows; claims: those on which the finished cells bear, of the preset `small` (analyses/
    kappa_claims.py); missing: searches that are not on record yet; failures: those of them that
    failed, with a sentence.
    """
    root = Path(root)
    folder = root / study.study
    missing = [job for job in study.jobs() if read_search(job, root) is None]
    failures = {job.name: read_failure(job, root) for job in missing}
    found = _finished(study, root)
    table = {
        "schema_version": SCHEMA_VERSION,
        "study": study.study,
        "rows": _table(study, found),
        "claims": [claim.record() for claim in _claims(study, found) if claim.comparisons],
        "missing": [job.name for job in missing],
        "failures": {name: said for name, said in failures.items() if said},
    }
    write_json(folder / JSON, table)
    partial = folder / f".{TABLE}.{os.getpid()}.partial"
    as_frame(table["rows"]).to_parquet(partial)
    partial.replace(folder / TABLE)
    return table


def _finished(study: KappaStudy, root: Path) -> dict[str, Searches]:
    """What was found, of every cell whose every search is on record."""
    found = {cell.name: searches_of_cell(study, cell, root) for cell in study.cells}
    return {name: searches for name, searches in found.items() if searches is not None}


def _table(study: KappaStudy, found: Mapping[str, Searches]) -> list[dict[str, Any]]:
    return [
        row
        for cell in study.cells
        if cell.name in found
        for row in _rows(study, cell, found[cell.name])
    ]


def _claims(study: KappaStudy, found: Mapping[str, Searches]) -> tuple[Claim, ...]:
    """By the cells that are as in the preset: another's of the same name says something else."""
    preset_cells = preset("small").cells
    cells = [cell for cell in study.cells if cell.name in found and cell in preset_cells]
    factors = {
        cell.name: SharingFactor.of(study.config(cell), found[cell.name])
        for cell in cells
        if cell.searches == "all"
    }
    return kappa_claims({cell.name: found[cell.name] for cell in cells}, factors)


def _rows(study: KappaStudy, cell: Cell, found: Searches) -> list[dict[str, Any]]:
    task: Any = cell.task
    head = {
        "cell": cell.name,
        "task": getattr(task, "label", type(task).__name__),
        "family": describe("family", cell.family)["name"],
        "format": getattr(task, "format", None),
        "layout": getattr(task, "layout", None),
        "distribution": getattr(task, "distribution", None),
        "lengths": list(getattr(task, "lengths", ())),
    }
    stars = list(found.values())
    rows = [head | {"data_seed": None} | _numbers(stars)]
    rows += [head | {"data_seed": seed} | _numbers([found[seed]]) for seed in found]
    if cell.searches == "joint":
        return [row | _kappa(None) for row in rows]
    config = study.config(cell)
    whole = SharingFactor.of(config, found)
    each = [SharingFactor.of(config, {seed: found[seed]}) for seed in found]
    return [row | _kappa(factor) for row, factor in zip(rows, (whole, *each), strict=True)]


def _numbers(stars: Sequence[Mapping[str, NStar]]) -> dict[str, Any]:
    """Of the searches of one or more data seeds."""
    names = [*sorted((name for name in stars[0] if name != "joint"), key=int), "joint"]
    beyond = [of["joint"].beyond for of in stars]
    return {
        "n_star": {name: geometric_mean([of[name].value for of in stars]) for name in names},
        "n50": {name: geometric_mean([of[name].n50 for of in stars]) for name in names},
        "beyond": None if None in beyond else float(np.mean(np.array(beyond, dtype=float))),
        "censored": [name for name in names if any(of[name].censored for of in stars)],
        "bottom": [name for name in names if any(of[name].bottom for of in stars)],
        "not_monotone": [name for name in names if not all(of[name].monotone for of in stars)],
        "causes": {name: _causes([of[name] for of in stars]) for name in names},
        "member_steps": sum(star.member_steps for of in stars for star in of.values()),
    }


def _kappa(factor: SharingFactor | None) -> dict[str, Any]:
    names = ("kappa", "bound", "kappa_sep", "ratio")
    ends = ("kappa_low", "kappa_high", "ratio_low", "ratio_high")
    if factor is None:
        return dict.fromkeys((*names, *ends)) | {"interval_covers": []}
    kappa, ratio = kappa_intervals(factor.replicates)
    return (
        {name: getattr(factor, name) for name in names}
        | dict(zip(ends, (*kappa, *ratio), strict=True))
        | {"interval_covers": list(factor.interval_covers)}
    )


def _causes(stars: Sequence[NStar]) -> dict[str, str]:
    """Failed size to its cause, the smallest first; both causes where data seeds differ."""
    found: dict[int, set[str]] = {}
    for star in stars:
        for trial in star.trials:
            if trial.cause:
                found.setdefault(trial.size, set()).add(trial.cause)
    return {str(size): " or ".join(sorted(found[size])) for size in sorted(found)}
