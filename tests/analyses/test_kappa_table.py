"""The table of kappa: theory's numbers in its columns, bounds kept, the two files alike."""

import json

import pandas as pd
import pytest

from analyses.kappa_table import as_frame, kappa_table, write_table
from training import KappaStudy, NStar
from training.sharing.n_star import MemberOutcome, Trial
from training.sharing.sample_size import size_grid
from training.studies.folder import write_failure, write_search

TASK = {
    "name": "modular_addition",
    "modulus": 5,
    "lengths": [3, 4, 5],
    "format": "cot",
    "validation_size": 200,
}
CELL = {"task": TASK, "family": {"name": "dense_ssm", "width": 4}, "lrs": [1e-2], "steps": 50}
PLAN = KappaStudy.from_mapping(
    {
        "study": "table",
        "run": {"stop": {"loss": 0.02}},
        "data_seeds": [0, 1],
        "cells": [{**CELL, "name": "kappa"}, {**CELL, "name": "alone", "searches": "joint"}],
    }
)
FOUND = {"3": (58, 75), "4": (98, 127), "5": (165, 127), "joint": (1349, 1038)}
"""Theory, section 7: transformer CoT on Z_5, two data seeds."""


def member(root, state):
    return MemberOutcome(
        lr=1e-2,
        seed=0,
        state=state,
        step=30,
        train_loss=0.01,
        validation_loss=0.02 if state == "solved" else 0.9,
        accuracy=1.0,
        run=str(root / "table" / "0123456789ab"),
    )


def star(root, job, value):
    grid = size_grid(job.config.task.pool())
    below = [size for size in grid if value is None or size < value][-1]
    trials = [Trial(size=below, members=(member(root, "stopped"),), mixture={}, cause="data")]
    if value is not None:
        solved = member(root, "solved")
        trials.append(Trial(size=value, members=(solved,), mixture={}, cause=None))
    return NStar(
        value=value,
        interval=(below, value),
        censored=value is None,
        bottom=False,
        monotone=True,
        n50=value,
        complete=True,
        beyond=0.25 if job.search_name == "joint" else None,
        grid=grid,
        trials=tuple(trials),
        data_seed=job.data_seed,
        search=job.search,
        lrs=job.lrs,
        seeds=job.seeds,
        threshold=0.02,
    )


def record(root, found=FOUND, cells=("kappa", "alone")):
    for job in PLAN.jobs(cells):
        write_search(job, root, star(root, job, found[job.search_name][job.data_seed]))


def test_the_numbers_of_theory_section_8(tmp_path):
    record(tmp_path)
    whole, first, second = kappa_table(PLAN, tmp_path)[:3]
    assert (whole["data_seed"], first["data_seed"], second["data_seed"]) == (None, 0, 1)
    assert first["n_star"] == {"3": 58, "4": 98, "5": 165, "joint": 1349}
    assert first["kappa"] == pytest.approx(0.24, abs=0.005)
    assert second["kappa"] == pytest.approx(0.32, abs=0.005)
    assert first["kappa_sep"] == pytest.approx(0.75, abs=0.005)
    assert second["kappa_sep"] == pytest.approx(0.93, abs=0.005)
    assert whole["kappa"] == pytest.approx((first["kappa"] * second["kappa"]) ** 0.5)
    assert whole["n_star"]["joint"] == pytest.approx((1349 * 1038) ** 0.5)
    assert whole["bound"] == "="
    assert whole["kappa_low"] < whole["kappa"] < whole["kappa_high"]
    assert "data" in whole["interval_covers"]
    assert "data" not in first["interval_covers"]
    assert whole["beyond"] == 0.25
    assert first["causes"]["3"] == {"45": "data"}
    assert first["member_steps"] == 4 * 2 * 30


def test_a_joint_search_has_no_kappa(tmp_path):
    record(tmp_path)
    rows = [row for row in kappa_table(PLAN, tmp_path) if row["cell"] == "alone"]
    assert [row["n_star"] for row in rows][1:] == [{"joint": 1349}, {"joint": 1038}]
    assert {row["kappa"] for row in rows} == {row["bound"] for row in rows} == {None}


def test_a_censored_search_is_named_and_makes_a_bound(tmp_path):
    record(tmp_path, FOUND | {"3": (None, 75)})
    whole, first, second = kappa_table(PLAN, tmp_path)[:3]
    assert (whole["bound"], first["bound"], second["bound"]) == (">=", ">=", "=")
    assert whole["censored"] == first["censored"] == ["3"]
    assert second["censored"] == []
    assert first["n_star"]["3"] is first["kappa_sep"] is first["ratio"] is None
    assert whole["kappa_high"] is None


def test_both_files_hold_the_same_rows_and_say_what_is_missing(tmp_path):
    (tmp_path / "table").mkdir()
    empty = write_table(PLAN, tmp_path)
    assert empty["rows"] == []
    assert len(empty["missing"]) == 10
    record(tmp_path, cells=["alone"])
    write_failure(PLAN.jobs()[0], tmp_path, "no luck", "")
    table = write_table(PLAN, tmp_path)
    assert json.loads((tmp_path / "table" / "table.json").read_text()) == table
    assert {row["cell"] for row in table["rows"]} == {"alone"}
    assert len(table["missing"]) == 8
    assert table["failures"] == {"kappa.0.joint": "no luck"}
    record(tmp_path)
    rows = write_table(PLAN, tmp_path)["rows"]
    frame = pd.read_parquet(tmp_path / "table" / "table.parquet")
    pd.testing.assert_frame_equal(frame, as_frame(rows), check_dtype=False)
    assert frame["n_star_joint"].tolist()[1:3] == [1349, 1038]
    assert frame["lengths"][0] == "3, 4, 5"
    assert frame["n_star_3"].isna().tolist() == [False] * 3 + [True] * 3
    assert not list((tmp_path / "table").glob(".*.partial"))
