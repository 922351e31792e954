"""The study's configuration, its presets, its folder, and what it is said to cost."""

import json
import shutil
from dataclasses import replace

import pytest

from training.config import ConfigError
from training.sharing.n_star import MemberOutcome, NStar, Trial
from training.studies.estimate import estimate
from training.studies.folder import (
    claim,
    read_failure,
    read_search,
    searches_of_cell,
    write_failure,
    write_search,
)
from training.studies.scale_out import left_to_do
from training.studies.status import study_status
from training.studies.study import Job, KappaStudy, preset, presets

TASK = {"name": "modular_addition", "modulus": 3, "lengths": [4, 5], "format": "acot"}
SSM = {"name": "dense_ssm", "width": 4}
CELL = {"name": "a", "task": TASK, "family": SSM, "lrs": [1e-2, 3e-3], "steps": 50}
STUDY = {
    "study": "tiny",
    "run": {"eval_every": 10, "stop": {"loss": 0.05}, "checkpoints": {"every": None}},
    "seeds": [0, 1],
    "data_seeds": [0, 3],
    "cells": [CELL],
}


def study(**changes):
    return KappaStudy.from_mapping(STUDY | changes)


def star(root, job, value=20):
    run = str(root / job.config.study / "0123456789ab")
    member = MemberOutcome(
        lr=1e-2,
        seed=0,
        state="solved",
        step=30,
        train_loss=0.01,
        validation_loss=0.02,
        accuracy=1.0,
        run=run,
    )
    return NStar(
        value=value,
        interval=(16, value),
        censored=False,
        bottom=False,
        monotone=True,
        n50=value,
        complete=True,
        beyond=None,
        grid=(12, 16, 20),
        trials=(Trial(size=20, members=(member,), mixture={"4": 10, "5": 10}, cause=None),),
        data_seed=job.data_seed,
        search="descent",
        lrs=job.lrs,
        seeds=job.seeds,
        threshold=0.05,
    )


def test_a_job_for_every_cell_data_seed_and_search():
    plan = study(cells=[CELL, {**CELL, "name": "b", "searches": "joint", "seeds": [7]}])
    assert [job.name for job in plan.jobs()] == [
        *("a.0.joint", "a.0.5", "a.0.4", "a.3.joint", "a.3.5", "a.3.4"),
        *("b.0.joint", "b.3.joint"),
    ]
    joint, longest = plan.jobs()[:2]
    assert joint.config.seeds.data == 0
    assert joint.config.stop.loss == 0.05
    assert joint.seeds == (0, 1)
    assert longest.config.task == replace(joint.config.task, lengths=(5,), longest=5)
    assert plan.jobs(["b"])[0].seeds == (7,)


def test_jobs_survive_json_and_equal_searches_have_equal_identities():
    plan = study(cells=[CELL, {**CELL, "name": "b"}, {**CELL, "name": "c", "lrs": [1e-2]}])
    jobs = plan.jobs()
    for job in jobs:
        assert Job.from_plain(json.loads(json.dumps(job.plain()))) == job
    names = {}
    for job in jobs:
        names.setdefault(job.identity, []).append(job.name)
    assert len(names) == 12
    assert ["a.3.5", "b.3.5"] in names.values()


def test_the_canonical_text_reads_back_to_an_equal_study():
    plan = study()
    text = json.dumps(plan.canonical())
    assert KappaStudy.from_mapping(json.loads(text)).canonical() == json.loads(text)


def test_tables_are_products():
    family = {"family": SSM, "lrs": [1e-2], "steps": 50}
    table = {"tasks": {"Z3": TASK}, "families": {"ssm": family}, "formats": ["cot", "acot"]}
    plan = study(tables=[table])
    assert [cell.name for cell in plan.cells] == ["Z3-ssm-cot", "Z3-ssm-acot", "a"]
    assert [cell.task.format for cell in plan.cells] == ["cot", "acot", "acot"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cells": []}, ["cells got none"]),
        ({"cels": [CELL]}, ["unknown key cels", "allowed: cells, data_seeds"]),
        ({"cells": [{**CELL, "lr": 1}]}, ["unknown key cells.0.lr", "lrs"]),
        ({"cells": [CELL, CELL]}, ["the name a is there twice"]),
        ({"cells": [{**CELL, "name": "a.b"}]}, ["cells.0.name"]),
        ({"cells": [{**CELL, "lrs": []}]}, ["a.lrs got []"]),
        ({"cells": [{**CELL, "lrs": [1e-2, 0.0]}]}, ["a.lrs got [0.01, 0.0]", "above 0"]),
        ({"cells": [{**CELL, "task": {**TASK, "lengths": [4]}}]}, ["cell a", "two or more"]),
        ({"cells": [{**CELL, "task": {**TASK, "lengths": [1, 4]}}]}, ["lengths"]),
        ({"cells": [{**CELL, "task": {**TASK, "modulus": 1}}]}, ["modulus"]),
        ({"seeds": [0, 0]}, ["seeds got [0, 0]"]),
        ({"data_seeds": [-1]}, ["data_seeds got [-1]"]),
        ({"seeds": [2**63]}, ["seeds got [9223372036854775808]", "2^63 - 1"]),
        ({"seeds": 3}, ["seeds got 3; allowed: a list"]),
        ({"cells": [{**CELL, "steps": "many"}]}, ["cells.0.steps got 'many'; allowed: a whole"]),
        ({"cells": [{**CELL, "lrs": ["fast"]}]}, ["cells.0.lrs.0 got 'fast'; allowed: a number"]),
        ({"largest": 0}, ["largest got 0; allowed: 1 or more"]),
        ({"search": "guess"}, ["search got 'guess'", "descent"]),
        ({"run": {}}, ["cell a: run.stop.loss is None"]),
        ({"run": {"stop": {"loss": 1}, "steps": 3}}, ["run got steps"]),
        ({"run": {"stop": {"los": 1}}}, ["cell a: unknown key stop.los"]),
        ({"study": "a/b"}, ["cell a: study got 'a/b'"]),
        ({"schema_version": 99}, ["schema_version got 99"]),
        ({"tables": [{"task": {}}]}, ["a table has tasks"]),
    ],
)
def test_what_is_wrong_is_named_in_one_line(changes, words):
    with pytest.raises(ConfigError) as error:
        study(**changes)
    said = str(error.value)
    assert "\n" not in said
    for word in words:
        assert word in said


