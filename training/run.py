"""One run on disk: a folder with its configuration, status, metrics and checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import pandas as pd

from training.checkpoint import Checkpoint, folder_name, read_json, task_time
from training.config import SCHEMA_VERSION, ConfigError, RunConfig, digest
from training.families import Family
from training.tasks import Task

CONFIG, STATUS, METRICS, CHECKPOINTS = (
    "config.json",
    "status.json",
    "metrics.jsonl",
    "checkpoints",
)
STATES = ("running", "done", "solved", "stopped", "halted", "diverged")
"""done: reached its last step. solved: validation loss under stop.loss. stopped: out of patience.
halted: another member had solved. diverged: loss or gradient not finite."""
COLUMNS = ("step", "time", "train_loss", "validation_loss", "validation_accuracy")
"""Of the metrics, whether or not there is a row; accuracy.<kind> where it was measured."""


_STATUS = {"state": str, "step": int, "why": str, "metrics": dict, "stack": list}


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One member: one configuration and what its training left in one folder.

    run_id: as written in config.json. `run[512]` is the checkpoint of step 512, `run[100:600]`
    those of the kept steps from 100 up to but without 600, `run[::2]` every second one.
    """

    path: Path
    run_id: str
    config: RunConfig

    @property
    def task(self) -> Task:
        return self.config.task

    @property
    def family(self) -> Family:
        return self.config.family

    @property
    def steps(self) -> tuple[int, ...]:
        """Kept steps, ascending. Raises ValueError where there are none."""
        steps = kept_steps(self.path)
        if not steps:
            raise ValueError(
                f"{self.path / CHECKPOINTS}: has no checkpoints; they were removed, or the run"
                " diverged before its first step or has not begun"
            )
        return steps

    @property
    def status(self) -> dict[str, Any]:
        """state (one of STATES), step, why (a sentence), metrics of the last evaluation.

        metrics has the step at which it was measured: of a run that diverged, an earlier one.
        """
        file = self.path / STATUS
        status = read_json(file)
        lacks = [key for key, kind in _STATUS.items() if not isinstance(status.get(key), kind)]
        if lacks:
            raise ValueError(f"{file}: lacks {', '.join(lacks)}, or has another type there")
        if status["state"] not in STATES:
            raise ValueError(f"{file}: state got {status['state']!r}; allowed: {', '.join(STATES)}")
        return status

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation, ascending in step.

        step, time (sum of learning rates), train_loss (mean since the evaluation before; NaN at
        step 0), validation_loss (nats per supervised token), validation_accuracy, and
        accuracy.<kind> at the last supervised position.
        """
        rows = read_rows(self.path / METRICS)
        columns = dict.fromkeys([*COLUMNS, *(key for row in rows for key in row)])
        frame = pd.DataFrame(rows, columns=pd.Index(columns))
        return frame.astype({name: int if name == "step" else float for name in columns})

    @overload
    def __getitem__(self, step: int) -> Checkpoint: ...
    @overload
    def __getitem__(self, step: slice) -> tuple[Checkpoint, ...]: ...
    def __getitem__(self, step: int | slice) -> Checkpoint | tuple[Checkpoint, ...]:
        if isinstance(step, slice):
            if any(end is not None and end < 0 for end in (step.start, step.stop)):
                raise ValueError(
                    f"{self.path}: steps are counted from 0, got [{step.start}:{step.stop}];"
                    " the last three are run[:][-3:]"
                )
            low = 0 if step.start is None else step.start
            inside = [s for s in self.steps if s >= low and (step.stop is None or s < step.stop)]
            return tuple(self[s] for s in inside[:: step.step])
        if step not in self.steps:
            raise ValueError(
                f"{self.path}: has no checkpoint of step {step}; allowed:"
                f" {', '.join(map(str, self.steps))}"
            )
        return Checkpoint(
            path=self.path / CHECKPOINTS / folder_name(step),
            step=step,
            run_id=self.run_id,
            task=self.task,
            family=self.family,
            metrics=self._rows.get(step, {}),
        )

    @cached_property
    def task_time(self) -> int:
        """Tokens per sequence."""
        return task_time(self.task)

    @property
    def last(self) -> Checkpoint:
        """The checkpoint of the last kept step."""
        return self[self.steps[-1]]

    @cached_property
    def _rows(self) -> dict[int, dict[str, float]]:
        return {row["step"]: row for row in read_rows(self.path / METRICS)}


def open_run(path: str | Path) -> Run:
    """The run in a folder that `train` wrote. Raises ValueError, one line that names the file.

    Fields that configurations have gained since get their defaults; run_id stays as written.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: is no folder; allowed: a run's, <root>/<study>/<run id>")
    file = path / CONFIG
    if not file.exists():
        raise ValueError(f"{file}: is missing, so {path} is not the folder of a run")
    data = read_json(file)
    try:
        config = RunConfig.from_mapping(data)
    except ConfigError as error:
        raise ValueError(f"{file}: {error}") from None
    run_id = data.get("run_id")
    if not isinstance(run_id, str):
        raise ValueError(f"{file}: run_id got {run_id!r}; allowed: text")
    written = digest({key: value for key, value in data.items() if key != "run_id"})
    if run_id != written:
        raise ValueError(
            f"{file}: run_id got {run_id!r}, but its content is that of run {written}: it was"
            " edited after the run was made; undo that, or train the other configuration anew"
        )
    return Run(path=path, run_id=run_id, config=config)


