"""`kappalens project`: any folder of runs in coordinates."""

import json
import shutil

import numpy as np
import pytest
import xarray as xr

from analyses.commands.project import project as command
from analyses.reporting import report
from manifold import project
from training import RunConfig, train

RECALL = {
    "name": "associative_recall",
    "n_blocks": 2,
    "n_common": 4,
    "n_rare": 3,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
}
ADDITION = {"name": "modular_addition", "modulus": 3, "lengths": [2, 3], "format": "acot"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    shared = {"steps": 4, "batch_size": 8, "eval_size": 20, "eval_every": 2}
    families = {
        "recall": (RECALL, {"name": "attention_only", "layers": 2, "scale": 0.1}),
        "norms": (RECALL, {"name": "transformer", "layers": 1, "heads": 2, "width": 8}),
        "addition": (ADDITION, {"name": "dense_ssm", "width": 4}),
        "tokens": (ADDITION, {"name": "transformer", "layers": 1, "heads": 1, "width": 8}),
        "rotary": (
            RECALL,
            {"name": "transformer", "layers": 1, "heads": 1, "width": 8, "positions": "rotary"},
        ),
    }
    return {
        name: train(RunConfig(study=name, task=task, family=family, **shared), root=root)
        for name, (task, family) in families.items()
    }


def said(capsys, *folders, **options):
    command(folders=list(folders), json_=True, **options)
    return json.loads(capsys.readouterr().out)["runs"]


def test_every_kind_of_run_in_one_call(runs, capsys):
    command(folders=[runs["recall"].path.parents[1]], json_=True)
    found = json.loads(capsys.readouterr().out)
    rows = found["runs"]
    read = {run.run_id for name, run in runs.items() if name != "rotary"}
    assert {row["run"] for row in rows} == read
    (refused,) = found["not_read"]
    assert refused["runs"] == [runs["rotary"].run_id]
    assert "rotary" in refused["why"]
    by_run = {row["run"]: row for row in rows}
    recall = by_run[runs["recall"].run_id]
    last = project(runs["recall"]).isel(run=0, step=-1)["c"]
    name, value = next(iter(recall["strongest"].items()))
    assert value == float(last.sel(coordinate=name)) == last.values[np.abs(last.values).argmax()]
    assert (
        recall["logit_error"]["last"] < 1e-6 < by_run[runs["norms"].run_id]["logit_error"]["last"]
    )
    assert recall["rebuilt_loss"]["last"] > 0
    states = by_run[runs["addition"].run_id]
    assert set(states["representation_error"]["first"]) == {"reachable", "value"}


def test_quick_runs_no_model(runs, capsys):
    (row,) = said(capsys, runs["recall"].path, quick=True)
    assert "captured" in row
    assert "rebuilt_loss" not in row


@pytest.mark.parametrize("name", ["recall", "norms", "addition", "tokens"])
def test_the_file_holds_every_coordinate(runs, name, tmp_path, capsys):
    (row,) = said(capsys, runs[name].path, out=tmp_path / "c.nc")
    with xr.open_dataset(tmp_path / "c.nc") as data:
        assert data["run"].values.tolist() == [row["run"]]
        assert data["step"].values.tolist() == list(runs[name].steps)
        if name in ("recall", "norms"):
            expected = project(runs[name])
            np.testing.assert_array_equal(data["c"], expected["c"])
            assert data["coordinate"].values.tolist() == expected["coordinate"].values.tolist()


def test_a_copy_of_a_run_is_the_run(runs, tmp_path, capsys):
    shutil.copytree(runs["addition"].path, tmp_path / "copy")
    (row,) = said(capsys, runs["addition"].path, tmp_path / "copy")
    assert row["run"] == runs["addition"].run_id


def test_a_report_says_what_cannot_be_read(runs):
    report(runs["rotary"].path)
    found = json.loads((runs["rotary"].path / "report.json").read_text())
    assert "rotary" in found["coordinates"]["not_read"]


def test_a_report_says_what_is_not_learnt_and_what_cannot_be_asked(tmp_path):
    task = {**ADDITION, "modulus": 4, "lengths": [4]}
    config = RunConfig(task=task, family={"name": "dense_ssm", "width": 4}, steps=2, eval_size=20)
    run = train(config, root=tmp_path)
    report(run.path)
    page = (run.path / "report.html").read_text()
    assert "Not learnt to 0.95: length 4" in page
    assert "cannot be asked of one length" in page


def test_damage_is_said_before_anything_is_read(runs, tmp_path, capsys):
    copy = tmp_path / runs["recall"].run_id
    shutil.copytree(runs["recall"].path, copy)
    steps = sorted((copy / "checkpoints").iterdir())
    shutil.copy(steps[1] / "model.safetensors", steps[2] / "model.safetensors")
    metas = [json.loads((step / "meta.json").read_text()) for step in steps[1:3]]
    (steps[2] / "meta.json").write_text(json.dumps(metas[0] | {"step": metas[1]["step"]}))
    command(folders=[copy], quick=True, json_=True)
    said = capsys.readouterr()
    kinds = {finding["kind"] for finding in json.loads(said.out)["audit"]}
    assert "duplicate" in kinds
    assert "audit: duplicate" in said.err


def test_mistakes_are_named(runs, tmp_path):
    with pytest.raises(ValueError, match="has no run"):
        command(folders=[tmp_path])
    with pytest.raises(ValueError, match="5 different tasks or families"):
        command(folders=[runs["recall"].path.parents[1]], out=tmp_path / "c.nc")
    with pytest.raises(ValueError, match="rotary"):
        command(folders=[runs["rotary"].path])
    with pytest.raises(ValueError, match="cannot be written"):
        command(folders=[runs["recall"].path], out=tmp_path / "no" / "c.nc", quick=True)