def test_yaml_may_merge_mappings_but_not_repeat_keys(tmp_path):
    file = tmp_path / "study.yaml"
    text = """
study: merged
run: {stop: {loss: 2e-2}}
cells:
  - {name: a, task: &t {name: modular_addition, modulus: 3, lengths: [4, 5], format: acot},
     family: {name: dense_ssm, width: 4}, lrs: [1e-2], steps: 5}
  - {name: b, task: {<<: *t, format: cot}, family: {name: dense_ssm, width: 4}, lrs: [1e-2],
     steps: 5}
"""
    file.write_text(text)
    assert [cell.task.format for cell in KappaStudy.from_yaml(file).cells] == ["acot", "cot"]
    file.write_text(text + "study: again\n")
    with pytest.raises(ConfigError, match=r"study\.yaml: .*study is there twice"):
        KappaStudy.from_yaml(file)


def test_presets_are_studies():
    assert presets() == ("paper", "small")
    small = preset("small")
    names = [cell.name for cell in small.cells]
    families, formats = ("transformer", "lstm", "dense_ssm", "mamba"), ("outcome", "cot", "acot")
    assert names[:12] == [f"Z4-{family}-{form}" for family in families for form in formats]
    assert len(small.data_seeds) == 2
    usual = [cell for cell in small.cells if not cell.name.startswith("deep")]
    grids = {(cell.seeds, small.config(cell).stop) for cell in usual}
    assert len(grids) == 1
    for family in families:
        alike = {(c.lrs, c.steps) for c in usual if type(c.family) is _kind(small, family)}
        assert len(alike) == 1, "equal grids inside a comparison"
    with pytest.raises(ValueError, match="got 'large'; allowed: paper, small"):
        preset("large")


def _kind(plan, family):
    return type(next(c.family for c in plan.cells if c.name == f"Z4-{family}-cot"))


@pytest.mark.slow
def test_the_paper_preset_has_the_settings_of_the_paper():
    paper = preset("paper")
    assert (paper.search, paper.largest, len(paper.seeds)) == ("paper", 16_000_000, 5)
    tasks = {cell.name.split("-")[0] for cell in paper.cells}
    assert len(tasks) == 10 * 4
    assert {cell.steps for cell in paper.cells} == {250_000}
    assert {cell.lrs for cell in paper.cells} == {(1e-3, 1e-4, 1e-5)}
    assert {paper.config(cell).stop.loss for cell in paper.cells} == {1e-4}


def test_a_search_on_record_is_found_again_wherever_the_folder_is(tmp_path):
    plan = study()
    first, second = plan.jobs()[:2]
    here, there = tmp_path / "here", tmp_path / "there"
    claim(plan, here)
    assert read_search(first, here) is None
    write_failure(first, here, "no luck", "trace")
    assert read_failure(first, here) == "no luck"
    write_search(first, here, star(here, first))
    assert read_failure(first, here) is None
    assert read_search(first, here) == star(here, first)
    assert read_search(second, here) is None
    here.rename(there)
    assert read_search(first, there) == star(there, first)
    assert str(tmp_path) not in (there / "tiny" / "searches" / "a.0.joint.json").read_text()


def test_a_study_in_a_folder_of_another_name_is_not_begun_anew(tmp_path):
    plan = study()
    claim(plan, tmp_path)
    (tmp_path / "tiny").rename(tmp_path / "old")
    with pytest.raises(ValueError, match=r"old to .*tiny, or use another root"):
        claim(plan, tmp_path)
    assert not (tmp_path / "tiny").exists()
    (line,) = study_status(tmp_path / "old").damaged
    assert "is of the study 'tiny'" in line
    (tmp_path / "old").rename(tmp_path / "tiny")
    claim(plan, tmp_path)
    assert study_status(tmp_path / "tiny").damaged == ()


