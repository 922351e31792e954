"""A run that is stopped anywhere and called again ends with the bits of one that never stopped."""

import errno
import json
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from training import RunConfig, open_run, train, train_many
from training.resume import plan
from training.run import CHECKPOINTS, METRICS, write_status

BASE = {
    "task": {"name": "modular_addition", "modulus": 4, "lengths": [3, 4], "format": "acot"},
    "family": {"name": "dense_ssm", "width": 6},
    "steps": 40,
    "batch_size": 16,
    "eval_every": 10,
    "eval_size": 40,
    "checkpoints": {"doubling": False, "every": 16},
}


def three_members(**changes):
    """They leave at different steps and for different reasons."""
    base = RunConfig(**{**BASE, **changes})
    return [
        base.replace(optimiser={"lr": 2e-2}, stop={"loss": 0.9}),
        base.replace(seeds={"init": 1, "data": 1}),
        base.replace(optimiser={"lr": 1e-9}, stop={"patience": 20}),
    ]


def everything(run):
    """All that a run leaves, as text and hashes."""
    status = {key: run.status[key] for key in ("state", "step", "why", "metrics")}
    kept = {k.step: (k.hash, k.meta["optimizer_sha256"], k.meta["engine"]) for k in run[:]}
    for k in run[:]:
        k.check()
    return (
        status,
        kept,
        (run.path / METRICS).read_text(),
        sorted(p.name for p in run.path.iterdir()),
    )


class Killed(BaseException):
    """Not an Exception, so that nothing on the way may catch it."""


def stop_at_write(monkeypatch, number, strike=Killed):
    """Let `strike` come before the write or rename with this number, and all later ones if it is
    an error: a full disk stays full."""
    count = [0]

    def guarded(original):
        def call(*args, **kwargs):
            count[0] += 1
            if count[0] == number or (0 < number < count[0] and strike is not Killed):
                raise strike
            return original(*args, **kwargs)

        return call

    for name in ("write_text", "write_bytes", "rename", "replace", "mkdir"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))
    import training.trainee

    monkeypatch.setattr(training.trainee, "append_row", guarded(training.trainee.append_row))
    return count


@pytest.mark.slow
@pytest.mark.parametrize("first_success", [False, True])
def test_stopped_before_any_write_it_ends_with_the_same_bits(tmp_path, monkeypatch, first_success):
    def go(root):
        return train_many(three_members(), root=root, stop_at_first_success=first_success)

    whole = go(tmp_path / "whole")
    middle = "halted" if first_success else "done"
    assert [run.status["state"] for run in whole] == ["solved", middle, "stopped"]
    expected = [everything(run) for run in whole]
    with monkeypatch.context() as patch:
        count = stop_at_write(patch, -1)
        go(tmp_path / "counted")
    assert count[0] > 60
    for number in range(1, count[0] + 1, 3):
        root = tmp_path / f"{number}"
        with monkeypatch.context() as patch:
            stop_at_write(patch, number)
            with pytest.raises(Killed):
                go(root)
        with monkeypatch.context() as patch:
            stop_at_write(patch, 30)
            with suppress(Killed):  # where few writes were left, it ends
                go(root)
        assert [everything(run) for run in go(root)] == expected, f"stopped before write {number}"


@pytest.mark.parametrize("number", range(9, 70, 6))
def test_a_full_disk_is_one_line_and_the_next_call_goes_on(tmp_path, monkeypatch, number):
    configs = three_members()
    whole = [everything(run) for run in train_many(configs, root=tmp_path / "whole")]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        stop_at_write(patch, number, full)
        with pytest.raises(ValueError, match=r" here | any more ") as caught:
            train_many(configs, root=tmp_path)
    assert "No space left on device" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [p for p in tmp_path.glob("study/**/.*") if p.name != ".lock"], (
        "nothing half-written"
    )
    assert [everything(run) for run in train_many(configs, root=tmp_path)] == whole


