"""Bifurcations are found where closed forms have them, and nowhere else."""

import numpy as np
import pytest

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.branch_switching import switch_branch
from manifold.dynamics.continuation import continue_equations
from tests.manifold.dynamics import normal_forms as nf

SEEDS = range(3)
CORES = {
    "fold": nf.fold,
    "transcritical": nf.transcritical,
    "supercritical": nf.supercritical,
    "subcritical": nf.subcritical,
}
"""All of them degenerate at p = 0, y = 0."""


def through(system, start, span, **options):
    return continue_equations(system, start, span=span, **{"scale": 1.0, **options})


def hidden(core, order, seed, y, span=(-0.41, 0.37)):
    system = nf.Hidden(core, order, seed)
    return system, through(system, system.start(y, span[0]), span)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CORES)
def test_hidden_normal_forms(name, seed):
    y = [-np.sqrt(0.41)] if name == "fold" else [0.0]
    system, branch = hidden(CORES[name], 1, seed, y)
    assert len(branch.bifurcations) == 1, branch
    one = branch.bifurcations[0]
    assert one.kind == (name if name in ("fold", "transcritical") else "pitchfork")
    assert one.criticality == (name if name in ("supercritical", "subcritical") else None)
    assert abs(one.value) < 1e-10
    assert np.abs(system.normal(one.state, one.value)[0]).max() < 1e-9
    assert one.residual < 1e-10
    assert one.eigenvalues.real == pytest.approx([0, -1, -2, -3, -4], abs=1e-7)
    assert np.abs(system.jacobian(one.state, one.value) @ one.null_vector).max() < 1e-8
    # an amplitude along the null vector is y_0 / long: coefficients follow by that scaling
    long = (system.normal(one.state, one.value)[1] @ one.null_vector)[0]
    if name == "fold":
        assert one.transversality == pytest.approx(1 / long, abs=1e-7)
        assert one.quadratic == pytest.approx(2 * long, abs=1e-7)
    else:
        assert one.transversality == pytest.approx(1.0, abs=1e-7)  # the eigenvalue is p
    if one.kind == "transcritical":
        assert one.quadratic == pytest.approx(-2 * long, abs=1e-7)
    if one.kind == "pitchfork":
        assert abs(one.quadratic) < 1e-8
        sign = -1 if name == "supercritical" else 1
        assert one.cubic == pytest.approx(sign * 6 * long**2, abs=1e-6)
    assert branch.unresolved == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sign", [-0.6, 0.6])
def test_hidden_hopf(sign, seed):
    system, branch = hidden(nf.hopf(sign), 2, seed, [0.0, 0.0])
    (one,) = branch.bifurcations
    assert one.kind == "hopf"
    assert abs(one.value) < 1e-10
    assert one.frequency == pytest.approx(nf.FREQUENCY, abs=1e-9)
    assert one.transversality == pytest.approx(1.0, abs=1e-8)
    assert one.criticality == ("supercritical" if sign < 0 else "subcritical")
    assert np.abs(system.normal(one.state, one.value)[0]).max() < 1e-9
    gap = system.jacobian(one.state, one.value) @ one.null_vector
    assert np.abs(gap - 1j * one.frequency * one.null_vector).max() < 1e-8
    moved = system.normal(one.state, one.value)[1] @ one.null_vector
    expected = 2 * sign / nf.FREQUENCY * np.linalg.norm(moved[:2]) ** 2
    assert one.cubic == pytest.approx(expected, rel=1e-6)
    assert branch.unresolved == ()
    assert "supercritical hopf" in str(one) or sign > 0


@pytest.mark.parametrize("sign", [-0.6, 0.6])
def test_lyapunov_coefficient_of_the_normal_form(sign):
    branch = through(nf.Plain(nf.hopf(sign)), np.zeros(2), (-0.4, 0.3))
    assert branch.bifurcations[0].cubic == pytest.approx(2 * sign / nf.FREQUENCY, rel=1e-8)


@pytest.mark.parametrize(("bare", "fed", "kind"), [(0.5, -2, "super"), (-0.5, 2, "sub")])
def test_a_stable_direction_may_turn_a_pitchfork_round(bare, fed, kind):
    """u' = p u + bare u^3 + u v, v' = -v + fed u^2: on the centre manifold bare + fed."""

    def core(y, p):
        u, v = y
        return np.array([p * u + bare * u**3 + u * v, -v + fed * u**2])

    branch = through(nf.Plain(core), np.zeros(2), (-0.4, 0.3))
    (one,) = branch.bifurcations
    assert one.criticality == f"{kind}critical"
    assert one.cubic == pytest.approx(6 * (bare + fed), rel=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_other_branch_of_a_transcritical_point(seed):
    system, branch = hidden(nf.transcritical, 1, seed, [0.0])
    other = switch_branch(branch, branch.bifurcations[0])
    for x, p in zip(other.states, other.table["parameter"], strict=True):
        y = system.normal(x, p)[0]
        assert y[0] == pytest.approx(p, abs=1e-8)
    assert sorted(other.table["parameter"].iloc[[0, -1]]) == pytest.approx([-0.41, 0.37])
    inside = other.table["parameter"].abs() > 1e-6
    expected = other.table["parameter"] > 0
    np.testing.assert_array_equal(other.table["stable"][inside], expected[inside])
    assert len(other.bifurcations) == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("core", "sign"), [(nf.supercritical, 1), (nf.subcritical, -1)])
