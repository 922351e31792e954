"""Recurrent states: planted representations are read exactly, hidden or not; noise is at chance."""

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag

from manifold.states.recurrent_states import RecurrentStates, has_states
from manifold.states.transition_operators import element_orders, operators, phase_error
from manifold.states.transitions import coincidence, representation_error, value_subspace
from training.families.dense_ssm import DenseSSM
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.transformer import Transformer
from training.tasks.modular_addition import ModularAddition
from training.tasks.permutation_composition import PermutationComposition

WIDTH = 12
Z5 = {"modulus": 5, "lengths": (3, 4, 5), "format": "acot"}
S3 = {"degree": 3, "lengths": (3, 4, 5), "format": "acot"}
TASKS = [ModularAddition(**Z5), PermutationComposition(**S3)]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.label)


def orthogonal(size, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def representation(task):
    """(q, r, r) and a vector that every non-trivial part of it moves: rotations, permutations."""
    if isinstance(task, PermutationComposition):
        return np.eye(3)[task.permutations].swapaxes(1, 2), np.array([1.0, 2.0, 4.0])
    turn = 2 * np.pi * np.arange(task.modulus) / task.modulus
    c, s = np.cos(turn), np.sin(turn)
    return np.moveaxis(np.array([[c, -s], [s, c]]), 2, 0), np.array([1.0, 0.5])


def hidden(task, matrices, start, *, seed=0, growth=1.0):
    """Matrices (vocabulary, k, k) and h_0 (k,) beside noise that no state reaches, turned."""
    k, rng = matrices.shape[1], np.random.default_rng(seed)
    junk = rng.standard_normal((task.vocabulary, WIDTH - k, WIDTH - k))
    turn = orthogonal(WIDTH, seed)
    full = np.array([block_diag(*pair) for pair in zip(growth * matrices, junk, strict=True)])
    return {
        "transition.A": turn @ full @ turn.T,
        "state.h_0": turn @ np.concatenate([start, np.zeros(WIDTH - k)]),
        "unembed.W_U": rng.standard_normal((WIDTH, task.vocabulary)),
        "unembed.b_U": np.zeros(task.vocabulary),
    }


def read(weights, task, family=None):
    return RecurrentStates.of(weights, family or DenseSSM(width=WIDTH), task)


def planted(task, growth=1.0):
    matrices, start = representation(task)
    special = np.zeros((2, *matrices.shape[1:]))
    return read(hidden(task, np.concatenate([matrices, special]), start, growth=growth), task)


def random(task, seed=0):
    params = DenseSSM(width=WIDTH).initialise(task, seed, torch.float64)
    return read(params, task)


@every_task
@pytest.mark.parametrize("growth", [1.0, 1.7, 0.6])
def test_a_planted_representation_is_read_exactly(task, growth):
    states = planted(task, growth)
    error, chance, found = representation_error(states)
    assert error < 1e-10
    assert 0.7 < chance <= 1
    assert found == pytest.approx(growth, rel=1e-10)
    assert representation_error(value_subspace(states))[0] < 1e-10
    ratio, shuffled = coincidence(states)
    assert ratio < 1e-12
    assert shuffled == pytest.approx(1, abs=0.05)
    maps = operators(states)
    phases, by_chance, _ = phase_error(maps, task)
    assert (phases < 1e-7).all()
    assert (by_chance > 0.4).all()  # half of O(2) are reflections, whose phases fit order 2
    np.testing.assert_allclose(maps.r_squared, 1, atol=1e-12)


@every_task
def test_operators_are_the_planted_ones(task):
    """Up to the basis: the same eigenvalues, but for the trivial part, which does not move."""
    matrices, _ = representation(task)
    maps = operators(planted(task))
    q, r = task.n_elements, 2
    assert maps.maps.shape == (q, r, r)
    for x in range(q):
        full = list(np.linalg.eigvals(matrices[x]))
        if matrices.shape[1] == 3:  # permutation matrices fix the constant vector
            full.remove(min(full, key=lambda v: abs(v - 1)))
        np.testing.assert_allclose(
            np.sort_complex(np.round(maps.eigenvalues[x], 9)),
            np.sort_complex(np.round(full, 9)),
            atol=1e-8,
        )


@every_task
@pytest.mark.parametrize("growth", [1.0, 1.7])
def test_memory_of_inputs_is_left_out_of_the_value_subspace(task, growth):
    """Beside the representation the state keeps which input came last: no part of the value."""
    q = task.n_elements
    matrices, start = representation(task)
    memory = np.zeros((q, 4, 4))
    memory[:, :3, 3] = np.random.default_rng(1).standard_normal((q, 3))
    memory[:, 3, 3] = 1
    both = np.array([block_diag(*pair) for pair in zip(matrices, memory, strict=True)])
    both = np.concatenate([both, np.zeros((2, *both.shape[1:]))])
    states = read(hidden(task, both, np.concatenate([start, [0, 0, 0, 1]]), growth=growth), task)
    assert representation_error(states)[0] > 0.3
    coded = value_subspace(states)
    assert coded.basis is not None
    assert coded.basis.shape == (WIDTH, 2)
    assert representation_error(coded)[0] < 0.06  # means over 1024 sequences are off by 1/32
    assert coincidence(coded)[0] < 0.01
    phases, _, turned = phase_error(operators(coded), task)
    assert (phases < 0.1).all()
    orders = element_orders(task)
    assert turned[orders > 1].min() > 0.4
    assert turned[0] == 0


@every_task
def test_a_random_model_is_at_chance(task):
    read_ = [random(task, seed) for seed in range(4)]
    errors = np.array([representation_error(states)[:2] for states in read_])
    assert (errors > 0.9).all()
    assert abs(errors[:, 0] - errors[:, 1]).max() < 0.03
    assert np.mean([coincidence(states)[0] for states in read_]) == pytest.approx(1, abs=0.15)
    phases = np.array([phase_error(operators(states), task) for states in read_])
    ratio = phases[:, 0].mean() / phases[:, 1].mean()
    assert 0.85 < ratio < 1.15
    coded = [value_subspace(states) for states in read_]
    errors = np.array([representation_error(states)[:2] for states in coded])
    assert abs(errors[:, 0] - errors[:, 1]).max() < 0.05
    assert np.mean([coincidence(states)[0] for states in coded]) == pytest.approx(1, abs=0.1)


@every_task
def test_separate_mechanisms_do_not_coincide(task):
    """Each padding token moves the state on by one block, so each length has a block of its own."""
    fields = S3 if isinstance(task, PermutationComposition) else Z5
    task = type(task)(**fields | {"layout": "right_aligned"})
    matrices, start = representation(task)
    start = start - (start.mean() if len(start) == 3 else 0)
    blocks, size = 3, len(start)
    move = np.kron(np.roll(np.eye(blocks), 1, axis=0), np.eye(size))
    separate = np.array([block_diag(*[a] * blocks) for a in matrices])
    weights = hidden(
        task, np.concatenate([separate, [move, move]]), np.concatenate([start, np.zeros(2 * size)])
    )
    ratio, shuffled = coincidence(read(weights, task))
    assert ratio == pytest.approx(1, abs=1e-10)
    assert shuffled == pytest.approx(1, abs=1e-10)
    assert representation_error(read(weights, task))[0] < 1e-10  # within each length it is one
    assert coincidence(value_subspace(read(weights, task)))[0] == pytest.approx(1, abs=1e-10)
    shared = np.concatenate([separate, [np.eye(blocks * size)] * 2])
    weights = hidden(task, shared, np.concatenate([start, np.zeros(2 * size)]))
    assert coincidence(read(weights, task))[0] < 1e-12


@every_task
def test_a_state_that_counts_steps_is_no_representation(task):
    """Every input also moves the state to the next block: values of different steps never meet."""
    matrices, start = representation(task)
    start = start - (start.mean() if len(start) == 3 else 0)
    size, blocks = len(start), WIDTH // len(start)
    move = np.roll(np.eye(blocks), 1, axis=0)
    stepping = np.array([np.kron(move, a) for a in matrices])
    special = np.zeros((2, blocks * size, blocks * size))
    weights = hidden(
        task,
        np.concatenate([stepping, special]),
        np.concatenate([start, np.zeros((blocks - 1) * size)]),
    )
    assert representation_error(read(weights, task))[0] > 0.9
    assert coincidence(read(weights, task))[0] == pytest.approx(1, abs=0.02)


def test_one_wrong_matrix_is_seen():
    task = TASKS[0]
    matrices, start = representation(task)
    matrices = np.concatenate([matrices, np.zeros((2, 2, 2))])
    matrices[3] = matrices[2]
    states = read(hidden(task, matrices, start), task)
    assert representation_error(states)[0] > 0.3
    assert coincidence(states)[0] > 0.1
    matrices[3] = -matrices[3]  # eigenphases off the multiples of 2 pi / 5
    phases, _, _ = phase_error(operators(read(hidden(task, matrices, start), task)), task)
    assert phases[3] > 0.5
    assert (np.delete(phases, 3) < 1e-7).all()


@pytest.mark.parametrize(
    ("family", "width"),
    [(DenseSSM(width=6), 6), (LSTM(width=6), 12), (Mamba(width=4, layers=2, state=3), 2 * 8 * 3)],
    ids=["dense_ssm", "lstm", "mamba"],
)
@pytest.mark.parametrize("layout", ["usual", "right_aligned"])
def test_states_are_those_of_the_model_on_its_own_sequences(family, width, layout):
    task = ModularAddition(modulus=5, lengths=(3, 5), format="acot", layout=layout)
    params = family.initialise(task, 0, torch.float64)
    states = read(params, task, family)
    for n in task.lengths:
        batch = task.sequences(n, 7, seed=0)
        first = 5 - n if layout == "right_aligned" else 0
        inputs = batch.tokens[:, first : first + n]
        seen = {}
        family.forward(
            params,
            torch.from_numpy(batch.tokens),
            torch.from_numpy(batch.positions),
            lambda name, x, seen=seen: seen.setdefault(name, x),
        )
        for k in (1, n):
            t = first + k - 1
            names = [n for n in family.hook_names(5) if n.endswith((f"state.{t}", f"cell.{t}"))]
            expected = np.concatenate([seen[name].flatten(1).numpy() for name in names], axis=1)
            found = states.after(inputs, np.full(7, k), np.full(7, n))
            assert found.shape == (7, width)
            np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("family", [LSTM(width=6), Mamba(width=4, state=4)], ids=["lstm", "mamba"])
def test_other_families_are_read_at_the_start(family):
    task = TASKS[0]
    states = read(family.initialise(task, 0, torch.float64), task, family)
    error, chance, _ = representation_error(states)
    assert 0.5 < error <= 1
    assert 0.5 < chance <= 1
    maps = operators(states)
    assert (maps.r_squared < 1).all()
    assert np.isfinite(phase_error(maps, task)[0]).all()


def test_orders_of_elements():
    assert element_orders(ModularAddition(modulus=6, lengths=(3,), format="cot")).tolist() == [
        *(1, 6, 3, 2, 3, 6)
    ]
    assert element_orders(TASKS[1]).tolist() == [1, 2, 2, 3, 3, 2]


def test_what_is_undefined_is_nan():
    """States that never change have no variance, phases or distances; one length none across."""
    task = TASKS[0]
    still = {
        name: np.zeros_like(value)
        for name, value in hidden(task, np.zeros((7, 2, 2)), np.zeros(2)).items()
    }
    states = read(still, task)
    assert np.isnan(representation_error(states)).all()
    assert np.isnan(coincidence(states)).all()
    assert np.isnan(coincidence(value_subspace(states))).all()
    maps = operators(states)
    assert maps.maps.shape == operators(value_subspace(states)).maps.shape == (5, 0, 0)
    assert np.isnan([*maps.r_squared, *phase_error(maps, task)[0]]).all()
    alone = ModularAddition(**Z5 | {"lengths": (4,)})
    assert np.isnan(coincidence(read(hidden_like(task), alone))).all()


def hidden_like(task):
    matrices, start = representation(task)
    return hidden(task, np.concatenate([matrices, np.zeros((2, 2, 2))]), start)


def test_foreign_families_and_tokens_are_named():
    task, weights = TASKS[0], hidden_like(TASKS[0])
    flat = Transformer(layers=1, heads=1, width=4)
    assert not has_states(flat)
    with pytest.raises(ValueError, match=r"Transformer has no hook_state\.0"):
        RecurrentStates.of(weights, flat, task)
    with pytest.raises(ValueError, match=r"Z_6.*this model has 0 to 6"):
        read(weights, ModularAddition(**Z5 | {"modulus": 6}))
    with pytest.raises(ValueError, match=r"7 tokens, but Z_4 .* has 6"):
        read(weights, ModularAddition(**Z5 | {"modulus": 4}))
