"""Pruned runs open, return from `train` and pass the audit; what has not ended stays."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from training import RunConfig, audit, open_run, prune, train, train_many
from training.lock import LOCK, locked
from training.run import write_status

BASE = {
    "task": {"name": "modular_addition", "modulus": 4, "lengths": [3, 4], "format": "acot"},
    "family": {"name": "dense_ssm", "width": 6},
    "steps": 40,
    "batch_size": 16,
    "eval_every": 10,
    "eval_size": 40,
    "checkpoints": {"every": 10},
}


def grid(**changes):
    return [RunConfig(**{**BASE, **changes}, seeds={"init": seed}) for seed in (0, 1)]


def size(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("keep", "every", "left"),
    [("ends", None, (0, 40)), ("last", None, (0, 40)), ("every", 16, (0, 16, 32, 40))],
)
def test_ends_stay_as_they_are(tmp_path, keep, every, left):
    configs = grid(checkpoints={"every": 8})
    runs = train_many(configs, root=tmp_path)
    before = [{step: run[step].weights for step in run.steps} for run in runs]
    held = size(tmp_path)
    dry = prune(tmp_path / "study", keep=keep, every=every, dry_run=True)
    assert size(tmp_path) == held
    done = prune(tmp_path / "study", keep=keep, every=every)
    assert done == dry
    assert (done.runs, done.left_alone) == (2, {})
    assert abs(size(tmp_path) - (held - done.bytes)) < 500, "meta.json loses a hash"
    for config, weights, run in zip(configs, before, runs, strict=True):
        again = open_run(run.path)
        assert again.steps == left
        for step in left:
            for name, value in weights[step].items():
                np.testing.assert_array_equal(again[step].weights[name], value)
        assert again.last.pruned == (keep == "last")
        again.last.check()
        assert len(again.metrics) == len(run.metrics)
        assert train(config, root=tmp_path).steps == left
    assert audit(tmp_path).findings == ()
    assert prune(tmp_path, keep=keep, every=every).bytes == 0


def test_what_has_not_ended_is_left_alone_with_its_stack(tmp_path):
    def stop(step, total, latest):
        if step == 32:
            raise KeyboardInterrupt

    early, late = grid()
    early = early.replace(steps=20)
    whole = train_many([early, late], root=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train_many([early, late], root=tmp_path, progress=stop)
    kept = {run: open_run(tmp_path / "study" / run.run_id).steps for run in (early, late)}
    pruned = prune(tmp_path / "study")
    reasons = list(pruned.left_alone.values())
    assert (pruned.runs, len(reasons)) == (0, 2)
    assert any("has not ended" in reason for reason in reasons)
    assert any("is running" in reason for reason in reasons)
    assert {run: open_run(tmp_path / "study" / run.run_id).steps for run in kept} == kept
    runs = train_many([early, late], root=tmp_path)
    assert [run.last.hash for run in runs] == [run.last.hash for run in whole]
    assert prune(tmp_path / "study").runs == 2


def test_halted_runs_go_on_after_the_others_were_thinned(tmp_path):
    fast = RunConfig(**{**BASE, "steps": 300}, stop={"loss": 0.5}, optimiser={"lr": 1e-2})
    slow = fast.replace(optimiser={"lr": 1e-4})
    for root in (tmp_path / "whole", tmp_path / "thin"):
        train_many([fast, slow], root=root, stop_at_first_success=True)
    thin = prune(tmp_path / "thin")
    assert thin.runs == 1
    assert next(iter(thin.left_alone.values())).startswith("is halted")
    ends = [train_many([fast, slow], root=tmp_path / name)[1] for name in ("whole", "thin")]
    assert ends[0].last.hash == ends[1].last.hash


def test_a_run_in_use_or_damaged_is_left_alone(tmp_path):
    one, two = train_many(grid(), root=tmp_path)
    write_status(two, state="done", step=99, why="", metrics={}, stack=[])
    with locked([one.path]):
        pruned = prune(tmp_path)
    assert set(pruned.left_alone) == {str(one.path), str(two.path)}
    assert "in use" in pruned.left_alone[str(one.path)]
    assert "99" in pruned.left_alone[str(two.path)]
    (one.path / "config.json").write_text("{")
    assert "JSON" in prune(tmp_path).left_alone[str(one.path)]


def test_vectors_that_were_pruned_are_not_taken_for_none(tmp_path):
    adam = train(grid()[0], root=tmp_path)
    plain = train(grid(optimiser={"name": "sgd", "lr": 0.1})[0], root=tmp_path)
    assert adam.last.optimizer
    assert plain.last.optimizer is None
    prune(tmp_path, keep="last")
    kept = open_run(adam.path).last
    with pytest.raises(ValueError, match=r"optimizer\.safetensors: was removed by prune"):
        _ = kept.optimizer
    kept.check()
    assert kept.weights
    assert open_run(plain.path).last.optimizer is None
    assert audit(tmp_path).findings == ()


def test_nobody_goes_on_from_a_pruned_step(tmp_path):
    fast = RunConfig(**{**BASE, "steps": 300}, stop={"loss": 0.5}, optimiser={"lr": 1e-2})
    slow = fast.replace(optimiser={"lr": 1e-4})
    for root in (tmp_path / "whole", tmp_path / "thin"):
        train_many([fast, slow], root=root, stop_at_first_success=True)
    prune(tmp_path / "thin", keep="last")
    halted = open_run(tmp_path / "thin" / "study" / slow.run_id)
    for step in halted.steps[1:]:
        shutil.rmtree(halted[step].path)
    ends = [train_many([fast, slow], root=tmp_path / name) for name in ("whole", "thin")]
    assert [run.last.hash for run in ends[0]] == [run.last.hash for run in ends[1]]


def test_a_folder_that_may_not_be_changed_does_not_stop_the_others(tmp_path, monkeypatch):
    one, two = train_many(grid(), root=tmp_path)
    rename = Path.rename

    def refuse(path, target):
        if one.path in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    pruned = prune(tmp_path)
    assert (pruned.runs, set(pruned.left_alone)) == (1, {str(one.path)})
    assert "cannot be thinned (Permission denied)" in pruned.left_alone[str(one.path)]
    assert open_run(two.path).steps == (0, 40)
    assert len(open_run(one.path).steps) > 2


def test_a_dry_run_writes_nothing_and_needs_no_lock(tmp_path):
    run = train(grid()[0], root=tmp_path)
    with locked([run.path]):
        assert prune(tmp_path, dry_run=True).runs == 1
    (run.path / LOCK).unlink()
    dry = prune(tmp_path, dry_run=True)
    assert not (run.path / LOCK).exists()
    assert dry == prune(tmp_path)


def test_what_a_kill_leaves_is_removed_by_the_next_call(tmp_path, monkeypatch):
    run = train(grid()[0], root=tmp_path)
    monkeypatch.setattr(shutil, "rmtree", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prune(run.path)
    monkeypatch.undo()
    prune(run.path)
    names = sorted(entry.name for entry in (run.path / "checkpoints").iterdir())
    assert names == ["step_00000000", "step_00000040"]


def test_what_it_does_not_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep got 'some'"):
        prune(tmp_path, keep="some")
    for every in (None, 0):
        with pytest.raises(ValueError, match=r"every got .*a number from 1"):
            prune(tmp_path, keep="every", every=every)
    with pytest.raises(ValueError, match="every got 3 with keep 'ends'; it goes with keep 'every'"):
        prune(tmp_path, every=3)
    with pytest.raises(ValueError, match="has no runs"):
        prune(tmp_path)


def test_the_record_is_plain(tmp_path):
    train(grid()[0], root=tmp_path)
    assert json.loads(json.dumps(prune(tmp_path).record()))["runs"] == 1
