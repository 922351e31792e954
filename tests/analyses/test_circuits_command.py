"""`kappalens circuits`: text, JSON, the page, the drawing and the tables."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from analyses.circuit_figure import circuit_figure, layers
from analyses.cli import app
from analyses.commands.circuits import circuits as command
from circuits.circuit import find_circuit
from circuits.discover import discover
from circuits.graph import graph
from tests.circuits.toy import TRUE, toy_patcher
from training import RunConfig, train
from training.families.lstm import LSTM
from training.families.transformer import Transformer
from training.tasks import ModularAddition

RECALL = {
    "name": "associative_recall",
    "n_blocks": 2,
    "n_common": 4,
    "n_rare": 4,
    "track_slots": 4,
    "f_r": 0.0,
    "f_v": 0.0,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = RunConfig(
        study="circuits",
        task=RECALL,
        family={"name": "transformer", "layers": 1, "heads": 2, "width": 16},
        steps=120,
        batch_size=32,
        optimiser={"name": "adam", "lr": 0.01},
        eval_size=9,
        eval_every=100,
    )
    return train(config, root=tmp_path_factory.mktemp("runs"))


def test_it_says_the_same_as_discover(run, capsys):
    command(folder=run.path, step=[0, run.steps[-1]], samples=16, json_=True)
    found = json.loads(capsys.readouterr().out)
    first, last = found["circuits"]
    expected = discover(run, samples=16)
    assert [edge["edge"] for edge in last["edges"]] == list(expected.edges)
    assert last["faithfulness"]["value"] == pytest.approx(expected.faithfulness[0])
    assert last["sentence"] == str(expected)
    assert (first["defined"], first["edges"]) == (False, [])
    assert "has not learned" in first["note"]
    assert first["faithfulness"]["value"] is None, "no number where there is none"
    assert found["files"] == []


def test_the_text_has_the_edges_strongest_first(run, capsys):
    command(folder=run.path, samples=16)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"Step {run.steps[-1]}, 16 pairs of 16 sequences, changed in: query")
    effects = [abs(float(line.split()[-1])) for line in said[2:]]
    assert effects == sorted(effects, reverse=True)
    assert any(line.strip().startswith("embed ->") for line in said[2:])


def test_the_folder_has_page_drawing_table_and_graph(run, tmp_path, capsys):
    last = run.steps[-1]
    command(folder=run.path, step=[0, last], samples=16, out=tmp_path / "found", json_=True)
    found = json.loads(capsys.readouterr().out)
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names == {
        "circuits.html",
        "circuits.json",
        *(f"edges-{step}.csv" for step in (0, last)),
        *(f"mib-{step}.json" for step in (0, last)),
        f"circuit-{last}.svg",
    }
    assert len(found["files"]) == len(names)
    page = (tmp_path / "found" / "circuits.html").read_text()
    assert f"Step {last}" in page
    assert "no circuit: the model has not learned" in page
    assert page.count("<svg") == 1
    table = pd.read_csv(tmp_path / "found" / f"edges-{last}.csv")
    assert table["kept"].sum() == len(found["circuits"][1]["edges"])
    graph = json.loads((tmp_path / "found" / f"mib-{last}.json").read_text())
    assert graph["cfg"]["n_heads"] == 2


def test_a_folder_that_cannot_be_written_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--out .* cannot be written"):
        command(folder=run.path, samples=8, out=tmp_path / "file" / "inside", json_=True)


def test_the_help_has_examples_and_every_method():
    said = CliRunner().invoke(app, ["circuits", "--help"]).output
    said = " ".join(said.split())
    assert "Examples: kappalens circuits" in said
    for name in ("exact", "ig inputs", "ACDC", "learned mask", "mean per position"):
        assert name in said


def test_the_drawing_has_the_circuit_and_nothing_else():
    found = find_circuit(toy_patcher(), "exact")
    figure = circuit_figure(found, "Toy")
    assert found.edges == TRUE
    for node in ("embed", "mover", "finisher", "logits"):
        assert f">{node}<" in figure.svg
    assert ">idle<" not in figure.svg
    assert figure.alt.endswith("; ".join(f"{edge} 16.00" for edge in TRUE)) or all(
        edge in figure.alt for edge in TRUE
    )
    assert len(figure.table) == len(found.graph.edges)
    assert figure.svg == circuit_figure(found, "Toy").svg


def test_what_is_not_there_is_not_drawn():
    with pytest.raises(ValueError, match="no circuit to draw"):
        circuit_figure(find_circuit(toy_patcher(gain=0.0), "exact"))


@pytest.mark.parametrize("family", [Transformer(layers=2, heads=2, width=8), LSTM(width=4)])
def test_a_node_stands_right_of_all_it_reads(family):
    task = ModularAddition(modulus=3, lengths=(3,), format="acot")
    here = graph(family, family.initialise(task, 0, torch.float64), 3, 2)
    column = layers(here)
    for edge in here.edges:
        assert column[edge.source] < column[here.reader[edge.reader].feeds]
    if isinstance(family, Transformer):
        assert column["head 1.0"] == column["head 1.1"] == column["MLP 0"] + 1
    else:
        tokens = [column[f"token {t}"] for t in range(3)]
        assert np.all(np.diff(tokens) > 0), "a token stands at its step"
