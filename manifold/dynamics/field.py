"""The reduced field: loss and gradient flow on the invariant manifold (theory, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

from manifold.coordinates.basis import Basis
from manifold.coordinates.invariant import four_coordinates, frame_projector, invariant_basis
from manifold.dynamics.adams import adams
from manifold.dynamics.grams import GramModel, Sequences
from manifold.dynamics.population import Population, movable, population
from training.tasks.base import Task
from training.tasks.program import merge

FOUR = ("alpha", "beta", "gamma", "delta")
CHEAP = 8
"""Up to so many coordinates the integrator is given the exact Jacobian."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReducedField:
    """L(c) = sum_s w_s loss_s(W(c)), W(c) = sum_i c_i B_i, and its flow on the manifold.

    dc/dt = -Gram^+ dL/dc - lambda c, t = sum of learning rates, lambda = weight_decay. The Gram
    (mass) matrix makes this the flow of the full matrices restricted to the manifold, not
    gradient descent on c, whose time differs by a factor of order N.

    task: one with a program of draws; with the query's f_r and f_v of this field where it has
    them, the distractors' stated apart.
    """

    task: Any
    basis: Basis = field(repr=False)
    names: tuple[str, ...]
    population: Population = field(repr=False)
    _query: Mapping[str, float]  # f_r and f_v, or nothing
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def dim(self) -> int:
        return self.basis.dim

    @property
    def exact(self) -> bool:
        """True where the field is the population's own, without sampling error."""
        return self.population.exact

    def __str__(self) -> str:
        count = len(self.population.kind)
        where = (
            f"exact over {count:,} orbits"
            if self.exact
            else f"a sample of {self.population.drawn:,} sequences ({count:,} different)"
        )
        return f"reduced field of {self.dim} coordinates, {where}"

    @property
    def weights(self) -> np.ndarray:
        """Weight of each sequence of the population, (S,)."""
        return self.population.weights(**self._query)

    def at(self, **query: float) -> ReducedField:
        """The field at another f_r or f_v of the query; distractors, sequences and basis stay."""
        self._check(*query)
        task = replace(self.task, **query)
        return replace(self, task=task, _query={**self._query, **query})

    def extended(self, parameter: str, value: float) -> ReducedField:
        """As `at`, without its range: weights are polynomials, so Newton may step past 0 and 1."""
        self._check(parameter)
        return replace(self, _query={**self._query, parameter: value})

    def _check(self, *parameters: str) -> None:
        unknown = sorted(set(parameters) - set(self._query))
        if unknown:
            known = " and ".join(self._query) or "no statistic of its data"
            raise ValueError(
                f"the field of {type(self.task).__name__} moves along {known}; "
                f"got {', '.join(unknown)}"
            )

    def loss(self, c: np.ndarray) -> float:
        """Mean cross-entropy of the answer, nats."""
        model, weights = self._model(self.weights)
        return float(model.losses(self._point(c)) @ weights)

    def gradient(self, c: np.ndarray) -> np.ndarray:
        """dL/dc, (dim,): a covector; `flow` raises its index by Gram^+."""
        return self._gradient(c, self.weights)

    def flow(self, c: np.ndarray, weight_decay: float = 0.0) -> np.ndarray:
        """dc/dt, (dim,)."""
        return -self.basis.raise_index(self.gradient(c)) - weight_decay * self._point(c)

    @property
    def drawn_kinds(self) -> tuple[str, ...]:
        """The query kinds that the task's mixture is made of, in the order of the task's kinds."""
        if not self._query:
            return (self.task.kinds[0],)
        possible = self.task.kind_probabilities(0.5, 0.5)
        present = {self.task.kinds[i] for i in np.unique(self.population.kind)}
        return tuple(kind for kind in self.task.kinds if kind in possible and kind in present)

    def kind_flows(self, c: np.ndarray) -> np.ndarray:
        """-Gram^+ dL/dc of each of `drawn_kinds` alone, (kinds, dim).

        The flow without decay is their mean under the mixture: linear in its weights.
        """
        chosen = [_CONDITION[kind] if self._query else {} for kind in self.drawn_kinds]
        weights = [self.population.weights(**query) for query in chosen]
        return -self.basis.raise_index(np.stack([self._gradient(c, w) for w in weights]))

    def hessian(self, c: np.ndarray) -> np.ndarray:
        """d^2 L / dc^2, (dim, dim); about 2 dim gradients of work."""
        model, weights = self._model(self.weights)
        return model.hessian(self._point(c), weights)

    def hessian_product(self, c: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Hessian v, (dim,), without the Hessian; about 3 gradients of work."""
        model, weights = self._model(self.weights)
        return model.hessian_product(self._point(c), weights, self._point(v))

    def jacobian(self, c: np.ndarray, weight_decay: float = 0.0) -> np.ndarray:
        """d flow / d c, (dim, dim) = -Gram^+ Hessian - lambda; about 2 dim gradients of work."""
        # rows are raised, and the Hessian is symmetric: the transpose has the velocities in columns
        raised = -self.basis.raise_index(self.hessian(c)).T
        return raised - weight_decay * np.eye(self.dim)

    def parameter_derivative(self, c: np.ndarray, parameter: str) -> np.ndarray:
        """d flow / d parameter, (dim,), of "f_r" or "f_v" of the query, or "weight_decay"."""
        if parameter == "weight_decay":
            return -self._point(c)
        if parameter not in self._query:
            allowed = ", ".join([*self._query, "weight_decay"])
            raise ValueError(f"parameter is {parameter!r}; allowed: {allowed}")
        slope = self.population.slope(parameter, **self._query)
        return -self.basis.raise_index(self._gradient(c, slope))

    def integrate(
        self,
        c0: np.ndarray,
        times: Sequence[float] | np.ndarray,
        weight_decay: float = 0.0,
        rtol: float = 1e-6,
    ) -> np.ndarray:
        """States (time, dim) of the flow that is at c0 at time 0; times increase from 0 on.

        Up to 8 coordinates LSODA with the exact Jacobian, beyond that Adams's method: the flow of
        the full basis is not stiff. rtol: relative tolerance per step; absolute rtol / 100.
        Recall at n = 3, d = 128, from zero to t = 2000, 42 coordinates: 69
        evaluations at 1e-4 (largest relative error 2e-5), 135 at 1e-6 (4e-7).
        RuntimeError where the solver stops early, with its reason.
        """
        times = np.asarray(times, dtype=float)
        if times.ndim != 1 or not len(times) or times[0] < 0 or (np.diff(times) < 0).any():
            raise ValueError("times must be a list that increases, from 0 on (c0 is at time 0)")
        start = self._point(c0)
        if times[-1] == 0:
            return np.repeat(start[None], len(times), axis=0)

        def velocity(c: np.ndarray) -> np.ndarray:
            return self.flow(c, weight_decay)

        if self.dim > CHEAP:
            return adams(velocity, start, times, rtol)
        solution = solve_ivp(
            lambda _, c: velocity(c),
            (0.0, times[-1]),
            start,
            method="LSODA",
            jac=lambda _, c: self.jacobian(c, weight_decay),
            t_eval=times,
            rtol=rtol,
            atol=rtol / 100,
        )
        if not solution.success:
            raise RuntimeError(
                f"the flow was followed to time {solution.t[-1]}: {solution.message}"
            )
        return solution.y.T

    def kinds(self, c: np.ndarray) -> pd.DataFrame:
        """Loss and accuracy by query kind, whatever the query's f_r and f_v; iwl without context.

        An answer that shares the largest logit with k - 1 others counts as 1/k.
        """
        rows, point = {}, self._point(c)
        for kind, index in zip(self.task.kinds, range(len(self.task.kinds)), strict=True):
            people = self.population
            if kind == "iwl" and self._query:
                people = self._without_context()
            if people is None or not (people.kind == index).any():
                continue
            chosen = _CONDITION[kind] if self._query else {}
            weights = people.weights(**chosen) * (people.kind == index)
            model, active = self._model(weights, people)
            rows[kind] = {
                "loss": float(model.losses(point) @ active),
                "accuracy": float(model.correct(point) @ active),
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def sampling_error(self, c: np.ndarray, resamples: int = 20, seed: int = 0) -> dict[str, float]:
        """Bootstrap standard error of the loss, and of the flow relative to its norm; 0 if exact.

        The flow's norm is that of the matrices, sqrt(v^T Gram v).
        """
        if self.exact:
            return {"loss": 0.0, "flow": 0.0}
        rng, point, gram = np.random.default_rng(seed), self._point(c), self.basis.gram
        model, group = self._merged(self.population.sequences)
        losses, flows = [], []
        for _ in range(resamples):
            weights = self.population.resampled(rng).weights(**self._query)
            weights = np.bincount(group, weights=weights, minlength=model.count)
            losses.append(model.losses(point) @ weights)
            flows.append(self.basis.raise_index(model.gradient(point, weights)))
        moved = np.array(flows) - np.mean(flows, axis=0)
        variance = np.einsum("ri,ij,rj->", moved, gram, moved) / (resamples - 1)
        here = self.flow(point)
        return {
            "loss": float(np.std(losses, ddof=1)),
            "flow": float(np.sqrt(variance / (here @ gram @ here))),
        }

    def _point(self, c: np.ndarray) -> np.ndarray:
        c = np.asarray(c, dtype=float)
        if c.shape != (self.dim,):
            raise ValueError(f"the field has {self.dim} coordinates, got an array {c.shape}")
        return c

    def _gradient(self, c: np.ndarray, weights: np.ndarray) -> np.ndarray:
        model, active = self._model(weights)
        return model.gradient(self._point(c), active)

    def _model(
        self, weights: np.ndarray, people: Population | None = None
    ) -> tuple[GramModel, np.ndarray]:
        """The model of the sequences that weigh anything, and their weights."""
        people, rows = people or self.population, weights != 0
        key = (id(people), np.packbits(rows).tobytes())
        if key not in self._cache:
            self._cache[key] = self._merged(people.sequences[rows])
        model, group = self._cache[key]
        return model, np.bincount(group, weights=weights[rows], minlength=model.count)

    def _merged(self, sequences: Sequences) -> tuple[GramModel, np.ndarray]:
        """The model of one sequence for each different loss, and the group of every sequence.

        On few coordinates many orbits are the same function of c: those that agree at random
        points. (1,836 orbits are 690 functions of alpha, beta, gamma, delta.)
        """
        model = GramModel(self.basis, frame_projector(self.task, self.basis.family), sequences)
        rng = np.random.default_rng(0)
        seen = [model.signature(rng.normal(size=self.dim)) for _ in range(3)]
        alike = [
            np.unique(np.round(column, 9), return_inverse=True)[1] for column in np.hstack(seen).T
        ]
        first, group = merge(np.column_stack(alike))
        if len(first) == len(group):
            return model, np.arange(len(group))
        kept = GramModel(
            self.basis, frame_projector(self.task, self.basis.family), sequences[first]
        )
        return kept, group

    def _without_context(self) -> Population | None:
        if self.task.n_common < 2:
            return None
        if "iwl" not in self._cache:
            samples = None if self.population.drawn == 0 else self.population.drawn
            self._cache["iwl"] = population(self.task.given("iwl"), samples or "auto", seed=0)
        return self._cache["iwl"]


_CONDITION: Mapping[str, dict[str, float]] = {
    "rare": {"f_r": 1.0, "f_v": 0.0},
    "match": {"f_r": 0.0, "f_v": 0.0},
    "mismatch": {"f_r": 0.0, "f_v": 1.0},
    "iwl": {"f_r": 0.0, "f_v": 0.0},
}
"""The query's f_r and f_v under which every sequence is of one kind."""


def reduced_field(
    task: Task,
    *,
    family: str = "attention_only",
    layers: int = 2,
    heads: int = 1,
    coordinates: str | Basis = "all",
    samples: str | int | None = "auto",
    seed: int = 0,
) -> ReducedField:
    """The field of a task of the block-list class on its invariant manifold.

    coordinates: "all", the exact commutant of `family`, `layers` and `heads`; "four", the summary
    alpha, beta, gamma, delta; or a Basis of one's own, which carries family, layers and heads.
    samples: "auto", exact over the orbits where there are at most 20,000, else a sample of 6,000
    sequences; None, exact however many there are; an int, a sample of that size. Samples hold
    each query kind equally often, weighted by its probability; they are a function of `seed`.
    """
    known: Any = task
    if not hasattr(task, "program"):
        raise ValueError(
            f"reduced_field needs a task with a program of orbits (those of the block-list class), "
            f"got {type(task).__name__}"
        )
    resolved = replace(known, **{**asdict(known), **known.program.parameters})
    if isinstance(coordinates, Basis):
        basis, names = coordinates, coordinates.names
    elif coordinates == "all":
        basis = invariant_basis(task, family=family, layers=layers, heads=heads)
        names = basis.names
    elif coordinates == "four":
        if (family, layers, heads) != ("attention_only", 2, 1):
            raise ValueError(
                f"coordinates='four' describe attention_only with 2 layers and 1 head, "
                f"got {family}, {layers} layers, {heads} heads"
            )
        basis, names = four_coordinates(task), FOUR
    else:
        raise ValueError(f"coordinates is {coordinates!r}; 'all', 'four' or a Basis")
    sequences = population(resolved, samples, seed)
    return ReducedField(
        task=resolved,
        basis=basis,
        names=names,
        population=sequences,
        _query={name: resolved.program.parameters[name] for name in movable(resolved)},
    )
