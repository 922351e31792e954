"""The mixture that made a run is read back from its checkpoints; what cannot be read is said."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from manifold.dynamics.field import reduced_field
from manifold.dynamics.fit import fit_ode
from manifold.dynamics.rollout import rollout
from training.tasks import AssociativeRecall, KHop

TASK = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)
TRUTH = {"rare": 0.40, "match": 0.36, "mismatch": 0.24}
STARTS = ([0.2, 0.3, 0.2, 0.1], [0.4, 0.2, 0.3, 0.0], [0.3, 0.4, 0.1, 0.2])
TIMES = np.concatenate([[0.0], np.geomspace(1.0, 300.0, 19)])


@pytest.fixture(scope="module")
def field():
    return reduced_field(TASK, coordinates="four")


@pytest.fixture(scope="module")
def runs(field):
    return [(TIMES, field.integrate(np.array(start), TIMES, 0.002)) for start in STARTS]


def test_mixture_and_decay_come_back_from_log_spaced_checkpoints(field, runs):
    """From a field that starts at another mixture: only the checkpoints know this one."""
    other = field.at(f_r=0.9, f_v=0.1)
    fit = fit_ode(runs, field=other, held_out=2)
    assert fit.identified
    for kind, weight in TRUTH.items():
        assert abs(fit.mixture["value"][kind] - weight) < 2e-3
    assert abs(fit.mixture["value"].sum() - 1) < 1e-12
    assert abs(fit.statistics["value"]["f_r"] - 0.4) < 2e-3
    assert abs(fit.statistics["value"]["f_v"] - 0.4) < 2e-3
    assert abs(fit.weight_decay - 0.002) < 1e-4
    assert abs(fit.time_scale - 1) < 1e-3
    assert fit.judgement.held_out
    assert fit.error < 2e-3
    assert list(fit.judgement.runs["held_out"]) == [True, True, False]
    assert "mixture 0.400 (0.400 to 0.40" in fit.verdict
    assert "rare, 0.360 (" in fit.verdict
    assert fit.field.task.f_r == fit.statistics["value"]["f_r"]
    c = np.array([0.5, 0.4, 0.6, 0.7])
    np.testing.assert_allclose(fit.flow(c), fit.time_scale * fit.field.flow(c, fit.weight_decay))


def test_a_clock_that_runs_faster_is_the_time_scale(field, runs):
    """As with momentum 0.9, whose time runs ten times as fast."""
    quick = [(times / 10, states) for times, states in runs]
    fit = fit_ode(quick, field=field, held_out=0)
    assert abs(fit.time_scale - 10) < 0.02
    assert abs(fit.weight_decay - 0.002) < 1e-4
    assert "no run was held out" in fit.verdict


def test_rollout_error_shows_a_wrong_equation(field, runs):
    """Control: runs of another mixture are not predicted by this one's fit."""
    other = field.at(f_r=0.1, f_v=0.9)
    strange = [(TIMES, other.integrate(np.array(STARTS[2]), TIMES, 0.002))]
    fit = fit_ode([*runs[:2], *strange], field=field, held_out=1)
    assert fit.error > 0.1


def test_a_dataset_of_project_is_read_with_its_gaps(field, runs):
    states = np.stack([c for _, c in runs[:2]])
    times = np.tile(TIMES, (2, 1))
    times[0, 5], states[0, 5] = np.nan, np.nan
    data = xr.Dataset(
        {"c": (("run", "step", "coordinate"), states)},
        coords={"run": ["a", "b"], "time": (("run", "step"), times)},
    )
    fit = fit_ode(data, field=field)
    assert list(fit.judgement.runs.index) == ["b", "a"]
    assert abs(fit.mixture["value"]["rare"] - 0.4) < 5e-3


def test_a_task_of_one_kind_has_no_mixture():
    field = reduced_field(KHop(hops=1, n_tokens=5))
    times = np.linspace(0, 40, 8)
    start = 0.1 * np.random.default_rng(0).standard_normal(field.dim)
    fit = fit_ode((times, field.integrate(start, times)), field=field)
    assert list(fit.mixture.index) == ["rare"]
    assert list(fit.statistics.index) == ["weight_decay", "time_scale"]
    assert abs(fit.time_scale - 1) < 5e-3


@pytest.mark.slow
def test_sgd_tells_its_mixture(field):
    """Minibatches of 256: theory, section 4, has 0.404, 0.361, 0.241 and errors of 0.01."""
    model, weights = field._model(field.weights)
    rng, runs = np.random.default_rng(0), []
    for start in STARTS[:2]:
        c = np.array(start)
        states = [c]
        for _ in range(450):
            drawn = rng.multinomial(256, weights / weights.sum()) / 256
            c = c - field.basis.raise_index(model.gradient(c, drawn))
            states.append(c)
        runs.append((np.arange(0.0, 451, 6), np.array(states)[::6]))
    fit = fit_ode(runs, field=field)
    inside = fit.mixture["low"] - 0.02, fit.mixture["high"] + 0.02
    for kind, weight in TRUTH.items():
        assert abs(fit.mixture["value"][kind] - weight) < 0.03
        assert inside[0][kind] < weight < inside[1][kind]
    assert fit.error < 0.05


def test_runs_that_say_nothing_are_results(field, runs):
    still = (TIMES, np.tile(STARTS[0], (len(TIMES), 1)))
    fit = fit_ode(still, field=field)
    assert not fit.identified
    assert np.isnan(fit.error)
    assert "not identified: the run does not move" in fit.verdict
    assert np.isnan(fit.mixture["value"]).all()
    stopped = fit_ode(runs, field=field, seconds=1e-9)
    assert "stopped: 1e-09 s are over" in stopped.verdict
    back = (TIMES, np.array(STARTS[0]) + np.outer(TIMES, np.ones(4)))
    assert isinstance(fit_ode(back, field=field, seconds=20).verdict, str)


