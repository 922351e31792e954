"""Continuation and folds: normal forms whose folds are known in closed form, then the theory's."""

from dataclasses import dataclass

import numpy as np
import pytest

from manifold.dynamics.continuation import continue_branch, continue_equations, equilibrium
from manifold.dynamics.field import reduced_field
from manifold.dynamics.fold import refine_fold
from training.tasks.associative_recall import AssociativeRecall

ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]


@dataclass(frozen=True)
class Cusp:
    """u' = p + a u - u^3 beside two stable directions, hidden by a rotation x = Q y.

    Folds for a > 0 at u = -+ sqrt(a/3), p = +- 2 (a/3)^(3/2); none for a < 0.
    """

    a: float

    def residual(self, x, p):
        u, v, w = ROTATION.T @ x
        return ROTATION @ np.array([p + self.a * u - u**3, u**2 - v, -2 * w + np.sin(p)])

    def jacobian(self, x, p):
        u = (ROTATION.T @ x)[0]
        inner = np.array([[self.a - 3 * u**2, 0, 0], [2 * u, -1, 0], [0, 0, -2]])
        return ROTATION @ inner @ ROTATION.T

    def parameter_derivative(self, x, p):
        return ROTATION @ np.array([1.0, 0.0, np.cos(p)])


@dataclass(frozen=True)
class SaddleNode:
    """u' = p + u^2: two branches for p < 0 that meet at the origin."""

    def residual(self, x, p):
        return p + x**2

    def jacobian(self, x, p):
        return 2 * np.diag(x)

    def parameter_derivative(self, x, p):
        return np.ones_like(x)


def test_saddle_node_is_found_and_passed():
    branch = continue_equations(SaddleNode(), np.array([-1.0]), span=(-1.0, 1.0), scale=1.0)
    assert len(branch.folds) == 1
    fold = branch.folds[0]
    assert abs(fold.value) < 1e-10
    assert abs(fold.state[0]) < 1e-8
    assert fold.transversality == pytest.approx(1.0)
    assert fold.quadratic == pytest.approx(2.0)
    assert branch.ended == "the branch leaves the span at -1.0"
    assert branch.table["x0"].iloc[-1] == pytest.approx(1.0, abs=1e-10)
    stable = branch.table["x0"] < -1e-6
    np.testing.assert_array_equal(branch.table["stable"][stable], True)
    np.testing.assert_array_equal(branch.table["unstable"][branch.table["x0"] > 1e-6], 1)


@pytest.mark.parametrize("a", [0.3, 1.0, 2.0])
def test_both_folds_of_the_cusp_unfolding(a):
    depth = (a / 3) ** 1.5
    branch = continue_equations(
        Cusp(a), np.array([0.0, 0.0, 0.0]) - ROTATION[:, 0] * 2, span=(-2, 2)
    )
    assert [fold.value for fold in branch.folds] == pytest.approx(
        [2 * depth, -2 * depth], abs=1e-10
    )
    for fold, u in zip(branch.folds, (-np.sqrt(a / 3), np.sqrt(a / 3)), strict=True):
        assert (ROTATION.T @ fold.state)[0] == pytest.approx(u, abs=1e-8)
        assert fold.residual < 1e-12
        assert abs(fold.eigenvalues[0]) < 1e-8
        assert (fold.eigenvalues[1:].real < -0.5).all()
        along = ROTATION[:, 0] @ fold.null_vector  # u moves so much with the null vector
        assert fold.quadratic == pytest.approx(-6 * u * along, abs=1e-7)
        assert fold.transversality == pytest.approx(1 / along, abs=1e-7)
    middle = np.abs(branch.table[["x0", "x1", "x2"]].to_numpy() @ ROTATION[:, 0]) < np.sqrt(a / 3)
    np.testing.assert_array_equal(branch.table["stable"], ~middle)
    assert branch.table["parameter"].iloc[-1] == 2.0


def test_every_point_is_a_fixed_point():
    branch = continue_equations(Cusp(1.0), -ROTATION[:, 0], span=(-2, 2))
    for row in branch.table.itertuples():
        gap = Cusp(1.0).residual(np.array([row.x0, row.x1, row.x2]), row.parameter)
        assert np.abs(gap).max() < 1e-8


def test_no_fold_where_there_is_none():
    branch = continue_equations(Cusp(-0.5), -ROTATION[:, 0], span=(-2, 2))
    assert branch.folds == ()
    assert branch.table["stable"].all()
    x = Cusp(-0.5).residual(np.zeros(3), 0.0)
    assert refine_fold(Cusp(-0.5), x, 0.0, ROTATION[:, 0]) is None


def test_a_branch_may_be_followed_downwards():
    branch = continue_equations(Cusp(1.0), ROTATION[:, 0] * 1.5, span=(2, -2))
    depth = 2 * (1 / 3) ** 1.5
    assert [fold.value for fold in branch.folds] == pytest.approx([-depth, depth], abs=1e-10)


