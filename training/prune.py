"""Thin the checkpoints of finished runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.checkpoint import META, OPTIMISER, PRUNED, read_json
from training.config import SCHEMA_VERSION
from training.lock import locked
from training.resume import ENDED
from training.run import CHECKPOINTS, STATUS, Run, kept_steps, open_run, run_folders, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be. runs: how many lost something. left_alone: folder to why."""

    runs: int
    checkpoints: int
    bytes: int
    left_alone: dict[str, str]

    def record(self) -> dict[str, Any]:
        """As plain values, with schema_version."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def prune(
    folder: str | Path,
    *,
    keep: str = "ends",
    every: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove checkpoints of the finished runs in a run's folder, a study's, or one of studies.

    keep: "ends" keeps step 0 and the last one; "every" these and the multiples of `every`; "last"
    the weights of step 0 and of the last one, without the optimiser's vectors. A run that has not
    ended is left alone, and so are those trained in one stack with it, since it goes on from a step
    that all of them have. So is one whose files may not be changed. Pruned runs open and return
    from `train` as before. dry_run: only say what would be removed; needs no right to write.
    Raises ValueError for another `keep`, and where there is no run.
    """
    if keep not in ("last", "ends", "every"):
        raise ValueError(f"keep got {keep!r}; allowed: last, ends, every")
    if keep != "every" and every is not None:
        raise ValueError(
            f"every got {every!r} with keep {keep!r}; it goes with keep 'every' only: choose that,"
            " or leave `every` out"
        )
    if keep == "every" and (every is None or every < 1):
        raise ValueError(f"every got {every!r}; allowed with keep 'every': a number from 1")
    paths = run_folders(Path(folder))
    if not paths:
        raise ValueError(f"{folder}: has no runs; allowed: the folder of a run or of a study")
    runs, checkpoints, size = 0, 0, 0
    left_alone: dict[str, str] = {}
    for path in paths:
        try:
            run = open_run(path)
            reason = _unfinished(run)
            if reason is not None:
                left_alone[str(path)] = reason
                continue
            with nullcontext() if dry_run else locked([path]):
                removed = list(_superfluous(run, every))
                bare = _optimisers(run, removed) if keep == "last" else []
                freed = sum(map(_size, [*removed, *bare]))
                if not dry_run:
                    _remove(removed, bare)
        except ValueError as error:
            left_alone[str(path)] = str(error)
            continue
        except OSError as error:
            left_alone[str(path)] = (
                f"{error.filename or path}: cannot be thinned ({error.strerror})"
            )
            continue
        runs += bool(removed or bare)
        checkpoints += len(removed)
        size += freed
    return Pruned(runs=runs, checkpoints=checkpoints, bytes=size, left_alone=left_alone)


def _unfinished(run: Run) -> str | None:
    """Why the run must stay as it is."""
    if not (run.path / STATUS).exists():
        return "has not begun"
    status = run.status
    if status["state"] not in ENDED:
        return f"is {status['state']} at step {status['step']}"
    kept = kept_steps(run.path)
    if not kept or (status["state"] != "diverged" and kept[-1] != status["step"]):
        return f"ended at step {status['step']}, which is not kept"
    for other in status["stack"]:
        file = run.path.with_name(other) / STATUS
        if file.exists() and read_json(file).get("state") == "running":
            return f"was trained together with {other}, which has not ended"
    return None


def _superfluous(run: Run, every: int | None) -> Iterator[Path]:
    """Checkpoints to remove, and what a kill left half-written."""
    kept = kept_steps(run.path)
    for step in kept[1:-1] if kept[0] == 0 else kept[:-1]:
        if every is None or step % every:
            yield run[step].path
    yield from sorted((run.path / CHECKPOINTS).glob(".step_*"))


def _optimisers(run: Run, removed: Sequence[Path]) -> list[Path]:
    files = (run[step].path / OPTIMISER for step in kept_steps(run.path))
    return [file for file in files if file.parent not in removed and file.exists()]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _remove(folders: Sequence[Path], optimisers: Sequence[Path]) -> None:
    """A kill leaves each checkpoint whole, or under a hidden name that the next call removes."""
    for folder in folders:
        hidden = folder.with_name(f".{folder.name.lstrip('.')}.{os.getpid()}")
        folder.rename(hidden)
        shutil.rmtree(hidden)
    for file in optimisers:
        meta = file.with_name(META)
        write_json(meta, read_json(meta) | {"optimizer_sha256": None, PRUNED: True})
        file.unlink()
