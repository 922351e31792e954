"""What state tracking's relabellings leave invariant, length by length."""

from itertools import product

import numpy as np
import pytest

from manifold.groups.commutant import commutant
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition
from training.tasks.products import running_products

TASKS = [
    *(ModularAddition(modulus=m, lengths=(3, 4, 5), format="acot") for m in (2, 4, 5, 6)),
    *(PermutationComposition(degree=k, lengths=(3,), format="acot") for k in (2, 3, 4)),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.label)


def span(relabellings, rows=slice(None)):
    """Orthonormal rows (dimension, q^2) that span the intertwiners."""
    basis = commutant(relabellings.inputs[rows], relabellings.answers[rows])
    stack = np.array([basis[k].ravel() for k in range(basis.dim)])
    return stack / np.linalg.norm(stack, axis=1, keepdims=True)


def shared(*spans):
    """The dimension of what lies in every span: sum of projectors has eigenvalue len(spans)."""
    total = sum(rows.T @ rows for rows in spans)
    return int((np.linalg.eigvalsh(total) > len(spans) - 1e-9).sum())


@every_task
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_answers_follow_their_inputs(task, length):
    rng = np.random.default_rng(length)
    words = rng.integers(0, task.n_elements, (200, length))
    answers = running_products(task.compose, words)[:, -1]
    action = task.relabellings(length)
    for inputs, outputs in zip(action.inputs, action.answers, strict=True):
        moved = running_products(task.compose, inputs[words])[:, -1]
        np.testing.assert_array_equal(moved, outputs[answers])
    assert not action.inputs.flags.writeable


@pytest.mark.parametrize("task", TASKS[:3], ids=lambda task: task.label)
def test_there_are_no_other_relabellings(task):
    """All bijections f of Z_m, tried one by one at length 3: those that the generators give."""
    q = task.n_elements
    words = np.array(list(product(range(q), repeat=3)))
    answers = words.sum(1) % q
    found = set()
    for f in product(range(q), repeat=q):
        if len(set(f)) == q:
            moved = np.array(f)[words].sum(1) % q
            if all(len(set(moved[answers == y])) == 1 for y in range(q)):
                found.add(f)
    generated, frontier = {tuple(range(q))}, [tuple(range(q))]
    while frontier:
        h = frontier.pop()
        for g in task.relabellings(3).inputs:
            image = tuple(g[list(h)].tolist())
            if image not in generated:
                generated.add(image)
                frontier.append(image)
    assert found == generated


@pytest.mark.parametrize("m", [2, 4, 5, 6])
def test_a_shift_leaves_m_dimensions_at_each_length_and_the_constant_at_all(m):
    """theory, section 3: dimension m at each n; lengths 3, 4, 5 meet in the constant at m = 5."""
    task = ModularAddition(modulus=m, lengths=(3, 4, 5), format="acot")
    last = slice(-1, None)
    spans = [span(task.relabellings(n), last) for n in (3, 4, 5)]
    assert [len(rows) for rows in spans] == [m, m, m]
    constant = np.full((1, m * m), 1.0 / m)
    assert shared(*spans) == shared(*spans, constant) == 1
    np.testing.assert_array_equal(
        task.relabellings(m).answers[-1], np.arange(m)
    )  # trivial on answers
    assert shared(spans[0], span(task.relabellings(3 + m), last)) == m


def test_the_whole_group_at_one_length():
    """Z_5: W[y, x] = f(y - n x) from the shift, f constant on units from the automorphisms."""
    task = ModularAddition(modulus=5, lengths=(3, 4, 5), format="acot")
    assert [len(span(task.relabellings(n))) for n in (3, 4, 5)] == [2, 2, 2]
    assert shared(*(span(task.relabellings(n)) for n in (3, 4, 5))) == 1
    found = commutant(task.relabellings(3).inputs, task.relabellings(3).answers).labels
    y, x = np.indices((5, 5))
    np.testing.assert_array_equal(found == found[0, 0], (y - 3 * x) % 5 == 0)


def test_permutations_have_the_same_action_at_every_length():
    task = PermutationComposition(degree=3, lengths=(3,), format="acot")
    for n in (2, 3, 7):
        np.testing.assert_array_equal(task.relabellings(n).inputs, task.relabellings(n).answers)
    with pytest.raises(ValueError, match="length got 0, allowed 1 or more"):
        task.relabellings(0)
