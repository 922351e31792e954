"""`kappalens kappa` as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analyses.cli import main

COMMAND = Path(sys.executable).with_name("kappalens")
STUDY = """
study: tiny
run: {batch_size: 16, eval_every: 20, eval_size: 60, stop: {loss: 0.05, patience: 40}}
cells:
  - name: ssm-acot
    task: {name: modular_addition, modulus: 3, lengths: [4, 5], format: acot}
    family: {name: dense_ssm, width: 8}
    lrs: [2e-2]
    steps: 60
"""


def run(*words, cwd):
    (cwd / "study.yaml").write_text(STUDY)
    return subprocess.run(
        [COMMAND, "kappa", *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_a_dry_run_counts_and_trains_nothing(tmp_path):
    done = run("--config", "study.yaml", "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["searches"] == plan["cells"][0]["searches"] == 3
    assert plan["runs"] >= 6
    assert plan["cpu_seconds"] > 0
    assert plan["bytes"] > 1000
    assert not (tmp_path / "runs").exists()
    said = run("--preset", "small", "--cell", "Z4-dense_ssm-cot", "--dry-run", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "Z4-dense_ssm-cot" in said.stdout
    assert "Z4-lstm" not in said.stdout


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((), ("--preset", "small", "--config")),
        (("--preset", "small", "--config", "study.yaml"), ("not both",)),
        (("--config", "nowhere.yaml"), ("nowhere.yaml",)),
        (("--config", "study.yaml", "--scheduler", "nonsense"), ("nobody answers",)),
        (("--config", "study.yaml", "--cell", "lstm"), ("lstm", "ssm-acot")),
        (("--config", "study.yaml", "--root", "/proc/x"), ("/proc/x",)),
    ],
)
def test_a_mistake_is_one_line(tmp_path, words, parts):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


def test_a_dry_run_over_another_study_is_refused(tmp_path):
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text('{"schema_version": 1, "study": {}}')
    done = run("--config", "study.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "is of another configuration" in done.stderr
    assert [file.name for file in folder.iterdir()] == ["study.json"]


def test_failed_searches_are_one_line_and_no_mistake_of_the_caller(tmp_path, monkeypatch, capsys):
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    failures = {"ssm-acot.0.5": "the disk\nis full"}
    monkeypatch.setattr("training.studies.scale_out.run_study", lambda *_, **__: failures)
    monkeypatch.setattr("sys.argv", ["kappalens", "kappa", "--config", "study.yaml", "--json"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 1
    (line,) = said.err.splitlines()
    assert line.startswith("1 of the searches failed, first ssm-acot.0.5: the disk is full.")
    assert len(json.loads(said.out)["missing"]) == 3


@pytest.mark.slow
def test_a_study_from_its_file_to_its_table(tmp_path):
    done = run("--config", "study.yaml", "--workers", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert [row["data_seed"] for row in table["rows"]] == [None, 0]
    assert set(table["rows"][0]["n_star"]) == {"4", "5", "joint"}
    frame = pd.read_parquet(tmp_path / "runs" / "tiny" / "table.parquet")
    assert frame["cell"].tolist() == ["ssm-acot"] * 2
    again = run("--config", "study.yaml", cwd=tmp_path)
    assert "ssm-acot" in again.stdout
    assert "table.parquet" in again.stdout
    (tmp_path / "runs" / "tiny" / "study.json").write_text('{"schema_version": 0}')
    refused = run("--config", "study.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "schema_version 0" in refused.stderr
