"""A task's group as one action on tokens and positions together."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from training.tasks.base import Task


def generators(task: Task) -> np.ndarray:
    """The direct product on tokens, then positions, (g, d), d = vocabulary + n_positions."""
    symmetry, n, places = task.symmetry, task.vocabulary, task.n_positions
    token = np.asarray(symmetry.token_generators, int).reshape(-1, n)
    position = np.asarray(symmetry.position_generators, int).reshape(-1, places)
    return np.concatenate(
        [
            np.hstack([token, np.tile(np.arange(n, n + places), (len(token), 1))]),
            np.hstack([np.tile(np.arange(n), (len(position), 1)), position + n]),
        ]
    )


def orbits(moves: np.ndarray) -> np.ndarray:
    """(d,) orbit of each point under generators (g, d), numbered from 0."""
    size = moves.shape[1]
    links = (np.tile(np.arange(size), len(moves)), moves.ravel())
    graph = coo_array((np.ones(moves.size), links), shape=(size, size))
    return connected_components(graph, directed=False)[1]
