"""`kappalens events`: what happened along the runs of a folder."""

import json

import pytest

from analyses.commands.events import events as command
from training import RunConfig, train

RECALL = {
    "name": "associative_recall",
    "n_blocks": 2,
    "n_common": 4,
    "n_rare": 3,
    "track_slots": 3,
    "f_r": 0.4,
    "f_v": 0.4,
}
FAMILIES = {
    "sgd": ({"name": "attention_only", "layers": 2, "scale": 0.05}, "sgd"),
    "adam": ({"name": "attention_only", "layers": 2, "scale": 0.05}, "adam"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for name, (family, optimiser) in FAMILIES.items():
        config = RunConfig(
            study=name,
            task=RECALL,
            family=family,
            optimiser={"name": optimiser, "lr": 0.5 if optimiser == "sgd" else 1e-3},
            steps=60,
            batch_size=32,
            eval_size=20,
            eval_every=60,
            checkpoints={"every": 6},
        )
        found[name] = train(config, root=root)
    return found


def test_events_of_every_run_in_words_and_as_json(runs, capsys):
    folder = runs["sgd"].path.parents[1]
    command(folders=[folder], json_=True)
    found = json.loads(capsys.readouterr().out)
    by_run = {row["run"]: row for row in found["runs"]}
    assert set(by_run) == {run.run_id for run in runs.values()}
    assert "exact over" in by_run[runs["sgd"].run_id]["field"]
    for row in by_run.values():
        for event in row["events"]:
            assert event["low"] <= event["step"] <= event["high"]
    command(folders=[folder])
    said = capsys.readouterr().out
    assert all(run.run_id in said for run in runs.values())
    for event in by_run[runs["sgd"].run_id]["events"]:
        assert event["evidence"] in said


def test_the_field_is_the_optimiser_s(runs, capsys):
    command(folders=[runs["adam"].path], json_=True)
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["field"] == "the field is SGD's, the run has adam"


def test_quick_asks_no_model_and_no_field(runs, capsys):
    command(folders=[runs["sgd"].path], json_=True, quick=True)
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["field"] == "--quick"
    assert any("accuracies" in why for why in row["unanswered"])


def test_a_folder_without_runs_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no run"):
        command(folders=[tmp_path])
