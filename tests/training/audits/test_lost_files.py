"""A file of a run that was deleted is named, and what an analysis will read is checked."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from training import RunConfig, audit, train_many
from training.audits.audit import audit_read


@pytest.fixture
def runs(tmp_path):
    first = RunConfig(
        task={"name": "modular_addition", "modulus": 4, "lengths": [3], "format": "acot"},
        family={"name": "dense_ssm", "width": 4}, steps=20, batch_size=8, eval_size=20,
    )  # fmt: skip
    return train_many([first, first.replace(seeds={"init": 1})], root=tmp_path)


@pytest.mark.parametrize("name", ["status.json", "metrics.jsonl", "config.json"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_deleted_file_is_named(runs, tmp_path, name, whole):
    file = runs[0].path / name
    file.unlink()
    found = audit(tmp_path if whole else file.parent, read_weights=name == "config.json")
    assert [(f.kind, f.file) for f in found.findings] == [("missing", str(file))]
    assert "restore it" in found.findings[0].message
    assert found.runs == (2 if whole else 1)


def test_what_is_read_is_checked_and_nothing_else(runs):
    assert audit_read(runs, runs[0].steps) == ()
    file = runs[1][8].path / "model.safetensors"
    arrays = {name: np.array(value) for name, value in load_file(file).items()}
    next(iter(arrays.values())).flat[0] = np.nan
    save_file(arrays, file)
    assert audit_read(runs) == audit_read(runs, [0, 16]) == audit_read(runs[:1], [8]) == ()
    found = audit_read(runs, [0, 8, 999])
    assert [f.kind for f in found] == ["not_finite", "hash_mismatch"]
    assert {(f.step, f.file) for f in found} == {(8, str(file))}
    (runs[0].path / "status.json").unlink()
    assert [f.kind for f in audit_read(runs)] == ["missing"]


def test_a_run_that_has_not_begun_lacks_nothing(runs):
    for entry in (runs[0].path / "checkpoints").iterdir():
        entry.rename(entry.with_name("." + entry.name))
    (runs[0].path / "status.json").unlink()
    (runs[0].path / "metrics.jsonl").unlink()
    assert audit_read(runs) == ()
