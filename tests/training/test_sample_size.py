"""The search for N*: right on every monotone law, honest at both ends, resumed for free."""

import json
import math

import pytest

from training.config import RunConfig
from training.families import DenseSSM
from training.n_star import NStar
from training.sample_size import RATIO, _n_star, _trial, sample_size, search, size_grid
from training.tasks import AssociativeRecall, ModularAddition

CONFIG = RunConfig(
    study="search",
    task=ModularAddition(modulus=3, lengths=(4,), format="acot"),
    family=DenseSSM(width=8),
    steps=150,
    batch_size=32,
    eval_every=25,
    stop={"loss": 0.05, "patience": 100},
    checkpoints={"doubling": False, "every": None},
)


def ask(grid, law, second_start=None):
    """Sizes asked by the search, in order, under a law of success."""
    asked = []

    def solves(size):
        asked.append(size)
        return law(size)

    search(solves, grid, second_start)
    return asked


@pytest.mark.parametrize("length", [1, 2, 3, 4, 11, 21])
def test_search_brackets_every_threshold_between_neighbours(length):
    grid = size_grid(round(12 * RATIO ** (length - 1)))
    assert len(grid) == length
    for first in range(length + 1):
        threshold = grid[first] if first < length else math.inf
        asked = ask(grid, lambda size, t=threshold: size >= t)
        assert len(asked) == len(set(asked)), "no size is asked twice"
        solved = [size for size in asked if size >= threshold]
        if first == length:
            assert asked == [grid[-1]]
            continue
        assert min(solved) == threshold
        if first:
            assert grid[first - 1] in asked
        assert len(asked) <= math.ceil(length / 3) + 3


def test_grid_of_theory_and_its_top():
    assert size_grid(2925)[:8] == (12, 16, 20, 26, 34, 45, 58, 75)
    assert size_grid(2925)[-3:] == (1754, 2281, 2925)
    assert size_grid(100) == (12, 16, 20, 26, 34, 45, 58, 75, 100)
    assert size_grid(5) == (5,)
    with pytest.raises(ValueError, match="got 0"):
        size_grid(0)


def test_a_failing_top_is_searched_again_from_the_uniform_mixture():
    grid = size_grid(3525)
    asked = ask(grid, lambda size: 100 <= size <= 300, second_start=300)
    assert asked[:2] == [3525, 280]
    assert min(size for size in asked if 100 <= size <= 300) == 127
    assert 98 in asked
    assert ask(grid, lambda size: False, second_start=300) == [3525, 280]
    assert ask(grid, lambda size: size >= 500, second_start=300)[1] < 3525


def fake(size, states, losses=(0.01, 0.5)):
    """A trial as `sample_size` makes it, from runs that were never trained."""

    class Fake:
        config = CONFIG
        task = CONFIG.task
        path = "nowhere"

        def __init__(self, state):
            metrics = dict(zip(("train_loss", "validation_loss"), losses, strict=True))
            self.status = {"state": state, "step": 10, "metrics": metrics}

    return _trial(size, [Fake(state) for state in states])


def n_star(trials, grid=(10, 20, 40), complete=True):
    return _n_star(grid, trials, CONFIG, (0.01,), (0,), complete)


def test_bounds_are_told():
    solved, failed = ("solved", "stopped"), ("stopped", "done")
    inside = n_star([fake(40, solved), fake(20, solved), fake(10, failed)])
    assert (inside.value, inside.interval, inside.n50) == (20, (10, 20), 20)
    assert (inside.censored, inside.bottom) == (False, False)

    bottom = n_star([fake(40, solved), fake(10, solved)])
    assert (bottom.value, bottom.interval, bottom.bottom) == (10, (0, 10), True)

    censored = n_star([fake(40, failed)])
    assert (censored.value, censored.interval, censored.censored) == (None, (40, None), True)
    assert censored.n50 is None

    crooked = n_star([fake(40, failed), fake(20, solved), fake(10, failed)])
    assert (crooked.value, crooked.monotone, crooked.interval) == (20, False, (10, 20))


