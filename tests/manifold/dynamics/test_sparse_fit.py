"""A planted polynomial law is found; what diverges or cannot be told is a result that says so."""

import time

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from manifold.dynamics.fit import fit_ode
from manifold.dynamics.sparse_fit import LIBRARIES

TIMES = np.concatenate([[0.0], np.geomspace(0.05, 12.0, 40)])


def planted(start, times=TIMES):
    """x' = x - x^3, y' = x^2 - y / 2."""

    def law(_, c):
        return [c[0] - c[0] ** 3, c[0] ** 2 - c[1] / 2]

    return times, solve_ivp(law, (0, times[-1]), start, t_eval=times, rtol=1e-9).y.T


RUNS = [planted(start) for start in ([0.1, 1.0], [2.0, 0.2], [-0.5, 0.5], [0.5, 0.3])]


def test_a_planted_law_is_found_and_predicts_the_run_held_out():
    fit = fit_ode(RUNS, "sparse", library="cubic")
    assert fit.status == "fitted"
    assert fit.judgement.held_out
    assert fit.error < 0.01
    c = np.array([0.7, 0.4])
    np.testing.assert_allclose(fit.flow(c), [0.7 - 0.343, 0.49 - 0.2], atol=0.02)
    assert (fit.coefficients != 0).to_numpy().sum() <= fit.coefficients.size
    assert "terms of the library cubic" in fit.verdict


def test_a_library_without_the_law_does_not_predict():
    """Control."""
    assert fit_ode(RUNS, "sparse", library="linear").error > 0.05


def test_a_library_that_diverges_says_so():
    """x' = x^2 read from starts below 1, followed from 4: it leaves every bound."""
    times = np.linspace(0, 2, 30)
    runs = [(times, (s / (1 - s * times / 3))[:, None] * [1.0]) for s in (0.2, 0.4, 0.6)]
    blown = [*runs, (times, np.full((30, 1), 4.0) + 0.01 * times[:, None])]
    fit = fit_ode(blown, "sparse", library="quadratic")
    assert fit.status == "divergent"
    assert fit.error == np.inf
    assert "divergent" in fit.verdict
    assert "leaves the bound" in fit.verdict


def test_a_rollout_in_bounds_but_farther_off_than_zero_is_not_a_fit():
    """x' = x up to e^2, 7.4, and then a run that falls as fast from 1 to 0.14: relative error
    sqrt(int (e^t - e^-t)^2 / int e^-2t) = 6.9 over two units of time, inside the bound of 74."""
    times = np.linspace(0, 2, 30)
    rising = [(times, (s * np.exp(times))[:, None]) for s in (0.5, 0.8, 1.0)]
    fit = fit_ode([*rising, (times, np.exp(-times)[:, None])], "sparse", library="linear")
    assert fit.error == pytest.approx(6.9, rel=0.1)  # at 29 checkpoints, not an integral
    assert fit.status == "divergent"
    assert fit.verdict.startswith("divergent: ")
    assert fit_ode([*rising, rising[0]], "sparse", library="linear").status == "fitted"


@pytest.mark.parametrize("library", LIBRARIES)
def test_ten_points_never_hang(library):
    """Every library, on noise: a result within its CPU seconds, whatever it is."""
    for dim in (1, 3, 42):
        noise = np.random.default_rng(dim).standard_normal((10, dim))
        begun = time.process_time()
        fit = fit_ode((np.arange(10.0), noise), "sparse", library=library, seconds=1)
        assert time.process_time() - begun < 5  # one piece of work may overrun, on a slow machine
        assert fit.status in ("fitted", "divergent", "unidentified")
        assert len(fit.verdict) > 20


@pytest.mark.parametrize("library", LIBRARIES)
def test_many_short_noisy_runs_keep_to_their_seconds(library):
    """Enough intervals for every library, and equations that make no sense."""
    rng = np.random.default_rng(1)
    runs = [(np.arange(10.0), rng.standard_normal((10, 3)).cumsum(0)) for _ in range(9)]
    begun = time.process_time()
    fit = fit_ode(runs, "sparse", library=library, seconds=1)
    assert time.process_time() - begun < 5  # one piece of work may overrun, on a slow machine
    assert fit.status in ("fitted", "divergent")
    assert (fit.status == "fitted") == (fit.error <= 1)


def test_a_library_too_large_for_the_runs_is_refused_before_it_is_made():
    """1,533,939 terms of 42 coordinates."""
    fit = fit_ode(
        (TIMES, np.random.default_rng(0).standard_normal((41, 42))), "sparse", library="quintic"
    )
    assert "40 intervals between checkpoints for 1,533,939 terms" in fit.verdict


def test_too_few_checkpoints_and_no_movement_are_unidentified():
    two = fit_ode((TIMES[:2], RUNS[0][1][:2]), "sparse", library="cubic")
    assert two.status == "unidentified"
    assert "1 interval between checkpoints for 10 terms" in two.verdict
    still = fit_ode((TIMES, np.ones((41, 2))), "sparse")
    assert "nothing moves" in still.verdict
    assert np.isnan(still.error)


def test_a_coordinate_that_never_moves_is_held():
    runs = [(times, np.column_stack([states, np.full(len(times), 0.7)])) for times, states in RUNS]
    fit = fit_ode(runs, "sparse", library="cubic")
    assert fit.status == "fitted"
    assert "c2 never move" in fit.verdict
    assert fit.flow(np.array([0.7, 0.4, 0.7]))[2] == 0.0
