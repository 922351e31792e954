"""Growth off the manifold: the largest eigenvalue, against a dense one and against the flow."""

import numpy as np
import pytest

from manifold.coordinates.effective import effective_matrices, remove_gauge
from manifold.coordinates.invariant import invariant_basis
from manifold.dynamics.field import reduced_field
from manifold.symmetry import transverse
from manifold.symmetry.confinement import law_gradient, random_point
from manifold.symmetry.exact_law import exact_law
from manifold.symmetry.full_loss import curvature_product, flat, unflat
from manifold.symmetry.transverse import growth_along, transverse_growth
from training import RunConfig, train
from training.tasks.associative_recall import AssociativeRecall
from training.tasks.relation_retrieval import RelationRetrieval

TINY = AssociativeRecall(n_blocks=1, n_common=0, n_rare=3, track_slots=2, f_r=1.0, f_v=0.0)
SMALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.4, f_v=0.4)


def dense(basis, matrices, law):
    """(-(1 - P) H (1 - P), columns that span what is neither gauge nor manifold)."""
    size = sum(int(np.prod(basis.shape(block))) for block in basis.blocks)
    hessian, kept = np.zeros((size, size)), np.zeros((size, size))
    for i, unit in enumerate(np.eye(size)):
        direction = unflat(basis, unit)
        for batch, weights in law.parts():
            image = curvature_product(basis, matrices, direction, batch, weights)
            hessian[:, i] += flat(basis, image)
        free = remove_gauge(basis, direction)
        kept[:, i] = flat(basis, free) - flat(basis, basis.matrices(basis.coordinates(free)))
    values, vectors = np.linalg.eigh(kept)
    np.testing.assert_allclose(values[(values > 1e-9) & (values < 1 - 1e-9)], [])
    return -hessian, vectors[:, values > 0.5]


@pytest.mark.parametrize("family", ["attention_only", "transformer"])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_rate_is_the_largest_eigenvalue_off_the_manifold(family, scale):
    basis = invariant_basis(TINY, family, layers=1)
    matrices = random_point(basis, scale=scale)
    negative, transverse = dense(basis, matrices, exact_law(TINY))
    expected = np.linalg.eigvalsh(transverse.T @ negative @ transverse)
    found = transverse_growth(TINY, basis, matrices, samples=None, tolerance=1e-10)
    assert abs(found.rate - expected[-1]) < 1e-9
    assert found.error < 1e-9
    assert sum(found.shares.values()) == pytest.approx(1)
    inside = flat(basis, basis.matrices(basis.coordinates(found.direction)))
    assert np.linalg.norm(inside) < 1e-9


def test_a_small_deviation_grows_at_that_rate():
    """The gradient's change along the direction is -rate times it, on the exact law."""
    basis = invariant_basis(TINY, layers=1)
    matrices, law, step = random_point(basis, scale=1.0), exact_law(TINY), 1e-5
    found = transverse_growth(TINY, basis, matrices, samples=None, tolerance=1e-9)
    up, down = (
        flat(
            basis,
            law_gradient(
                law, basis, {b: matrices[b] + s * found.direction[b] for b in basis.blocks}
            ),
        )
        for s in (step, -step)
    )
    change = (up - down) / (2 * step)
    np.testing.assert_allclose(change, -found.rate * flat(basis, found.direction), atol=1e-8)


def test_gauge_does_not_count():
    """One-hot, gauge directions are off the span's complement: leaving them in would give 0 where
    every real deviation shrinks."""
    basis = invariant_basis(TINY, "transformer", layers=1)
    matrices = basis.matrices(np.zeros(basis.dim))
    negative, transverse = dense(basis, matrices, exact_law(TINY))
    size = len(negative)
    assert transverse.shape[1] < size - basis.dim
    found = transverse_growth(TINY, basis, matrices, samples=None, tolerance=1e-9)
    free = flat(basis, remove_gauge(basis, found.direction))
    np.testing.assert_allclose(free, flat(basis, found.direction), atol=1e-9)


