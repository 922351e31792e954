"""Phase diagrams of a field small enough to solve in a second, and the theory's, slowly."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from manifold.dynamics.field import reduced_field
from manifold.dynamics.phase_diagram import FLAGS, _flagged, _Work, in_context, phase_diagram
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.in_context_ngram import InContextNgram


def recall(n=1, f_v=0.2):
    task = AssociativeRecall(
        n_blocks=n,
        n_common=6,
        n_rare=5,
        track_slots=4,
        f_r=0.0,
        f_v=f_v,
        distractor_f_r=0.3,
        distractor_f_v=0.3,
    )
    return reduced_field(task, coordinates="four")


@pytest.fixture(scope="module")
def small():
    return recall()


def test_one_state_wherever_the_decay_is_strong(small):
    """At decay 0.05 everything is forgotten alike: no hysteresis, no fold; states are at rest."""
    seen = []
    found = phase_diagram(
        small,
        {"f_v": [0.1, 0.3], "weight_decay": [0.05, 0.06]},
        progress=lambda done, text: seen.append(done),
    )
    assert found.parameters == ("f_v", "weight_decay")
    assert set(found.grid["flag"]) <= set(FLAGS) - {"bistable", "unsettled"}
    assert found.curves == ()
    assert found.notes == ()
    assert len(found.states) == 8
    for row in found.states.to_dict("records"):
        state = np.array([row[name] for name in small.names])
        speed = small.at(f_v=row["f_v"]).flow(state, row["weight_decay"])
        assert np.abs(speed).max() < 1e-9
        assert row["stable"]
    assert found.switch(0.05) in ("none", "crossover")
    assert min(seen) >= 0
    assert max(seen) <= 1


@pytest.mark.parametrize(
    ("zero", "context", "flag"),
    [
        (("weights", 1.0), ("weights", 1.0 + 1e-6), "weights"),
        (("weights", 1.0), ("context", 2.0), "bistable"),
        (("weights", 1.0), ("weights", 2.0), "bistable"),
        (("unsettled", np.nan), ("context", 2.0), "unsettled"),
        (("weights", 1.0), ("unsettled", np.nan), "unsettled"),
        (("unsettled", np.nan), ("unsettled", np.nan), "unsettled"),
    ],
)
def test_flags_of_two_final_states(zero, context, flag):
    rows = [
        {"x": 0.1, "y": 0.2, "answer": answer, "a": value, "b": -value}
        for answer, value in (zero, context)
    ]
    found = _flagged(pd.DataFrame(rows), ("x", "y"), ("a", "b"))
    assert found.to_dict("records") == [{"x": 0.1, "y": 0.2, "flag": flag}]


def test_a_mark_says_whether_a_state_that_attracts_ends_there(small, monkeypatch):
    """All eigenvalues but the one that vanishes are negative: else what ends had no pull before."""
    monkeypatch.setattr("manifold.dynamics.phase_diagram.crossovers", lambda *_: ())
    starts = {"zero": np.zeros(4), "context": np.zeros(4)}
    names, values = ("f_v", "f_r"), ([0.1, 0.3], [0.1, 0.3])
    work = _Work(small, names, values, 1e-3, starts, lambda *_: None)
    spectra = ([0, -1 + 2j, -1 - 2j, -3], [0, -1, -2, 1], [0, 1, 1, 1])
    events = tuple(
        SimpleNamespace(kind="transcritical", value=0.1 + 0.05 * i, eigenvalues=np.array(spectrum))
        for i, spectrum in enumerate(spectra)
    )
    branch: Any = SimpleNamespace(unresolved=("a sign was seen",), bifurcations=events)
    work._events(0.1, branch)
    assert [mark["ends"] for mark in work.marks] == [True, False, False]
    assert work.notes == ["f_r = 0.1: a sign was seen"]


def test_bad_requests_are_refused(small):
    good = [0.1, 0.3]
    for grid, options, message in (
        ({"f_v": good}, {}, "the grid has 1 parameters"),
        ({"f_v": good, "b": [1, 2]}, {}, "the grid has 'b'"),
        ({"f_v": [0.1], "f_r": good}, {}, r"f_v has the values \[0\.1\]; two or more"),
        ({"f_v": [0.3, 0.1], "f_r": good}, {}, "in increasing order"),
        ({"f_v": [0.1, 1.5], "f_r": good}, {}, r"f_v is 1\.5"),
        ({"f_v": good, "weight_decay": [0.0, 1e-3]}, {}, "no fixed point lies at finite distance"),
        ({"f_v": good, "f_r": good}, {"weight_decay": 0.0}, "no fixed point lies at finite dist"),
    ):
        with pytest.raises(ValueError, match=message):
            phase_diagram(small, grid, **options)


def test_a_start_in_context_needs_its_coordinates(small):
    np.testing.assert_array_equal(in_context(small), [3.0, 3.6, 3.9, 2.3])
    other = InContextNgram(n_tokens=4, n_blocks=2)
    with pytest.raises(ValueError, match="no coordinates alpha, beta, gamma and delta"):
        in_context(reduced_field(other))


@pytest.mark.slow
def test_the_theory_s_folds_bound_the_bistable_region():
    """Section 5, lambda = 1e-3: two states between f_v = .0395 and .0919, one beside them."""
    found = phase_diagram(recall(3), {"f_v": [0.03, 0.06, 0.12], "weight_decay": [1e-3, 1.2e-3]})
    row = found.grid[found.grid["weight_decay"] == 1e-3].set_index("f_v")["flag"]
    assert dict(row) == {0.03: "weights", 0.06: "bistable", 0.12: "context"}
    marks = found.marks[found.marks["weight_decay"] == 1e-3]
    folds = marks.loc[marks["kind"] == "fold", "f_v"]
    np.testing.assert_allclose(sorted(folds), [0.0394612950, 0.0919474877], atol=1e-9)
    assert found.switch(1e-3) == "fold"
    assert len(found.curves) == 2  # each fold once, though both rows have it
    for curve in found.curves:
        ends = curve.table["weight_decay"].to_numpy()[[0, -1]]
        np.testing.assert_allclose(sorted(ends), [1e-3, 1.2e-3], rtol=1e-9)
    assert found.cusps == ()
