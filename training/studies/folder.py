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
    """Make the study's folder, or check that it is this study's. ValueError says what to do."""
    refuse_another(study, root)
    folder = root / study.study
    stamp = folder / STUDY
    identity = {"schema_version": SCHEMA_VERSION, "study": study.canonical()}
    try:
        for part in (SEARCHES, FAILURES):
            (folder / part).mkdir(parents=True, exist_ok=True)
        if not stamp.exists() or read_json(stamp) != identity:
            write_json(stamp, identity)
    except OSError as error:
        raise ValueError(
            f"{folder}: a study cannot be written here ({error.strerror}); allowed: a folder you"
            " may write"
        ) from error
    return folder


def refuse_another(study: KappaStudy, root: Path) -> None:
    """Raise ValueError where the study's folder is of another study; nothing is written.

    Cells may have been added since; those on record must be there, as they were.
    """
    stamp = root / study.study / STUDY
    if not stamp.exists():
        _refuse_renamed(study, root)
        return
    found = read_json(stamp)
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{stamp}: schema_version {version!r}; allowed: {SCHEMA_VERSION}. Go on with the"
            " version of kappalens that wrote it, or use another root"
        )
    differs, left_out = _difference(found.get("study"), study.canonical())
    if differs:
        raise ValueError(
            f"{stamp}: is of another configuration ({differs}); give the study another name,"
            " use another root, or delete that folder"
        )
    if left_out:
        raise ValueError(
            f"{stamp}: cells {', '.join(left_out)} are on record but not in this configuration;"
            " put them back, or use --cell to run some only"
        )


def _refuse_renamed(study: KappaStudy, root: Path) -> None:
    """Raise ValueError where another folder of the root holds this study: it would begin anew."""
    for stamp in sorted(root.glob(f"*/{STUDY}")):
        try:
            known = read_json(stamp).get("study")
        except ValueError:
            continue  # it says nothing of this study
        if isinstance(known, dict) and known.get("study") == study.study:
            raise ValueError(
                f"{stamp}: is of the study {study.study!r}, whose folder must have its name; rename"
                f" {stamp.parent} to {root / study.study}, or use another root to begin anew"
            )


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


def has_failed(job: Job, root: Path) -> bool:
    """Whether a failure of the job is on record, readable or not."""
    return _file(job, root, FAILURES).exists()


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


def _difference(old: Any, new: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The parts that differ, in words, and the cells that are left out.

    Cells may be added, and data seeds: both leave what is on record as it is.
    """
    if not isinstance(old, Mapping) or not isinstance(old.get("cells"), list):
        return "its study is missing", []
    whole = sorted({*old, *new} - {"cells", "data_seeds"})
    parts = [key for key in whole if old.get(key) != new.get(key)]
    now = {cell["name"]: cell for cell in new["cells"]}
    left_out = [cell.get("name", "?") for cell in old["cells"] if cell.get("name") not in now]
    changed = []
    for cell in old["cells"]:
        if cell.get("name") in now:
            before, after = _replicated(cell, old), _replicated(now[cell["name"]], new)
            if not all(_kept(key, before, after) for key in {*before, *after}):
                changed.append(cell["name"])
    parts += [f"cells ({', '.join(changed)})"] if changed else []
    differs = ", ".join(parts) + (" differ" if len(parts) > 1 else " differs") if parts else ""
    return differs, left_out


def _replicated(cell: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """The cell with the data seeds that it has, its own or the study's."""
    return {**cell, "data_seeds": cell.get("data_seeds") or study.get("data_seeds", ())}


def _kept(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a cell's field is as it was, or has data seeds beside those it had."""
    before, after = old.get(key), new.get(key)
    if key == "data_seeds":
        return set(before or ()) <= set(after or ())
    return before == after
