"""The page on coordinates says what its record says; the record is measured by the same code."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import analyses.manifold_facts as facts
from analyses.manifold_page import BEGIN, DRAWING, END, PAGE, RECORD, write_page
from analyses.manifold_runs import CONTROL, FROM_ZERO, KINDS, SEEDS, ShuffledLabels, configs
from analyses.studies.base import RECALL
from training import AssociativeRecall, RunConfig

DOCS = Path(__file__).parents[2] / "docs"
PAGE_TEXT = (DOCS / PAGE).read_text()


@pytest.fixture(scope="module")
def record():
    return json.loads((DOCS / RECORD).read_text())


def test_the_page_is_written_from_the_record(tmp_path):
    for name in (PAGE, RECORD):
        shutil.copy(DOCS / name, tmp_path)
    write_page(tmp_path)
    assert (tmp_path / PAGE).read_text() == (DOCS / PAGE).read_text(), "run `make manifold-page`"
    assert (tmp_path / DRAWING).read_text().lstrip().startswith("<svg")


def test_every_run_of_the_record_is_on_the_page(record):
    numbers = (DOCS / PAGE).read_text().split(BEGIN)[1].split(END)[0]
    for kind in (*KINDS, CONTROL):
        for seed, row in enumerate(record["trained"][kind]):
            (line,) = [x for x in numbers.splitlines() if x.startswith(f"| {kind}, {seed} |")]
            digits = 3 if kind == CONTROL else 2
            assert all(f"{share:.{digits}f}" in line for share in row["captured"].values())
    for name, row in record["tasks"].items():
        (line,) = [x for x in numbers.splitlines() if x.startswith(f"| {name} |")]
        assert f"{row['off_manifold']:.1e}" in line


def test_the_record_is_of_the_runs_as_they_are(record):
    wanted = configs()
    for kind in (*KINDS, CONTROL):
        expected = [wanted[kind, seed].run_id for seed in SEEDS]
        assert [row["run"] for row in record["trained"][kind]] == expected
    for name, setting in FROM_ZERO.items():
        assert record["tasks"][name]["run"] == facts.from_zero_config(setting).run_id
    assert set(record["tasks"]) == set(FROM_ZERO)


def test_the_yaml_of_the_page_is_a_run(tmp_path):
    (tmp_path / "recall.yaml").write_text(PAGE_TEXT.split("```yaml")[1].split("```")[0])
    assert RunConfig.from_yaml(tmp_path / "recall.yaml").study == "recall"


def test_shuffled_labels_can_only_be_memorised():
    shared = {key: value for key, value in RECALL.items() if key != "name"}
    task, honest = ShuffledLabels(**shared, sequences=64), AssociativeRecall(**shared)
    batch = task.batch(seed=0, k=3, size=4000)
    rows = np.column_stack([batch.tokens, batch.positions, batch.targets[:, -1]])
    assert len(np.unique(rows, axis=0)) == 64
    truth = honest.batch(seed=0, k=0, size=64)
    labels = {tuple(x): y for x, y in zip(truth.tokens, truth.targets[:, -1], strict=True)}
    right = [labels[tuple(x)] == y for x, y in zip(batch.tokens, batch.targets[:, -1], strict=True)]
    assert np.mean(right) < 0.3


@pytest.mark.slow
def test_a_record_is_measured_from_runs_and_read_back(tmp_path, monkeypatch):
    small = {"1-hop": replace(FROM_ZERO["1-hop"], steps=24)}
    monkeypatch.setattr(facts, "FROM_ZERO", small)
    monkeypatch.setattr(facts, "SEEDS", (0, 1))
    monkeypatch.setattr(facts, "KINDS", {kind: KINDS[kind] for kind in list(KINDS)[-1:]})
    monkeypatch.setattr(facts, "configs", lambda: configs(steps=20))
    monkeypatch.setattr(facts, "GROWTH_SAMPLES", 200)
    said = []
    found = facts.measure(tmp_path, said.append)
    assert len(said) == 3
    (kind,) = facts.KINDS
    assert [len(found["trained"][name]) for name in (kind, CONTROL)] == [2, 2]
    first = found["trained"][kind][0]
    assert first["step"][-1] == 20
    assert first["logit_error"] > 1e-6, "norms and an MLP have no exact lift"
    assert found["trained"][CONTROL][0]["logit_error"] < 1e-6
    assert found["tasks"]["1-hop"]["exact_share"]["exact_commutant"] < 1e-20
    assert facts.measure(tmp_path, said.append) == found
    assert len(said) == 3, "what is on record is not measured again"
