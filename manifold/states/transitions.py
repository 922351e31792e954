"""How a recurrent model's states move: does one input after another do what their product does?

Three questions to one checkpoint (theory, section 3, last paragraph), each a function of states
that the model visits, each with its own control. Sequences are drawn from a fixed seed, so that
checkpoints are compared on the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from manifold.states.recurrent_states import (
    SAMPLES,
    RecurrentStates,
    principal_directions,
    step_norms,
    step_weights,
)
from training.tasks.base import generator
from training.tasks.products import Group, running_products


def value_subspace(states: RecurrentStates) -> RecurrentStates:
    """The same states in the directions that code the value, principal ones of means by value.

    Means over random sequences that end in each of the q values, at each length apart, from their
    mean at that length and over the norm there; enough directions for ENERGY of their variance. A
    trained model's state also remembers inputs that its read-out ignores, which is neither in these
    directions nor part of a representation. They are found on sequences of their own, so that on a
    model without a code, where they are arbitrary, every measure is at chance; lengths apart, so
    that codes of different lengths in different directions are all kept.
    """
    rng = generator(0, *b"value_subspace")
    means = [_means(h, values) for h, values in _balanced(states, rng, SAMPLES)]
    centred = np.concatenate([m - m.mean(0) for m in means])
    basis = principal_directions(centred, np.square(np.concatenate(means)).sum())
    return replace(states, basis=basis if states.basis is None else states.basis @ basis)


def representation_error(states: RecurrentStates) -> tuple[float, float, float]:
    """(error, chance, growth): the operators' distance from a representation of the group.

    For random inputs w of a prefix (0 to n - 2 of them), then y, then x: U the state after w y x, V
    the state after w (x y), the product as one input. So on the Dense-SSM U = A_x A_y h and
    V = A_xy h with its own matrices, and for LSTM and Mamba the maps themselves, not linearised.
    From both their means at that number of inputs are taken, and then they are divided by their
    root mean square norm at that number, since states may count their inputs, or grow (2 times per
    input in a trained Dense-SSM), without harm to the answer:

        error = min over s >= 0 of ||V - s U|| / ||V||  (Frobenius, all samples together),

    0 where the maps are a representation, up to shifts and growth that are the same for all inputs,
    and 1 where U tells nothing of V.
    chance: the same error with V after another product, w z with z != x y at random; below 1 where
    the state remembers the prefix, as U and V share it. So read the error beside it.
    growth: the norm of U over that of V, their geometric mean over numbers of inputs.

    NaN where states do not vary.
    """
    task = states.task
    q, rng = task.n_elements, generator(0, *b"representation")
    length = rng.choice(task.lengths, SAMPLES)
    prefix = rng.integers(0, length - 1)
    words = rng.integers(0, q, (SAMPLES, max(task.lengths)))
    earlier, later = rng.integers(0, q, (2, SAMPLES))
    product = task.compose(later, earlier)
    other = task.compose(product, rng.integers(1, q, SAMPLES))
    every = np.arange(SAMPLES)
    one_by_one, at_once, wrong = words.copy(), words.copy(), words.copy()
    one_by_one[every, prefix], one_by_one[every, prefix + 1] = earlier, later
    at_once[every, prefix], wrong[every, prefix] = product, other
    u = states.after(one_by_one, prefix + 2, length)
    v = states.after(at_once, prefix + 1, length)
    w = states.after(wrong, prefix + 1, length)
    u, v, w = (h - _step_means(h, prefix) for h in (u, v, w))
    norms = [step_norms(h, prefix) for h in (u, v, w)]
    if not all((norm > 0).all() for norm in norms):
        return float("nan"), float("nan"), float("nan")
    u, v, w = (h / norm for h, norm in zip((u, v, w), norms, strict=True))
    growth = np.exp(np.log(norms[0] / norms[1]).mean())
    return _unexplained(u, v), _unexplained(u, w), float(growth)


def coincidence(states: RecurrentStates) -> tuple[float, float]:
    """(ratio, shuffled): how far states of equal value but different length coincide.

    States after the last input of random sequences whose values are equally frequent at each
    length, divided by their root mean square norm at that length (so common growth with the length
    does not count). With pairs of states of two different lengths,

        ratio = mean squared distance at equal values / mean squared distance at different values:

    0 where states are a function of the value, 1 where the value does not show across lengths, as
    with separate mechanisms in orthogonal subspaces. shuffled: with values permuted within each
    length, near 1. What equal values scatter within one length counts as distance.

    NaN for a task of one length, and where states do not differ.
    """
    rng = generator(0, *b"coincidence")
    squares, means, shuffled = [], [], []
    for h, values in _balanced(states, rng, SAMPLES // 4):
        squares.append(np.square(h).sum(1).mean())
        means.append(_means(h, values))
        shuffled.append(_means(h, rng.permutation(values)))
    return _ratio(np.array(means), np.array(squares)), _ratio(np.array(shuffled), np.array(squares))


def _step_means(h: np.ndarray, used: np.ndarray) -> np.ndarray:
    """(rows, width): mean of the states h (rows, width) with the same `used`."""
    _, which = np.unique(used, return_inverse=True)
    same = np.eye(which.max() + 1)[which]
    return same @ ((same.T @ h) / same.sum(0)[:, None])


def _unexplained(u: np.ndarray, v: np.ndarray) -> float:
    """||v - s u|| / ||v||, least over s >= 0."""
    s = max((u * v).sum() / np.square(u).sum(), 0.0)
    return float(np.sqrt(np.square(v - s * u).sum() / np.square(v).sum()))


def _balanced(
    states: RecurrentStates, rng: np.random.Generator, least: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each length: states after random sequences over their norm, and the sequences' values.

    All values are equally frequent, in at least so many sequences.
    """
    q = states.task.n_elements
    values = np.arange(q * -(-least // q)) % q
    for n in states.task.lengths:
        size = np.full(len(values), n)
        h = states.after(_words_with(states.task, values, n, rng), size, size)
        yield h * step_weights(h, size), values


def _words_with(
    group: Group, values: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """(rows, length) random inputs whose product is values (rows,): the last is what it takes."""
    words = rng.integers(0, group.n_elements, (len(values), length))
    before = running_products(group.compose, words[:, :-1])[:, -1]
    words[:, -1] = group.compose(values, group.inverse(before))
    return words


def _means(h: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(q, width), of the states h (rows, width) of each value; all are equally frequent."""
    order, q = np.argsort(values, kind="stable"), values.max() + 1
    return h[order].reshape(q, len(h) // q, h.shape[1]).mean(1)


def _ratio(means: np.ndarray, squares: np.ndarray) -> float:
    """Of mean squared distances across lengths, at equal over at different values.

    means (lengths, q, width) of states by value, squares (lengths,) their mean squared norm.
    """
    lengths, q, _ = means.shape
    if lengths < 2:
        return float("nan")
    different = ~np.eye(lengths, dtype=bool)
    norms = (squares[:, None] + squares)[different].mean()
    equal = np.einsum("nvd,mvd->nm", means, means)[different].mean()
    every = np.einsum("nd,md->nm", means.sum(1), means.sum(1))[different].mean()
    within = norms - 2 * equal / q
    between = norms - 2 * (every - equal) / (q * (q - 1))
    return float(max(within, 0.0) / between) if between > 1e-24 * norms else float("nan")
