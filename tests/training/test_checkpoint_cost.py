"""The benchmark of what checkpoints cost runs, and counts what it should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoint_cost.py"


@pytest.mark.slow
def test_the_benchmark_runs():
    command = [sys.executable, str(SCRIPT), "--quick", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said["worst"] == max(row["share"] for row in said["rows"])
    for row in said["rows"]:
        assert row["checkpoints"] == row["members"] * 10, "0, 1, 2, 4, ..., 256"
        assert 0 < row["share"] < 0.5
        assert 0 < row["share_of_evaluations"] < 1
