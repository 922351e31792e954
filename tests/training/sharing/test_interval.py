"""The interval of kappa: a slow reference, what widens it, open ends, and its coverage."""

import random

import numpy as np
import pytest

from training.sharing.interval import (
    SPREAD,
    draw_n_star,
    interval_covers,
    kappa_intervals,
    ratio_interval,
)
from training.sharing.n_star import MemberOutcome, NStar, Trial
from training.sharing.replicate import Replicate, separate_size
from training.tasks.base import generator

GRID = (10, 20, 40, 80, 160)
POOLS = {4: 160, 5: 1000}


def member(seed, state):
    return MemberOutcome(
        lr=0.01, seed=seed, state=state, step=1, train_loss=0.1, validation_loss=0.1,
        accuracy=1.0, run="",
    )  # fmt: skip


def star(*solved_from, data_seed=0, complete=True, grid=GRID):
    """A search with one member per seed, who solves every size from its own up (None: none)."""
    trials = tuple(
        Trial(
            size=size,
            members=tuple(
                member(seed, "solved" if first is not None and size >= first else "stopped")
                for seed, first in enumerate(solved_from)
            ),
            mixture={},
            cause=None,
        )
        for size in reversed(grid)
    )
    value = min((first for first in solved_from if first is not None), default=None)
    place = grid.index(value) if value else len(grid)
    return NStar(
        value=value, interval=(grid[place - 1] if place else 0, value), censored=value is None,
        bottom=value == grid[0], monotone=True, n50=None, complete=complete, beyond=None,
        grid=grid, trials=trials, data_seed=data_seed, lrs=(0.01,),
        seeds=tuple(range(len(solved_from))), threshold=0.02, search="descent",
    )  # fmt: skip


def replicate(four, five, joint, data_seed=0, complete=True):
    make = [star(*s, data_seed=data_seed, complete=complete) for s in (four, five, joint)]
    return Replicate(
        data_seed=data_seed,
        pools=POOLS,
        distribution="uniform",
        alone={4: make[0], 5: make[1]},
        joint=make[2],
    )


def slow(replicates, draws, seed):
    """The same bootstrap, one number after the other."""
    rng = random.Random(seed)

    def value(found):
        seeds = {rng.choice(found.seeds) for _ in found.seeds}
        low, high = found.bracket(seeds)
        assert low
        assert high
        spread = rng.gauss(0, np.log(SPREAD)) if len(replicates) > 1 else 0
        return low * (high / low) ** rng.random() * np.exp(spread)

    kappas, ratios = [], []
    for _ in range(draws):
        logs = []
        for _ in replicates:
            one = rng.choice(replicates)
            alone = {n: value(s) for n, s in one.alone.items()}
            joint = value(one.joint)
            logs.append([sum(alone.values()) / joint, separate_size(alone, POOLS) / joint])
        kappa, ratio = np.exp(np.mean(np.log(logs), axis=0))
        kappas.append(kappa)
        ratios.append(ratio)
    return [np.quantile(values, (0.025, 0.975)) for values in (kappas, ratios)]


CASES = [
    [replicate((20, 40), (40, 80), (40, 40))],
    [replicate((20, 40), (40, 80), (40, 80)), replicate((40, 40), (80, 80), (80, 20), data_seed=1)],
    [replicate((20,), (40,), (80,), data_seed=seed, complete=False) for seed in range(3)],
]


@pytest.mark.parametrize("replicates", CASES)
def test_it_is_the_slow_bootstrap(replicates):
    fast = kappa_intervals(replicates)
    reference = slow(replicates, 4000, seed=1)
    for got, wanted in zip(fast, reference, strict=True):
        # two bootstraps of thousands of draws differ by up to 5% at their 2.5% tails
        assert got == pytest.approx(wanted, rel=0.08)
    assert kappa_intervals(replicates) == fast, "the seed is fixed"
    assert kappa_intervals(replicates, seed=1) != fast


def test_a_draw_is_log_uniform_inside_the_bracket():
    low, high = draw_n_star(star(40), 20_000, generator(0))
    assert (low == high).all()
    assert (low > 20).all()
    assert (low <= 40).all()
    share = np.log(low / 20) / np.log(2)
    # standard error of a mean of 20,000 uniform numbers: 0.002
    assert share.mean() == pytest.approx(0.5, abs=0.01)
    assert np.quantile(share, 0.25) == pytest.approx(0.25, abs=0.015)


