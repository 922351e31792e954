"""States of a recurrent model after given inputs of a state-tracking task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from training.families.base import Family
from training.tasks.state_tracking import StateTracking

ROWS = 4096
"""Sequences run at once."""
SAMPLES = 1024
"""Sequences that a measure draws; those that are balanced in values draw it for each length."""
ENERGY = 0.99
"""Share of the variance that a subspace holds at least."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecurrentStates:
    """One member of a recurrent family, in float64, and the task it was trained on.

    basis: (width, r), orthonormal: `after` gives coordinates in it; None: the states as they are.
    """

    family: Family
    params: Mapping[str, Tensor]
    task: StateTracking
    basis: np.ndarray | None = None

    @classmethod
    def of(
        cls, weights: Mapping[str, ArrayLike], family: Family, task: StateTracking
    ) -> RecurrentStates:
        """Raises ValueError for a family without states, and tokens that the weights lack."""
        if not has_states(family):
            raise ValueError(
                f"recurrent states: {type(family).__name__} has no hook_state.0 or "
                "blocks.0.hook_state.0, so no states; allowed: dense_ssm, lstm, mamba, or a family "
                "with such hooks"
            )
        params = {
            name: torch.from_numpy(np.array(value, dtype=float)) for name, value in weights.items()
        }
        reader = cls(family=family, params=params, task=task)
        words = np.full((1, 1), task.vocabulary - 1)
        try:
            with torch.no_grad():
                logits = family.forward(params, torch.from_numpy(words), torch.zeros(1, 1).long())
            known = logits.shape[-1]
        except ValueError as error:
            raise ValueError(f"recurrent states: {task.label}: {error}") from error
        if known != task.vocabulary:
            raise ValueError(
                f"recurrent states: the weights have {known} tokens, but {task.label} with '=' and "
                f"padding has {task.vocabulary}; give the task the model was trained on"
            )
        return reader

    def after(self, inputs: np.ndarray, used: np.ndarray, length: np.ndarray) -> np.ndarray:
        """(rows, width): the state after the first `used` inputs of a sequence of `length` inputs.

        inputs (rows, most) elements, used, length (rows,). The length shows only in the
        right-aligned layout, where padding stands before the inputs; elsewhere a causal model
        cannot see it yet. All states of the family side by side (`state_hooks`), or their
        coordinates in `basis`.
        """
        task = self.task
        first = np.zeros_like(used)
        if task.layout.startswith("right_aligned"):
            first = task.reach - length
        last = first + used - 1
        time = int(last.max()) + 1
        place = np.arange(time) - first[:, None]
        padding = task.n_elements + 1
        chosen = np.take_along_axis(inputs, np.clip(place, 0, inputs.shape[1] - 1), axis=1)
        tokens = np.where((place < 0) | (place >= used[:, None]), padding, chosen)
        found = [
            self._read(tokens[low : low + ROWS], last[low : low + ROWS])
            for low in range(0, len(tokens), ROWS)
        ]
        states = np.concatenate(found)
        return states if self.basis is None else states @ self.basis

    def _read(self, tokens: np.ndarray, last: np.ndarray) -> np.ndarray:
        hooks = state_hooks(self.family, tokens.shape[1])
        at = {name: t for t, names in enumerate(hooks) for name in names}
        slots: dict[str, np.ndarray] = {}

        def tap(name: str, value: Tensor) -> Tensor:
            if name in at:
                t = at[name]
                flat = value.flatten(1).numpy()
                slot = name[: -len(f".{t}")]
                rows = last == t
                slots.setdefault(slot, np.zeros(flat.shape))[rows] = flat[rows]
            return value

        places = torch.arange(tokens.shape[1]).expand(tokens.shape)
        with torch.no_grad():
            self.family.forward(self.params, torch.from_numpy(tokens), places, tap)
        return np.concatenate(list(slots.values()), axis=1)


def has_states(family: Family) -> bool:
    """Whether the family is recurrent: it hands its state after each token to a hook."""
    return all(state_hooks(family, 2))


@lru_cache(maxsize=256)
def state_hooks(family: Family, time: int) -> tuple[tuple[str, ...], ...]:
    """For each token the names of the hooks that hold the state after it.

    Those called hook_cell.{t} or hook_state.{t}, in any block: h of the Dense-SSM, c and h of the
    LSTM, s of every layer of Mamba, whose convolution's last inputs are *not* part of it.
    """
    found: list[list[str]] = [[] for _ in range(time)]
    for name in family.hook_names(time):
        parts = name.split(".")
        if parts[-1].isdecimal() and parts[-2] in ("hook_cell", "hook_state"):
            found[int(parts[-1])].append(name)
    return tuple(map(tuple, found))


def step_norms(h: np.ndarray, used: np.ndarray) -> np.ndarray:
    """(rows, 1): root mean square norm of the states h (rows, width) with the same `used`."""
    _, which = np.unique(used, return_inverse=True)
    squares = np.bincount(which, np.square(h).sum(1)) / np.bincount(which)
    return np.sqrt(squares)[which, None]


def step_weights(h: np.ndarray, used: np.ndarray) -> np.ndarray:
    """(rows, 1), 1 / `step_norms`; 0 where the norm is."""
    norms = step_norms(h, used)
    return np.where(norms > 0, 1 / np.where(norms > 0, norms, 1.0), 0.0)


def principal_directions(rows: np.ndarray, scale: float) -> np.ndarray:
    """(width, r): directions with ENERGY of the squares of rows; none if they vanish by `scale`."""
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    held = np.cumsum(values**2)
    if not len(held) or not held[-1] > 1e-24 * scale:
        return directions[:0].T
    return directions[: int(np.searchsorted(held, ENERGY * held[-1])) + 1].T
