"""Where a study stands, from its small files alone."""

from __future__ import annotations

import fcntl
import itertools
import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.checkpoint import META, folder_name, read_json
from training.config import SCHEMA_VERSION
from training.lock import LOCK
from training.run import CHECKPOINTS, CONFIG, STATES, STATUS, kept_steps, run_folders
from training.studies.folder import SEARCHES, STUDY, has_failed, read_search
from training.studies.study import KappaStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStatus:
    """runs: state to how many; "running" is being trained now, "interrupted" waits to go on,
    "waiting" has not begun, "damaged" cannot be read.

    steps, steps_planned: summed over runs; those that end early do not need all they planned.
    searches: of a study of kappa, else None: done are on record and readable, failed are not done
    and have failed, total are asked for. bytes: of all files.
    seconds_left: at the pace of the last two checkpoints, or searches; None where nothing runs or
    nothing can be said yet. An upper bound where runs end early.
    """

    folder: str
    runs: dict[str, int]
    steps: int
    steps_planned: int
    checkpoints: int
    searches: dict[str, int] | None
    bytes: int
    seconds_left: float | None
    damaged: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """As plain values, with schema_version."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    state: str
    step: int
    planned: int
    checkpoints: int
    seconds_left: float | None


def study_status(folder: str | Path) -> StudyStatus:
    """Read a study's folder, or a run's, or one of studies, while it is trained or afterwards.

    Raises ValueError where there is neither a run nor a study.
    """
    folder = Path(folder)
    paths = run_folders(folder) if folder.is_dir() else []
    if not paths and not (folder / STUDY).exists():
        raise ValueError(f"{folder}: has no runs and no {STUDY}; allowed: the folder of a study")
    standings, damaged = [], []
    for path in paths:
        try:
            standings.append(_standing(path))
        except ValueError as error:
            damaged.append(str(error))
    states = Counter(each.state for each in standings)
    order = [*STATES, "interrupted", "waiting"]
    runs = {state: states[state] for state in order if states[state]}
    searches, left = _searches(folder)
    damaged += _renamed(folder)
    if left is None:
        known = [each.seconds_left for each in standings if each.seconds_left is not None]
        left = max(known, default=None) if searches is None else None
    return StudyStatus(
        folder=str(folder),
        runs=runs | ({"damaged": len(damaged)} if damaged else {}),
        steps=sum(each.step for each in standings),
        steps_planned=sum(each.planned for each in standings),
        checkpoints=sum(each.checkpoints for each in standings),
        searches=searches,
        bytes=_bytes(folder),
        seconds_left=left if states["running"] else None,
        damaged=tuple(damaged),
    )


def _standing(path: Path) -> _Standing:
    planned = read_json(path / CONFIG).get("steps")
    if type(planned) is not int:
        raise ValueError(f"{path / CONFIG}: steps got {planned!r}; allowed: an integer")
    kept = kept_steps(path)
    if not (path / STATUS).exists():
        return _Standing(state="waiting", step=0, planned=planned, checkpoints=0, seconds_left=None)
    status = read_json(path / STATUS)
    state, step = status.get("state"), status.get("step")
    if state not in STATES or type(step) is not int:
        raise ValueError(f"{path / STATUS}: state got {state!r} at step {step!r}")
    alive = state == "running" and _held(path)
    pace = _pace(path, kept) if alive else None
    return _Standing(
        state="interrupted" if state == "running" and not alive else state,
        step=step,
        planned=planned,
        checkpoints=len(kept),
        seconds_left=None if pace is None else (planned - step) * pace,
    )


def _held(path: Path) -> bool:
    """Whether a process is training in this folder."""
    try:
        with (path / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _pace(path: Path, kept: tuple[int, ...]) -> float | None:
    """Seconds a step, between the last two checkpoints."""
    if len(kept) < 2:
        return None
    files = [path / CHECKPOINTS / folder_name(step) / META for step in kept[-2:]]
    try:
        before, after = (file.stat().st_mtime for file in files)
    except FileNotFoundError:
        return None  # it is being written
    return max(0.0, after - before) / (kept[-1] - kept[-2])


def _searches(folder: Path) -> tuple[dict[str, int] | None, float | None]:
    """How many searches are on record, as `kappalens kappa` sees it, and the seconds that the
    others take."""
    if not (folder / STUDY).exists():
        return None, None
    plain = read_json(folder / STUDY).get("study")
    if not isinstance(plain, dict):
        raise ValueError(f"{folder / STUDY}: has no study")
    root = folder.resolve().parent
    jobs = KappaStudy.from_mapping(plain).jobs()
    done = [job for job in jobs if read_search(job, root) is not None]
    names = {job.name for job in done}
    failed = sum(has_failed(job, root) for job in jobs if job.name not in names)
    searches = {"done": len(done), "failed": failed, "total": len(jobs)}
    ended = sorted((folder / SEARCHES / f"{name}.json").stat().st_mtime for name in names)
    gaps = [after - before for before, after in itertools.pairwise(ended)]
    left = (len(jobs) - len(done)) * statistics.median(gaps) if gaps else None
    return searches, left


def _renamed(folder: Path) -> list[str]:
    """Records are found under the study's name, so of a folder renamed since none is."""
    if not (folder / STUDY).exists():
        return []
    name = read_json(folder / STUDY)["study"].get("study")
    if name == folder.resolve().name:
        return []
    return [f"{folder}: is of the study {name!r}, so its records are not found; rename it back"]


def _bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # renamed or removed meanwhile
    return total