def test_fewer_intervals_than_unknowns_are_not_identified(field, runs):
    """One interval of 4 coordinates has 4 equations for 4 unknowns: a fit, and no bound on it."""
    ((times, states),) = runs[:1]
    for kept, said in ((2, "1 interval between checkpoints for 4 unknowns"), (4, "3 intervals")):
        fit = fit_ode((times[:kept], states[:kept]), field=field)
        assert not fit.identified
        assert said in fit.verdict
        assert "(rare, match, mismatch, decay)" in fit.verdict
        assert np.isposinf(fit.statistics["high"]).all()
        assert np.isneginf(fit.mixture["low"]).all()
        assert fit.mixture["value"].notna().all()
    assert fit_ode((times[:5], states[:5]), field=field).identified
    spread = fit_ode([(times[:3], states[:3]) for times, states in runs], field=field, held_out=0)
    assert spread.identified


def test_the_same_checkpoint_twice_over_is_said(field):
    """Copies of one checkpoint under increasing steps: no movement, whatever their number."""
    for count in (2, 20):
        fit = fit_ode((TIMES[:count], np.tile(STARTS[0], (count, 1))), field=field)
        assert "does not move" in fit.verdict
        assert np.isposinf(fit.mixture["high"]).all()


def test_a_coordinate_that_never_moves_is_fitted_like_any(field):
    """alpha = beta = 0 is a saddle that rounding leaves late: the others tell the mixture."""
    times, start = TIMES[:14], np.array([0.0, 0.0, 0.0, 0.3])
    states = field.integrate(start, times)
    states[:, :2] = 0.0
    fit = fit_ode((times, states), field=field)
    assert np.isfinite(fit.error)
    assert fit.error < 1e-2


def test_rollouts_end_where_they_leave_the_bound_or_run_out_of_time():
    times = np.linspace(0, 10, 11)
    grown = rollout(lambda c: c**2, np.array([1.0]), times, bound=5.0, seconds=10)
    assert "leaves the bound |c| <= 5" in grown.ended
    np.testing.assert_array_equal(grown.states[:1], [[1.0]])
    assert np.isnan(grown.states[1:]).all()
    slow = rollout(lambda c: -c, np.array([1.0]), times, bound=5.0, seconds=0.0)
    assert "s are over" in slow.ended
    right = rollout(lambda c: -c, np.array([1.0]), times, bound=5.0, seconds=10)
    assert right.ended == ""
    np.testing.assert_allclose(right.states[:, 0], np.exp(-times), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trajectories": (TIMES[:1], np.zeros((1, 4)))}, "1 checkpoint says nothing"),
        ({"trajectories": (TIMES[::-1], np.zeros((20, 4)))}, "times must increase, got 300"),
        ({"trajectories": (np.zeros(20), np.zeros((20, 4)))}, "times must increase"),
        ({"trajectories": (TIMES, np.full((20, 4), np.nan))}, "not finite"),
        ({"trajectories": (TIMES, np.zeros((20, 3)))}, "the field has 4 .* the runs have 3"),
        ({"trajectories": (TIMES, np.zeros((19, 4)))}, r"\(20,\) and states \(19, 4\)"),
        ({"trajectories": []}, "got none"),
        ({"trajectories": ["run"]}, "got str"),
        ({"method": "symbolic"}, "method is 'symbolic'; allowed: structured, sparse"),
        ({"held_out": 1}, "held_out is 1 of 1 runs"),
        ({"field": None}, "needs field"),
        ({"seconds": 0}, "seconds is 0"),
        ({"method": "sparse", "library": "septic"}, "library is 'septic'; allowed: linear"),
    ],
)
def test_bad_requests_are_refused(field, change, message):
    good = {"trajectories": (TIMES, np.zeros((20, 4))), "field": field}
    with pytest.raises(ValueError, match=message):
        fit_ode(**{**good, **change})


def test_runs_of_other_coordinates_are_refused(field):
    with pytest.raises(ValueError, match="runs of 3 and 4 coordinates"):
        fit_ode([(TIMES, np.zeros((20, 4))), (TIMES, np.zeros((20, 3)))], field=field)
    with pytest.raises(ValueError, match="no c and no time"):
        fit_ode(xr.Dataset({"x": ("run", [1.0])}), field=field)


def test_coordinates_of_another_basis_are_refused(field):
    data = xr.Dataset(
        {"c": (("run", "step", "coordinate"), np.zeros((1, 20, 4)))},
        coords={
            "run": ["a"],
            "time": (("run", "step"), TIMES[None]),
            "coordinate": list(field.names),
        },
    )
    assert "does not move" in fit_ode(data, field=field).verdict
    other = data.assign_coords(coordinate=list(field.names[::-1]))
    with pytest.raises(ValueError, match=r"different coordinates: .* delta in the runs"):
        fit_ode(other, field=field)
    with pytest.raises(ValueError, match="different names"):
        fit_ode([data, other], "sparse")


def test_mixture_of_kinds_is_the_flow(field):
    moved = field.at(f_r=0.2, f_v=0.7)
    c = np.array([0.5, 0.4, 0.6, 0.7])
    assert moved.drawn_kinds == ("rare", "match", "mismatch")
    mixed = np.array([0.2, 0.8 * 0.3, 0.8 * 0.7]) @ moved.kind_flows(c)
    np.testing.assert_allclose(mixed, moved.flow(c), atol=1e-14)
    few = reduced_field(replace(TASK, n_rare=2, n_common=2, f_v=0.0), coordinates="four")
    assert few.drawn_kinds == ("rare", "match")
