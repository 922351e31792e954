"""How a recurrent model's states move: does one input after another do what their product does?

Three questions to one checkpoint (theory, section 3, last paragraph), each a function of states
that the model visits, each with its own control. Sequences are drawn from a fixed seed, so that
checkpoints are compared on the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from manifold.recurrent_states import RecurrentStates
from training.tasks.base import generator
from training.tasks.products import Group, running_products

SAMPLES = 1024
"""Sequences of the representation error and for the subspace; of each length, coincidence."""
ENERGY = 0.99
"""Share of the visited states' variance that the reachable subspace holds at least."""


def representation_error(states: RecurrentStates) -> tuple[float, float, float]:
    """(error, chance, growth): the operators' distance from a representation of the group.

    For random inputs w of a prefix (0 to n - 2 of them), then y, then x: U the state after w y x, V
    the state after w (x y), the product as one input. So on the Dense-SSM U = A_x A_y h and
    V = A_xy h with its own matrices, and for LSTM and Mamba the maps themselves, not linearised.

        error = min over s >= 0 and b of ||V - s U - b|| / ||V - mean V||  (Frobenius, all samples),

    0 where the maps are a representation and 1 where U tells nothing of V. The shift b and the
    scale s take out what all states gain from one step to the next, since a Dense-SSM's state may
    grow in norm without change of its logits' order; growth = 1 / s is returned. Growth that
    depends on the input, or a part of the state that counts steps along other directions for other
    values, is error.
    chance: the same error with V after another product, w z with z != x y at random.

    NaN where states do not vary, and growth where s = 0.
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
    error, growth = _unexplained(u, v)
    chance, _ = _unexplained(u, states.after(wrong, prefix + 1, length))
    return error, chance, growth


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
    task = states.task
    q, rng = task.n_elements, generator(0, *b"coincidence")
    count = q * -(-SAMPLES // (4 * q))
    values = np.arange(count) % q
    squares, means, shuffled = [], [], []
    for n in task.lengths:
        size = np.full(count, n)
        h = states.after(_words_with(task, values, n, rng), size, size)
        square = np.square(h).sum(1).mean()
        h = h / (np.sqrt(square) if square > 0 else 1.0)
        squares.append(float(square > 0))
        means.append(_means(h, values))
        shuffled.append(_means(h, rng.permutation(values)))
    return _ratio(np.array(means), np.array(squares)), _ratio(np.array(shuffled), np.array(squares))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """The affine maps z -> M_x z + b_x nearest to what each input does on the reachable subspace.

    The subspace: principal directions of visited states (after 1 to n inputs), enough for ENERGY of
    their variance; z are the coordinates in it, from the states' mean. Least squares on visited
    pairs of states before and after x. The Dense-SSM's map is linear, so M_x is A_x on a subspace
    that it leaves invariant; for the other families it is the best affine account.

    maps: (q, r, r), M_x. basis: (width, r), orthonormal; r = 0 where states do not vary.
    r_squared: (q,), 1 - squared error / variance of z after x, on pairs that were not fitted.
    """

    maps: np.ndarray
    basis: np.ndarray
    r_squared: np.ndarray

    @property
    def eigenvalues(self) -> np.ndarray:
        """(q, r) complex, of M_x in descending order of absolute value."""
        found = np.linalg.eigvals(self.maps)
        return np.take_along_axis(found, np.argsort(-abs(found), axis=1), axis=1)


def operators(states: RecurrentStates) -> Operators:
    """The operator of every input, on the reachable subspace of this checkpoint."""
    task = states.task
    q, rng = task.n_elements, generator(0, *b"operators")
    length = rng.choice(task.lengths, SAMPLES)
    words = rng.integers(0, q, (SAMPLES, max(task.lengths)))
    visited = states.after(words, rng.integers(1, length + 1), length)
    mean = visited.mean(0)
    _, scales, directions = np.linalg.svd(visited - mean, full_matrices=False)
    held = np.cumsum(scales**2)
    r = 0
    if held[-1] > 1e-24 * np.square(visited).sum():
        r = int(np.searchsorted(held, ENERGY * held[-1])) + 1
    basis = directions[:r].T
    if r == 0:
        nothing = np.full(q, np.nan)
        return Operators(maps=np.zeros((q, 0, 0)), basis=basis, r_squared=nothing)
    count = max(64, 8 * (r + 1))
    x = np.repeat(np.arange(q), count)
    length = rng.choice(task.lengths, len(x))
    before = rng.integers(1, length)
    words = rng.integers(0, q, (len(x), max(task.lengths)))
    words[np.arange(len(x)), before] = x
    z, moved = (
        ((states.after(words, used, length) - mean) @ basis).reshape(q, 2, count // 2, r)
        for used in (before, before + 1)
    )
    affine = np.concatenate([z, np.ones((*z.shape[:-1], 1))], axis=-1)
    maps = np.linalg.pinv(affine[:, 0]) @ moved[:, 0]
    rest = np.square(affine[:, 1] @ maps - moved[:, 1]).sum((1, 2))
    spread = np.square(moved[:, 1] - moved[:, 1].mean(1, keepdims=True)).sum((1, 2))
    return Operators(
        maps=maps[:, :r].swapaxes(1, 2),
        basis=basis,
        r_squared=1 - rest / np.where(spread > 0, spread, np.nan),
    )


def phase_error(found: Operators, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """(error, chance), (q,) each: eigenphases of M_x against multiples of 2 pi / order of x.

    M_x^o = 1 for x of order o in a representation, so its phases are such multiples (for Z_m those
    of 2 pi / m, or fewer). error: mean distance of the phases to the nearest one, over pi / (2 o),
    so that 0 is exact and evenly spread phases give 1; eigenvalues count by their squared absolute
    value, since what is forgotten has no phase. chance: the same of uniform orthogonal matrices of
    that size, 200 of them (real eigenvalues make it differ from 1).

    NaN where the reachable subspace is 0 or all eigenvalues are.
    """
    values, r = found.eigenvalues, found.maps.shape[1]
    orders = element_orders(group)
    if r == 0:
        nothing = np.full(len(orders), np.nan)
        return nothing, nothing
    error = np.array([_distance(v[None], o)[0] for v, o in zip(values, orders, strict=True)])
    return error, np.array([_phase_chance(r, int(o)) for o in orders])


def element_orders(group: Group) -> np.ndarray:
    """(q,): the least o >= 1 with x^o the identity."""
    every = np.arange(group.n_elements)
    power, orders = every.copy(), np.ones(len(every), dtype=np.int64)
    while (power != 0).any():
        orders += power != 0
        power = np.where(power != 0, group.compose(power, every), 0)
    return orders


def _distance(values: np.ndarray, order: int) -> np.ndarray:
    """Mean distance of the phases of each row of eigenvalues, weighted, over pi / (2 order)."""
    steps = np.angle(values) * order / (2 * np.pi)
    weights = np.square(abs(values))
    total = weights.sum(-1)
    distance = (abs(steps - np.round(steps)) * weights).sum(-1)
    return 4 * distance / np.where(total > 0, total, np.nan)


@lru_cache(maxsize=4096)
def _phase_chance(r: int, order: int) -> float:
    return float(_distance(_haar_eigenvalues(r), order).mean())


@lru_cache(maxsize=64)
def _haar_eigenvalues(r: int, draws: int = 200) -> np.ndarray:
    """(draws, r) eigenvalues of uniform orthogonal matrices."""
    draw = generator(r, *b"phase_chance").standard_normal((draws, r, r))
    turn, scale = np.linalg.qr(draw)
    signs = np.sign(np.diagonal(scale, axis1=1, axis2=2))
    return np.linalg.eigvals(turn * signs[:, None, :])


def _unexplained(u: np.ndarray, v: np.ndarray) -> tuple[float, float]:
    """||v - s u - b|| / ||v - mean||, least over b and s >= 0, and 1 / s."""
    u, v = u - u.mean(0), v - v.mean(0)
    across, own, total = (u * v).sum(), np.square(u).sum(), np.square(v).sum()
    if not (own > 0 and total > 0):
        return float("nan"), float("nan")
    s = max(float(across / own), 0.0)
    error = float(np.sqrt(np.square(v - s * u).sum() / total))
    return error, 1 / s if s > 0 else float("nan")


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
    order = np.argsort(values, kind="stable")
    return h[order].reshape(values.max() + 1, -1, h.shape[1]).mean(1)


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
