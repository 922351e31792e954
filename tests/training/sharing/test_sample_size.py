"""The search for N*: right on every monotone law, honest at both ends, resumed for free."""

import json
import math
from pathlib import Path

import pytest

from training.config import RunConfig
from training.families import DenseSSM
from training.run import open_run
from training.sharing.n_star import MemberOutcome, NStar
from training.sharing.sample_size import _n_star, _trial, _Trials, grid_of, sample_size, size_grid
from training.sharing.searches import SEARCHES
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


def test_grid_of_theory_and_its_top():
    assert size_grid(2925)[:8] == (12, 16, 20, 26, 34, 45, 58, 75)
    assert size_grid(2925)[-3:] == (1754, 2281, 2925)
    assert size_grid(100) == (12, 16, 20, 26, 34, 45, 58, 75, 100)
    assert size_grid(5) == (5,)
    with pytest.raises(ValueError, match="got 0"):
        size_grid(0)


def fake(size, states, losses=(0.01, 0.5), seeds=None):
    """A trial of members that were never trained."""
    members = [
        MemberOutcome(
            lr=0.01, seed=seed, state=state, step=10, train_loss=losses[0],
            validation_loss=losses[1], accuracy=None, run="nowhere",
        )
        for state, seed in zip(states, seeds or range(len(states)), strict=True)
    ]  # fmt: skip
    return _trial(CONFIG, size, members)


def n_star(trials, grid=(10, 20, 40), complete=True):
    return _n_star(grid, trials, CONFIG, (0.01,), (0, 1), "descent", complete, None)


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


def test_each_resample_of_the_seeds_has_its_own_bracket():
    star = n_star(
        [
            fake(40, ("solved", "halted")),
            fake(20, ("solved", "solved")),
            fake(10, ("solved", "stopped")),
            fake(5, ("done", "stopped")),
        ],
        grid=(5, 10, 20, 40),
    )
    assert star.bracket({0}) == star.bracket({0, 1}) == star.interval == (5, 10)
    assert star.bracket({1}) == (10, 20)
    halted = n_star([fake(20, ("solved", "halted")), fake(10, ("stopped", "done"))])
    assert halted.bracket({1}) == (10, None), "a halted member has not failed"
    waiting = n_star([fake(20, ("solved", "waiting")), fake(10, ("stopped", "done"))])
    assert waiting.bracket({1}) == (10, None)
    grid_only = n_star([fake(20, ("solved", "halted")), fake(10, ("done",) * 2)], complete=False)
    assert grid_only.bracket({1}) == (10, 20)


def test_n50_needs_half_of_the_members_and_complete_trials():
    trials = [fake(40, ("solved",) * 3), fake(20, ("solved", "stopped", "stopped"))]
    assert n_star(trials).n50 == 40
    assert n_star(trials, complete=False).n50 is None


def test_a_record_is_read_back():
    star = n_star([fake(40, ("solved", "stopped")), fake(20, ("done", "diverged"))])
    assert NStar.from_record(star.record()) == star
    assert NStar.from_record(json.loads(json.dumps(star.record()))) == star
    with pytest.raises(ValueError, match="trials are missing"):
        NStar.from_record({"value": 3})


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
        ({"sizes": (31,), "largest": 30}, "allowed one or more numbers from 1 to 30"),
        ({"largest": 0}, "largest: got 0"),
        ({"search": "guess"}, "search: got 'guess', allowed descent, paper"),
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


def test_the_member_that_solved_the_size_before_is_tried_alone_first(tmp_path):
    star = sample_size(CONFIG, root=tmp_path, lrs=(2e-2, 1e-3), seeds=(0, 1), sizes=(8, 16, 32, 60))
    top, *rest = star.trials
    assert {m.state for m in top.members} <= {"solved", "halted"}, "all of them were tried"
    leader = top.winner.lr, top.winner.seed
    for trial in rest:
        trained = [(m.lr, m.seed) for m in trial.members if m.state != "waiting"]
        assert leader in trained
        assert len(trained) in ((1, 4) if trial.solved else (4,)), "all of them before it fails"
        for m in trial.members:
            assert Path(m.run).exists() == (m.state != "waiting")
        leader = (
            (trial.winner.lr, trial.winner.seed) if len(trained) > 1 and trial.solved else leader
        )


def test_members_that_were_halted_go_on_until_half_of_a_size_succeed(tmp_path):
    arguments = {"root": tmp_path, "lrs": (2e-2, 1e-3), "seeds": (0, 1), "sizes": (8, 16, 32, 60)}
    first = sample_size(CONFIG, **arguments)
    assert not first.complete
    assert first.n50 is None
    assert {"halted", "waiting"} <= {m.state for t in first.trials for m in t.members}
    star = sample_size(CONFIG, n50=True, **arguments)
    assert star.complete
    assert (star.value, star.interval) == (first.value, first.interval)
    trials = {trial.size: trial for trial in star.trials}
    ended = [
        size
        for size, trial in trials.items()
        if not {"halted", "waiting"} & {m.state for m in trial.members}
    ]
    assert star.value in ended
    if star.n50 is not None:
        assert star.n50 >= star.value
        assert trials[star.n50].half
        below = [size for size in star.grid if star.value <= size < star.n50]
        assert all(size in ended and not trials[size].half for size in below[-1:])
    for seed in star.seeds:
        low, high = star.bracket({seed})
        assert high is not None or max(trials) == 60
        assert low < (high or math.inf)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert sample_size(CONFIG, n50=True, **arguments) == star
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("model.safetensors")}


