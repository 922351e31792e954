"""Folds in two parameters: the cusp of x' = a + b x - x^3, plain, hidden, and in the field."""

import numpy as np
import pytest

from manifold.dynamics.continuation import continue_branch, continue_equations
from manifold.dynamics.cusp import continue_folds
from manifold.dynamics.equations import FieldEquations
from manifold.dynamics.field import reduced_field
from manifold.dynamics.fold import refine_fold
from tests.manifold.dynamics import normal_forms as nf
from training.tasks.associative_recall import AssociativeRecall


def plain(b):
    return nf.Plain(lambda y, a: np.array([a + b * y[0] - y[0] ** 3]))


def hidden(b):
    return nf.Hidden(lambda y, a: np.array([a + b * y[0] - y[0] ** 3]), 1, 2)


def displaced(b):
    """The cusp at a = 0.05, b = 0.1, where a and b are mixed as well."""
    return nf.Plain(
        lambda y, a: np.array([a - 0.05 + (b - 0.1 + 0.5 * (a - 0.05)) * y[0] - y[0] ** 3])
    )


def folding(family, b, start):
    system = family(b)
    x = system.start(np.array([start]), -0.3) if family is hidden else np.array([start])
    return continue_equations(system, x, span=(-0.3, 0.3), scale=1.0)


@pytest.mark.parametrize(
    ("family", "expected"), [(plain, (0, 0)), (hidden, (0, 0)), (displaced, (0.05, 0.1))]
)
def test_the_cusp_is_where_the_closed_form_has_it(family, expected):
    branch = folding(family, 0.3, -0.9)
    assert len(branch.folds) == 2
    curve = continue_folds(branch, branch.folds[0], second_parameter=family, span=(0.3, -0.3))
    (cusp,) = curve.cusps
    np.testing.assert_allclose(cusp.values, expected, atol=1e-9)
    assert cusp.residual < 1e-8
    assert max(cusp.error) < 1e-8
    assert cusp.cubic == pytest.approx(-6, rel=1e-5)
    assert abs(cusp.eigenvalues[0]) < 1e-8
    assert curve.ended == "the curve leaves the span of second at 0.3"
    if family is not displaced:  # folds at a^2 = 4 (b / 3)^3
        a, b = curve.table["parameter"], curve.table["second"]
        np.testing.assert_allclose(a**2, 4 * (b / 3) ** 3, atol=1e-9)
    signs = np.sign(curve.table["quadratic"])
    assert (np.diff(signs) != 0).sum() == 1


def test_a_curve_of_folds_may_begin_inside_its_span():
    """From b = 0.3 to both ends: the cusp is met going down, none going up."""
    branch = folding(plain, 0.3, -0.9)
    down = continue_folds(branch, branch.folds[0], second_parameter=plain, span=(0.5, -0.3), at=0.3)
    up = continue_folds(branch, branch.folds[0], second_parameter=plain, span=(-0.3, 0.5), at=0.3)
    assert [one.values for one in down.cusps] == [pytest.approx((0, 0), abs=1e-9)]
    assert up.cusps == ()
    assert down.ended == "the curve leaves the span of second at 0.5"
    for curve in (down, up):
        a, b = curve.table["parameter"], curve.table["second"]
        np.testing.assert_allclose(a**2, 4 * (b / 3) ** 3, atol=1e-9)
        assert b.iloc[0] == pytest.approx(0.3)
        assert b.max() == pytest.approx(0.5, abs=1e-12)  # to the end of the span


def test_no_cusp_where_folds_never_meet():
    """p = q + x^2 folds for every q."""
    family = lambda q: nf.Plain(lambda y, p: np.array([p - q + y[0] ** 2]))  # noqa: E731
    branch = continue_equations(family(0.0), np.array([-0.9]), span=(-0.81, 0.5), scale=1.0)
    curve = continue_folds(branch, branch.folds[0], second_parameter=family, span=(0.0, 0.4))
    assert curve.cusps == ()
    np.testing.assert_allclose(curve.table["parameter"], curve.table["second"], atol=1e-9)


