"""`kappalens bifurcate`: a grid small enough for a second, and everything it refuses."""

import json

import numpy as np
import pytest

import manifold
from analyses.commands.bifurcate import RECALL
from analyses.commands.bifurcate import bifurcate as command
from analyses.phase_figure import phase_section
from training import RunConfig, train

SMALL = {
    "task": ["n_blocks=1"],
    "x": "f_v:0.1:0.3:2",
    "y": "weight_decay:0.05:0.06:2",
    "json_": True,
}


def called(out, **changes):
    options = {"config": None, "weight_decay": None, "full": False, "runs": None}
    command(**{**options, **SMALL, "out": out, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = RunConfig(
        task={**RECALL, "n_blocks": 1, "f_v": 0.15},
        family={"name": "attention_only", "layers": 2, "scale": 0.1},
        optimiser={"name": "sgd", "lr": 0.5, "weight_decay": 0.055},
        steps=3,
        batch_size=8,
        eval_size=20,
    )
    return train(config, root=tmp_path_factory.mktemp("runs"))


def test_report_and_json_with_a_trained_run_on_top(run, tmp_path, capsys):
    called(tmp_path / "new" / "phases", runs=[run.path])
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "new" / "phases" / "report.json").read_text())
    assert said["parameters"] == ["f_v", "weight_decay"]
    assert len(said["grid"]) == 4
    assert len(said["states"]) == 8
    (point,) = said["runs"]
    assert (point["f_v"], point["weight_decay"]) == (0.15, 0.055)
    assert 0 <= point["mismatch"] <= 1
    assert 0 < point["captured"] <= 1
    page = (tmp_path / "new" / "phases" / "report.html").read_text()
    assert "trained model" in page
    assert all(finding in page for finding in said["findings"])
    assert not list((tmp_path / "new" / "phases").glob("*.partial"))


def test_nothing_is_left_by_an_interrupt(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(manifold, "phase_diagram", interrupted)
    with pytest.raises(KeyboardInterrupt):
        called(tmp_path / "phases")
    assert list(tmp_path.iterdir()) == []


def test_bad_requests_are_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    for changes, message in (
        ({"x": "f_v:0.1:0.3"}, "--x is 'f_v:0.1:0.3'; allowed: NAME:FROM:TO:POINTS"),
        ({"x": "f_v:0.1:0.3:1"}, "1 points from 0.1 to 0.3; allowed: two or more"),
        ({"x": "f_v:0.3:0.1:4"}, "FROM below TO"),
        ({"x": "f_v:0.1:1.5:2"}, r"f_v is 1\.5"),
        ({"x": "f_v:0.1:0.3:1000"}, "1,000 points; allowed: at most 200"),
        ({"x": "b:1:2:2"}, "the grid has 'b'"),
        ({"weight_decay": 0.01}, "--weight-decay 0.01 would not be used"),
        ({"y": "f_v:0.1:0.4:3"}, "sweep one parameter; give two different ones"),
        ({"y": "weight_decay:0:0.1:2"}, "no fixed point lies at finite distance"),
        ({"y": "f_r:0:0.1:2", "weight_decay": 0.0}, "no fixed point lies at finite distance"),
        ({"task": ["n_blocks"]}, "--task is 'n_blocks'; allowed: NAME=VALUE"),
        ({"task": ["n_blocks=-1"]}, "n_blocks"),
        ({"out": tmp_path / "file" / "phases"}, "is no folder that you may write"),
        ({"runs": [tmp_path]}, "has no run"),
        ({"runs": [run.path], "task": ["n_blocks=2"]}, "n_blocks 1 instead of 2"),
        ({"runs": [run.path], "y": "f_r:0:0.1:2"}, "weight_decay 0.055 instead of 0.001"),
    ):
        with pytest.raises(ValueError, match=message):
            called(**{"out": tmp_path / "phases", **changes})
    assert not (tmp_path / "phases").exists()


def test_an_explicit_zero_of_a_file_is_explained(tmp_path):
    import yaml

    from analyses.commands.bifurcate import RECALL, _task

    plain = {"task": RECALL, "family": "attention_only", "steps": 1}
    for optimiser, decay in (
        ({"name": "sgd"}, 1e-3),
        ({"name": "sgd", "weight_decay": 0.0}, 0.0),
        ({"name": "sgd", "weight_decay": 0.02}, 0.02),
    ):
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({**plain, "optimiser": optimiser}))
        assert _task(path, [])[1] == decay
    path.write_text(yaml.safe_dump({**plain, "optimiser": {"name": "sgd", "weight_decay": 0}}))
    with pytest.raises(ValueError, match=r"config\.yaml has weight decay 0: .* no fixed point"):
        called(tmp_path / "phases", config=path, y="f_r:0:0.1:2")
    assert not (tmp_path / "phases").exists()


def test_the_drawing_shows_what_the_diagram_holds():
    """Cells in their places, folds as lines, and words that count the flags."""
    import pandas as pd

    grid = pd.DataFrame(
        [
            {"f_v": x, "weight_decay": y, "flag": "bistable" if x > y else "weights"}
            for x in (0.1, 0.3)
            for y in (0.2, 0.25)
        ]
    )
    states = pd.concat([grid.assign(start=s, mismatch=0.5) for s in ("zero", "context")])
    curve = manifold.FoldCurve(
        parameters=("f_v", "weight_decay"),
        table=pd.DataFrame({"f_v": [0.12, 0.2], "weight_decay": [0.2, 0.25]}),
        cusps=(),
        ended="",
    )
    marks = pd.DataFrame([{"weight_decay": 0.2, "kind": "fold", "f_v": 0.12, "ends": True}])
    diagram = manifold.PhaseDiagram(
        parameters=("f_v", "weight_decay"),
        states=states,
        grid=grid,
        marks=marks,
        curves=(curve,),
        notes=("one did not settle",),
    )
    section = phase_section(diagram, True, "a setting")
    assert section.findings[0] == (
        "Of 4 settings 2 end in one state that answers from the weights, 2 are bistable, where "
        "the start decides."
    )
    assert section.findings[1] == "At weight_decay = 0.2: fold at f_v = 0.12."
    assert "no cusp within the grid" in section.findings[-1]
    assert "one did not settle" in section.text[0]
    assert ">fold<" in section.figures[0].svg
    assert ">crossover<" not in section.figures[0].svg
    assert np.isfinite(section.figures[0].table["mismatch"]).all()
