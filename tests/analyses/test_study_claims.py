"""What studies of the page on dynamics claim, from facts made up so that the truth is known."""

import pytest

from analyses.claim import CONFIRMED, CONTRADICTED, UNDETERMINED
from analyses.dynamics import winner


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
