"""A study on disk: study.json, one file per finished search, one per failed one.

    <root>/<study>/study.json
                   searches/<cell>.<data seed>.<search>.json
                   failures/<cell>.<data seed>.<search>.json
                   <run id>/...

A search on record is not run again. Runs are named relative to the root, so that a folder may move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.checkpoint import read_json
from training.config import SCHEMA_VERSION
from training.run import write_json
from training.sharing.n_star import NStar
from training.studies.study import Cell, Job, KappaStudy

STUDY, SEARCHES, FAILURES = "study.json", "searches", "failures"


def claim(study: KappaStudy, root: Path) -> Path:
    """Make the study's folder, or check that it is this study's. ValueError says what to do.

    Cells may have been added since; those on record must be as they were.
    """
    folder = root / study.study
    stamp = folder / STUDY
    identity = {"schema_version": SCHEMA_VERSION, "study": study.canonical()}
    if stamp.exists():
        found = read_json(stamp)
        version = found.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{stamp}: schema_version {version!r}; allowed: {SCHEMA_VERSION}. Go on with the"
                " version of kappalens that wrote it, or use another root"
            )
        if differs := _difference(found, identity):
            raise ValueError(
                f"{stamp}: is of another configuration ({differs}); give the study another name,"
                " use another root, or delete that folder"
            )
    try:
        for part in (SEARCHES, FAILURES):
            (folder / part).mkdir(parents=True, exist_ok=True)
        write_json(stamp, identity)
    except OSError as error:
        raise ValueError(
            f"{folder}: a study cannot be written here ({error.strerror}); allowed: a folder you"
            " may write"
        ) from error
    return folder


def read_search(job: Job, root: Path) -> NStar | None:
    """What the job found, its runs as paths under `root`; None where it is not on record.

    A damaged record, or one of other settings, counts as absent: the runs are there, so searching
    again trains nothing twice.
    """
    try:
        record = read_json(_file(job, root, SEARCHES))
        if record.get("identity") != job.identity:
            return None
        star = NStar.from_record(record["n_star"])
    except (ValueError, KeyError, TypeError):
        return None
    return _with_runs(star, lambda run: str(root / run))


def write_search(job: Job, root: Path, star: NStar) -> None:
    """Whole or not at all; a failure on record is taken back."""
    relative = _with_runs(star, lambda run: Path(run).relative_to(root).as_posix())
    _write(
        _file(job, root, SEARCHES),
        {
            "schema_version": SCHEMA_VERSION,
            "identity": job.identity,
            "cell": job.cell,
            "data_seed": job.data_seed,
            "search_name": job.search_name,
            "n_star": relative.record(),
        },
    )
    _file(job, root, FAILURES).unlink(missing_ok=True)


def read_failure(job: Job, root: Path) -> str | None:
    """The sentence of the job's last failure; None where it has not failed."""
    file = _file(job, root, FAILURES)
    return str(read_json(file).get("error")) if file.exists() else None


def write_failure(job: Job, root: Path, error: str, trace: str) -> None:
    """error: one line. trace: where it came from."""
    _write(
        _file(job, root, FAILURES),
        {"schema_version": SCHEMA_VERSION, "job": job.name, "error": error, "trace": trace},
    )


def searches_of_cell(
    study: KappaStudy, cell: Cell, root: Path
) -> dict[int, dict[str, NStar]] | None:
    """Data seed to search name to N*; None while a search of the cell is not on record."""
    found: dict[int, dict[str, NStar]] = {}
    for job in study.jobs([cell.name]):
        star = read_search(job, root)
        if star is None:
            return None
        found.setdefault(job.data_seed, {})[job.search_name] = star
    return found


def _file(job: Job, root: Path, part: str) -> Path:
    return root / job.config.study / part / f"{job.name}.json"


def _write(file: Path, value: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, value)


def _with_runs(star: NStar, path: Any) -> NStar:
    trials = [
        replace(trial, members=tuple(replace(m, run=path(m.run)) for m in trial.members))
        for trial in star.trials
    ]
    return replace(star, trials=tuple(trials))


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The parts that differ, in words; empty where cells were added at most."""
    old, new = found.get("study"), wanted["study"]
    if not isinstance(old, Mapping) or not isinstance(old.get("cells"), list):
        return "its study is missing"
    parts = [key for key in sorted({*old, *new} - {"cells"}) if old.get(key) != new.get(key)]
    cells = [cell.get("name", "?") for cell in old["cells"] if cell not in new["cells"]]
    parts += [f"cells ({', '.join(cells)})"] if cells else []
    return ", ".join(parts) + (" differ" if len(parts) > 1 else " differs") if parts else ""
