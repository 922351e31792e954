"""The affine operator of each input on a recurrent model's states, and its eigenphases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from manifold.groups.haar import haar
from manifold.states.recurrent_states import (
    SAMPLES,
    RecurrentStates,
    principal_directions,
    step_weights,
)
from training.tasks.base import generator
from training.tasks.products import Group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """The affine maps z -> M_x z + b_x nearest to what each input does to the states' coordinates.

    On the subspace of principal directions of visited states (after 1 to n inputs), enough for
    ENERGY of their variance; z are the coordinates in it, from the states' mean. Least squares on
    visited pairs of states before and after x. In both, states are weighted by 1 / their mean
    square norm at that number of inputs, so that all numbers count alike where states grow. The
    Dense-SSM's map is linear, so M_x is A_x on a subspace that it leaves invariant; for the other
    families it is the best affine account.

    maps: (q, r, r), M_x. basis: (width, r), orthonormal in what `after` gives; r = 0 where states
        do not vary.
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
    """The operator of every input: on all that is reachable, or on the `value_subspace`."""
    task = states.task
    q, rng = task.n_elements, generator(0, *b"operators")
    length = rng.choice(task.lengths, SAMPLES)
    words = rng.integers(0, q, (SAMPLES, max(task.lengths)))
    used = rng.integers(1, length + 1)
    visited = states.after(words, used, length)
    weight = step_weights(visited, used)
    mean = (weight**2 * visited).sum(0) / max(np.square(weight).sum(), 1e-300)
    basis = principal_directions(weight * (visited - mean), np.square(weight * visited).sum())
    r = basis.shape[1]
    if r == 0:
        nothing = np.full(q, np.nan)
        return Operators(maps=np.zeros((q, 0, 0)), basis=basis, r_squared=nothing)
    count = max(64, 8 * (r + 1))
    x = np.repeat(np.arange(q), count)
    length = rng.choice(task.lengths, len(x))
    before = rng.integers(1, length)
    words = rng.integers(0, q, (len(x), max(task.lengths)))
    words[np.arange(len(x)), before] = x
    h, moved = states.after(words, before, length), states.after(words, before + 1, length)
    weight = step_weights(h, before)
    pairs = np.concatenate(
        [weight * ((h - mean) @ basis), weight, weight * ((moved - mean) @ basis)], axis=1
    ).reshape(q, 2, count // 2, 2 * r + 1)
    affine, after = pairs[..., : r + 1], pairs[..., r + 1 :]
    maps = np.linalg.pinv(affine[:, 0]) @ after[:, 0]
    rest = np.square(affine[:, 1] @ maps - after[:, 1]).sum((1, 2))
    weight = affine[:, 1, :, r:]
    centre = (weight * after[:, 1]).sum(1, keepdims=True) / (weight**2).sum(1, keepdims=True)
    spread = np.square(after[:, 1] - weight * centre).sum((1, 2))
    return Operators(
        maps=maps[:, :r].swapaxes(1, 2),
        basis=basis,
        r_squared=1 - rest / np.where(spread > 0, spread, np.nan),
    )


def phase_error(found: Operators, group: Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(error, chance, turned), (q,) each: phases of M_x against multiples of 2 pi / order of x.

    M_x^o = 1 for x of order o in a representation, so its phases are such multiples (for Z_m those
    of 2 pi / m, or fewer). error: mean distance of the phases to the nearest one, over pi / (2 o),
    so that 0 is exact and evenly spread phases give 1; eigenvalues count by their squared absolute
    value, since what is forgotten has no phase. chance: the same of uniform orthogonal matrices of
    that size, 200 of them (real eigenvalues make it differ from 1). turned: the share of
    eigenvalues, counted so, whose nearest multiple is not 0: positive ones, as of a state that only
    fades (an LSTM at its start), fit every order and say nothing. In the regular representation
    without its trivial part (q / (q - 1)) (1 - 1 / o) are turned.

    NaN where the subspace is 0 or all eigenvalues are.
    """
    values, r = found.eigenvalues, found.maps.shape[1]
    orders = element_orders(group)
    if r == 0:
        nothing = np.full(len(orders), np.nan)
        return nothing, nothing, nothing
    error, turned = _distance(values, orders[:, None])
    return error, np.array([_phase_chance(r, int(o)) for o in orders]), turned


def element_orders(group: Group) -> np.ndarray:
    """(q,): the least o >= 1 with x^o the identity."""
    every = np.arange(group.n_elements)
    power, orders = every.copy(), np.ones(len(every), dtype=np.int64)
    while (power != 0).any():
        orders += power != 0
        power = np.where(power != 0, group.compose(power, every), 0)
    return orders


def _distance(values: np.ndarray, order: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Of each row of eigenvalues: weighted mean distance over pi / (2 order), and share turned."""
    steps = np.angle(values) * order / (2 * np.pi)
    weights = np.square(abs(values))
    total = weights.sum(-1)
    total = np.where(total > 0, total, np.nan)
    nearest = np.round(steps)
    distance = (abs(steps - nearest) * weights).sum(-1)
    return 4 * distance / total, (weights * (nearest != 0)).sum(-1) / total


@lru_cache(maxsize=4096)
def _phase_chance(r: int, order: int) -> float:
    return float(_distance(_haar_eigenvalues(r), order)[0].mean())


@lru_cache(maxsize=64)
def _haar_eigenvalues(r: int, draws: int = 200) -> np.ndarray:
    """(draws, r) eigenvalues of uniform orthogonal matrices."""
    return np.linalg.eigvals(haar(generator(r, *b"phase_chance"), draws, r, r))
