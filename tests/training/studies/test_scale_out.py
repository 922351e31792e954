"""A study on worker processes: killed, interrupted or failing, nothing is lost or done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from analyses.kappa_table import as_frame, write_table
from training.run import open_run
from training.sharing.sample_size import sample_size
from training.studies.folder import read_search, write_search
from training.studies.scale_out import left_to_do, run_study
from training.studies.study import KappaStudy

DASK = Path(sys.executable).with_name("dask")
TASK = {"name": "modular_addition", "modulus": 3, "lengths": [4, 5], "format": "acot"}
SSM = {"name": "dense_ssm", "width": 8}


def study(**changes):
    fields = {
        "study": "tiny",
        "run": {
            "batch_size": 16,
            "eval_every": 20,
            "eval_size": 60,
            "stop": {"loss": 0.05, "patience": 40},
            "checkpoints": {"doubling": False, "every": None},
        },
        "seeds": [0],
        "data_seeds": [0, 1],
        "cells": [
            {"name": "acot", "task": TASK, "family": SSM, "lrs": [2e-2], "steps": 120},
            {
                "name": "outcome",
                "task": {**TASK, "format": "outcome", "lengths": [4]},
                "family": SSM,
                "lrs": [2e-2],
                "steps": 80,
                "searches": "joint",
            },
            {
                "name": "again",
                "task": TASK,
                "family": SSM,
                "lrs": [2e-2],
                "steps": 120,
                "searches": "joint",
            },
        ],
    }
    return KappaStudy.from_mapping(fields | changes)


SLOW = {
    "run": {
        "batch_size": 16,
        "eval_every": 20,
        "eval_size": 60,
        "stop": {"loss": 1e-9},
        "checkpoints": {"doubling": False, "every": 100},
    },
    "n50": False,
}
"""Nobody is solved, so that a search takes as long as it has steps."""


def in_process(plan, root):
    """Slow reference: every search after the other, in this process."""
    for job in plan.jobs():
        if read_search(job, root) is None:
            write_search(job, root, sample_size(job.config, root=root, **job.arguments()))
    return write_table(plan, root)


def runs_of(folder):
    """Every run of the study and how it ended; each is in one folder, and none is unfinished."""
    runs = [open_run(path.parent) for path in folder.glob("*/config.json")]
    return {run.run_id: (run.status["state"], run.status["step"]) for run in runs}


@contextmanager
def on_loopback(folder, count):
    """A scheduler and workers as a person starts them; yields its address and the processes."""
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--dashboard-address", "127.0.0.1:0"]
    words = [DASK, "scheduler", *common, "--host", "127.0.0.1", "--port", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(words, **quiet)]
    try:
        wait_for(file.exists)
        words = [DASK, "worker", *common, "--nthreads", "1", "--no-nanny"]
        words += ["--local-directory", str(folder)]
        started += [subprocess.Popen(words, **quiet) for _ in range(count)]
        yield json.loads(file.read_text())["address"], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_for(happened, seconds=90):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Stop(Exception):
    pass


@pytest.mark.slow
def test_that_a_scheduler_has_no_workers_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("training.studies.scale_out.SILENCE", 0.2)
    said = []

    def watch(update):
        if update.idle is not None:
            said.append(update.idle)
            raise Stop

    with on_loopback(tmp_path, 0) as (address, _), pytest.raises(Stop):
        run_study(study(), tmp_path / "runs", scheduler=address, watch=watch)
    assert f"{address} has none; start some with `dask worker {address}`" in said[0]


def alive_in_group(group):
    """Processes of a group that are more than an entry nobody has waited for."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != "zombie":
                found.append(process.pid)
    return found


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_the_table_is_the_local_one(tmp_path):
    plan = study(run={**study().run, "eval_every": 5, "stop": {"loss": 0.05}})
    local = in_process(plan, tmp_path / "local")
    killed, cells = [], []
    with on_loopback(tmp_path, 2) as (address, workers):

        def watch(update):
            if update.cell:
                cells.append(update.cell)
            if update.done >= 1 and not killed:
                killed.append(workers[0].pid)
                os.kill(workers[0].pid, signal.SIGKILL)

        failures = run_study(plan, tmp_path / "away", scheduler=address, watch=watch)
        assert workers[0].wait() == -signal.SIGKILL
        assert workers[1].poll() is None
    assert failures == {}
    assert sorted(cells) == ["acot", "again", "outcome"]
    away = write_table(plan, tmp_path / "away")
    assert away == local
    assert runs_of(tmp_path / "away" / "tiny") == runs_of(tmp_path / "local" / "tiny")
    assert as_frame(away["rows"]).equals(as_frame(local["rows"]))