def test_folds_that_meet_where_branches_reconnect_are_no_cusp():
    """q = p^2 + x^2, an isola about 0: its two folds p = -+ sqrt(q) meet at q = 0."""
    family = lambda q: nf.Plain(lambda y, p: np.array([p**2 + y[0] ** 2 - q]))  # noqa: E731
    start = np.array([-np.sqrt(0.25 - 0.04)])
    branch = continue_equations(family(0.25), start, span=(0.2, 0.8), scale=1.0)
    curve = continue_folds(branch, branch.folds[0], second_parameter=family, span=(0.25, -0.1))
    assert curve.cusps == ()
    p, q = curve.table["parameter"], curve.table["second"]
    np.testing.assert_allclose(q, p**2, atol=1e-9)
    assert p.iloc[-1] < -0.4
    side = curve.table["transversality"] * p * curve.table["x0"].abs().lt(1e-6)
    assert (np.sign(side[p.abs() > 1e-6]) == np.sign(side.iloc[0])).all()


RECALL = AssociativeRecall(n_blocks=1, n_common=4, n_rare=2, track_slots=4, f_r=0.2, f_v=0.2)


def test_bad_requests_are_refused():
    branch = folding(plain, 0.3, -0.9)
    fold = branch.folds[0]
    pitchfork = continue_equations(
        nf.Plain(nf.supercritical), np.zeros(1), span=(-1.0, 0.9), scale=1.0
    ).bifurcations[0]
    for one, second, span, message in (
        (pitchfork, plain, (0.3, 0.0), "got a pitchfork; folds alone"),
        (fold, plain, (0.3, 0.3), "ends must differ"),
        (
            fold,
            plain,
            (0.2, 0.0),
            "begin at 0.2, where the branch's equations have no fold at 0.063",
        ),
        (fold, "weight_decay", (1e-3, 2e-3), "give a function from its value to equations"),
    ):
        with pytest.raises(ValueError, match=message):
            continue_folds(branch, one, second_parameter=second, span=span)
    field = reduced_field(RECALL, coordinates="four")
    along = continue_branch(field, np.zeros(4), span=(0.2, 0.22), weight_decay=0.02)
    for second, span, message in (
        ("f_v", (0.2, 0.3), "which the branch itself moves along"),
        ("weight_decay", (0.02, 0.0), r"span of weight_decay got 0\.0; allowed: above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            continue_folds(along, fold, second_parameter=second, span=span)


@pytest.mark.slow
def test_the_in_context_fold_of_recall_outlives_four_times_the_decay():
    """No cusp up to 5e-3: the fold moves to larger f_v, on a branch apart from that of zero."""
    task = AssociativeRecall(
        n_blocks=3,
        n_common=6,
        n_rare=5,
        track_slots=4,
        f_r=0.0,
        f_v=0.05,
        distractor_f_r=0.3,
        distractor_f_v=0.3,
    )
    field = reduced_field(task, coordinates="four", samples=None)
    start = np.array([2.69, 3.12, 3.42, 4.40])  # of the in-context state, beside its fold
    branch = continue_branch(field, start, span=(0.05, 0.03), weight_decay=1e-3, step=0.5)
    assert branch.folds[0].value == pytest.approx(0.0394612950, abs=1e-9)
    curve = continue_folds(
        branch, branch.folds[0], second_parameter="weight_decay", span=(1e-3, 5e-3), step=0.5
    )
    assert curve.cusps == ()
    assert curve.ended == "the curve leaves the span of weight_decay at 0.005"
    assert (curve.table["quadratic"] < 0).all()
    near = curve.table.iloc[(curve.table["weight_decay"] - 4e-3).abs().argmin()]
    there = FieldEquations(field=field, parameter="f_v", weight_decay=4e-3)
    state = near[["alpha", "beta", "gamma", "delta"]].to_numpy(float)
    null = np.array(branch.folds[0].null_vector)
    fold = refine_fold(there, state, near["f_v"], null)
    assert fold is not None
    assert fold.value == pytest.approx(0.2337750337, abs=1e-9)
    assert fold.residual < 1e-14
