"""The reduced field of every block-list task is the full model's loss over all orbits."""

from dataclasses import replace

import numpy as np
import pytest

from manifold.coordinates.rebuild import evaluate
from manifold.dynamics.field import reduced_field
from manifold.symmetry.exact_law import exact_law
from manifold.symmetry.full_loss import loss_gradient
from training.tasks import (
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    PermutationInversion,
    RelationRetrieval,
)

TASKS = {
    "2-gram": InContextNgram(n_blocks=2, n_tokens=4),
    "3-gram": InContextNgram(n_blocks=2, n_tokens=4, n=3),
    "1-hop": KHop(hops=1, n_tokens=5),
    "2-hop": KHop(hops=2, n_tokens=6, track_slots=2),
    "indirect object": IndirectObject(n_blocks=2, n_names=5),
    "words": IndirectObject(n_blocks=2, n_names=4, function_words=True),
    "conditional": ConditionalRetrieval(n_blocks=3, n_contexts=2, n_keys=3, n_values=3),
    "relation": RelationRetrieval(n_blocks=2, n_keys=3, n_values=3),
    "inversion": PermutationInversion(n_tokens=3),
}


@pytest.mark.parametrize("name", TASKS)
def test_loss_and_gradient_are_the_full_models(name):
    task = TASKS[name]
    field, orbits = reduced_field(task), task.program.orbits()
    assert field.exact
    c = 0.4 * np.random.default_rng(0).standard_normal(field.dim)
    batch, weights = orbits.batch(), orbits.weights()
    batch = replace(batch, positions=batch.positions.copy())
    assert abs(weights.sum() - 1) < 1e-12
    matrices = field.basis.matrices(c)
    each = [
        evaluate(task, field.basis, matrices, batch=batch[i : i + 1]).loss
        for i in range(min(40, len(batch)))
    ]
    model, group = field._merged(field.population.sequences)
    np.testing.assert_allclose(model.losses(c)[group][:40], each, atol=1e-12)
    gradient = loss_gradient(field.basis, matrices, batch, weights)
    np.testing.assert_allclose(field.gradient(c), field.basis.inner(gradient), atol=1e-12)


def test_orbits_stand_for_the_whole_law():
    """Nothing assumed: every sequence at every placement."""
    task = InContextNgram(n_blocks=2, n_tokens=3, track_slots=3)
    field = reduced_field(task)
    c = 0.4 * np.random.default_rng(0).standard_normal(field.dim)
    matrices, total, slope = field.basis.matrices(c), 0.0, np.zeros(field.dim)
    for batch, weights in exact_law(task).parts():
        total += evaluate(task, field.basis, matrices, batch=batch).loss * weights.sum()
        slope += field.basis.inner(loss_gradient(field.basis, matrices, batch, weights))
    assert abs(field.loss(c) - total) < 1e-12
    np.testing.assert_allclose(field.gradient(c), slope, atol=1e-12)


@pytest.mark.parametrize("name", ["2-gram", "1-hop", "indirect object"])
def test_a_sample_is_near_the_exact_field(name):
    task = TASKS[name]
    exact, sample = reduced_field(task), reduced_field(task, samples=4000)
    c = 0.3 * np.random.default_rng(1).standard_normal(exact.dim)
    error = sample.sampling_error(c)
    assert error["loss"] > 0
    assert abs(sample.loss(c) - exact.loss(c)) < 5 * error["loss"]
    assert list(sample.kinds(c).index) == ["rare"]
    assert sample.kinds(c)["loss"]["rare"] == pytest.approx(sample.loss(c))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2-gram", "1-hop", "indirect object"])
def test_the_flow_from_zero_solves_it(name):
    """Theory, section 4."""
    field = reduced_field(TASKS[name])
    end = field.integrate(np.zeros(field.dim), [3000.0])[-1]
    assert field.loss(end) < 0.02
    assert field.kinds(end)["accuracy"]["rare"] == pytest.approx(1.0)


def test_a_field_moves_only_along_statistics_that_the_task_has():
    field = reduced_field(TASKS["2-gram"])
    with pytest.raises(ValueError, match=r"InContextNgram moves along no statistic .*; got f_v"):
        field.at(f_v=0.1)
    with pytest.raises(ValueError, match="parameter is 'f_v'; allowed: weight_decay"):
        field.parameter_derivative(np.zeros(field.dim), "f_v")
    with pytest.raises(ValueError, match="no statistic"):
        field.extended("f_r", 0.1)