def test_the_other_branch_of_a_pitchfork(core, sign, seed):
    system, branch = hidden(core, 1, seed, [0.0], span=(-0.2, 0.18))
    other = switch_branch(branch, branch.bifurcations[0])
    amplitudes = []
    for x, p in zip(other.states, other.table["parameter"], strict=True):
        amplitudes.append(system.normal(x, p)[0][0])
        assert amplitudes[-1] ** 2 == pytest.approx(sign * p, abs=1e-8)
    assert min(amplitudes) < -0.3 < 0.3 < max(amplitudes)
    away = np.abs(amplitudes) > 1e-4
    np.testing.assert_array_equal(other.table["stable"][away], sign > 0)


def test_back_onto_the_first_branch():
    """Along the curved branch of a pitchfork nothing folds: it is met as the same pitchfork."""
    branch = through(nf.Plain(nf.supercritical), np.array([0.8]), (0.64, -0.3))
    (one,) = branch.bifurcations
    assert (one.kind, one.criticality) == ("pitchfork", "supercritical")
    assert abs(one.value) < 1e-10
    straight = switch_branch(branch, one)
    assert np.abs(straight.states).max() < 1e-9
    assert sorted(straight.table["parameter"].iloc[[0, -1]]) == pytest.approx([-0.3, 0.64])


def test_several_on_one_branch():
    """u' = (p^2 - 1/4) u - u^3 has two pitchforks on u = 0, at -1/2 and 1/2."""

    def core(y, p):
        return np.array([(p**2 - 0.25) * y[0] - y[0] ** 3])

    branch = through(nf.Plain(core), np.zeros(1), (-1.03, 1.0))
    assert [one.value for one in branch.bifurcations] == pytest.approx([-0.5, 0.5], abs=1e-10)
    assert [one.transversality for one in branch.bifurcations] == pytest.approx([-1, 1], abs=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_where_nothing_happens(seed):
    """Imperfect pitchfork on its connected branch, and a pair that turns but never crosses."""

    def imperfect(y, p):
        return np.array([0.05 + p * y[0] - y[0] ** 3])

    system = nf.Hidden(imperfect, 1, seed)
    upper = np.roots([-1, 0, -0.41, 0.05])
    start = system.start([upper[np.abs(upper.imag) < 1e-9].real[0]], -0.41)
    branch = through(system, start, (-0.41, 0.37))
    assert branch.bifurcations == ()
    assert branch.unresolved == ()
    assert branch.table["stable"].all()
    swinging = nf.Plain(lambda y, p: np.array([-y[0] - p * y[1], p * y[0] - y[1]]))
    assert through(swinging, np.zeros(2), (-1.0, 1.0)).bifurcations == ()


def test_a_saddle_of_opposite_eigenvalues_is_no_hopf():
    """Eigenvalues p +- 1: their sum crosses zero, and nothing bifurcates."""
    neutral = nf.Plain(lambda y, p: np.array([(p + 1) * y[0], (p - 1) * y[1]]))
    branch = through(neutral, np.zeros(2), (-0.5, 0.4))
    assert branch.bifurcations == ()


def test_two_eigenvalues_that_symmetry_ties_are_reported_as_unresolved():
    def core(y, p):
        return p * y - y * (y @ y)

    branch = through(nf.Plain(core), np.zeros(2), (-0.53, 0.4))
    assert branch.bifurcations == ()
    assert len(branch.unresolved) == 1
    assert "change of 2 in the number of unstable directions" in branch.unresolved[0]


def test_records_refuse_what_they_cannot_hold():
    with pytest.raises(ValueError, match="kind is 'cliff'"):
        Bifurcation(
            kind="cliff", value=0.0, state=np.zeros(1), eigenvalues=np.zeros(1), residual=0.0
        )
    branch = through(nf.Plain(nf.fold), np.array([-1.0]), (-1.0, 0.5))
    with pytest.raises(ValueError, match="no branches cross at a fold"):
        switch_branch(branch, branch.folds[0])
    with pytest.raises(ValueError, match="read-only"):
        branch.folds[0].state[0] = 1.0


def test_bad_starts_have_a_sentence():
    def torn(y, p):
        return np.array([-y[0] if np.real(p) < 0.2 else np.nan * y[0]])

    branch = through(nf.Plain(torn), np.zeros(1), (0.0, 1.0))
    assert branch.ended.startswith("the equations are not finite beyond parameter 0.")
    nowhere = nf.Plain(lambda y, p: np.array([1 + y[0] ** 2 + p**2]))
    for system, start, span, error, message in (
        (nf.Plain(torn), [0.0], (0.5, 1.0), ValueError, "not finite at the start"),
        (nf.Plain(nf.fold), [np.nan], (-1.0, 1.0), ValueError, "must be one state of finite"),
        (nf.Plain(nf.fold), [1.0], (0.0, 0.0), ValueError, "ends must differ"),
        (nf.Plain(nf.fold), [1.0], (0.0, np.nan), ValueError, "ends must differ"),
        (nowhere, [0.3], (0.0, 1.0), RuntimeError, "fixed_points searches from many starts"),
        (nf.Plain(nf.fold), [0.0], (0.0, -1.0), RuntimeError, "the start is itself a bifurcation"),
    ):
        with pytest.raises(error, match=message):
            through(system, np.array(start), span)
