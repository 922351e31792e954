"""What the small files of a run say against each other: order, what is missing, what made it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.audits.finding import Finding
from training.checkpoint import META, read_json
from training.resume import ENDED
from training.run import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    STATUS,
    Run,
    kept_steps,
    read_rows,
    state_of,
)

REDO = "restore the file that belongs there, or delete the run and train it again"
LOST = {
    METRICS: ", or delete the run and train it again: its evaluations are lost",
    STATUS: ", or train the same configuration again: it goes on from the last step",
}
"""What to do where a file is gone, which no run goes without from its first step on."""
MADE = (("mixed_threads", "torch_threads"), ("mixed_versions", "versions"))


def nameless(folder: Path, depth: int = 3) -> Iterator[Path]:
    """Folders in which a run kept steps, but whose config.json is gone: they look like no run."""
    if kept_steps(folder):
        if not (folder / CONFIG).is_file():
            yield folder
    elif depth and folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and entry.name != CHECKPOINTS:
                yield from nameless(entry, depth - 1)


def records(run: Run) -> Iterator[Finding]:
    """Findings in metrics.jsonl, status.json and every meta.json; milliseconds a run."""
    try:
        rows = [row["step"] for row in read_rows(run.path / METRICS)]
        ended = state_of(run) in ENDED
        status = run.status if ended else {}
    except ValueError as error:
        yield Finding.at("unreadable", None, run.path, f"{error}; {REDO}")
        return
    for before, after in itertools.pairwise(rows):
        if after <= before:
            message = f"step {after} comes after step {before}; sort the rows, or train it again"
            yield Finding.at("out_of_order", after, run.path / METRICS, message)
    kept = kept_steps(run.path)
    for name in (METRICS, STATUS) if kept else ():
        if not (run.path / name).exists():
            message = "is missing, though steps are kept; restore it" + LOST[name]
            yield Finding.at("missing", None, run.path / name, message)
    if ended:
        yield from _ends(run, kept, status)
    made: dict[str, tuple[Any, int]] = {}
    for step in kept:
        yield from _meta(run, step)
        yield from _mixed_within(run, step, made)


def _ends(run: Run, kept: Sequence[int], status: Mapping[str, Any]) -> Iterator[Finding]:
    """A run that ended has its first and its last step, and none beyond."""
    end, file = status["step"], run.path / STATUS
    if status["state"] != "diverged" and end not in kept:
        message = f"the run ended at step {end}, which is not kept; restore it, or train it again"
        yield Finding.at("missing", end, file, message)
    if kept and kept[0] != 0:
        message = "step 0 is not kept, so descent from it cannot be judged; restore it"
        yield Finding.at("missing", 0, run.path, message)
    for step in kept:
        if step > end:
            message = f"the run ended at step {end}; delete this step, or train the run again"
            yield Finding.at("out_of_order", step, run[step].path, message)


def _meta(run: Run, step: int) -> Iterator[Finding]:
    checkpoint, config = run[step], run.config
    file = checkpoint.path / META
    try:
        said = read_json(file)
        if said.get("step") != step:
            message = f"says step {said.get('step')!r} in the folder of step {step}; {REDO}"
            yield Finding.at("out_of_order", step, file, message)
            return
        said = checkpoint.meta
    except ValueError as error:
        yield Finding.at("unreadable", step, file, f"{error}; {REDO}")
        return
    time, tokens = step * config.optimiser.lr, step * config.batch_size * run.task_time
    if abs(said["time"] - time) > 1e-6 * time or said.get("tokens_seen") != tokens:
        message = (
            f"says time {said['time']:g} and {said.get('tokens_seen')} tokens; step {step} has"
            f" {time:g} and {tokens}; {REDO}"
        )
        yield Finding.at("out_of_order", step, file, message)


def _mixed_within(run: Run, step: int, made: dict[str, tuple[Any, int]]) -> Iterator[Finding]:
    """made: what the step before was made with, and the first step that was."""
    file = run[step].path / META
    try:
        meta = read_json(file)
    except ValueError:
        return  # found already
    for kind, key in MADE:
        now = meta.get(key)
        before, since = made.setdefault(key, (now, step))
        if now != before:
            made[key] = now, step
            message = (
                f"{key} {_difference(before, now)} between step {since} and step {step}, which"
                " changes the bits; train the run again in one environment before comparing it"
            )
            yield Finding.at(kind, step, file, message)


def seed_comparisons(runs: Sequence[Run]) -> Iterator[Finding]:
    """Runs of one study that differ in their seeds alone were made with the same things."""
    first: dict[str, tuple[Run, Mapping[str, Any]]] = {}
    for run in runs:
        try:
            meta = run.last.meta
        except ValueError:
            continue  # found already
        plain = {key: value for key, value in run.config.canonical().items() if key != "seeds"}
        alike = json.dumps([str(run.path.parent), plain], sort_keys=True)
        other, made = first.setdefault(alike, (run, meta))
        for kind, key in MADE:
            if meta.get(key) != made.get(key):
                message = (
                    f"{key} {_difference(made.get(key), meta.get(key))} between {other.run_id} and"
                    f" {run.run_id}, which differ in their seeds alone; train both in one"
                    " environment before comparing them"
                )
                yield Finding.at(kind, None, run.path, message)


def _difference(a: Any, b: Any) -> str:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        return ", ".join(f"{key} {a.get(key)} -> {b.get(key)}" for key in keys)
    return f"{a} -> {b}"
