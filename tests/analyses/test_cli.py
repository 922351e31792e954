"""The command as a person types it: answers, and one line for a mistake."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analyses.cli import main
from analyses.commands import COMMANDS

COMMAND = Path(sys.executable).with_name("kappalens")

GOOD = """
task: {name: modular_addition, modulus: 3, lengths: [2, 3], format: acot}
family: {name: dense_ssm, width: 4}
optimiser: {name: adam, lr: 1e-2}
steps: 30
eval_every: 10
"""


def run(*words, cwd):
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


def refused(done, *parts):
    assert done.returncode == 2, (done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0], lines[0]


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """The command in this process, which spares its start; `run` is what a person does."""

    def call(*words, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "argv", ["kappalens", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, ended.value.code, said.out, said.err)

    return call


def test_version_and_help(tmp_path, here):
    assert run("--version", cwd=tmp_path).stdout.startswith("kappalens 0.")
    for command in COMMANDS:
        done = here(command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "Example" in done.stdout
        assert "--json" in done.stdout


@pytest.mark.slow
def test_an_interrupt_says_so_and_leaves_a_run_that_goes_on(tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD.replace("steps: 30", "steps: 3000"))
    words = [str(COMMAND), "train", "config.yaml"]
    running = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored under nohup
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/*/checkpoints/step_*16")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    assert "Interrupted" in running.communicate()[1]
    assert running.returncode == 130
    assert json.loads(run("train", "config.yaml", "--json", cwd=tmp_path).stdout)["step"] == 3000


@pytest.mark.slow
def test_train_then_report_a_run(tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD)
    done = run("train", "config.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["state"] == "done"
    again = json.loads(run("train", "config.yaml", "--json", cwd=tmp_path).stdout)
    assert again["path"] == said["path"]
    done = run("report", said["path"], "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["circuits"]["lengths"] == [2, 3]
    assert (tmp_path / said["path"] / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (GOOD + "stepz: 3\n", ("stepz",)),
        (GOOD.replace("dense_ssm", "elman"), ("elman", "dense_ssm")),
        (GOOD.replace("steps: 30", "steps: -1"), ("steps", "-1")),
        (GOOD.replace("lr: 1e-2", "lr: 0"), ("lr", "0")),
        (GOOD.replace("modulus: 3", "modulus: 1"), ("modulus", "1")),
        (GOOD.replace("lengths: [2, 3]", "lengths: [1]"), ("lengths", "1")),
        (GOOD + "train_size: 1000000\n", ("train_size", "1000000")),
        (
            GOOD.replace("modular_addition, modulus: 3", "permutation_composition, degree: 7"),
            ("degree", "7"),
        ),
        (GOOD.replace("acot}", "acot, validation_size: 0}"), ("validation_size", "0")),
        ("[1, 2]\n", ("config.yaml",)),
        ("a: [\n", ("config.yaml", "YAML")),
        (
            "task: {name: associative_recall, n_blocks: 2, n_common: 4, n_rare: 0,"
            " track_slots: 4, f_r: 0.5, f_v: 0.1}\n"
            "family: {name: attention_only}\nsteps: 3\n",
            ("n_rare", "f_r"),
        ),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path, here, text, parts):
    (tmp_path / "config.yaml").write_text(text)
    refused(here("train", "config.yaml", cwd=tmp_path), *parts)
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_a_run_is_watched_audited_and_thinned(tmp_path, here):
    (tmp_path / "config.yaml").write_text(GOOD)
    path = Path(json.loads(here("train", "config.yaml", "--json", cwd=tmp_path).stdout)["path"])
    status = json.loads(here("status", "runs/study", "--json", cwd=tmp_path).stdout)
    assert (status["runs"], status["steps"]) == ({"done": 1}, 30)
    assert "1 done" in here("status", "runs", cwd=tmp_path).stdout
    clean = here("audit", "runs", "--json", cwd=tmp_path)
    assert (clean.returncode, json.loads(clean.stdout)["findings"]) == (0, [])
    dry = json.loads(here("prune", "runs", "--dry-run", "--json", cwd=tmp_path).stdout)
    done = json.loads(here("prune", "runs", "--json", cwd=tmp_path).stdout)
    assert dry == done
    assert done["checkpoints"] == 5
    assert "Freed 0.0 MB" in here("prune", "runs", cwd=tmp_path).stdout
    assert here("audit", "runs", cwd=tmp_path).returncode == 0
    last = tmp_path / path / "checkpoints" / "step_00000030" / "model.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    found = here("audit", "runs", "--json", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (1, "")
    (finding,) = json.loads(found.stdout)["findings"]
    assert set(finding) == {"kind", "step", "file", "message"}
    assert (finding["kind"], finding["step"]) == ("unreadable", 30)
    assert here("audit", "runs", "--quick", cwd=tmp_path).returncode == 0
    assert "unreadable (step 30)" in here("audit", "runs", cwd=tmp_path).stdout


def test_missing_files_and_foreign_folders(tmp_path, here):
    for command in ("audit", "status", "prune"):
        refused(here(command, "nowhere", cwd=tmp_path), "nowhere")
    refused(here("prune", "nowhere", "--keep", "some", cwd=tmp_path), "some", "ends")
    refused(here("prune", "nowhere", "--keep", "every", cwd=tmp_path), "every")
    refused(run("train", "nowhere.yaml", cwd=tmp_path), "nowhere.yaml")
    refused(here("report", "nowhere", cwd=tmp_path), "nowhere")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    refused(here("report", "foreign", cwd=tmp_path), "foreign")
    refused(here("demo", "--quick", "--out", "foreign", cwd=tmp_path), "foreign", "--out")
    assert [p.name for p in (tmp_path / "foreign").iterdir()] == ["notes.txt"]
    (tmp_path / "file").write_text("")
    refused(here("demo", "--quick", "--out", "file", cwd=tmp_path), "file", "--out")
    refused(here("demo", "--quick", "--out", "/proc/x", cwd=tmp_path), "/proc/x", "--out")


def test_unknown_options_and_commands(tmp_path, here):
    refused(here("demo", "--sede", "1", cwd=tmp_path), "--sede")
    refused(run("dmeo", cwd=tmp_path), "dmeo")
    refused(here("demo", "--seed", "-1", cwd=tmp_path), "seed")
