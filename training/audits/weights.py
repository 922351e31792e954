"""What the weights of a series say: each step for itself, equal steps, and steps beside steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from training.audits.descent import Descent, jumps, posing
from training.audits.finding import Finding
from training.audits.series import Sampler, Series
from training.checkpoint import META, OPTIMISER, arrays_hash
from training.run import METRICS, Run, kept_steps, read_rows, state_of
from training.stack import DTYPES

UNRELATED = 16
"""Starts of other seeds (or shuffles of the first step) that descent is measured against."""
AT_REST = 1e-6
"""Training loss, nats, under which float32 weights may rightly stop moving."""
RESTORE = "restore the right file, or delete this step"


def weights(series: Series) -> tuple[list[Finding], bool]:
    """Findings, and whether descent from the first step could be judged.

    One checkpoint is in memory at a time, and a sample of every one.
    """
    found: list[Finding] = []
    frozen = series.run.family.frozen if series.run else ()
    sampler: Sampler | None = None
    samples: dict[int, np.ndarray] = {}
    hashes: dict[int, str] = {}
    fixed: str | None = None
    for step, (file, *_) in series.files.items():
        try:
            arrays = series.load(step)
        except ValueError as error:
            found.append(Finding.at("unreadable", step, file, f"{error}; {RESTORE}"))
            continue
        sampler = sampler or Sampler(arrays, frozen)
        hashes[step] = arrays_hash(arrays)
        broken = [*_tensors(step, file, arrays, sampler)]
        if series.run:
            broken += _against_meta(series.run, step, file, hashes[step])
        still = arrays_hash({name: arrays[name] for name in frozen if name in arrays})
        fixed = fixed or still
        if still != fixed:
            message = f"{', '.join(frozen)} never change, but are not those of the first step"
            message += f": one of the two is of another run; {RESTORE}"
            broken.append(Finding.at("not_descended", step, file, message))
        found += broken
        if not broken:
            samples[step] = sampler(arrays)
    at_rest = _at_rest(series.run)
    same = list(duplicates(hashes, at_rest, lambda step: series.files[step][0]))
    equal = {finding.step for finding in same}
    samples = {step: sample for step, sample in samples.items() if step not in equal}
    if sampler is None or not samples:
        return [*found, *same], False
    more, judged = _beside(series, sampler, samples)
    return [*found, *same, *more], judged


def step_alone(series: Series, step: int) -> Iterator[Finding]:
    """Findings in one step of a run for itself: unreadable, not of its hash, not finite."""
    file = series.files[step][0]
    try:
        arrays = series.load(step)
    except ValueError as error:
        yield Finding.at("unreadable", step, file, f"{error}; {RESTORE}")
        return
    bad = _not_finite(arrays)
    if bad:
        yield Finding.at("not_finite", step, file, f"NaN or infinity in {bad}; leave this step out")
    if series.run:
        yield from _against_meta(series.run, step, file, arrays_hash(arrays))


def _tensors(
    step: int, file: Path, arrays: Mapping[str, np.ndarray], sampler: Sampler
) -> Iterator[Finding]:
    bad = _not_finite(arrays)
    if bad:
        message = f"NaN or infinity in {bad}; leave this step out, or train on from before it"
        yield Finding.at("not_finite", step, file, message)
    other = ", ".join(sampler.differs(arrays))
    if other:
        message = f"{other}: not as in the first step, so it is of another model; {RESTORE}"
        yield Finding.at("other_shape", step, file, message)


def _not_finite(arrays: Mapping[str, np.ndarray]) -> str:
    floats = {name: value for name, value in arrays.items() if value.dtype.kind == "f"}
    return ", ".join(name for name, value in floats.items() if not np.isfinite(value).all())


def _against_meta(run: Run, step: int, file: Path, found: str) -> Iterator[Finding]:
    """Weights and optimiser's vectors are those that meta.json was written with."""
    try:
        checkpoint = run[step]
        said = checkpoint.hash
    except ValueError:
        return  # found with the records
    if said != found:
        message = f"content has SHA-256 {found[:12]}, {META} says {said[:12]}; {RESTORE}"
        yield Finding.at("hash_mismatch", step, file, message)
    file = checkpoint.path / OPTIMISER
    try:
        bad = "" if checkpoint.pruned else _not_finite(checkpoint.optimizer or {})
    except ValueError as error:
        kind = "hash_mismatch" if "SHA-256" in str(error) else "unreadable"
        yield Finding.at(kind, step, file, f"{error}; {RESTORE}")
        return
    if bad:
        message = f"NaN or infinity in {bad}; go on from an earlier step"
        yield Finding.at("not_finite", step, file, message)


def _diverged(run: Run | None) -> bool:
    try:
        return run is not None and state_of(run) == "diverged"
    except ValueError:
        return False  # found with the records


def _at_rest(run: Run | None) -> Callable[[int], bool]:
    """Whether a step may rightly have the weights of the step kept before it."""
    try:
        rows = read_rows(run.path / METRICS) if run else []
    except ValueError:
        rows = []
    losses = {row["step"]: row.get("train_loss") for row in rows}
    resting = {step for step, loss in losses.items() if loss is not None and loss < AT_REST}
    return resting.__contains__


