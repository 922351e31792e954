"""A run's folder: what is in it, and one line for each way in which it can be broken."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from training import RunConfig, open_run, train
from training.checkpoint import arrays_hash
from training.config import digest

CONFIG = {
    "task": {"name": "modular_addition", "modulus": 4, "lengths": [3], "format": "acot"},
    "family": {"name": "dense_ssm", "width": 4},
    "steps": 20,
    "batch_size": 8,
    "eval_size": 20,
    "train_size": 20,
}


@pytest.fixture
def run(tmp_path):
    old = os.umask(0o022)
    try:
        return train(RunConfig(**CONFIG), root=tmp_path)
    finally:
        os.umask(old)


def test_the_folder_is_as_documented(tmp_path, run):
    assert run.path == tmp_path / "study" / run.config.run_id
    assert sorted(p.name for p in run.path.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "status.json",
    ]
    assert run.steps == (0, 1, 2, 4, 8, 16, 20)
    kept = run.path / "checkpoints" / "step_00000016"
    assert sorted(p.name for p in kept.iterdir()) == [
        "meta.json",
        "model.safetensors",
        "optimizer.safetensors",
    ]
    assert {p.stat().st_mode & 0o777 for p in kept.iterdir()} == {0o644}
    meta = json.loads((kept / "meta.json").read_text())
    assert (meta["schema_version"], meta["step"], meta["torch_threads"]) == (1, 16, 1)
    time = run.task.evaluation(0, 1).tokens.shape[1]
    assert meta["tokens_seen"] == 16 * 8 * time
    assert {"python", "torch", "numpy"} <= set(meta["versions"])
    for name in ("config.json", "status.json"):
        assert json.loads((run.path / name).read_text())["schema_version"] == 1


def test_opening_gives_the_same_run(run):
    again = open_run(run.path)
    assert again.config == run.config
    assert again.run_id == run.run_id
    assert again.task == run.task
    assert again.family == run.family
    assert again.metrics.equals(run.metrics)


def test_a_checkpoint_is_what_was_trained(run):
    kept = run[16]
    assert kept.step == 16
    assert kept.time == pytest.approx(16e-3)
    assert kept.hash == arrays_hash(load_file(kept.path / "model.safetensors"))
    assert kept.metrics["step"] == 16
    assert set(kept.weights) == set(run.family.initialise(run.task, 0, torch.float32))
    with pytest.raises(ValueError, match="read-only"):
        kept.weights["unembed.W_U"][0, 0] = 1
    assert set(kept.optimizer) == {
        f"{slot}.{name}" for slot in ("exp_avg", "exp_avg_sq") for name in kept.weights
    }
    assert kept.params()["unembed.W_U"].dtype == torch.float32
    assert kept.params(torch.float64)["unembed.W_U"].dtype == torch.float64
    fresh = run.family.initialise(run.task, 0, torch.float32)
    assert all(np.array_equal(run[0].weights[name], fresh[name].numpy()) for name in fresh)


def test_slices_are_by_step(run):
    assert [kept.step for kept in run[2:16]] == [2, 4, 8]
    assert [kept.step for kept in run[:]] == list(run.steps)
    assert [kept.step for kept in run[::3]] == [0, 4, 20]
    assert run.last.step == 20
    for wrong in (slice(-3, None), slice(None, -1)):
        with pytest.raises(ValueError, match=r"steps are counted from 0, got \["):
            run[wrong]


def test_plain_sgd_has_no_memory(tmp_path):
    run = train(RunConfig(**CONFIG, optimiser={"name": "sgd", "lr": 0.1}), root=tmp_path)
    assert run.last.optimizer is None
    assert not (run.last.path / "optimizer.safetensors").exists()


def test_a_step_that_was_not_kept(run):
    with pytest.raises(ValueError, match="no checkpoint of step 3; allowed: 0, 1, 2, 4, 8, 16, 20"):
        run[3]


def _truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _other_values(file):
    save_file({name: value + 1 for name, value in load_file(file).items()}, file)


def _of_another_run(file):
    meta = json.loads(file.read_text())
    file.write_text(json.dumps({**meta, "run_id": "0123456789ab"}))


def _of_the_future(file):
    meta = json.loads(file.read_text())
    file.write_text(json.dumps({**meta, "schema_version": 7}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", _truncate, "truncated or not safetensors"),
        ("model.safetensors", _other_values, "not the file that was written with it"),
        ("model.safetensors", lambda file: file.unlink(), "cannot be read"),
        ("model.safetensors", lambda file: file.write_bytes(b""), "truncated or not safetensors"),
        ("meta.json", _truncate, "truncated or not JSON"),
        ("meta.json", lambda file: file.unlink(), "cannot be read"),
        ("meta.json", lambda file: file.write_text("[]"), "allowed: a JSON object"),
        ("meta.json", _of_another_run, "belongs to run '0123456789ab'; allowed here"),
        ("meta.json", _of_the_future, "schema_version 7; allowed: 1"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(run, name, damage, message):
    file = run[16].path / name
    damage(file)
    with pytest.raises(ValueError, match=message) as caught:
        _ = run[16].weights
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert run[8].weights  # the others still open


def test_a_checkpoint_of_another_step_is_refused(run):
    shutil.rmtree(run[8].path)
    shutil.copytree(run[16].path, run.path / "checkpoints" / "step_00000008")
    with pytest.raises(ValueError, match="is of step 16; allowed here: 8"):
        _ = run[8].weights


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: shutil.rmtree(path), "is no folder; allowed: a run's"),
        (lambda path: (path / "config.json").unlink(), "config.json: is missing"),
        (lambda path: _truncate(path / "config.json"), "config.json: is truncated or not JSON"),
        (lambda path: _of_the_future(path / "config.json"), "config.json: schema_version got 7"),
        (
            lambda path: (path / "config.json").write_text('{"colour": 1}'),
            "config.json: .*unknown key colour",
        ),
    ],
)
def test_a_folder_that_is_no_run(run, damage, message):
    damage(run.path)
    with pytest.raises(ValueError, match=message) as caught:
        open_run(run.path)
    assert str(run.path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, "config.json: is truncated or not JSON"),
        (_of_another_run, "config.json: is of run '0123456789ab'; allowed here"),
    ],
)
def test_training_does_not_write_into_the_folder_of_another(run, damage, message):
    damage(run.path / "config.json")
    with pytest.raises(ValueError, match=message):
        train(run.config, root=run.path.parent.parent)


def test_a_half_written_last_row_is_left_out(run):
    rows = len(run.metrics)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "validat')
    assert len(run.metrics) == rows


def _without(*keys):
    """Damage: the JSON object loses the entry at this path of keys."""

    def damage(file):
        whole = json.loads(file.read_text())
        part = whole
        for key in keys[:-1]:
            part = part[key]
        del part[keys[-1]]
        file.write_text(json.dumps(whole))

    return damage


@pytest.mark.parametrize(
    "keys", [("weights_sha256",), ("optimizer_sha256",), ("time",), ("engine",), ("engine", "best")]
)
def test_a_meta_file_that_lacks_something_is_refused_by_name(run, keys):
    file = run[16].path / "meta.json"
    _without(*keys)(file)
    for read in (lambda: run[16].hash, lambda: run[16].time, lambda: run[16].check()):
        with pytest.raises(ValueError, match=rf"lacks {'.'.join(keys)}") as caught:
            read()
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("whole", [True, False])
def test_without_checkpoints_it_says_so(run, whole):
    shutil.rmtree(run.path / "checkpoints")
    if not whole:
        (run.path / "checkpoints" / "step_x").mkdir(parents=True)
    for read in (lambda: run.last, lambda: run.steps, lambda: run[:], lambda: run[16]):
        with pytest.raises(ValueError, match="checkpoints: has no checkpoints"):
            read()
    with pytest.raises(ValueError, match=r"no checkpoints, but status\.json says done; delete"):
        train(run.config, root=run.path.parent.parent)


@pytest.mark.parametrize("damage", [lambda f: f.unlink(), lambda f: f.write_text("")])
def test_without_rows_the_metrics_have_their_columns(run, damage):
    damage(run.path / "metrics.jsonl")
    assert list(run.metrics.columns) == [
        *("step", "time", "train_loss", "validation_loss", "validation_accuracy")
    ]
    assert len(run.metrics) == 0
    assert run.last.metrics == {}


@pytest.mark.parametrize("row", ["3", '{"time": 0.1}', '{"step": "4"}', '{"step": 4, "time": "x"}'])
def test_a_row_that_is_no_row_is_refused_by_line(run, row):
    file = run.path / "metrics.jsonl"
    line = len(run.metrics) + 1
    file.write_text(file.read_text() + row + "\n")
    for read in (lambda: run.metrics, lambda: open_run(run.path)[16]):
        with pytest.raises(ValueError, match=rf"metrics\.jsonl: line {line} ") as caught:
            read()
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "lacks state, step, why, metrics, stack"),
        (
            '{"state": "fine", "step": 1, "why": "", "metrics": {}, "stack": []}',
            "state got 'fine'; allowed: running, done",
        ),
    ],
)
def test_a_status_that_is_none_is_refused_by_name(run, text, message):
    (run.path / "status.json").write_text(text)
    for read in (lambda: run.status, lambda: train(run.config, root=run.path.parent.parent)):
        with pytest.raises(ValueError, match=rf"status\.json: {message}"):
            read()


def test_a_configuration_edited_after_the_run_is_refused(run):
    file = run.path / "config.json"
    plain = json.loads(file.read_text())
    file.write_text(json.dumps({**plain, "batch_size": 9}))
    for read in (
        lambda: open_run(run.path),
        lambda: train(run.config, root=run.path.parent.parent),
    ):
        with pytest.raises(ValueError, match=r"config\.json: run_id .* edited after the run"):
            read()


def test_a_run_that_diverged_at_once_has_all_columns_and_says_when_it_was_measured(tmp_path):
    rule = {"name": "sgd", "lr": 1e30}
    run = train(RunConfig(**{**CONFIG, "eval_every": 10}, optimiser=rule), root=tmp_path)
    assert run.status["state"] == "diverged"
    assert run.status["metrics"]["step"] in set(run.metrics["step"])
    wild = {"name": "transformer", "layers": 1, "heads": 1, "width": 4, "init_std": 1e300}
    run = train(RunConfig(**{**CONFIG, "family": wild}), root=tmp_path)
    assert (run.status["state"], run.status["step"]) == ("diverged", 0)
    assert {"train_loss", "validation_loss", "validation_accuracy"} <= set(run.metrics.columns)
    assert run.metrics.dropna(subset=["validation_loss"]).empty
    assert train(run.config, root=tmp_path).status == run.status


def test_a_run_of_before_a_field_existed_opens_with_its_default(tmp_path, run):
    file = run.path / "config.json"
    plain = json.loads(file.read_text())
    del plain["run_id"], plain["dtype"]
    file.write_text(json.dumps({**plain, "run_id": digest(plain)}))
    opened = open_run(run.path)
    assert opened.run_id == digest(plain) != run.run_id
    assert opened.config == run.config
    assert opened.status["state"] == "done"