def run_folders(folder: Path, depth: int = 3) -> list[Path]:
    """Folders of runs in a run's own folder, a study's, one of studies, or a demo's; by name."""
    if (folder / CONFIG).is_file() and (folder / CHECKPOINTS).is_dir():
        return [folder]
    if not depth or not folder.is_dir():
        return []
    inside = (entry for entry in sorted(folder.iterdir()) if entry.is_dir())
    return [path for entry in inside for path in run_folders(entry, depth - 1)]


def state_of(run: Run) -> str | None:
    """One of STATES, or None before the run has begun."""
    return run.status["state"] if (run.path / STATUS).exists() else None


def kept_steps(path: Path) -> tuple[int, ...]:
    """Steps whose checkpoint folder has its final name."""
    folder = path / CHECKPOINTS
    steps = map(_step, folder.iterdir()) if folder.is_dir() else []
    return tuple(sorted(step for step in steps if step is not None))


def _step(entry: Path) -> int | None:
    """The step whose checkpoint this is; None for anything else that lies there."""
    name = re.fullmatch(r"step_(\d{8})", entry.name)
    return int(name[1]) if name and entry.is_dir() else None


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl; a last line that was cut off in writing is left out."""
    if not file.exists():
        return []
    lines = file.read_text().split("\n")
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}: line {number} is not JSON ({error})") from error
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            raise ValueError(f"{file}: line {number} is not a JSON object with an integer step")
        wrong = [k for k, v in row.items() if type(v) not in (int, float, type(None))]
        if wrong:
            raise ValueError(f"{file}: line {number} has no number in {', '.join(wrong)}")
        rows.append(row)
    return rows


def create(config: RunConfig, root: Path) -> Run:
    """The run's folder with its config.json; what is there already stays.

    Raises ValueError where the folder cannot be written.
    """
    run_id = config.run_id
    path = root / config.study / run_id
    try:
        (path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        if not (path / CONFIG).exists():
            write_json(path / CONFIG, {**config.canonical(), "run_id": run_id})
        elif (found := read_json(path / CONFIG).get("run_id")) != run_id:
            raise ValueError(f"{path / CONFIG}: is of run {found!r}; allowed here: {run_id}")
        else:
            open_run(path)
        if not os.access(path / CHECKPOINTS, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ValueError(
            f"{path}: cannot write a run here ({error.strerror}); allowed: a folder you may write"
        ) from error
    return Run(path=path, run_id=run_id, config=config)


def write_status(
    run: Run,
    *,
    state: str,
    step: int,
    why: str,
    metrics: Mapping[str, Any],
    stack: Sequence[str],
) -> None:
    """stack: the run ids that are trained together, in their order; resuming puts them together."""
    status = {"state": state, "step": step, "why": why, "metrics": dict(metrics)}
    everything = {"schema_version": SCHEMA_VERSION, "run_id": run.run_id, **status}
    write_json(run.path / STATUS, {**everything, "stack": list(stack)})


def append_row(run: Run, row: Mapping[str, Any]) -> None:
    with (run.path / METRICS).open("a") as file:
        file.write(json.dumps(row) + "\n")


def rewind(run: Run, step: int | None) -> None:
    """Drop everything after `step` (None: everything), and what a kill left half-written."""
    keep = -1 if step is None else step
    for entry in (run.path / CHECKPOINTS).iterdir():
        partial = entry.name.startswith(".step_")
        step_there = _step(entry)
        if partial or (step_there is not None and step_there > keep):
            shutil.rmtree(entry)
    for partial in run.path.glob(".*.partial"):
        partial.unlink()
    rows = read_rows(run.path / METRICS) if step is not None else []
    rows = [row for row in rows if row["step"] <= keep]
    _write(run.path / METRICS, "".join(json.dumps(row) + "\n" for row in rows))


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    _write(file, json.dumps(value, indent=1) + "\n")


def _write(file: Path, text: str) -> None:
    """Whole or not at all: under another name, then renamed."""
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text)
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