def recorded_duplicates(run: Run) -> Iterator[Finding]:
    """Equal steps by the hashes in meta.json, without reading the weights."""
    hashes = {}
    for step in kept_steps(run.path):
        try:
            hashes[step] = run[step].hash
        except ValueError:
            continue  # found with the records
    yield from duplicates(hashes, _at_rest(run), lambda step: run[step].path)


def duplicates(
    hashes: Mapping[int, str], at_rest: Callable[[int], bool], file: Callable[[int], Path]
) -> Iterator[Finding]:
    """Steps with the weights of another step, but for those that rest where the step before is."""
    steps = sorted(hashes)
    moved = [
        step
        for before, step in zip([None, *steps], steps, strict=False)
        if before is None or hashes[before] != hashes[step] or not at_rest(step)
    ]
    groups: dict[str, list[int]] = {}
    for step in moved:
        groups.setdefault(hashes[step], []).append(step)
    for group in groups.values():
        tail = group == moved[-len(group) :] and group[0] != moved[0]
        ends = group[-1] == moved[-1] and not tail
        for step in group[:-1] if ends else group[1:]:
            if ends:
                message = (
                    f"has the weights of step {group[-1]}: the final checkpoint poses as an early"
                    f" one; {RESTORE}"
                )
                yield Finding.at("final_as_early", step, file(step), message)
            else:
                message = (
                    f"has the weights of step {group[0]}: one is a copy, or nothing was learnt in"
                    f" between; {RESTORE}"
                )
                yield Finding.at("duplicate", step, file(step), message)


def _beside(
    series: Series, sampler: Sampler, samples: Mapping[int, np.ndarray]
) -> tuple[list[Finding], bool]:
    """Jumps, then descent of what is left."""
    found = []
    steps, x = list(samples), np.stack(list(samples.values()))
    out = set(posing(x))
    for row in sorted(out):
        message = (
            f"lies nearer to the last step, {steps[-1]}, than later steps do: the final checkpoint"
            f" poses as an early one; {RESTORE}"
        )
        found.append(Finding.at("final_as_early", steps[row], series.files[steps[row]][0], message))
    steps, x = _without(out, steps, x)
    diverged = _diverged(series.run)
    out = {jump.row: jump for jump in jumps(x, steps, sampler.slices)}
    if diverged:
        out.pop(len(steps) - 1, None)
    for row, jump in out.items():
        what = "the weights lie" if jump.tensor is None else f"{jump.tensor} lies"
        message = f"{what} out of line with the steps beside it, by {jump.times:.1f} of their moves"
        file = series.files[steps[row]][0]
        found.append(Finding.at("jump", steps[row], file, f"{message}; {RESTORE}"))
    steps, x = _without(out, steps, x)
    descent = _descent(series, sampler, x)
    if not descent.applicable:
        return found, False
    for row, correlation in descent.orphans(x, steps):
        message = (
            f"correlates {correlation:.3f} with step {steps[0]}, no more than an unrelated start"
            f" does: it is of another run, or step {steps[0]} is; restore the right file, or do"
            " not compare the two"
        )
        found.append(Finding.at("not_descended", steps[row], series.files[steps[row]][0], message))
    return found, descent.judges(x, steps)


def _without(
    rows: Collection[int], steps: Sequence[int], x: np.ndarray
) -> tuple[list[int], np.ndarray]:
    kept = [row for row in range(len(steps)) if row not in rows]
    return [steps[row] for row in kept], x[kept]


def _descent(series: Series, sampler: Sampler, x: np.ndarray) -> Descent:
    """Against other seeds of the same family where it is known, else against shuffles."""
    first = x[0]
    if series.run is not None:
        config = series.run.config
        seeds = range(config.seeds.init + 1, config.seeds.init + 1 + 2 * UNRELATED)
        drawn = (config.family.initialise(config.task, s, DTYPES[config.dtype]) for s in seeds)
        others = [sampler({name: v.numpy() for name, v in params.items()}) for params in drawn]
        drawn_apart = np.stack(others).astype(np.float64)
        centre = drawn_apart[:UNRELATED].mean(axis=0)
        rate = 0.0 if config.optimiser.name == "sgd" else config.optimiser.lr
        return Descent(first, drawn_apart[UNRELATED:], centre, sampler.slices, rate)
    rng = np.random.Generator(np.random.Philox(0))
    centre = np.zeros(len(first))
    unrelated = np.tile(first.astype(np.float64), (UNRELATED, 1))
    for part in sampler.slices.values():
        centre[part] = first[part].mean(dtype=np.float64)
        unrelated[:, part] = rng.permuted(unrelated[:, part], axis=1)
    moved = {
        name: part for name, part in sampler.slices.items() if np.ptp(x[:, part], axis=0).any()
    }
    return Descent(first, unrelated, centre, moved)
