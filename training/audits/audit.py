"""Is a folder of checkpoints what it seems to be? Every finding names a file and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.audits.finding import Finding
from training.audits.records import nameless, records, seed_comparisons
from training.audits.series import Series, foreign
from training.audits.weights import recorded_duplicates, step_alone, weights
from training.config import SCHEMA_VERSION
from training.run import CONFIG, Run, open_run, run_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found in a folder. runs: how many; of a folder that is not ours, how many series.

    descent: in how many of these the descent of the early steps from the first could be judged;
    not where the start is zeros, or too few early steps are kept.
    """

    folder: str
    runs: int
    checkpoints: int
    descent: int
    findings: tuple[Finding, ...]

    def record(self) -> dict[str, Any]:
        """As plain values, with schema_version."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def audit(folder: str | Path, *, read_weights: bool = True) -> Audit:
    """Look through a run, a study, a folder of studies, or any folder of safetensors steps.

    read_weights: False reads the small files of our own runs only (milliseconds a run): order,
    equal hashes, what is missing, thread counts and versions. Otherwise every file is read, one
    checkpoint at a time, and a sample of 32,768 weights of each step is kept for comparing steps.

    A finding is about files, not about training: steps of a run that came to rest (training loss
    under 1e-6) may be equal, and one that diverged may end in a leap.
    Raises ValueError where there is nothing to look at: neither a checkpoint nor the record of one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; allowed: a run, a study, a folder of steps")
    findings: list[Finding] = []
    series: list[Series] = []
    runs: list[Run] = []
    for path in run_folders(folder):
        try:
            run = open_run(path)
        except ValueError as error:
            message = f"{error}; until then its steps are looked at as those of a stranger"
            findings.append(Finding.at("unreadable", None, path / CONFIG, message))
            series += foreign(path)
            continue
        runs.append(run)
        series.append(Series.of(run))
        findings += records(run)
    for path in nameless(folder):
        message = (
            "is missing, so its steps are looked at as those of a stranger; restore it (another"
            " seed's differs in the seeds and the run_id), or delete the folder"
        )
        findings.append(Finding.at("missing", None, path / CONFIG, message))
        series += foreign(path)
    series = series or foreign(folder)
    if not findings and not any(each.files for each in series):
        raise ValueError(
            f"{folder}: has no checkpoints to look at; allowed: a run, a study, or safetensors"
            " files with the step in their name or in their folder's"
        )
    findings += seed_comparisons(runs)
    judged = 0
    if read_weights:
        for each in series:
            more, descends = weights(each)
            findings += more
            judged += descends
    else:
        findings += [finding for run in runs for finding in recorded_duplicates(run)]
    return Audit(
        folder=str(folder),
        runs=len(series),
        checkpoints=sum(len(each.files) for each in series),
        descent=judged,
        findings=tuple(findings),
    )


def audit_read(runs: Iterable[Run], steps: Sequence[int] | None = None) -> tuple[Finding, ...]:
    """What is wrong with what an analysis is about to read, cheaply; nothing is raised or blocked.

    The small files of the runs (milliseconds each), and of every given step that is kept, the hash
    and whether all is finite (it is read once for it). steps: those that will be read; None for
    none of the weights. Runs that differ in their seeds alone are compared with each other.
    """
    found: list[Finding] = []
    known = list(runs)
    for run in known:
        found += records(run)
        found += recorded_duplicates(run)
        series = Series.of(run)
        for step in sorted({*(steps or ())} & series.files.keys()):
            found += step_alone(series, step)
    return (*found, *seed_comparisons(known))