def test_a_damaged_record_or_one_of_other_settings_is_searched_again(tmp_path):
    plan = study()
    job = plan.jobs()[0]
    write_search(job, tmp_path, star(tmp_path, job))
    assert read_search(replace(job, seeds=(0,)), tmp_path) is None
    file = tmp_path / "tiny" / "searches" / f"{job.name}.json"
    file.write_text(file.read_text()[:-30])
    assert read_search(job, tmp_path) is None


def test_a_cell_is_complete_with_its_last_search(tmp_path):
    plan = study()
    for job in plan.jobs():
        assert searches_of_cell(plan, plan.cells[0], tmp_path) is None
        assert left_to_do(plan, tmp_path)[0] == job
        write_search(job, tmp_path, star(tmp_path, job))
    found = searches_of_cell(plan, plan.cells[0], tmp_path)
    names = {seed: sorted(of) for seed, of in found.items()}
    assert names == {0: ["4", "5", "joint"], 3: ["4", "5", "joint"]}
    assert left_to_do(plan, tmp_path) == []


def test_a_cell_may_have_more_replicates():
    more = study(cells=[CELL, {**CELL, "name": "b", "data_seeds": [7, 8, 9]}])
    found = {cell: {job.data_seed for job in more.jobs([cell])} for cell in ("a", "b")}
    assert found == {"a": {0, 3}, "b": {7, 8, 9}}
    with pytest.raises(ConfigError, match=r"b\.data_seeds got \[1, 1\]"):
        study(cells=[{**CELL, "name": "b", "data_seeds": [1, 1]}])


def test_a_folder_of_another_study_is_refused(tmp_path):
    stamp = claim(study(), tmp_path) / "study.json"
    before = stamp.stat().st_mtime_ns
    claim(study(), tmp_path)
    assert stamp.stat().st_mtime_ns == before
    claim(study(cells=[CELL, {**CELL, "name": "added"}]), tmp_path)
    with pytest.raises(ValueError, match=r"cells added are on record but not .*use --cell"):
        claim(study(), tmp_path)
    with pytest.raises(ValueError, match=r"cells \(a\) differs\); give the study another name"):
        claim(study(cells=[{**CELL, "steps": 60}]), tmp_path)
    claim(study(cells=[CELL, {**CELL, "name": "added"}]), tmp_path)
    shutil.rmtree(tmp_path / "tiny")
    claim(study(), tmp_path)
    with pytest.raises(ValueError, match=r"cells \(a\) differs"):
        claim(study(cells=[{**CELL, "data_seeds": [0, 4]}]), tmp_path)
    claim(study(cells=[{**CELL, "data_seeds": [0, 3, 4]}]), tmp_path)
    with pytest.raises(ValueError, match=r"cells \(a\) differs"):
        claim(study(), tmp_path)
    shutil.rmtree(tmp_path / "tiny")
    claim(study(), tmp_path)
    with pytest.raises(ValueError, match=r"another configuration \(cells \(a\) differs\)"):
        claim(study(cells=[{**CELL, "steps": 60}]), tmp_path)
    with pytest.raises(ValueError, match=r"\(seeds, cells \(a\) differ\)"):
        claim(study(seeds=[5], data_seeds=[6]), tmp_path)
    stamp.write_text(stamp.read_text().replace('"schema_version": 1', '"schema_version": 0', 1))
    with pytest.raises(ValueError, match=r"study\.json: schema_version 0; allowed: 1"):
        claim(study(), tmp_path)
    stamp.write_text("{")
    with pytest.raises(ValueError, match=r"study\.json: is truncated"):
        claim(study(), tmp_path)
    with pytest.raises(ValueError, match="cannot be written here"):
        claim(study(), tmp_path / "tiny" / "study.json")


def test_what_is_left_to_do_is_not_said_of_another_study(tmp_path):
    left_to_do(study(), tmp_path)
    assert not list(tmp_path.iterdir())
    stamp = claim(study(), tmp_path) / "study.json"
    before = stamp.stat().st_mtime_ns
    assert left_to_do(study(cells=[CELL, {**CELL, "name": "added"}]), tmp_path)
    with pytest.raises(ValueError, match="seeds differs"):
        left_to_do(study(seeds=[5]), tmp_path)
    assert stamp.stat().st_mtime_ns == before


def test_costs_grow_with_steps_members_and_sizes():
    plan = study(cells=[CELL, {**CELL, "name": "b", "steps": 500}])
    found = estimate(plan, plan.jobs())
    assert set(found) == {job.name for job in plan.jobs()}
    short, long = found["a.0.joint"], found["b.0.joint"]
    assert long.cpu_seconds == pytest.approx(10 * short.cpu_seconds)
    assert long.runs == short.runs > found["a.0.4"].runs
    assert 0 < short.bytes < long.bytes
    without = study(n50=False)
    halves = estimate(without, without.jobs())
    assert halves["a.0.joint"].runs < short.runs
