"""Claims are judged by their intervals: planted N* confirm, contradict, or leave open."""

import json
import math

import numpy as np
import pytest

from analyses.claim import CONFIRMED, CONTRADICTED, NOT_MEASURED, UNDETERMINED, Claim, Comparison
from analyses.kappa_claims import kappa_claims
from analyses.rank import rank_correlation
from training import NStar, SharingFactor
from training.sharing.n_star import Trial
from training.sharing.replicate import Replicate
from training.sharing.sample_size import size_grid

POOLS = {4: 205, 5: 824, 6: 3896}
SHARED = {4: 75, 5: 75, 6: 75, "joint": 75}
APART = {4: 75, 5: 75, 6: 75, "joint": 215}
LITTLE = {4: 75, 5: 75, 6: 75, "joint": 363}
FIGHTING = {4: 75, 5: 75, 6: 75, "joint": 1349}


def star(value, data_seed, pool=3896, beyond=None, cause="data"):
    grid = size_grid(pool)
    below = [size for size in grid if value is None or size < value]
    trials = (Trial(size=below[-1], members=(), mixture={}, cause=cause),)
    return NStar(
        value=value, interval=(below[-1] if below else 0, value), censored=value is None,
        bottom=value == grid[0], monotone=True, n50=None, complete=False, beyond=beyond, grid=grid,
        trials=trials, data_seed=data_seed, lrs=(1e-3,), seeds=(0, 1), threshold=0.02,
        search="descent",
    )  # fmt: skip


def searches(values, beyond=None, data_seeds=2, cause="data"):
    """Data seeds that agree."""
    return {
        seed: {str(n): star(value, seed, beyond=beyond, cause=cause) for n, value in values.items()}
        for seed in range(data_seeds)
    }


def factor(found, form="cot"):
    replicates = tuple(
        Replicate(
            data_seed=seed,
            pools=POOLS,
            distribution="uniform",
            alone={n: stars[str(n)] for n in POOLS},
            joint=stars["joint"],
        )
        for seed, stars in found.items()
    )
    return SharingFactor(
        task="Z_4", family="x", format=form, layout="usual", distribution="uniform",
        lengths=tuple(POOLS), pools=POOLS, replicates=replicates,
    )  # fmt: skip


def transformers(cot, acot):
    return {
        f"{size}-transformer-{form}": values
        for size in ("Z4", "deep")
        for form, values in (("cot", cot), ("acot", acot))
    }


def judged(cells, beyond=None, **options):
    """Verdict by number, of cells given as name to N*."""
    beyond = beyond or {}
    found = {name: searches(values, beyond.get(name), **options) for name, values in cells.items()}
    whole = {name: stars for name, stars in found.items() if "4" in stars[0]}
    claims = kappa_claims(found, {name: factor(stars) for name, stars in whole.items()})
    return {claim.number: claim for claim in claims}


def test_a_verdict_needs_whole_intervals():
    def claim(*ends):
        comparisons = tuple(
            Comparison(what="x", value=None, low=low, high=high, expected=(1.0, math.inf))
            for low, high in ends
        )
        return Claim(number="0", source="", statement="", comparisons=comparisons)

    assert claim((1.1, 2.0), (1.0, math.inf)).verdict == CONFIRMED
    assert claim((1.1, 2.0), (0.9, 2.0)).verdict == UNDETERMINED
    assert claim((1.1, 2.0), (0.9, 2.0), (0.2, 0.8)).verdict == CONTRADICTED
    assert claim().verdict == NOT_MEASURED


def test_planted_interference_and_its_absence():
    for values, verdict in ((FIGHTING, CONFIRMED), (SHARED, CONTRADICTED), (LITTLE, UNDETERMINED)):
        cells = dict.fromkeys(
            ("Z4-transformer-cot", "layout-usual", "deep-transformer-cot"), values
        )
        assert judged(cells)["4.2"].verdict == verdict


