"""What a study's small files say while it is trained, after a kill, and afterwards."""

import json
from dataclasses import replace

import pytest

from training import KappaStudy, RunConfig, study_status, train, train_many
from training.run import create
from training.sharing.n_star import NStar
from training.studies.folder import claim, write_failure, write_search

BASE = {
    "task": {"name": "modular_addition", "modulus": 4, "lengths": [3, 4], "format": "acot"},
    "family": {"name": "dense_ssm", "width": 6},
    "steps": 40,
    "batch_size": 16,
    "eval_every": 10,
    "eval_size": 40,
}


def star():
    return NStar(
        value=12,
        interval=(8, 12),
        censored=False,
        bottom=False,
        monotone=True,
        n50=None,
        complete=True,
        beyond=None,
        grid=(8, 12),
        trials=(),
        data_seed=0,
        search="descent",
        lrs=(1e-2,),
        seeds=(0,),
        threshold=0.5,
    )


def test_runs_are_counted_by_state(tmp_path):
    config = RunConfig(**BASE)
    seen = []

    def look(step, total, latest):
        seen.append(study_status(tmp_path / "study"))
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, root=tmp_path, progress=look)
    assert seen[-1].runs == {"running": 1}
    assert seen[-1].seconds_left is not None
    assert 0 <= seen[-1].seconds_left < 60
    after = study_status(tmp_path)
    assert (after.runs, after.seconds_left) == ({"interrupted": 1}, None)
    done = config.replace(seeds={"init": 1})
    train(done, root=tmp_path)
    create(config.replace(seeds={"init": 2}), tmp_path)
    damaged = create(config.replace(seeds={"init": 3}), tmp_path)
    (damaged.path / "status.json").write_text("{")
    found = study_status(tmp_path / "study")
    assert found.runs == {"done": 1, "interrupted": 1, "waiting": 1, "damaged": 1}
    assert str(damaged.path) in found.damaged[0]
    assert found.steps_planned == 120
    assert 40 < found.steps < 80
    files = [file for file in (tmp_path / "study").rglob("*") if file.is_file()]
    assert found.bytes == sum(file.stat().st_size for file in files)
    assert found.searches is None
    assert json.loads(json.dumps(found.record()))["schema_version"] == 1


def test_halted_and_solved(tmp_path):
    fast = RunConfig(**{**BASE, "steps": 300}, stop={"loss": 0.5}, optimiser={"lr": 1e-2})
    slow = fast.replace(optimiser={"lr": 1e-5})
    train_many([fast, slow], root=tmp_path, stop_at_first_success=True)
    assert study_status(tmp_path).runs == {"solved": 1, "halted": 1}


def test_searches_of_a_study_of_kappa(tmp_path):
    run = {key: BASE[key] for key in ("batch_size", "eval_every", "eval_size")}
    run |= {"stop": {"loss": 0.5}, "checkpoints": {"doubling": False, "every": None}}
    cell = {"name": "ssm", "task": BASE["task"], "family": BASE["family"], "lrs": [1e-2]}
    study = KappaStudy(
        study="tiny", run=run, seeds=[0], data_seeds=[0], cells=[cell | {"steps": 9}]
    )
    folder = claim(study, tmp_path)
    assert study_status(folder).searches == {"done": 0, "failed": 0, "total": 3}
    joint, longest, shortest = study.jobs()
    write_search(joint, tmp_path, star())
    write_failure(longest, tmp_path, "no luck", "trace")
    found = study_status(folder)
    assert found.searches == {"done": 1, "failed": 1, "total": 3}
    assert (found.runs, found.seconds_left) == ({}, None)
    write_failure(joint, tmp_path, "no luck", "trace")
    assert study_status(folder).searches == {"done": 1, "failed": 1, "total": 3}
    (folder / "searches" / f"{shortest.name}.json").write_text("{}")
    write_search(replace(longest, largest=50), tmp_path, star())
    (folder / "searches" / "other.0.joint.json").write_text("{}")
    assert study_status(folder).searches == {"done": 1, "failed": 0, "total": 3}
    (folder / "failures" / f"{shortest.name}.json").write_text("{")
    assert study_status(folder).searches == {"done": 1, "failed": 1, "total": 3}
    write_search(longest, tmp_path, star())
    assert study_status(folder).searches == {"done": 2, "failed": 1, "total": 3}


def test_neither_runs_nor_a_study(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="has no runs"):
            study_status(folder)
