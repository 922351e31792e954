"""What studies of the page on dynamics claim, from facts made up so that the truth is known."""

import numpy as np
import pytest

from analyses.claim import CONFIRMED, CONTRADICTED, UNDETERMINED, Claim, Comparison
from analyses.claim_table import claims_table
from analyses.dynamics import control, theorems, winner
from analyses.dynamics.share import mean
from analyses.dynamics.theorems_text import _compared, never, scaled_times


def raced(right, total, scale=1.0, kind="six", lead=1.0):
    row = {"trained": "A", "predicted": "A", "loss": 0.1}
    rows = [row] * right + [{**row, "predicted": "B"}] * (total - right)
    share = {"share": 0.6, "low": 0.5, "high": 0.7}
    scores = {
        "wins": {"A": total, "B": 0},
        "neither": 0,
        "runs": total,
        "field": {**share, "share": lead},
        "majority": share,
        "logistic": share,
        "magnitudes": {**share, "share": 0.9},
    }
    return {"kind": kind, "scale": scale, "rows": rows, "scores": scores}


@pytest.mark.parametrize(
    ("right", "total", "verdict"),
    [(60, 60, UNDETERMINED), (200, 200, CONFIRMED), (40, 60, CONTRADICTED)],
)
def test_each_scale_is_judged_by_its_own_runs(right, total, verdict):
    groups = [raced(right, total, scale) for scale in (0.1, 0.5, 1.0)]
    (claim,) = winner.claims({"groups": groups})
    assert [one.verdict for one in claim.comparisons] == [verdict] * 3
    assert claim.verdict == verdict
    said = winner._alone(groups)
    assert ("cannot be confirmed" in said) == (total == 60)


def test_the_best_of_these_is_of_all_that_are_named():
    for lead, said in ((0.95, "better than"), (0.9, "as good as"), (0.8, "worse than")):
        assert f"{said} the best of these" in winner._finding(raced(5, 5, lead=lead), 2.0)
    one = raced(5, 5, lead=0.5)
    one["scores"]["logistic"] = None
    assert "worse than always saying the majority" in winner._finding(one, 2.0)


def test_runs_that_diverged_are_counted():
    size = {"full": 6, "near": 5, "transformers": 5}
    assert "1 of SGD on full matrices" in winner._left_out([raced(5, 5, kind="full")], size)
    assert "no run" in winner._left_out([raced(5, 5, kind="norms")], size)


def test_the_interval_of_a_mean_is_students():
    found = mean([0.1, 0.2, 0.6])  # t(2) at 0.975 is 4.302653
    half = 4.302653 * np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    assert found["value"] == pytest.approx(0.3)
    assert found["high"] == pytest.approx(0.3 + half)
    assert found["low"] == pytest.approx(0.3 - half)
    assert found["high"] > 0.6  # a bootstrap of three cannot say so
    assert np.isinf([mean([0.4])["low"], mean([0.4])["high"]]).all()
    with pytest.raises(ValueError, match="no values"):
        mean([])


def controlled(**ends):
    """Mismatch at the change and at the end, by arm, and a bit more by seed."""
    rows = [
        {
            "arm": arm.replace("_", " "),
            "seed": seed,
            "steps": [1, 2, 3, 4, 5, 6],
            "accuracy": {"mismatch": [x + 0.01 * seed for x in [first] * 3 + [last] * 3]},
        }
        for arm, (first, last) in ends.items()
        for seed in range(3)
    ]
    return {"setting": {"fall": 3, "steps": 6}, "rows": rows}


def test_holding_lessens_a_fall_and_delta_alone_is_its_own_question():
    helped, dead = (0.9, 0.7), (0.0, 0.0)
    found = controlled(untreated=(0.9, 0.1), all_held=helped, delta_held=dead)
    assert [one.verdict for one in control.claims(found)] == [CONFIRMED, CONTRADICTED]
    found = controlled(untreated=(0.9, 0.1), all_held=(0.9, 0.1), delta_held=helped)
    assert [one.verdict for one in control.claims(found)] == [CONTRADICTED, CONFIRMED]


@pytest.mark.parametrize(
    ("numbers", "expected", "said"),
    [
        ((0.07, 0.06, 0.08), (0.05, 0.1), "x 0.07 [0.06, 0.08], claimed 0.05 to 0.1 |"),
        ((1.0, 0.99951, 1.0), (1.0, 1.0), "x 1 [0.9995, 1], claimed 1 |"),
        (
            (0.0919474877,) * 3,
            (0.0919474777, 0.0919474977),
            "0.09194749 [0.09194749, 0.09194749], claimed 0.09194748 to 0.0919475 |",
        ),
        ((3.0, 2.0, np.inf), (1.0, np.inf), "x 3 [2, no end], claimed 1 or more |"),
        ((0.4, -np.inf, np.inf), (0.0, 1.0), "x 0.4 [no end, no end], claimed 0 to 1 |"),
    ],
)
def test_the_table_shows_the_range_and_digits_that_tell(numbers, expected, said):
    value, low, high = numbers
    one = Comparison(what="x", value=value, low=low, high=high, expected=expected)
    claim = Claim(number="1", source="a", statement="s", comparisons=(one,))
    assert said in claims_table([claim.record()])


def test_times_at_which_context_never_comes_are_left_out_and_said():
    shares = [0.1, 0.2, 0.4]
    assert theorems.exponent(shares, [1 / s for s in shares]) == pytest.approx(1.0)
    assert theorems.exponent(shares, [np.inf, 5.0, 2.5]) == pytest.approx(1.0)
    assert theorems.exponent(shares, [np.inf, np.inf, 2.5]) is None
    rows = [{"sweep": "f_v", "share": 0.1, "time": time} for time in (10.0, None, np.inf)]
    assert never(rows, "f_v") == 2
    assert np.isinf(scaled_times(rows, "f_v")[0.1])


def test_where_suppression_is_weaker_is_read_from_the_slopes():
    def slopes(alpha):
        same = {"slope": 1.3, "low": 1.2, "high": 1.4}
        first = {"slope": alpha, "low": alpha - 0.01, "high": alpha + 0.01}
        return {"1.0": {"slopes": {"alpha": first, "beta": same, "gamma": same}}}

    assert "weaker for alpha at 1.0; stronger for none" in _compared(slopes(1.0), slopes(1.2))
    assert "weaker for none; stronger for alpha at 1.0" in _compared(slopes(1.2), slopes(1.0))