def test_one_data_seed_judges_nothing():
    (comparison, _) = judged(transformers(APART, FIGHTING), data_seeds=1)["3.1"].comparisons
    assert comparison.low > 1
    assert comparison.short_of == "data seeds"
    assert comparison.verdict == UNDETERMINED


def test_order_of_formats():
    cells = transformers(APART, FIGHTING)
    assert judged(cells)["3.1"].verdict == CONFIRMED
    assert judged(transformers(FIGHTING, APART))["3.1"].verdict == CONTRADICTED
    comparison = judged(cells)["3.1"].comparisons[0]
    assert comparison.value == pytest.approx(1349 / 215)
    assert comparison.low < comparison.value < comparison.high


def test_a_censored_search_is_a_bound_and_not_a_number():
    cells = transformers(APART, FIGHTING | {"joint": None})
    comparison = judged(cells)["3.1"].comparisons[0]
    assert comparison.value is None
    assert comparison.high == math.inf
    assert comparison.low > 10
    assert judged(cells)["3.1"].verdict == CONFIRMED
    json.dumps(judged(cells)["3.1"].record(), allow_nan=False)


def test_a_search_that_failed_for_want_of_steps_says_nothing_of_data():
    cells = transformers(APART, FIGHTING | {"joint": None})
    claim = judged(cells, cause="optimisation")["3.1"]
    assert {comparison.short_of for comparison in claim.comparisons} == {"steps"}
    assert claim.verdict == UNDETERMINED


def test_what_is_not_there_is_not_judged():
    claims = judged({"Z4-transformer-cot": FIGHTING})
    assert claims["3.1"].verdict == NOT_MEASURED
    assert "Z4-transformer-acot" in claims["3.1"].missing
    assert claims["4.1"].missing == ("Z4-transformer-acot", "Z4-transformer-outcome")
    assert claims["4.1"].verdict == NOT_MEASURED
    assert claims["4.1"].comparisons, "what was measured is still told"


def test_the_layout_claim_needs_both_sides():
    both = {"layout-usual": FIGHTING, "layout-aligned": SHARED, "layout-right_aligned": FIGHTING}
    assert judged(both)["layout"].verdict == CONFIRMED
    assert judged({**both, "layout-aligned": FIGHTING})["layout"].verdict == CONTRADICTED


def test_steps_learnt_one_by_one_need_what_the_prefix_claim_says():
    alone = {4: 75, 5: 75, 6: 75}
    near = {"deep-transformer-acot": {**alone, "joint": 215}}
    assert judged(near)["prefix"].verdict == UNDETERMINED, "two data seeds cannot tell 1 from 1.6"
    assert judged(near, data_seeds=8)["prefix"].verdict == CONFIRMED
    far = judged({"deep-transformer-acot": {**alone, "joint": 58}})["prefix"]
    assert far.verdict == CONTRADICTED
    assert far.comparisons[0].value == pytest.approx(225 / 58)


def test_generalising_goes_with_kappa_or_against_it():
    cells = {
        f"c{i}": SHARED | {"joint": joint} for i, joint in enumerate((45, 75, 127, 165, 215, 363))
    }
    along = {f"c{i}": 1 - i / 6 for i in range(6)}
    against = {f"c{i}": i / 6 for i in range(6)}
    assert judged(cells, along)["4.5"].verdict == CONFIRMED
    assert judged(cells, against)["4.5"].verdict == CONTRADICTED
    assert judged(cells)["4.5"].verdict == NOT_MEASURED
    flat = judged(cells, dict.fromkeys(cells, 1.0))["4.5"]
    assert flat.verdict == UNDETERMINED, "without spread there is no rank"


def test_rank_correlation_of_noise_is_open():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(40):
        rho, low, high = rank_correlation(rng.normal(size=12), rng.normal(size=12), draws=300)
        assert low <= rho <= high
        inside += low <= 0 <= high
    assert inside >= 34
