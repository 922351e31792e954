"""`kappalens ode`: the equation of runs on disk, from `project` to a fit."""

import json

import numpy as np
import pytest

from analyses.commands.ode import ode as command
from analyses.run_equation import read_equation, sentences
from manifold import fit_ode, project, reduced_field
from training import RunConfig, open_run, train, train_many

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


def config(study, seed=0, **changes):
    return RunConfig(
        **{
            "study": study,
            "task": RECALL,
            "family": {"name": "attention_only", "layers": 1, "scale": 0.05},
            "optimiser": {"name": "sgd", "lr": 1.0},
            "steps": 40,
            "batch_size": 256,
            "seeds": {"init": seed, "data": seed},
            "eval_every": 40,
            "eval_size": 20,
            "checkpoints": {"doubling": False, "every": 5},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    family = {"name": "attention_only", "layers": 2, "scale": 0.05}
    return train_many([config("recall", seed, family=family) for seed in range(3)], root=root)


def said(capsys, *folders, **options):
    command(folders=list(folders), json_=True, **options)
    return json.loads(capsys.readouterr().out)


def test_two_lines_from_checkpoints_to_a_fit(runs):
    """What a user writes."""
    data = project(runs)
    fit = fit_ode(data, field=reduced_field(runs[0].task))
    assert fit.identified
    assert fit.error < 0.3
    assert list(fit.judgement.runs.index[:1]) == [runs[-1].run_id]


def test_a_study_is_read_and_its_truth_stands_beside(runs, tmp_path, capsys):
    found = said(capsys, runs[0].path.parent, out=tmp_path / "page")
    assert found["status"] == "identified"
    by_name = {row["name"]: row for row in found["quantities"]}
    assert by_name["f_r"]["configured"] == 0.4
    assert by_name["match"]["configured"] == pytest.approx(0.36)
    assert by_name["weight_decay"]["configured"] == 0.0
    assert by_name["time_scale"]["configured"] == 1.0
    assert abs(by_name["time_scale"]["value"] - 1) < 0.3
    assert by_name["rare"]["low"] < by_name["rare"]["value"] < by_name["rare"]["high"]
    assert [row["held_out"] for row in found["rollouts"]] == [True, False, False]
    assert "limit of small rates" in found["optimiser"][0]
    assert "and the run's is below that" in found["optimiser"][1]
    page = (tmp_path / "page" / "ode.html").read_text()
    assert "<svg" in page
    assert "held out" in page
    assert found["verdict"].replace("'", "&#39;") in page
    assert json.loads((tmp_path / "page" / "ode.json").read_text())["verdict"] == found["verdict"]


def test_the_text_says_each_quantity_beside_its_truth(runs, capsys):
    command(folders=[run.path for run in runs], held_out=2)
    told = capsys.readouterr().out
    assert "AssociativeRecall, 3 runs, structured fit: identified." in told
    assert "the configuration says 0.4." in told
    assert told.count("Rollout of held-out run") == 2


def test_one_run_has_no_verdict_on_others(runs, capsys):
    assert "no run was held out" in said(capsys, runs[0].path)["verdict"]
    with pytest.raises(ValueError, match="held_out is 1 of 1 runs"):
        command(folders=[runs[0].path], held_out=1)


def test_two_checkpoints_are_not_identified(tmp_path, capsys):
    run = train(config("few", checkpoints={"doubling": False, "every": None}), root=tmp_path)
    found = said(capsys, run.path)
    assert found["status"] == "not identified"
    assert "1 interval between checkpoints for 4 unknowns" in found["verdict"]
    assert found["quantities"][0]["high"] is None
    assert "(no bound)" in " ".join(sentences(read_equation([run])[0]))


def test_sparse_needs_no_field(runs, capsys):
    found = said(capsys, runs[0].path.parent, method="sparse", library="linear")
    assert found["method"] == "sparse, linear"
    assert found["status"] == "unidentified"
    assert "16 intervals between checkpoints for 43 terms" in found["verdict"]
    four = said(capsys, runs[0].path.parent, method="sparse", library="linear", coordinates="four")
    assert four["status"] == "fitted"
    with pytest.raises(ValueError, match="coordinates is 'six'"):
        command(folders=[runs[0].path], coordinates="six")


@pytest.mark.parametrize(
    ("optimiser", "says"),
    [
        ({"name": "sgd", "lr": 0.1, "momentum": 0.9}, "rescales time by 1 / (1 - momentum) = 10"),
        ({"name": "adam", "lr": 0.01}, "the equation below is SGD's and approximates it"),
    ],
)
def test_the_optimiser_is_respected(optimiser, says, tmp_path):
    run = train(config("rule", optimiser=optimiser), root=tmp_path)
    facts, _ = read_equation([run])
    assert says in " ".join(facts["optimiser"])
    row = {row["name"]: row for row in facts["quantities"]}["time_scale"]
    if optimiser["name"] == "sgd":
        assert row["configured"] == pytest.approx(10.0)
        assert 6 < row["value"] < 12
    else:
        assert row["configured"] is None
        assert np.isfinite(row["value"])


@pytest.mark.slow
def test_a_transformer_is_said_to_flow_in_another_metric(tmp_path):
    family = {"name": "transformer", "layers": 1, "heads": 1, "width": 8, "layer_norm": False}
    run = train(config("other", family={**family, "mlp": False}), root=tmp_path)
    assert "flow in another metric" in " ".join(read_equation([run])[0]["optimiser"])


def test_mistakes_are_named(runs, tmp_path):
    states = train(
        RunConfig(task=ADDITION, family={"name": "dense_ssm", "width": 4}, steps=2, eval_size=20),
        root=tmp_path,
    )
    with pytest.raises(ValueError, match=r"is of ModularAddition.*kappalens project"):
        command(folders=[states.path])
    with pytest.raises(ValueError, match="has no run"):
        command(folders=[tmp_path / "nothing"])
    with pytest.raises(ValueError, match=r"method is 'symbolic'"):
        command(folders=[runs[0].path], method="symbolic")
    with pytest.raises(ValueError, match=r"library is 'septic'"):
        command(folders=[runs[0].path], method="sparse", library="septic")
    other = train(config("other", task={**RECALL, "f_r": 0.2}), root=tmp_path)
    with pytest.raises(ValueError, match=r"2 different tasks \(they differ in .*f_r"):
        command(folders=[runs[0].path, other.path])
    rule = train(config("rule", optimiser={"name": "sgd", "lr": 0.5}), root=tmp_path)
    with pytest.raises(ValueError, match=r"2 different optimisers \(they differ in lr\)"):
        command(folders=[runs[0].path, rule.path])
    single = open_run(rule.path)
    for step in single.steps[1:]:
        folder = rule.path / "checkpoints" / f"step_{step:08d}"
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    with pytest.raises(ValueError, match="checkpoint"):
        command(folders=[rule.path])