@pytest.mark.parametrize(
    ("halves", "value", "visited", "n50"),
    [
        # half of the members succeed from this size on: strides 1, 3, 7 from N*, then bisection
        (16, 16, (16,), 16),
        (20, 16, (16, 20), 20),
        (26, 16, (16, 20, 34, 26), 26),
        (65, 16, (16, 20, 34, 65, 45), 65),
        (None, 16, (16, 20, 34, 65), None),
    ],
)
def test_n50_is_bracketed_by_strides_that_double(monkeypatch, halves, value, visited, n50):
    grid = size_grid(65)
    seen = []
    search = _Trials(CONFIG, "nowhere", grid, (1e-2,), (0, 1, 2), None)

    def train(size, members, halt):
        if not halt:
            seen.append(size)
        solves = size >= value, halves is not None and size >= halves, False
        states = ["solved" if won else "stopped" for won in solves]
        search.tried[size] = fake(size, states)

    monkeypatch.setattr(search, "train", train)
    SEARCHES["descent"](search.solves, grid, None)
    search.complete()
    assert tuple(dict.fromkeys(seen)) == visited
    star = n_star(search.all(), grid=grid)
    assert (star.value, star.n50) == (value, n50)


@pytest.mark.parametrize("needs", [16, 20, 26, 45, 65, 999])
def test_each_seed_is_bracketed_by_sizes_of_the_search(monkeypatch, needs):
    """Seed 0 solves from 16 on and makes half of the members; seed 1 only from `needs` on."""
    grid = size_grid(65)
    search = _Trials(CONFIG, "nowhere", grid, (1e-2, 1e-3), (0, 1), None)
    known = {size: [None] * 4 for size in grid}

    def train(size, members, halt):
        place = [search.members.index(m) for m in members]
        for i in place:
            won = size >= (16 if search.members[i][1] == 0 else needs)
            known[size][i] = known[size][i] or ("solved" if won else "stopped")
            if won and halt and size < 65:
                break
        states = [state or "waiting" for state in known[size]]
        search.tried[size] = fake(size, states, seeds=[seed for _, seed in search.members])

    monkeypatch.setattr(search, "train", train)
    SEARCHES["descent"](search.solves, grid, None)
    search.complete()
    star = n_star(search.all(), grid=grid)
    assert (star.value, star.n50, star.monotone) == (16, 16, True)
    low, high = star.bracket({1})
    assert low < needs <= (high or math.inf)
    assert high is not None or low == 65
    assert not [size for size in search.tried if low < size < (high or math.inf)]
    again = dict(search.tried)
    search.complete()
    assert search.tried == again


def test_an_interrupted_completion_goes_on(tmp_path):
    arguments = {"lrs": (2e-2, 1e-3), "seeds": (0, 1), "sizes": (16, 32, 60), "n50": True}
    whole = sample_size(CONFIG, root=tmp_path / "whole", **arguments)
    sample_size(CONFIG, root=tmp_path / "cut", **(arguments | {"n50": False}))
    calls = []

    def interrupt(share, text):
        calls.append(text)
        if "step" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_size(CONFIG, root=tmp_path / "cut", progress=interrupt, **arguments)
    resumed = sample_size(CONFIG, root=tmp_path / "cut", **arguments)
    assert (resumed.value, resumed.n50) == (whole.value, whole.n50)
    assert [t.size for t in resumed.trials] == [t.size for t in whole.trials]


def test_data_seeds_are_searched_one_by_one(tmp_path):
    arguments = {"root": tmp_path, "lrs": (2e-2,), "seeds": (0, 1), "sizes": (60,)}
    star = sample_size(CONFIG.replace(seeds={"data": 7}), **arguments)
    assert star.data_seed == 7
    (trial,) = star.trials
    runs = [open_run(m.run) for m in trial.members]
    assert {run.config.seeds.data for run in runs} == {7}
    assert [run.config.seeds.init for run in runs] == [0, 1]


def test_the_grid_ends_at_the_largest_size(tmp_path):
    star = sample_size(CONFIG, root=tmp_path, lrs=(1e-2,), seeds=(0,), largest=20)
    assert star.grid == (12, 16, 20)


def test_the_paper_s_search_finds_the_same(tmp_path):
    arguments = {"root": tmp_path, "lrs": (2e-2,), "seeds": (0,), "sizes": (8, 16, 32, 60)}
    ours = sample_size(CONFIG, **arguments)
    theirs = sample_size(CONFIG, search="paper", **arguments)
    assert (theirs.value, theirs.interval) == (ours.value, ours.interval)
    assert theirs.search == "paper"


def test_a_pool_too_large_to_draw_needs_a_largest_size(tmp_path):
    huge = ModularAddition(modulus=10, lengths=(11, 12), format="acot")
    config = CONFIG.replace(task=huge)
    with pytest.raises(ValueError, match=r"largest: ModularAddition has 1\.1e\+12"):
        sample_size(config, root=tmp_path, lrs=(1e-2,), seeds=(0,))
    assert grid_of(config, largest=100)[-1] == 100
    assert not list(tmp_path.iterdir())
