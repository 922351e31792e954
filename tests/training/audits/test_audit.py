"""Nothing is found in healthy runs, each planted corruption is, and the file is named."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from training import RunConfig, audit, open_run, prune, train, train_many
from training.audits.finding import KINDS, Finding
from training.checkpoint import arrays_hash

SUM = {"name": "modular_addition", "modulus": 4, "lengths": [3, 4], "format": "acot"}
RECALL = {"name": "associative_recall", "n_blocks": 2, "n_common": 4, "n_rare": 4}
RECALL |= {"track_slots": 3, "f_r": 0.4, "f_v": 0.4}
CELLS = {
    "dense_ssm": (SUM, {"name": "dense_ssm", "width": 8}, 1e-2),
    "transformer": (SUM, {"name": "transformer", "layers": 1, "heads": 2, "width": 16}, 3e-3),
    "recall": (RECALL, {"name": "attention_only"}, 3e-3),
    "zeros": (RECALL, {"name": "attention_only", "scale": 0.0}, 3e-3),
}


def config(cell, **changes):
    task, family, lr = CELLS[cell]
    base = {"study": cell, "task": task, "family": family, "optimiser": {"lr": lr}}
    small = {"steps": 300, "batch_size": 32, "eval_every": 100, "eval_size": 40}
    return RunConfig(**{**base, **small, **changes})


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """For each cell two seeds."""
    root = tmp_path_factory.mktemp("runs")
    for cell in CELLS:
        train_many([config(cell, seeds={"init": s, "data": s}) for s in (0, 1)], root=root)
    return root


def copy(studies, tmp_path, cell, seed=0):
    source = studies / cell / config(cell, seeds={"init": seed, "data": seed}).run_id
    return open_run(shutil.copytree(source, tmp_path / cell / source.name))


def file(run, step, name="model.safetensors"):
    return run[step].path / name


def weights(run, step):
    return {name: value.copy() for name, value in load_file(file(run, step)).items()}


def put(run, step, arrays):
    """Weights that a forger fits with their hash."""
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    save_file(arrays, file(run, step))
    edit(file(run, step, "meta.json"), weights_sha256=arrays_hash(arrays))


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def unrelated(run):
    drawn = run.family.initialise(run.task, 99, torch.float32)
    return {name: value.numpy() for name, value in drawn.items()}


def test_nothing_is_found_in_healthy_runs(studies):
    found = audit(studies)
    assert found.findings == ()
    assert (found.runs, found.checkpoints) == (8, 8 * len(open_run_of(studies).steps))
    assert found.descent == 6, "not applicable to zero starts"
    assert audit(studies / "recall", read_weights=False).findings == ()
    assert json.loads(json.dumps(found.record()))["findings"] == []


def open_run_of(studies, cell="dense_ssm"):
    return open_run(studies / cell / config(cell, seeds={"init": 0, "data": 0}).run_id)


def final_as_early(run):
    shutil.copy(file(run, 300), file(run, 4))
    edit(file(run, 4, "meta.json"), weights_sha256=run.last.hash)
    return "final_as_early", 4


def nearly_final_as_early(run):
    chance = np.random.default_rng(0)
    last = weights(run, 300)
    for name in last.keys() - set(run.family.frozen):
        last[name] *= 1 + 1e-3 * chance.normal(size=last[name].shape).astype("f")
    put(run, 8, last)
    return "final_as_early", 8


def duplicate(run):
    put(run, 16, weights(run, 8))
    return "duplicate", 16


def copied_folder(run):
    shutil.copytree(run[64].path, run[32].path, dirs_exist_ok=True)
    return "out_of_order", 32


def copied_folder_with_another_step(run):
    shutil.copytree(run[64].path, run[32].path, dirs_exist_ok=True)
    edit(file(run, 32, "meta.json"), step=32)
    return "out_of_order", 32


def shuffled_metrics(run):
    rows = (run.path / "metrics.jsonl").read_text().splitlines()
    rows[3], rows[4] = rows[4], rows[3]
    (run.path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    return "out_of_order", 4


def wrong_weights(run):
    save_file({name: 1.01 * value for name, value in weights(run, 1).items()}, file(run, 1))
    return "hash_mismatch", 1


def wrong_optimiser(run):
    shutil.copy(file(run, 2, "optimizer.safetensors"), file(run, 1, "optimizer.safetensors"))
    return "hash_mismatch", 1


def truncated(run):
    file(run, 2).write_bytes(file(run, 2).read_bytes()[:50])
    return "unreadable", 2


def torn_meta(run):
    file(run, 2, "meta.json").write_text("{")
    return "unreadable", 2


def edited_configuration(run):
    edit(run.path / "config.json", steps=301)
    return "unreadable", None


def not_a_number(run):
    arrays = weights(run, 128)
    next(iter(arrays.values())).flat[0] = np.nan
    put(run, 128, arrays)
    return "not_finite", 128


def another_shape(run):
    put(run, 128, {f"{name}.x": value for name, value in weights(run, 128).items()})
    return "other_shape", 128


def jump(run):
    arrays = weights(run, 256)
    largest = max(arrays, key=lambda name: arrays[name].size)
    np.random.default_rng(0).shuffle(arrays[largest].reshape(-1))
    put(run, 256, arrays)
    return "jump", 256


def jump_at_the_end(run):
    put(run, 300, {name: 9 * value for name, value in weights(run, 300).items()})
    return "jump", 300


def unrelated_end(run):
    put(run, 300, unrelated(run))
    return "jump", 300


def another_start(run):
    put(run, 0, unrelated(run))
    return "not_descended", 1


def another_run(run):
    twin = train(config("dense_ssm", seeds={"init": 5, "data": 5}), root=run.path.parent / "twin")
    for step in run.steps[4:]:
        put(run, step, weights(twin, step))
    return "not_descended", 8


def threads(run):
    edit(file(run, 300, "meta.json"), torch_threads=2)
    return "mixed_threads", 300


def versions(run):
    for step in run.steps[-2:]:
        made = json.loads(file(run, step, "meta.json").read_text())["versions"]
        edit(file(run, step, "meta.json"), versions=made | {"torch": "1.0"})
    return "mixed_versions", 256


def lost_end(run):
    shutil.rmtree(run[300].path)
    return "missing", 300


def lost_start(run):
    shutil.rmtree(run[0].path)
    return "missing", 0


PLANTS = [final_as_early, nearly_final_as_early, duplicate, copied_folder, shuffled_metrics]
PLANTS += [copied_folder_with_another_step, wrong_weights, wrong_optimiser, truncated, torn_meta]
PLANTS += [edited_configuration, not_a_number, another_shape, jump, jump_at_the_end, lost_end]
PLANTS += [another_start, another_run, threads, versions, lost_start]
SMALL_FILES = {"out_of_order", "missing", "mixed_threads", "mixed_versions"}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_corruption_is_found_and_named(studies, tmp_path, plant):
    run = copy(studies, tmp_path, "dense_ssm")
    kind, step = plant(run)
    found = audit(run.path).findings
    assert (kind, step) in {(each.kind, each.step) for each in found}, found
    named = [each for each in found if (each.kind, each.step) == (kind, step)]
    for each in found:
        assert each.kind in KINDS
        assert each.file.startswith(str(run.path))
        assert "\n" not in each.message
    if step is not None and kind not in ("missing",) and plant is not shuffled_metrics:
        assert f"step_{step:08d}" in named[0].file
    again = {each.kind for each in audit(run.path, read_weights=False).findings}
    assert kind in again or kind not in SMALL_FILES
    others = {each.step for each in found} - {step}
    assert not others or plant in (copied_folder, copied_folder_with_another_step, duplicate), found


@pytest.mark.parametrize("read_weights", [True, False])
def test_a_run_that_lost_all_its_checkpoints_is_found(studies, tmp_path, read_weights):
    run = copy(studies, tmp_path, "dense_ssm")
    for step in run.steps:
        shutil.rmtree(run[step].path)
    found = audit(run.path, read_weights=read_weights)
    assert (found.runs, found.checkpoints, found.descent) == (1, 0, 0)
    assert [(each.kind, each.step) for each in found.findings] == [("missing", 300)]
    (run.path / "status.json").unlink()
    with pytest.raises(ValueError, match="has no checkpoints to look at"):
        audit(run.path, read_weights=read_weights)


def test_a_finding_is_of_a_known_kind(tmp_path):
    with pytest.raises(ValueError, match="kind got 'odd'; allowed: unreadable"):
        Finding.at("odd", None, tmp_path, "")


@pytest.mark.parametrize("cell", ["transformer", "recall"])
@pytest.mark.parametrize("plant", [nearly_final_as_early, another_start, not_a_number])
def test_it_is_found_in_other_families_too(studies, tmp_path, cell, plant):
    run = copy(studies, tmp_path, cell)
    kind, step = plant(run)
    assert {(each.kind, each.step) for each in audit(run.path).findings} == {(kind, step)}


def test_a_last_step_that_is_nothing_like_the_path_to_it(studies, tmp_path):
    run = copy(studies, tmp_path, "recall")
    kind, step = unrelated_end(run)
    assert {(each.kind, each.step) for each in audit(run.path).findings} == {(kind, step)}


def test_runs_that_differ_in_their_seeds_alone_are_compared(studies, tmp_path):
    one, two = (copy(studies, tmp_path, "dense_ssm", seed) for seed in (0, 1))
    for step in two.steps:
        edit(file(two, step, "meta.json"), torch_threads=4)
    found = audit(tmp_path / "dense_ssm").findings
    assert [each.kind for each in found] == ["mixed_threads"]
    assert {one.run_id, two.run_id} == {
        word.strip(",")
        for word in found[0].message.split()
        if word.strip(",") in (one.run_id, two.run_id)
    }


def test_a_run_at_rest_may_stand_still(tmp_path):
    """A training loss of exactly zero moves nothing; without that the same steps are copies."""
    run = train(config("dense_ssm", steps=20), root=tmp_path)
    put(run, 20, weights(run, 16))
    assert [each.kind for each in audit(run.path).findings] == ["duplicate"]
    rows = [json.loads(row) for row in (run.path / "metrics.jsonl").read_text().splitlines()]
    rows[-1]["train_loss"] = 0.0
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert audit(run.path).findings == ()


def test_a_run_that_diverged_may_end_in_a_leap(tmp_path):
    wild = config("dense_ssm", optimiser={"name": "sgd", "lr": 3.0, "momentum": 0.9})
    run = train(wild, root=tmp_path)
    assert run.status["state"] == "diverged"
    assert audit(run.path).findings == ()


NAMES = ["step_{}.safetensors", "checkpoint-{}/model.safetensors", "m7/pytorch_{}.safetensors"]


@pytest.mark.parametrize("name", [*NAMES, "seed_3/Epoch{}/weights.safetensors"])
@pytest.mark.parametrize("cell", ["dense_ssm", "transformer", "recall"])
def test_folders_of_strangers(studies, tmp_path, cell, name):
    run = open_run_of(studies, cell)
    places = {step: tmp_path / name.format(step) for step in run.steps}
    for step, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file(run, step), place)
    (tmp_path / "optimizer_3.safetensors").write_bytes(b"not looked at")
    found = audit(tmp_path)
    assert (found.runs, found.checkpoints, found.findings) == (1, len(places), ())
    assert found.descent == 1
    shutil.copy(places[300], places[8])
    save_file({k: np.full_like(v, np.nan) for k, v in weights(run, 64).items()}, places[64])
    kinds = {(each.kind, each.step, each.file) for each in audit(tmp_path).findings}
    assert kinds == {
        ("final_as_early", 8, str(places[8])),
        ("not_finite", 64, str(places[64])),
    }
    save_file(unrelated(run), places[0])
    assert ("not_descended", 1) in {(e.kind, e.step) for e in audit(tmp_path).findings}


def test_parts_and_series_of_strangers(studies, tmp_path):
    run = open_run_of(studies)
    for seed in (0, 1):
        for step in run.steps:
            folder = tmp_path / f"seed{seed}" / f"global_step{step}"
            folder.mkdir(parents=True)
            names = sorted(weights(run, step))
            tensors = {name: torch.tensor(weights(run, step)[name]).bfloat16() for name in names}
            half = len(names) // 2
            for part, chosen in enumerate((names[:half], names[half:]), start=1):
                place = folder / f"model-0000{part}-of-00002.safetensors"
                save_torch({name: tensors[name] for name in chosen}, place)
    found = audit(tmp_path)
    assert (found.runs, found.checkpoints) == (2, 2 * len(run.steps))
    assert found.findings == ()


def test_nothing_to_look_at(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        audit(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no checkpoints"):
        audit(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["dense_ssm", "transformer", "recall"])
@pytest.mark.parametrize("rate", [0.3, 10])
def test_nothing_is_found_in_long_healthy_runs(tmp_path, cell, rate):
    """Far from step 0, at ordinary rates and where training nearly breaks."""
    lr = CELLS[cell][2] * rate
    grid = [{"init": s, "data": s} for s in range(3)]
    train_many(
        [config(cell, steps=2000, optimiser={"lr": lr}, seeds=seeds) for seeds in grid],
        root=tmp_path,
    )
    assert audit(tmp_path).findings == ()
    for every in (256, 1024):
        prune(tmp_path, keep="every", every=every)
        assert audit(tmp_path).findings == (), "kept more sparsely"


@pytest.mark.parametrize("name", ["status.json", "metrics.jsonl"])
def test_a_damaged_small_file_is_a_finding_and_the_rest_is_looked_at(tmp_path, name):
    config = RunConfig(
        task={"name": "modular_addition", "modulus": 4, "lengths": [3], "format": "acot"},
        family={"name": "dense_ssm", "width": 4}, steps=20, batch_size=8, eval_size=20,
    )  # fmt: skip
    first, second = (train(config.replace(seeds={"init": s}), root=tmp_path) for s in (0, 1))
    (first.path / name).write_text("{\n{\n")
    found = audit(tmp_path)
    assert {finding.kind for finding in found.findings} == {"unreadable"}
    assert found.runs == 2
    assert found.checkpoints == len(second.steps) * 2
