"""kappa and kappa_sep: theory's numbers, bounds, intervals, and one real cell."""

import json

import numpy as np
import pytest

from training.config import RunConfig
from training.families import DenseSSM
from training.sharing.factor import SharingFactor, searches_of
from training.sharing.n_star import NStar
from training.sharing.replicate import Replicate, prefix_size, separate_size
from training.sharing.sample_size import size_grid
from training.sharing.search import sharing_factor
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


def star(value, pool=3525, **changes):
    """N* with nothing behind it but its grid."""
    grid = size_grid(pool)
    place = grid.index(value) if value else len(grid)
    fields = {
        "value": value,
        "interval": (grid[place - 1] if place else 0, value),
        "censored": value is None,
        "bottom": value == grid[0],
        "monotone": True,
        "n50": None,
        "complete": False,
        "beyond": None,
        "grid": grid,
        "trials": (),
        "data_seed": 0,
        "lrs": (1e-3,),
        "seeds": (0, 1),
        "threshold": 0.02,
        "search": "descent",
    }
    return NStar(**(fields | changes))


def replicate(alone, together, data_seed=0, distribution="uniform", **changes):
    fields = {
        "data_seed": data_seed,
        "pools": POOLS,
        "distribution": distribution,
        "alone": {
            n: star(v, POOLS[n], data_seed=data_seed) for n, v in zip((3, 4, 5), alone, strict=True)
        },
        "joint": star(together, data_seed=data_seed),
    }
    return Replicate(**(fields | changes))


def factor(*replicates, **changes):
    fields = {
        "task": "Z_5",
        "family": "transformer",
        "format": "cot",
        "layout": "usual",
        "distribution": "uniform",
        "lengths": (3, 4, 5),
        "pools": POOLS,
        "replicates": replicates,
    }
    return SharingFactor(**(fields | changes))


@pytest.mark.parametrize(
    ("alone", "joint", "n_sep", "kappa_sep", "kappa"),
    [((58, 98, 165), 1349, 430, 0.75, 0.24), ((75, 127, 127), 1038, 354, 0.93, 0.32)],
)
def test_theory_section_8(alone, joint, n_sep, kappa_sep, kappa):
    cell = factor(replicate(alone, joint))
    assert cell.n_sep == n_sep
    assert cell.kappa_sep == pytest.approx(kappa_sep, abs=0.005)
    assert cell.kappa == pytest.approx(kappa, abs=0.005)
    assert cell.ratio == pytest.approx(n_sep / joint)
    assert cell.bound == "="
    low, high = cell.interval
    assert low < cell.kappa < high
    assert "below what" in cell.sentence()


def test_separate_size_is_the_uniform_formula_until_a_pool_runs_out():
    assert separate_size({3: 20, 4: 70, 5: 40}, POOLS) == 3 * 70
    endless = {3: 5**100, 4: 5**200, 5: 5**300}
    assert separate_size({3: 20, 4: 70, 5: 40}, endless) == 3 * 70
    with pytest.raises(ValueError, match="length 3 got 101"):
        separate_size({3: 101, 4: 1, 5: 1}, POOLS)


def test_separate_size_from_short_to_long_waits_for_the_shorter_pools():
    assert separate_size({3: 20, 4: 70, 5: 40}, POOLS, "short_to_long") == 100 + 500 + 40
    cell = replicate((58, 98, 165), 1349, distribution="short_to_long")
    assert cell.n_sep == 765
    assert cell.ratio == pytest.approx(765 / 1349)


