"""RunConfig: one text per experiment, and one line for everything that is wrong with one."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from training import RunConfig, train, train_many
from training.config import ConfigError
from training.families import DenseSSM, Transformer
from training.schedule import checkpoint_steps, evaluation_steps
from training.tasks import ModularAddition

TASK = {"name": "modular_addition", "modulus": 4, "lengths": [3, 4], "format": "acot"}
FAMILY = {"name": "dense_ssm", "width": 4}

OWN = '''
"""A task and a family that no table knows."""
from dataclasses import dataclass
import numpy as np
import torch
from training.tasks.base import Batch, generator

@dataclass(frozen=True, kw_only=True)
class Copy:
    """The token must be named again."""
    vocabulary: int = 3
    n_positions = 2
    kinds = ("all",)
    symmetry = None
    def batch(self, seed, k, size, train_size=None):
        tokens = generator(seed, k, 1).integers(0, self.vocabulary, (size, 2))
        places = np.broadcast_to(np.arange(2), tokens.shape)
        return Batch(tokens=tokens, positions=places, targets=tokens, kind=np.zeros(size, int))
    def evaluation(self, seed, size):
        return self.batch(seed, 10**6, size)

@dataclass(frozen=True, kw_only=True)
class Table:
    """Logits are a row of a table."""
    frozen = ()
    def initialise(self, task, seed, dtype):
        return {"W": torch.zeros(task.vocabulary, task.vocabulary, dtype=dtype)}
    def forward(self, params, tokens, positions, tap=lambda name, x: x):
        hot = torch.nn.functional.one_hot(tokens, params["W"].shape[-1]).to(params["W"].dtype)
        return tap("hook_logits", torch.einsum("...btv,...vw->...btw", hot, params["W"]))
    def hook_names(self, time):
        return ("hook_logits",)

def four():
    return Copy(vocabulary=4)

ready = Copy(vocabulary=5)
'''


def config(**changes):
    return RunConfig(**{"task": TASK, "family": FAMILY, "steps": 8, **changes})


def test_text_and_object_are_the_same_configuration():
    by_object = config(
        task=ModularAddition(modulus=4, lengths=(3, 4), format="acot"), family=DenseSSM(width=4)
    )
    assert by_object == config()
    assert by_object.run_id == config().run_id
    assert RunConfig.from_mapping(json.loads(json.dumps(by_object.canonical()))) == by_object


def test_every_part_changes_the_run_id():
    changes = [
        {"study": "other"},
        {"task": {**TASK, "modulus": 5}},
        {"family": {**FAMILY, "width": 5}},
        {"optimiser": {"lr": 2e-3}},
        {"seeds": {"init": 1}},
        {"seeds": {"data": 1}},
        {"seeds": {"eval": 1}},
        {"train_size": 7},
        {"dtype": "float64"},
        {"stop": {"loss": 0.1}},
        {"checkpoints": {"steps": [5]}},
    ]
    ids = {config(**change).run_id for change in changes} | {config().run_id}
    assert len(ids) == len(changes) + 1
    assert all(len(i) == 12 and int(i, 16) >= 0 for i in ids)


def test_run_id_does_not_depend_on_the_process():
    code = (
        "from training import RunConfig;"
        f"print(RunConfig(task={TASK!r}, family={FAMILY!r}, steps=8).run_id)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == config().run_id


def test_replace_changes_one_part_of_a_section():
    changed = config(seeds={"init": 1, "data": 2}).replace(seeds={"data": 5}, train_size=9)
    assert (changed.seeds.init, changed.seeds.data, changed.train_size) == (1, 5, 9)
    assert changed.task == config().task


def test_replace_changes_only_the_named_parts_of_task_and_family():
    changed = config().replace(task={"lengths": [4]}, family={"width": 6})
    assert changed == config(task={**TASK, "lengths": [4]}, family={**FAMILY, "width": 6})
    other = config().replace(family=NET)
    assert other == config(family=NET)
    with pytest.raises(ConfigError, match="task modular_addition: unknown lenghts; allowed: len"):
        config().replace(task={"lenghts": [4]})


def test_what_is_trained_is_a_configuration():
    for wrong in (lambda: train("x.yaml"), lambda: train_many(config())):  # pyright: ignore
        with pytest.raises(ValueError, match=r"train got .*allowed: a RunConfig .*from_yaml"):
            wrong()


def test_yaml(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "task: {name: modular_addition, modulus: 4, lengths: [3, 4], format: acot}\n"
        "family: {name: dense_ssm, width: 4}\noptimiser: {lr: 1e-3}\nsteps: 8\n"
    )
    assert RunConfig.from_yaml(file) == config(optimiser={"lr": 1e-3})


def test_a_task_and_a_family_of_ones_own_need_no_registration(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import own_parts  # pyright: ignore[reportMissingImports]

    rule = {"name": "sgd", "lr": 1.0}
    by_object = config(task=own_parts.Copy(), family=own_parts.Table(), steps=50, optimiser=rule)
    by_name = config(task="own_parts:Copy", family="own_parts:Table", steps=50, optimiser=rule)
    assert by_object == by_name
    assert by_object.run_id == by_name.run_id
    assert config(task="own_parts:four").task == own_parts.Copy(vocabulary=4)
    assert config(task="own_parts:ready").task == own_parts.ready
    assert config(task={"name": "own_parts:Copy", "vocabulary": 5}).task == own_parts.ready
    run = train(by_object, root=tmp_path)
    assert run.status["metrics"]["validation_loss"] < 0.5 * run.metrics["validation_loss"][0]
    with pytest.raises(ValueError, match="ready value and takes no parameters, got"):
        config(task={"name": "own_parts:ready", "vocabulary": 5})


def test_an_object_that_could_not_be_read_back_is_refused():
    from dataclasses import make_dataclass

    with pytest.raises(ValueError, match="lacks vocabulary, n_positions, kinds, batch, evaluation"):
        config(task=make_dataclass("Nothing", [], frozen=True)())
    with pytest.raises(ValueError, match="make the dataclass frozen"):
        config(task=make_dataclass("Loose", [])())


def test_everything_that_is_wrong_is_named_in_one_line():
    with pytest.raises(ConfigError) as caught:
        config(stepps=3, steps="8", optimiser={"name": "adagrad"}, batch_size=0)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "unknown key stepps; allowed: batch_size, checkpoints",
        "steps got '8'",
        "optimiser.name got 'adagrad'; input should be 'sgd', 'adam' or 'adamw'",
        "batch_size got 0",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser": {"learning_rate": 1.0}}, "unknown key optimiser.learning_rate; allowed: be"),
        ({"optimiser": {"momentum": 0.9}}, "momentum got 0.9, but only sgd has one"),
        ({"optimiser": {"name": "sgd", "betas": [0.8, 0.9]}}, "betas got .0.8, 0.9., but sgd"),
        ({"optimiser": {"lr": float("nan")}}, "optimiser.lr got nan"),
        ({"checkpoints": {"steps": [9]}}, r"checkpoints.steps got \[9\]; allowed: 0 to steps = 8"),
        ({"study": "../up"}, "study got '../up'; allowed: letters"),
        ({"device": "tpu"}, "device got 'tpu'"),
        (
            {"task": "recall"},
            "task got the name 'recall'; allowed: associative_recall, conditional",
        ),
        ({"task": {**TASK, "modulos": 4}}, "task modular_addition: unknown modulos; allowed: len"),
        ({"task": {"name": "modular_addition"}}, "missing format, lengths, modulus"),
        ({"task": {**TASK, "modulus": 1}}, "modulus"),
        ({"family": {"name": "dense_ssm", "width": 0}}, "width"),
        ({"family": "no_such_module:Model"}, "cannot import module 'no_such_module'"),
        ({"family": "math:nothing"}, "'math' has no attribute 'nothing'"),
        ({"family": {"width": 3}}, "family needs a name"),
    ],
)
def test_one_line_for_each_mistake(changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        config(**changes)
    assert "\n" not in str(caught.value)


RECALL = {
    "name": "associative_recall",
    **{"n_blocks": 1, "n_common": 4, "n_rare": 2, "track_slots": 2, "f_r": 0.4, "f_v": 0},
}
NET = {"name": "transformer", "layers": 1, "heads": 1, "width": 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": {**NET, "mlp": "no"}}, "family.mlp got 'no'; allowed: bool"),
        ({"family": {**NET, "mlp": 1}}, "family.mlp got 1; allowed: bool"),
        ({"family": {**NET, "width": 32.0}}, "family.width got 32.0; allowed: int"),
        ({"family": {**NET, "heads": True}}, "family.heads got True; allowed: int"),
        (
            {"family": {**NET, "init_std": float("nan")}},
            "family.init_std got nan; allowed: float | None, finite",
        ),
        ({"family": {"name": "dense_ssm", "width": 2.5}}, "family.width got 2.5; allowed: int"),
        (
            {"family": {"name": "attention_only", "heads": True, "scale": "x"}},
            "family.heads got True; allowed: int; family.scale got 'x'; allowed: float",
        ),
        ({"task": {**RECALL, "f_r": True}}, "task.f_r got True; allowed: float"),
        ({"task": {**RECALL, "f_r": "0.4"}}, "task.f_r got '0.4'; allowed: float"),
        ({"task": {**RECALL, "f_r": None}}, "task.f_r got None; allowed: float"),
        (
            {"task": {**TASK, "modulus": 5.5, "lengths": [3.5], "validation_size": 1.5}},
            "task.modulus got 5.5; allowed: int; task.lengths got (3.5,); allowed: tuple[int, ...];"
            " task.validation_size got 1.5; allowed: int",
        ),
        ({"task": {**TASK, "modulus": "5"}}, "task.modulus got '5'; allowed: int"),
        ({"task": {**TASK, "lengths": 3}}, "task.lengths got 3; allowed: tuple[int, ...]"),
        ({"task": {**TASK, "split_seed": -1}}, "split_seed: got -1, allowed 0 or more"),
        ({"family": Transformer(layers=1, heads=True, width=4)}, "family.heads got True"),
        ({"family": Transformer(layers=1, heads=1, width=8.0)}, "family.width got 8.0"),  # pyright: ignore
    ],
)
def test_a_parameter_of_another_type_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        config(**changes)
    assert "\n" not in str(caught.value)


def test_an_int_is_a_float_and_equal_objects_have_one_run_id():
    whole = config(task={**RECALL, "f_v": 0})
    real = config(task={**RECALL, "f_v": 0.0})
    assert whole == real
    assert whole.run_id == real.run_id
    task = replace(real.task, f_v=np.float64(0), n_blocks=np.int64(1))  # pyright: ignore
    assert config(task=task).run_id == real.run_id


def test_types_of_ones_own_dataclass_are_checked_where_they_can_be(tmp_path, monkeypatch):
    own = OWN.replace("vocabulary: int = 3", "vocabulary: int = 3\n    odd: 'Unknown' = 1")
    (tmp_path / "own_types.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"^task.vocabulary got '4'; allowed: int$"):
        config(task={"name": "own_types:Copy", "vocabulary": "4", "odd": "x"})
    assert config(task={"name": "own_types:Copy", "odd": "x"}).task.odd == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "is not YAML"),
        ("just text", "allowed: a mapping"),
        ("steps: 1\nsteps: 2", "the key steps is there twice"),
        ("schema_version: 99", "schema_version got 99; this version reads 1"),
        ("colour: red", "unknown key colour"),
    ],
)
def test_yaml_mistakes_name_the_file(tmp_path, text, message):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        RunConfig.from_yaml(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"absent.yaml: cannot be read"):
        RunConfig.from_yaml(tmp_path / "absent.yaml")


def test_steps_that_are_kept():
    assert checkpoint_steps(config(steps=1600)) == (
        *(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        *(1024, 1536, 1600),
    )
    sparse = config(steps=100, checkpoints={"doubling": False, "every": None, "steps": [7]})
    assert checkpoint_steps(sparse) == (0, 7, 100)
    assert evaluation_steps(sparse.replace(eval_every=40)) == (0, 7, 40, 80, 100)