@pytest.mark.slow
def test_the_local_cluster_says_how_far_it_is_and_does_nothing_twice(tmp_path):
    plan = study()
    seen = []
    assert run_study(plan, tmp_path, workers=2, cells=["acot"], watch=seen.append) == {}
    assert [job.cell for job in left_to_do(plan, tmp_path)] == ["outcome", "outcome"]
    assert [update.share for update in seen] == sorted(update.share for update in seen)
    assert seen[-1].share == 1
    assert (seen[-1].done, seen[-1].total, seen[-1].cell) == (6, 6, "acot")
    assert any(update.seconds_left for update in seen)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert run_study(plan, tmp_path, workers=1) == {}
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    changed = {path for path in before if before[path] != after[path]}
    assert not changed
    assert write_table(plan, tmp_path) == in_process(plan, tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent_and_the_same_call_goes_on(tmp_path, ended_by):
    cell = study().canonical()["cells"][0]
    text = json.dumps({**study().canonical(), **SLOW, "cells": [{**cell, "steps": 500}]})
    (tmp_path / "study.yaml").write_text(text)
    command = Path(sys.executable).with_name("kappalens")
    words = [command, "kappa", "--config", "study.yaml", "--workers", "2", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # not under nohup
    running = subprocess.Popen(words, start_new_session=True, **pipes, **heard)
    wait_for(lambda: len(list(tmp_path.glob("runs/tiny/*/checkpoints/step_00000100"))) >= 2)
    if ended_by == signal.SIGINT:
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        said = running.communicate(timeout=30)[1]
        assert said == "Interrupted; the same command goes on from here.\n"
        assert running.returncode == 130
    else:
        running.kill()
    wait_for(lambda: not alive_in_group(running.pid), seconds=10)
    running.communicate()
    done = subprocess.run(words, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table["missing"] == []
    assert table["rows"][0]["censored"] == ["4", "5", "joint"]
    states = {state for state, _ in runs_of(tmp_path / "runs" / "tiny").values()}
    assert states == {"done"}


@pytest.mark.slow
def test_a_search_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    plan = study()
    broken = next(job for job in plan.jobs() if job.name == "acot.1.5")
    member = broken.config.replace(train_size=195, optimiser={"lr": 2e-2})
    stranger = tmp_path / "tiny" / member.run_id
    stranger.mkdir(parents=True)
    (stranger / "config.json").write_text("{")
    failures = run_study(plan, tmp_path, workers=2)
    assert list(failures) == ["acot.1.5"]
    assert str(stranger) in failures["acot.1.5"]
    table = write_table(plan, tmp_path)
    assert table["failures"] == failures
    assert {row["cell"] for row in table["rows"]} == {"outcome", "again"}
    (stranger / "config.json").unlink()
    assert run_study(plan, tmp_path, workers=1) == {}
    assert not list((tmp_path / "tiny" / "failures").iterdir())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"scheduler": "tcp://127.0.0.1:9"}, "nobody answers"),
        ({"scheduler": "nonsense"}, "nobody answers"),
        ({"scheduler": "tcp://127.0.0.1:9", "workers": 2}, "workers: got 2"),
        ({"workers": 0}, "workers: got 0"),
        ({"cells": ["lstm"]}, "cell: got lstm; allowed: acot, outcome, again"),
    ],
)
def test_what_cannot_be_run_is_said_at_once(tmp_path, arguments, word):
    begun = time.monotonic()
    with pytest.raises(ValueError, match=word):
        run_study(study(), tmp_path, **arguments)
    assert time.monotonic() - begun < 20