def test_separate_size_is_what_the_sampler_gives_on_average():
    fields = {"modulus": 5, "lengths": (3, 4, 5), "format": "cot", "validation_size": 200}
    needed = {3: 58, 4: 98, 5: 165}
    task = ModularAddition(**fields)
    size = separate_size(needed, POOLS)
    counts = np.mean([list(task.mixture(seed, size).values()) for seed in range(60)], axis=0)
    # the neediest length gets what it needs; standard error of a mean of 60 about 1.2
    assert counts[2] == pytest.approx(165, abs=5)
    assert (counts >= [58, 98, 160]).all()
    ordered = ModularAddition(**fields, distribution="short_to_long")
    size = separate_size(needed, POOLS, "short_to_long")
    assert ordered.mixture(0, size) == {"3": 100, "4": 500, "5": 165}


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
    cell = factor(replicate(alone, joint))
    assert cell.bound == bound
    assert cell.kappa == (None if kappa is None else pytest.approx(kappa))
    assert (cell.kappa_sep is None) == (None in alone)
    low, high = cell.interval
    assert (low == 0) == (joint is None), "no size bounds the joint one above"
    assert (high is None) == (None in alone or joint == 12)
    record = json.loads(json.dumps(cell.record()))
    assert record["n_star"] == {"3": alone[0], "4": alone[1], "5": alone[2]}
    assert record["bound"] == bound
    assert ("undetermined" in cell.sentence()) == (kappa is None)


@pytest.mark.parametrize(
    ("second", "bound"),
    [
        (((75, 127, 127), 1038), "="),
        (((None, 127, 127), 1038), ">="),
        (((75, 127, 127), None), "<="),
        (((None, 127, 127), None), "undetermined"),
    ],
)
def test_replicates_combine_as_geometric_means_and_honest_bounds(second, bound):
    cells = replicate((58, 98, 165), 1349), replicate(*second, data_seed=1)
    cell = factor(*cells)
    assert cell.bound == bound
    if bound != "undetermined":
        assert cell.kappa == pytest.approx(np.sqrt(cells[0].kappa * cells[1].kappa))
    else:
        assert cell.kappa is None
    if bound == "=":
        assert cell.ratio == pytest.approx(cell.kappa / cell.kappa_sep)
        assert cell.n_star[3] == pytest.approx(np.sqrt(58 * 75))
    assert "58 / " in cell.sentence()


def test_opposite_bounds_are_undetermined():
    cell = factor(replicate((None, 98, 165), 363), replicate((58, 98, 165), None, data_seed=1))
    assert (cell.bound, cell.kappa, cell.ratio) == ("undetermined", None, None)


def test_verdict_follows_the_interval_and_not_the_point():
    assert "below what" in factor(replicate((58, 98, 165), 1349)).sentence()
    assert "above what" in factor(replicate((75, 127, 127), 98)).sentence()
    assert "not told apart" in factor(replicate((75, 127, 127), 363)).sentence()
    assert "ran out of sequences" in factor(replicate((None, 127, 127), 98)).sentence()


def test_a_record_is_read_back():
    cell = factor(replicate((58, 98, 165), 1349), replicate((None, 127, 127), 1038, data_seed=1))
    assert SharingFactor.from_record(json.loads(json.dumps(cell.record()))) == cell
    with pytest.raises(ValueError, match="'pools' is missing"):
        SharingFactor.from_record({})


def test_only_equal_grids_compare():
    one = replicate((75, 127, 127), 98)
    for change in ({"seeds": (0, 1, 2)}, {"threshold": 0.1}, {"complete": True}):
        with pytest.raises(ValueError, match="do not compare"):
            factor(replicate((75, 127, 127), 98, joint=star(98, **change)))
    with pytest.raises(ValueError, match="must have the lengths"):
        factor(one, lengths=(3, 4))
    with pytest.raises(ValueError, match="must differ"):
        factor(one, one)
    with pytest.raises(ValueError, match="got no replicate"):
        factor()
    with pytest.raises(ValueError, match="data seed 0 got searches of"):
        replicate((75, 127, 127), 98, joint=star(98, data_seed=4))