def test_files_that_the_system_does_not_let_grow(tmp_path):
    """The limit of file sizes, in a process of its own, in the middle of metrics.jsonl."""
    config = RunConfig(**{**BASE, "steps": 400, "eval_every": 5})
    whole = train(config, root=tmp_path / "whole")
    command = [sys.executable, "-c", LIMITED + CHILD, str(tmp_path)]
    texts = json.dumps([config.canonical()])
    done = subprocess.run([*command, texts], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr.strip().splitlines()[-1]
    assert open_run(tmp_path / config.study / config.run_id).status["state"] == "running"
    assert everything(train(config, root=tmp_path)) == everything(whole)


def test_who_left_after_the_common_step_is_trained_again_with_the_others(tmp_path):
    """Were it left out, the others would go on in another composition, with other bits."""

    def kill(step, total, latest):
        if latest["alive"] < 3:
            raise Killed

    configs = three_members()
    with pytest.raises(Killed):
        train_many(configs, root=tmp_path, progress=kill)
    runs = [open_run(tmp_path / c.study / c.run_id) for c in configs]
    ids = tuple(run.run_id for run in runs)
    (start,) = plan(runs)
    step = runs[2].steps[-1]
    assert (start.step, start.stack) == (16, ids)
    assert [run.run_id for run in start.runs] == list(ids)
    assert step == 20
    write_status(runs[2], state="stopped", step=step, why="", metrics={}, stack=ids)
    (start,) = plan(runs)
    assert (start.step, start.stack) == (16, ids)
    assert [run.run_id for run in start.runs] == list(ids)
    write_status(runs[2], state="stopped", step=16, why="", metrics={}, stack=ids)
    (start,) = plan(runs)
    assert (start.step, start.stack) == (16, ids)
    assert [run.run_id for run in start.runs] == list(ids[:2])
    (runs[1].path / "status.json").unlink()
    assert plan(runs) == [start]
    write_status(runs[2], state="stopped", step=step, why="", metrics={}, stack=["another"])
    (start,) = plan(runs)
    assert (start.step, start.stack) == (16, ids[:2])


def test_interrupted_by_the_keyboard(tmp_path):
    def interrupt(step, total, latest):
        if step == 30:
            raise KeyboardInterrupt

    config = RunConfig(**BASE)
    whole = train(config, root=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, root=tmp_path, progress=interrupt)
    assert everything(train(config, root=tmp_path)) == everything(whole)


def interrupted(config, root):
    """A run that stopped after step 30; its last checkpoint is step 16."""

    def interrupt(step, total, latest):
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, root=root, progress=interrupt)
    return root / config.study / config.run_id


def truncate(file):
    file.write_bytes(file.read_bytes()[:20])


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: truncate(kept / "model.safetensors"),
        lambda kept: truncate(kept / "optimizer.safetensors"),
        lambda kept: (kept / "optimizer.safetensors").unlink(),
        lambda kept: truncate(kept / "meta.json"),
    ],
)
def test_an_unreadable_last_checkpoint_is_discarded(tmp_path, damage):
    config = RunConfig(**BASE)
    whole = train(config, root=tmp_path / "whole")
    path = interrupted(config, tmp_path)
    damage(path / CHECKPOINTS / "step_00000016")
    assert everything(train(config, root=tmp_path)) == everything(whole)


def test_what_a_kill_leaves_half_written_is_cleaned(tmp_path):
    config = RunConfig(**BASE)
    whole = train(config, root=tmp_path / "whole")
    path = interrupted(config, tmp_path)
    partial = path / CHECKPOINTS / ".step_00000032.1"
    partial.mkdir()
    (path / CHECKPOINTS / "step_x").mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    (path / ".status.json.1.partial").write_text("{")
    with (path / METRICS).open("a") as file:
        file.write('{"step": 32, "val')
    run = train(config, root=tmp_path)
    assert everything(run) == everything(whole)
    assert not partial.exists()


def test_unfinished_members_go_on_without_those_that_are_not_asked_for(tmp_path):
    configs = three_members()

    def interrupt(step, total, latest):
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_many(configs, root=tmp_path, progress=interrupt)
    run = train(configs[1], root=tmp_path)
    assert run.status["state"] == "done"
    assert all(r.status["state"] != "running" for r in train_many(configs, root=tmp_path))


def test_two_processes_do_not_train_one_run(tmp_path):
    """The second is refused while the first lives, and goes on once that is killed."""

    def stop(step, total, latest):
        raise Killed

    first, second = (RunConfig(**{**BASE, "steps": 10**7}, seeds={"init": i}) for i in (0, 1))
    texts = json.dumps([first.canonical(), second.canonical()])
    command = [sys.executable, "-c", CHILD, str(tmp_path), texts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            for configs in ([first], [second.replace(steps=9), second]):
                with pytest.raises(ValueError, match="is in use by another process"):
                    train_many(configs, root=tmp_path, progress=stop)
        finally:
            child.kill()
    for _ in range(2):  # the second time shows that the first let go
        with pytest.raises(Killed):
            train(first, root=tmp_path, progress=stop)


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
"""
CHILD = """
import json, sys
from training import RunConfig, train, train_many
root, texts = sys.argv[1], json.loads(sys.argv[2])
configs = [RunConfig.from_mapping(text) for text in texts]
def tell(step, total, latest):
    print(step, flush=True)
if len(configs) == 1:
    train(configs[0], root=root, progress=tell)
else:
    train_many(configs, root=root, progress=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
def test_killed_five_times_it_ends_with_the_same_bits(tmp_path, members):
    longer = {"steps": 1500, "eval_every": 25, "checkpoints": {"every": 50}}
    solved, done, stopped = three_members(**longer)
    configs = [done] if members == 1 else [solved, done, stopped.replace(stop={"patience": 700})]
    whole = train_many(configs, root=tmp_path / "whole")
    chance = random.Random(7)
    texts = json.dumps([config.canonical() for config in configs])
    command = [sys.executable, "-c", CHILD, str(tmp_path / "killed"), texts]
    for part in range(5):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        moment = part * 250 + chance.randrange(250)
        for line in child.stdout:
            if int(line) >= moment:
                break
        time.sleep(0.05 * chance.random())
        child.kill()
        assert child.wait() == -9, "it ended before it was killed"
        child.stdout.close()
    runs = train_many(configs, root=tmp_path / "killed")
    assert [everything(run) for run in runs] == [everything(run) for run in whole]
