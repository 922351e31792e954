"""kappa and kappa_sep: theory's numbers, bounds, intervals, and one real cell."""

import json

import numpy as np
import pytest

from training.config import RunConfig
from training.families import DenseSSM
from training.n_star import NStar
from training.sample_size import size_grid
from training.sharing_factor import BOUNDS, SharingFactor, separate_size, sharing_factor
from training.tasks import ModularAddition

POOLS = {3: 100, 4: 500, 5: 2925}
CELL = RunConfig(
    study="cell",
    task=ModularAddition(modulus=3, lengths=(4, 5), format="acot"),
    family=DenseSSM(width=8),
    steps=100,
    batch_size=32,
    eval_every=25,
    stop={"loss": 0.05, "patience": 50},
    checkpoints={"doubling": False, "every": None},
)


def star(value, pool=3525, seeds=(0, 1)):
    grid = size_grid(pool)
    if value is None:
        interval = (pool, None)
    else:
        place = grid.index(value)
        interval = (grid[place - 1] if place else 0, value)
    return NStar(
        value=value,
        interval=interval,
        censored=value is None,
        bottom=value == grid[0],
        monotone=True,
        n50=None,
        grid=grid,
        trials=(),
        lrs=(1e-3,),
        seeds=seeds,
        threshold=0.02,
    )


def factor(alone, together, **changes):
    fields = {
        "task": "Z_5",
        "family": "transformer",
        "format": "cot",
        "layout": "usual",
        "lengths": (3, 4, 5),
        "pools": POOLS,
        "alone": {n: star(v, POOLS[n]) for n, v in zip((3, 4, 5), alone, strict=True)},
        "joint": star(together),
    }
    return SharingFactor(**(fields | changes))


@pytest.mark.parametrize(
    ("alone", "joint", "n_sep", "kappa_sep", "kappa"),
    [((58, 98, 165), 1349, 430, 0.75, 0.24), ((75, 127, 127), 1038, 354, 0.93, 0.32)],
)
def test_theory_section_8(alone, joint, n_sep, kappa_sep, kappa):
    cell = factor(alone, joint)
    assert cell.n_sep == n_sep
    assert cell.kappa_sep == pytest.approx(kappa_sep, abs=0.005)
    assert cell.kappa == pytest.approx(kappa, abs=0.005)
    assert cell.ratio == pytest.approx(n_sep / joint)
    assert cell.bound == "="
    low, high = cell.interval
    assert low < cell.kappa < high
    assert "below the" in cell.sentence()


def test_separate_size_is_the_uniform_formula_until_a_pool_runs_out():
    assert separate_size({3: 20, 4: 70, 5: 40}, POOLS) == 3 * 70
    with pytest.raises(ValueError, match="length 3 got 101"):
        separate_size({3: 101, 4: 1, 5: 1}, POOLS)


def test_separate_size_is_what_the_sampler_gives_on_average():
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="cot")
    needed = {3: 58, 4: 98, 5: 165}
    size = separate_size(needed, POOLS)
    counts = np.mean(
        [np.bincount(task.order(seed, size).kind, minlength=3) for seed in range(60)], axis=0
    )
    # the neediest length gets what it needs; standard error of a mean of 60 about 1.2
    assert counts[2] == pytest.approx(165, abs=5)
    assert (counts >= [58, 98, 160]).all()


@pytest.mark.parametrize(
    ("alone", "joint", "bound", "kappa"),
    [
        ((58, 98, 165), 1349, "=", 321 / 1349),
        ((None, 98, 165), 363, ">=", (100 + 98 + 165) / 363),
        ((58, 98, 165), None, "<=", 321 / 3525),
        ((None, 98, 165), None, "undetermined", None),
        ((12, 98, 165), 363, "<=", 275 / 363),
        ((58, 98, 165), 12, ">=", 321 / 12),
        ((12, 98, 165), 12, "undetermined", None),
    ],
)
def test_bounds(alone, joint, bound, kappa):
    cell = factor(alone, joint)
    assert cell.bound == bound in BOUNDS
    assert cell.kappa == (None if kappa is None else pytest.approx(kappa))
    assert (cell.kappa_sep is None) == (None in alone)
    low, high = cell.interval
    assert (joint is None) == (low == 0)
    assert (high is None) == (None in alone or joint == 12)
    record = json.loads(json.dumps(cell.record()))
    assert record["n_star"] == {"3": alone[0], "4": alone[1], "5": alone[2]}
    assert record["bound"] == bound
    assert ("undetermined" in cell.sentence()) == (kappa is None)


def test_verdict_follows_the_interval_and_not_the_point():
    assert "above the" in factor((75, 127, 127), 98).sentence()
    assert "not told apart" in factor((75, 127, 127), 363).sentence()
    assert "ran out of sequences" in factor((None, 127, 127), 98).sentence()


def test_only_equal_grids_compare():
    with pytest.raises(ValueError, match="do not compare"):
        factor((75, 127, 127), 98, joint=star(98, seeds=(0, 1, 2)))
    with pytest.raises(ValueError, match="must have the lengths"):
        factor((75, 127, 127), 98, lengths=(3, 4))


def test_a_real_cell(tmp_path):
    seen = []
    cell = sharing_factor(
        CELL,
        root=tmp_path,
        lrs=(2e-2,),
        seeds=(0,),
        progress=lambda share, text: seen.append((share, text)),
    )
    assert (cell.task, cell.family, cell.lengths) == ("Z_3", "dense_ssm", (4, 5))
    assert cell.pools == {4: 65, 5: 195}
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert seen[-1] == (1.0, "length 4: done")
    assert cell.joint.solved, cell.sentence()
    for n, alone in cell.alone.items():
        assert set(alone.trials[0].mixture) == {str(n)}
    json.dumps(cell.record())


@pytest.mark.slow
def test_processes_find_what_one_process_finds(tmp_path):
    grid = {"lrs": (1e-2,), "seeds": (0,)}
    alone = sharing_factor(CELL, root=tmp_path / "one", **grid)
    seen = []
    parallel = sharing_factor(
        CELL, root=tmp_path / "two", workers=2, progress=lambda s, t: seen.append(s), **grid
    )
    assert parallel.n_star == alone.n_star
    assert parallel.joint.value == alone.joint.value
    assert seen


def test_a_length_alone_keeps_the_shape_of_the_cell(tmp_path):
    config = CELL.replace(
        task=ModularAddition(modulus=2, lengths=(3, 4), format="outcome", layout="aligned"),
        steps=2,
        eval_every=2,
    )
    cell = sharing_factor(config, root=tmp_path, lrs=(1e-2,), seeds=(0,))
    assert cell.bound == "undetermined"
    assert cell.joint.trials[0].cause == "optimisation"
    tasks = {path.read_text().count('"longest": 4') for path in tmp_path.rglob("config.json")}
    assert tasks == {0, 1}


@pytest.mark.parametrize(
    ("change", "arguments", "word"),
    [
        ({"task": ModularAddition(modulus=3, lengths=(4,), format="acot")}, {}, "two or more"),
        ({}, {"workers": 0}, "workers: got 0"),
    ],
)
def test_impossible_cells_are_named(tmp_path, change, arguments, word):
    with pytest.raises(ValueError, match=word):
        sharing_factor(CELL.replace(**change), root=tmp_path, lrs=(1e-2,), seeds=(0,), **arguments)
