"""Fixed points from many starts, and crossovers along a branch without bifurcations."""

import numpy as np
import pytest

from manifold.dynamics.continuation import continue_branch, continue_equations
from manifold.dynamics.crossover import crossovers
from manifold.dynamics.field import reduced_field
from manifold.dynamics.fixed_points import fixed_points
from tests.manifold.dynamics import normal_forms as nf
from training.tasks.associative_recall import AssociativeRecall

WELLS = nf.Plain(lambda y, p: np.array([y[0] - y[0] ** 3 + 0.0 * p, -2 * y[1] + y[0] ** 2]))
STARTS = np.random.default_rng(0).normal(scale=2, size=(20, 2))


def test_all_fixed_points_of_a_double_well():
    found = fixed_points(WELLS, 0.0, starts=STARTS)
    states = sorted(tuple(np.round(one.state, 12) + 0.0) for one in found.points)
    assert states == [(-1, 0.5), (0, 0), (1, 0.5)]
    assert [one.unstable for one in found.points] == [0, 0, 1]
    assert len(found.stable) == 2
    for one in found.points:
        assert one.residual < 1e-12
    assert sorted(found.points[0].eigenvalues.real) == pytest.approx([-2, -2])
    assert sum(one.reached for one in found.points) + found.failed == found.searches == 40
    assert str(found).startswith("3 fixed points, 2 stable, from 40 searches")


def test_the_flow_ends_in_its_own_basin():
    """From x > 0 the implicit flow must reach +1, from x < 0 it must reach -1."""
    for sign in (-1, 1):
        starts = np.column_stack([sign * np.linspace(0.05, 3, 8), np.linspace(-1, 1, 8)])
        found = fixed_points(WELLS, 0.0, starts=starts)
        wells = [one for one in found.stable if one.state[0] * sign > 0]
        assert len(wells) == 1
        assert wells[0].reached >= 8


def test_none_where_there_is_none():
    found = fixed_points(nf.Plain(lambda y, p: 1 + y**2 + p), 0.0, starts=np.ones((3, 1)))
    assert found.points == ()
    assert found.failed == found.searches == 6


@pytest.fixture(scope="module")
def small():
    task = AssociativeRecall(n_blocks=1, n_common=4, n_rare=2, track_slots=4, f_r=0.2, f_v=0.2)
    return reduced_field(task, coordinates="four")


def test_a_field_needs_decay_and_gives_its_fixed_points(small):
    found = fixed_points(small, 0.02, starts=6)
    assert found.stable
    for one in found.points:
        assert np.abs(small.flow(one.state, 0.02)).max() < 1e-10
    again = fixed_points(small, 0.02, starts=6)
    np.testing.assert_array_equal(found.points[0].state, again.points[0].state)
    for none in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="no fixed point lies at finite distance"):
            fixed_points(small, none)


def test_bad_requests_are_refused(small):
    broken = nf.Plain(lambda y, p: y * np.nan)
    for system, starts, message in (
        (broken, np.ones((4, 2)), "not finite at any of the 4 starts"),
        (WELLS, 8, "give the starts as an array"),
        (WELLS, np.ones(2), r"starts have shape \(2,\)"),
        (small, np.ones((3, 5)), r"starts have shape \(3, 5\); allowed: \(1 or more, 4\)"),
        (small, -1, "starts is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            fixed_points(system, 0.02, starts=starts)
    mixed = np.vstack([STARTS, [np.nan, 0.0]])
    assert len(fixed_points(WELLS, 0.0, starts=mixed).points) == 3


def test_a_crossover_is_no_bifurcation():
    """x = p, y = 1 - p^2 attract throughout; x overtakes y at the golden section."""
    steady = nf.Plain(lambda y, p: np.array([p - y[0], 1 - p**2 - y[1]]))
    branch = continue_equations(steady, np.array([0.0, 1.0]), span=(0.0, 1.0), scale=1.0)
    (one,) = crossovers(branch, lambda c: c["x0"] - c["x1"])
    assert branch.bifurcations == ()
    assert one.kind == "crossover"
    assert one.value == pytest.approx((np.sqrt(5) - 1) / 2, abs=1e-9)
    assert (one.eigenvalues.real < 0).all()
    assert crossovers(branch, lambda c: c["x0"] + 1) == ()
    with pytest.raises(ValueError, match="one finite number for each of"):
        crossovers(branch, lambda c: c["x0"] * np.nan)


def test_an_unstable_stretch_has_no_crossover():
    branch = continue_equations(nf.Plain(nf.fold), np.array([-1.0]), span=(-1.0, 1.0), scale=1.0)
    assert crossovers(branch, lambda c: c["x0"] - 0.3) == ()
    assert len(crossovers(branch, lambda c: c["x0"] + 0.3)) == 1


def test_a_field_has_its_loss_among_the_columns(small):
    branch = continue_branch(small, np.zeros(4), span=(0.2, 0.27), weight_decay=0.02)
    middle = float(branch.table["loss"].iloc[[0, -1]].mean())
    (one,) = crossovers(branch, lambda c: c["loss"] - middle)
    assert small.at(f_v=one.value).loss(one.state) == pytest.approx(middle, abs=1e-8)