def test_a_resample_draws_a_seed_that_needs_more_as_often_as_chance_has_it():
    low, _ = draw_n_star(star(20, 160), 20_000, generator(0))
    assert (low > 80).mean() == pytest.approx(0.25, abs=0.01), "both picks are the second seed"
    assert (low <= 20).mean() == pytest.approx(0.75, abs=0.01)
    only_grid, _ = draw_n_star(star(20, 160, complete=False), 20_000, generator(0))
    assert (only_grid <= 20).all()


def test_disagreeing_seeds_and_data_widen_it():
    def width(replicates):
        low, high = kappa_intervals(replicates)[0]
        return high / low

    alike = width([replicate((20, 20), (40, 40), (40, 40))])
    seeds = width([replicate((20, 80), (40, 160), (40, 160))])
    assert seeds > 1.5 * alike
    data = [replicate((20, 20), (40, 40), (j, j), data_seed=j) for j in (20, 160)]
    assert width(data) > 1.5 * alike


def test_what_is_in_it_is_told():
    two_seeds = replicate((20, 40), (40, 80), (40, 40))
    one_seed = replicate((20,), (40,), (40,))
    assert interval_covers([two_seeds]) == ("grid", "initialisation")
    assert interval_covers([one_seed]) == ("grid",)
    halted = replicate((20, 40), (40, 80), (40, 40), complete=False)
    assert interval_covers([halted]) == ("grid",)
    other = replicate((20, 40), (40, 80), (40, 40), data_seed=1)
    assert interval_covers([two_seeds, other]) == ("grid", "initialisation", "data")


def test_open_brackets_open_the_interval():
    bottom = kappa_intervals([replicate((10,), (40,), (40,))])
    assert bottom[0][0] < 40 / 40, "N* at the bottom may be next to nothing"
    assert bottom[0][1] is not None
    (low, high), (ratio_low, ratio_high) = kappa_intervals([replicate((None,), (40,), (40,))])
    assert low > 160 / 40
    assert high is None
    assert ratio_high is None
    assert ratio_low > 0
    (low, high), _ = kappa_intervals([replicate((20,), (40,), (None,))])
    assert low == 0
    assert high <= 60 / 160
    (low, high), _ = kappa_intervals([replicate((20,), (40,), (10,))])
    assert high is None
    assert low > 30 / 10


def test_a_seed_that_never_solves_opens_the_end_only_if_it_is_drawn_alone_often_enough():
    often = [replicate((20,) * 2, (40,) * 2, (40, None))]
    assert kappa_intervals(often)[0][0] == 0, "one resample in four has the second seed alone"
    seldom = [replicate((20,) * 5, (40,) * 5, (40, 40, 40, 40, None))]
    assert kappa_intervals(seldom)[0][0] > 0


@pytest.mark.parametrize(("data_seeds", "least"), [(2, 0.85), (8, 0.9)])
def test_it_covers_the_true_mean_over_data_seeds(data_seeds, least):
    """N* of a data seed log-normal around 5000, by a factor of 1.5: wider than is assumed."""
    draw = np.random.default_rng(0)
    grid = tuple(round(100 * 1.3**k) for k in range(30))
    hits, cells = 0, 80
    for _ in range(cells):
        replicates = []
        for seed in range(data_seeds):
            needed = np.exp(draw.normal(np.log(5000), 0.4, 3))
            sizes = [next(size for size in grid if size >= n) for n in needed]
            four, five, joint = (star(s, data_seed=seed, grid=grid) for s in sizes)
            replicates.append(
                Replicate(
                    data_seed=seed,
                    pools={4: 10**6, 5: 10**6},
                    distribution="uniform",
                    alone={4: four, 5: five},
                    joint=joint,
                )
            )
        low, high = kappa_intervals(replicates)[0]
        # E[log kappa] = E[log(a + b)] - E[log j], which is log 2 + 0.4^2 / 4
        hits += low <= 2 * np.exp(0.4**2 / 4) <= high
    # 91.5 and 97% of 400 such cells; standard error here 0.03 and 0.02
    assert hits >= least * cells


def test_the_ratio_of_two_searches_is_a_kappa_of_one_length():
    above, below = star(40, 80), star(20, 40)
    low, high = ratio_interval([(above, below)])
    assert low < 40 / 20 < high
    inverse = ratio_interval([(below, above)])
    # two bootstraps of 2000 draws differ by up to 5% at their 2.5% tails
    assert (1 / inverse[1], 1 / inverse[0]) == pytest.approx((low, high), rel=0.08)
    assert ratio_interval([(star(None), below)])[1] is None
    assert ratio_interval([(above, star(None))])[0] == 0