FOLDING = AssociativeRecall(
    n_blocks=3,
    n_common=6,
    n_rare=5,
    track_slots=4,
    f_r=0.0,
    f_v=0.05,
    distractor_f_r=0.3,
    distractor_f_v=0.3,
)


@pytest.fixture(scope="module")
def folding():
    return reduced_field(FOLDING, coordinates="four", samples=None)


@pytest.mark.slow
def test_the_in_weights_state_dies_in_a_fold_and_so_does_the_in_context_state(folding):
    """Theory, section 5: exact population, lambda = 1e-3."""
    branch = continue_branch(
        folding, np.zeros(4), parameter="f_v", span=(0.03, 0.15), weight_decay=1e-3
    )
    assert [fold.value for fold in branch.folds] == pytest.approx(
        [0.0919474877, 0.0394612950], abs=1e-9
    )
    states = [[0.318101, 0.367507, 2.035197, 4.590450], [2.560914, 2.961516, 3.278856, 4.552983]]
    for fold, state in zip(branch.folds, states, strict=True):
        np.testing.assert_allclose(fold.state, state, atol=2e-6)
        assert fold.residual < 1e-14
        assert abs(fold.eigenvalues[0]) < 1e-10
        assert (fold.eigenvalues[1:].real < -1e-3).all()
        assert abs(fold.transversality) > 1e-3
        assert abs(fold.quadratic) > 1e-4
    upper = branch.folds[0].null_vector
    assert (upper[:3] > 0.2).all()
    assert abs(upper[3]) < 0.05
    assert set(branch.table["unstable"]) == {0, 1}
    turns = np.flatnonzero(np.diff(branch.table["stable"].astype(int)))
    assert len(turns) == 2
    middle = branch.table.iloc[turns[0] + 1 : turns[1] + 1]
    assert not middle["stable"].any()
    assert list(branch.table.columns[:5]) == ["f_v", "alpha", "beta", "gamma", "delta"]


@pytest.mark.slow
def test_no_fold_at_four_times_the_decay(folding):
    branch = continue_branch(
        folding, np.zeros(4), parameter="f_v", span=(0.02, 1.0), weight_decay=4e-3
    )
    assert branch.folds == ()
    assert branch.table["stable"].all()
    assert branch.table["f_v"].iloc[-1] == 1.0


@pytest.mark.slow
def test_the_fold_is_also_met_along_the_weight_decay(folding):
    """At f_v = 0.0919474877 the in-weights branch, followed in lambda, turns at 1e-3."""
    field = folding.at(f_v=0.0919474877)
    branch = continue_branch(
        field, np.zeros(4), parameter="weight_decay", span=(1.2e-3, 9e-4), weight_decay=0.0
    )
    assert min(abs(fold.value - 1e-3) for fold in branch.folds) < 1e-8


def test_equilibrium_needs_decay_and_is_a_fixed_point():
    task = AssociativeRecall(n_blocks=1, n_common=4, n_rare=2, track_slots=4, f_r=0.2, f_v=0.2)
    field = reduced_field(task, coordinates="four")
    state = equilibrium(field, np.zeros(4), weight_decay=0.02)
    assert np.abs(field.flow(state, 0.02)).max() < 1e-12
    with pytest.raises(RuntimeError, match="still moves at time 500"):
        equilibrium(field, np.zeros(4), weight_decay=1e-6, longest=400.0)
    for none in (0.0, -1e-3, np.nan):
        with pytest.raises(ValueError, match=f"weight_decay got {none}; allowed: above 0"):
            equilibrium(field, np.zeros(4), weight_decay=none)


def test_bad_requests_are_refused(folding):
    for arguments, message in (
        ({"parameter": "b", "span": (0.1, 0.2)}, "parameter is 'b'"),
        ({"span": (0.1, 0.1)}, "ends must differ"),
        ({"span": (0.1, 1.5)}, r"f_v is 1\.5"),
        ({"parameter": "weight_decay", "span": (1e-3, 0.0)}, r"span of weight_decay got 0\.0"),
        ({"span": (0.1, 0.2), "weight_decay": 0.0}, r"weight_decay got 0\.0; allowed: above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            continue_branch(folding, np.zeros(4), **{"weight_decay": 1e-3, **arguments})


@pytest.mark.parametrize("way", [(-2.0, 2.0), (2.0, -2.0)])
def test_a_branch_may_begin_inside_its_span(way):
    """From the lower state at p = 0 either way: the same branch, up to its end."""
    branch = continue_equations(Cusp(1.0), -ROTATION[:, 0], span=way, at=0.0)
    depth = 2 * (1 / 3) ** 1.5
    expected = [depth, -depth] if way[1] > 0 else []
    assert [fold.value for fold in branch.folds] == pytest.approx(expected, abs=1e-10)
    assert branch.table["parameter"].iloc[0] == 0.0
    assert branch.table["parameter"].iloc[-1] == way[1]
    with pytest.raises(ValueError, match=r"at is 2\.5; a curve begins inside its span"):
        continue_equations(Cusp(1.0), -ROTATION[:, 0], span=way, at=2.5)
