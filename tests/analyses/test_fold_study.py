"""What the studies of folds and branches say, from facts made up so that the truth is known."""

import numpy as np
import pytest

from analyses.claim import CONFIRMED, CONTRADICTED, NOT_MEASURED, UNDETERMINED
from analyses.dynamics import branches
from analyses.dynamics.fold_text import SAMPLED, THEORY, _passes, _told, claims, sampled_folds


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


def test_a_missing_fold_is_never_confirmed():
    one = claims(facts(THEORY[:1], ((), ()), ((), None), SCATTERED))[0]
    assert one.verdict == CONTRADICTED  # one fold where two are claimed
    lacking = claims(facts(THEORY, ((), ()), ((), None), [*SCATTERED, (0.3,)]))[0]
    assert lacking.verdict == UNDETERMINED
    assert "1 of 5 samples have no two folds" in lacking.comparisons[-1].what
    none = claims(facts(THEORY, ((), ()), ((), None), [(0.3,), ()]))[0]
    assert none.verdict == UNDETERMINED
    bare = facts(THEORY, ((), ()), ((), None), SCATTERED)
    assert claims({**bare, "shapes": []})[1].verdict == NOT_MEASURED


def test_how_the_answer_passes_is_read_from_the_branches():
    def shape(zero, context=None):
        found = {"from zero": {"folds": zero[0], "crossovers": zero[1]}}
        return {"branches": found | ({"in context": {"folds": context}} if context else {})}

    said = _passes([("a", shape([[], [1]])), ("b", shape([[], []])), ("c", shape([[1], []]))])
    assert "no fold in 2: it crosses over in 1, and has neither fold nor crossover in 1 (b)" in said
    curve = {
        "second": "f_r",
        "from": 0.1,
        "f_v": [0.1, 0.2],
        "along": [0.0, 0.1],
        "turns": [{"at": 0.1, "f_v": 0.2}],
        "cusps": [],
        "ended": "there",
    }
    assert "keeps its sign" in _told({**curve, "quadratic": [1.0, 2.0]})
    assert "changes its sign" in _told({**curve, "quadratic": [1.0, -2.0]})


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