def test_gauge_does_not_count_where_every_real_deviation_shrinks(monkeypatch):
    """A bowl on all that can be told apart: 10 less for every rate, and 0 for gauge, which would
    be the largest if it were let in."""
    basis = invariant_basis(TINY, "transformer", layers=1)
    matrices = random_point(basis, scale=1.0)
    curved = transverse._curved

    def in_a_bowl(basis, matrices, direction, parts):
        bowl = flat(basis, remove_gauge(basis, direction))
        return curved(basis, matrices, direction, parts) + 10 * bowl

    bare = transverse_growth(TINY, basis, matrices, samples=None, tolerance=1e-9)
    monkeypatch.setattr(transverse, "_curved", in_a_bowl)
    found = transverse_growth(TINY, basis, matrices, samples=None, tolerance=1e-9)
    assert found.rate == pytest.approx(bare.rate - 10, abs=1e-8)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    sizes = {"n_blocks": 1, "n_common": 0, "n_rare": 3, "track_slots": 2, "f_r": 1.0, "f_v": 0.0}
    config = RunConfig(
        task={"name": "associative_recall", **sizes},
        family={"name": "attention_only", "scale": 0.1, "layers": 1},
        optimiser={"name": "sgd", "lr": 0.5},
        steps=4,
        batch_size=50,
        seeds={"init": 0, "data": 0, "eval": 0},
        eval_every=4,
        eval_size=50,
        dtype="float64",
    )
    return train(config, root=tmp_path_factory.mktemp("runs"))


def test_rates_along_a_run_are_those_of_its_checkpoints(run):
    rates = growth_along(run, samples=200)
    assert list(rates.index) == [0, 1, 2, 4]
    basis = invariant_basis(TINY, layers=1)
    last = transverse_growth(TINY, basis, effective_matrices(run[4]), samples=200)
    assert rates[4] == last.rate
    assert list(growth_along(run, steps=[1], samples=200)) == [rates[1]]


@pytest.mark.slow
def test_positive_on_the_plateau_and_gone_once_solved():
    """Theory, section 3: 2e-3 to 3e-2 on the initial plateau, at most 1e-5 once solved."""
    field = reduced_field(SMALL)
    start, end = field.integrate(np.zeros(field.dim), [1.0, 20_000.0])
    rates = [
        transverse_growth(SMALL, field.basis, field.basis.matrices(c), samples=1000).rate
        for c in (start, end)
    ]
    assert 2e-3 < rates[0] < 5e-2
    assert rates[1] < 1e-4


@pytest.mark.slow
def test_where_the_manifold_does_not_solve_the_task_it_stays_unstable():
    """Relation retrieval with centred fixed tokens (theory, section 3), long after its plateau."""
    task = RelationRetrieval(n_blocks=2, n_keys=2, n_values=3)
    field = reduced_field(task)
    end = field.integrate(np.zeros(field.dim), [3000.0], rtol=1e-3)[-1]
    assert field.loss(end) > 0.6
    found = transverse_growth(
        task, field.basis, field.basis.matrices(end), samples=500, tolerance=1e-4
    )
    assert found.rate > 1e-2


def test_weights_that_are_not_numbers_or_of_another_size_are_refused():
    basis = invariant_basis(TINY, layers=1)
    matrices = basis.matrices(np.zeros(basis.dim))
    with pytest.raises(ValueError, match="Wbar has 42 of 42 entries NaN"):
        transverse_growth(TINY, basis, {**matrices, "Wbar": np.full((3, 14), np.nan)})
    with pytest.raises(ValueError, match="W1 has shape"):
        transverse_growth(TINY, basis, {**matrices, "W1": np.zeros((7, 7))})
    with pytest.raises(ValueError, match="vocabulary 3, the task 7"):
        transverse_growth(SMALL, basis, matrices)
    for settings in ({"samples": 0}, {"iterations": 0}):
        with pytest.raises(ValueError, match="at least 1 each"):
            transverse_growth(TINY, basis, matrices, **settings)
