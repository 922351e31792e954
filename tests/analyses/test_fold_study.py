"""What the studies of folds and branches say, from facts made up so that the truth is known."""

import numpy as np
import pytest

from analyses.claim import CONFIRMED, CONTRADICTED, UNDETERMINED
from analyses.dynamics import branches
from analyses.dynamics.fold_text import SAMPLED, THEORY, claims, sampled_folds


def row(*zero, context=None):
    """Branches that fold at these values of f_v."""
    found = {"from zero": {"folds": [{"f_v": value} for value in zero]}}
    if context is not None:
        found["in context"] = {"folds": [{"f_v": value} for value in context]}
    return {"exact": True, "branches": found}


def facts(exact, decays, shapes, samples):
    return {
        "exact": row(*exact),
        "decays": [{"weight_decay": 4e-3, **row(*decays[0], context=decays[1])}],
        "shapes": [{"n": 2, "b": 1, "seed": 0, **row(*shapes[0], context=shapes[1])}],
        "samples": [row(*pair) for pair in samples],
    }


SCATTERED = [(SAMPLED[0] * (1 + s), SAMPLED[1] * (1 - s)) for s in (-0.01, 0.0, 0.01, 0.005)]


def test_each_verdict_follows_its_numbers():
    confirmed = claims(facts(THEORY, ((), ()), ((), None), SCATTERED))
    assert [one.verdict for one in confirmed] == [CONFIRMED, CONFIRMED]
    off = claims(facts((THEORY[0] + 1e-6, THEORY[1]), ((), (0.23,)), ((), None), SCATTERED))
    assert [one.verdict for one in off] == [CONTRADICTED, CONTRADICTED]
    wide = [(SAMPLED[0] * (1 + s), SAMPLED[1]) for s in (-0.3, 0.0, 0.3)]
    assert claims(facts(THEORY, ((), ()), ((), None), wide))[0].verdict == UNDETERMINED


def test_the_spread_over_samples():
    found = sampled_folds({"samples": [row(0.3, 0.06), row(0.32, 0.07), row(0.4)]})
    assert found["upper"]["samples"] == 2  # a sample with one fold has no pair
    assert found["upper"]["mean"] == pytest.approx(0.31)
    assert found["upper"]["scatter"] == pytest.approx(np.std([0.3, 0.32], ddof=1) / 0.31)
    assert found["lower"]["low"] <= found["lower"]["mean"] <= found["lower"]["high"]


def branch(f_v, stable, mismatch, iwl):
    way = {"f_v": f_v, "stable": stable, "mismatch": mismatch, "iwl": iwl}
    return {"ways": {"down": {key: value[:1] for key, value in way.items()}, "up": way}}


CONTEXT = branch([0.05, 0.5], [True] * 2, [1.0] * 2, [0.4] * 2)


def judged(*states, field="exact over 9 orbits"):
    (claim,) = branches.claims({"settings": {"n = 6": {"field": field, "states": list(states)}}})
    return claim.verdict


def test_a_state_attracts_wherever_its_branch_began():
    for last, verdict in ((0.5, CONFIRMED), (0.3, CONTRADICTED)):
        inside = branch([0.02, 0.1, last, 0.9], [True] * 3 + [False], [0.0] * 4, [1.0] * 4)
        assert judged(inside, CONTEXT) == verdict
        assert judged(inside, CONTEXT, field="a sample of 900 sequences") == UNDETERMINED
    assert judged(inside) == CONTRADICTED  # no state in context
    assert judged(CONTEXT) == CONTRADICTED  # none in the weights
    neither = branch([0.02, 0.5], [True] * 2, [0.0] * 2, [0.0] * 2)
    assert judged(neither, CONTEXT) == CONTRADICTED  # wrong in both ways is not in weights


def test_a_branch_that_folds_below_does_not_count():
    folds = branch([0.02, 0.07, 0.05], [True, True, False], [0.0] * 3, [1.0] * 3)
    broken = branch([0.1, 0.15, 0.3], [True, False, True], [0.0] * 3, [1.0] * 3)
    for one in (folds, broken):
        assert judged(one, CONTEXT) == CONTRADICTED
    spans = branches.stretches({"states": [folds, broken]}, branches.IN_WEIGHTS)
    assert spans == [(0.02, 0.07), (0.1, 0.1), (0.3, 0.3)]
    assert not branches.through(spans)