def test_a_real_cell(tmp_path):
    seen = []
    arguments = {"root": tmp_path, "lrs": (2e-2,), "seeds": (0, 1), "data_seeds": (3, 5)}
    cell = sharing_factor(
        CELL, progress=lambda share, text: seen.append((share, text)), **arguments
    )
    assert (cell.task, cell.family, cell.lengths) == ("Z_3", "dense_ssm", (4, 5))
    assert cell.pools == {4: 65, 5: 195}
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert seen[-1] == (1.0, "length 4, data seed 5: done")
    assert [r.data_seed for r in cell.replicates] == [3, 5]
    for replicate in cell.replicates:
        assert replicate.joint.solved, cell.sentence()
        assert replicate.joint.complete
        for n, alone in replicate.alone.items():
            assert set(alone.trials[0].mixture) == {str(n)}
            assert alone.seeds == (0, 1)
    assert cell.interval_covers == ("grid", "initialisation", "data")
    assert SharingFactor.from_record(json.loads(json.dumps(cell.record()))) == cell

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert sharing_factor(CELL, **arguments) == cell
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("model.safetensors")}


def test_searches_of_a_cell_keep_its_shape():
    task = ModularAddition(
        modulus=2, lengths=(3, 4), format="outcome", layout="aligned", distribution="short_to_long"
    )
    searches = searches_of(CELL.replace(task=task))
    assert list(searches) == ["joint", "4", "3"]
    assert searches["joint"].task == task
    for n in (3, 4):
        alone = searches[str(n)].task
        assert (alone.lengths, alone.reach, alone.layout) == ((n,), 4, "aligned")
        assert alone.distribution == "uniform", "one length has one order"


def test_finished_searches_make_a_factor_only_if_all_are_there():
    stars = {"joint": star(98, data_seed=2), "4": star(98, data_seed=2)}
    stars["5"] = star(127, data_seed=2)
    cell = SharingFactor.of(CELL, {2: stars})
    assert (cell.task, cell.format, cell.distribution) == ("Z_3", "acot", "uniform")
    assert cell.kappa == pytest.approx(225 / 98)
    with pytest.raises(ValueError, match=r"data seed 2 got \['4', 'joint'\]"):
        SharingFactor.of(CELL, {2: {k: stars[k] for k in ("joint", "4")}})


@pytest.mark.parametrize(
    ("change", "arguments", "word"),
    [
        ({"task": ModularAddition(modulus=3, lengths=(4,), format="acot")}, {}, "two or more"),
        ({}, {"data_seeds": (1, 1)}, "data_seeds: got"),
        ({}, {"data_seeds": ()}, "data_seeds: got"),
    ],
)
def test_impossible_cells_are_named(tmp_path, change, arguments, word):
    with pytest.raises(ValueError, match=word):
        sharing_factor(CELL.replace(**change), root=tmp_path, lrs=(1e-2,), seeds=(0,), **arguments)


def test_steps_learnt_one_by_one_need_the_least_size_with_enough_of_each():
    """Against a search over levels c: length n is taught by all sequences as long or longer."""
    rng = np.random.default_rng(0)
    levels = np.arange(0, 60, 0.05)
    for _ in range(200):
        pools = {n: int(rng.integers(5, 60)) for n in (3, 4, 5)}
        alone = {n: int(rng.integers(1, pool + 1)) for n, pool in pools.items()}
        counts = {n: np.minimum(pool, levels) for n, pool in pools.items()}
        taught = {n: sum(counts[m] for m in pools if m >= n) for n in pools}
        enough = np.all([taught[n] >= alone[n] - 1e-9 for n in pools], axis=0)
        least = sum(counts.values())[np.argmax(enough)]
        assert abs(prefix_size(alone, pools) - least) <= 1
        assert prefix_size(alone, pools) <= separate_size(alone, pools)
    assert prefix_size({4: 75, 5: 58, 6: 45}, {4: 205, 5: 824, 6: 3896}) == 135
    with pytest.raises(ValueError, match="got 101"):
        prefix_size({3: 101, 4: 1, 5: 1}, POOLS)