def test_n50_needs_half_of_the_members_and_complete_trials():
    trials = [fake(40, ("solved",) * 3), fake(20, ("solved", "stopped", "stopped"))]
    assert n_star(trials).n50 == 40
    assert n_star(trials, complete=False).n50 is None


def test_a_failure_says_whether_data_or_optimisation_was_short():
    assert fake(20, ("stopped",), losses=(0.01, 0.5)).cause == "data"
    assert fake(20, ("stopped",), losses=(0.9, 1.0)).cause == "optimisation"
    assert fake(20, ("diverged",), losses=(None, None)).cause == "optimisation"
    assert fake(20, ("stopped", "solved")).cause is None


def test_a_real_search_and_the_same_again_without_training(tmp_path):
    seen = []
    arguments = {"root": tmp_path, "lrs": (1e-2, 3e-3), "seeds": (0, 1), "sizes": (8, 16, 32, 60)}
    star = sample_size(CONFIG, progress=lambda s, t: seen.append((s, t)), **arguments)
    assert star.value in (16, 32, 60), star.record()
    assert star.interval[0] < star.value
    assert [share for share, _ in seen] == sorted(share for share, _ in seen)
    assert seen[-1] == (1.0, "done")
    for trial in star.trials:
        assert [(m.seed, m.lr) for m in trial.members] == [
            (0, 1e-2), (0, 3e-3), (1, 1e-2), (1, 3e-3),
        ]  # fmt: skip
        assert trial.mixture == {"4": trial.size}
        if not trial.solved:
            assert trial.cause in ("data", "optimisation")
    assert set(star.solved) == {trial.size for trial in star.trials if trial.solved}
    assert all((path / "config.json").exists() for path in star.solved.values())
    json.dumps(star.record())

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    again = sample_size(CONFIG, **arguments)
    assert again == star
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert after == before


def test_an_interrupted_search_goes_on_where_it_was(tmp_path):
    arguments = {"root": tmp_path, "lrs": (1e-2,), "seeds": (0, 1), "sizes": (16, 32, 60)}

    def interrupt(share, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_size(CONFIG, progress=interrupt, **arguments)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert first
    resumed = sample_size(CONFIG, **arguments)
    assert all(path.stat().st_mtime_ns == mtime for path, mtime in first.items())
    fresh = sample_size(CONFIG, **(arguments | {"root": tmp_path / "fresh"}))
    assert fresh.interval == resumed.interval
    assert [t.solved for t in fresh.trials] == [t.solved for t in resumed.trials]


def test_a_member_stops_at_the_threshold(tmp_path):
    star = sample_size(CONFIG, root=tmp_path, lrs=(1e-2,), seeds=(0,), sizes=(60,))
    (trial,) = star.trials
    assert isinstance(star, NStar)
    assert trial.winner is not None
    assert trial.winner.validation_loss < star.threshold
    assert star.bottom
    assert star.member_steps == trial.member_steps == trial.winner.step


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"lrs": ()}, "lrs: got"),
        ({"seeds": (1, 1)}, "seeds: got"),
        ({"sizes": ()}, "sizes: got"),
        ({"sizes": (0, 20)}, "sizes: got"),
        ({"sizes": (66,)}, "allowed one or more numbers from 1 to 65"),
    ],
)
def test_an_impossible_search_is_named(tmp_path, change, word):
    arguments = {"root": tmp_path, "lrs": (1e-2,), "seeds": (0,)} | change
    with pytest.raises(ValueError, match=word):
        sample_size(CONFIG, **arguments)


def test_a_search_needs_a_threshold_and_a_pool(tmp_path):
    arguments = {"root": tmp_path, "lrs": (1e-2,), "seeds": (0,)}
    with pytest.raises(ValueError, match=r"config\.stop\.loss: got None"):
        sample_size(CONFIG.replace(stop={"loss": None}), **arguments)
    endless = AssociativeRecall(n_blocks=3, n_common=6, n_rare=5, track_slots=4, f_r=0.3, f_v=0.3)
    with pytest.raises(ValueError, match="no finite pool"):
        sample_size(CONFIG.replace(task=endless), **arguments)
