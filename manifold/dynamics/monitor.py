"""A training loop watched in the coordinates of the manifold, its events raised while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from manifold.coordinates.basis import Basis
from manifold.coordinates.effective import effective_matrices, frame_of, remove_gauge
from manifold.coordinates.invariant import invariant_basis
from manifold.coordinates.lift import lift
from manifold.coordinates.rebuild import score
from manifold.coordinates.run_basis import check_task
from manifold.dynamics.change_point import FEWEST
from manifold.dynamics.event import Event
from manifold.dynamics.events import events
from training.families.base import Family
from training.tasks.base import IGNORE, Batch, Task

GROWTH = 1.5
"""Events are looked for each time there are so many times the observations of the last look."""
LIVE = ("onset", "swap", "transience", "overfitting")
"""Kinds that are raised live: what has saturated is only known at the end."""


class Monitor:
    """monitor(step, params) in any loop: projects, keeps the trajectory, raises events live.

        monitor = Monitor(task, family, every=50, tell=print)
        for step in range(1, steps + 1):
            ...                              # one update of params
            monitor(step, params)            # before the first too, monitor(0, params), if wished

    task, family: whose named tensors the parameters are (attention_only, transformer). every: in
    steps; all others return at once. lr: the constant learning rate, so that time is step * lr;
    with a schedule give `time=` at each call. tell: called with each Event as it is raised.
    sequences: held-out ones of each kind for the network's accuracies, without which no score is
    watched; 0 for none. level: the rate of false alarms over the whole run, all looks and all
    series together: the k-th look is taken at level / (k (k + 1)), and looks come each time the
    observations have grown by half. basis: another than the exact commutant. read: from a
    stranger's `params`, of any type, to the family's names and tensors; frozen ones may be
    missing. An nn.Module whose parameters have the family's names needs none.

    Nothing is changed: neither parameters nor the state of a random generator. Where weights are
    not finite, that observation is left out, which `unanswered` says.
    ValueError for settings and weights that do not fit, and steps that do not increase.
    """

    def __init__(
        self,
        task: Task,
        family: Family,
        *,
        every: int,
        lr: float = 1.0,
        tell: Callable[[Event], None] | None = None,
        sequences: int = 256,
        level: float = 0.05,
        basis: Basis | None = None,
        read: Callable[[Any], Mapping[str, Tensor]] | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"monitor: every is {every!r}; a whole number of steps, 1 or more")
        if not 0 < level < 1:
            raise ValueError(f"monitor: level is {level}; a rate of false alarms, e.g. 0.05")
        if sequences < 0:
            raise ValueError(f"monitor: sequences is {sequences}; 0 for no scores, or more")
        self.task, self.family, self.every, self.lr, self.level = task, family, every, lr, level
        frame, model = frame_of(family), _shape(family)
        self.basis = invariant_basis(task, frame, *model) if basis is None else basis
        check_task("monitor", task, self.basis)
        if (self.basis.family, self.basis.layers, self.basis.heads) != (frame, *model):
            raise ValueError(
                f"monitor: the basis is {self.basis!r}, the family {family}; give invariant_basis("
                "task, ..) of its family, layers and heads"
            )
        self._tell, self._read = tell, read
        start = family.initialise(task, 0, torch.float64)
        self._sizes = {name: tuple(value.shape) for name, value in start.items()}
        self._frozen = {name: start[name] for name in family.frozen}
        self._batch = _of_every_kind(task, sequences) if sequences else None
        self._steps: list[int] = []
        self._times: list[float] = []
        self._states: list[np.ndarray] = []
        self._accuracy: list[list[float]] = []
        self._looks, self._next = 0, FEWEST
        self._raised: dict[tuple[str, str], Event] = {}
        self.unanswered: list[str] = []

    @property
    def raised(self) -> tuple[Event, ...]:
        """Every event raised so far, in the order in which they were."""
        return tuple(self._raised.values())

    @property
    def trajectory(self) -> xr.Dataset:
        """As `project` of one run: c, time, accuracy; for `events`, `fit_ode` and the like."""
        steps, kinds = self._steps, list(self.task.kinds)
        states = np.array(self._states).reshape(len(steps), self.basis.dim)
        variables: dict[str, Any] = {"c": (("run", "step", "coordinate"), states[None])}
        coords: dict[str, Any] = {
            "run": ["live"],
            "step": np.array(steps, dtype=int),
            "time": (("run", "step"), np.array(self._times, dtype=float)[None]),
            "coordinate": list(self.basis.names),
        }
        if self._batch is not None:
            accuracy = np.array(self._accuracy).reshape(len(steps), len(kinds))
            variables["accuracy"] = (("run", "step", "kind"), accuracy[None])
            coords["kind"] = kinds
        basis = self.basis
        attrs = {"frame": basis.family, "layers": basis.layers, "heads": basis.heads}
        return xr.Dataset(variables, coords=coords, attrs=attrs)

    def __call__(self, step: int, params: Any, time: float | None = None) -> tuple[Event, ...]:
        """The events that this step raises. step: updates made so far."""
        if step % self.every:
            return ()
        if self._steps and step <= self._steps[-1]:
            raise ValueError(
                f"monitor: step {step} comes after step {self._steps[-1]}; steps must increase; "
                "for another run make another Monitor"
            )
        weights = self._weights(params)
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            self.unanswered.append(f"step {step}: weights are not finite")
            return ()
        self._states.append(self._coordinates(weights))
        if self._batch is not None:
            self._accuracy.append(self._scores(weights))
        self._steps.append(step)
        self._times.append(step * self.lr if time is None else time)
        return self._look() if len(self._steps) >= self._next else ()

    def _look(self) -> tuple[Event, ...]:
        self._looks += 1
        self._next = int(np.ceil(GROWTH * len(self._steps)))
        share = self.level / (self._looks * (self._looks + 1))
        found = events(self.trajectory, task=self.task, level=share).events
        new = [e for e in found if e.kind in LIVE and (e.kind, e.what) not in self._raised]
        for event in new:
            self._raised[event.kind, event.what] = event
            if self._tell is not None:
                self._tell(event)
        return tuple(new)

    def _weights(self, params: Any) -> dict[str, Tensor]:
        """The family's tensors, of the sizes of family and task."""
        if self._read is not None:
            given: dict[str, Tensor] = dict(self._read(params))
        elif isinstance(params, torch.nn.Module):
            given = dict(params.named_parameters())
        else:
            given = dict(params)
        some = next(iter(given.values()), torch.zeros(()))
        for name, value in self._frozen.items():
            given.setdefault(name, value.to(some))
        wrong = [
            f"{name} {tuple(given[name].shape) if name in given else 'missing'}, needed {size}"
            for name, size in self._sizes.items()
            if name not in given or tuple(given[name].shape) != size
        ]
        if wrong:
            raise ValueError(
                f"monitor: not the weights of one {type(self.family).__name__} for this task: "
                f"{'; '.join(wrong[:3])}; names of one's own are translated by read="
            )
        return {name: given[name].detach() for name in self._sizes}

    def _coordinates(self, weights: Mapping[str, Tensor]) -> np.ndarray:
        family: Any = self.family
        if self.basis.family == "transformer":
            matrices = lift(weights, family, self.task).factored
        else:
            matrices = effective_matrices(weights, family, self.task)
        return self.basis.coordinates(remove_gauge(self.basis, matrices))

    def _scores(self, weights: Mapping[str, Tensor]) -> list[float]:
        batch, device = self._batch, next(iter(weights.values())).device
        assert batch is not None
        tokens, positions = (
            torch.from_numpy(np.array(side)).to(device) for side in (batch.tokens, batch.positions)
        )
        family: Any = self.family
        last = hasattr(family, "forward_last") and bool((batch.targets[:, :-1] == IGNORE).all())
        forward = family.forward_last if last else family.forward
        with torch.no_grad():
            logits = forward(weights, tokens, positions)
        _, accuracy = score(self.task, logits.cpu(), batch)
        return [float(accuracy.get(kind, np.nan)) for kind in self.task.kinds]


def _of_every_kind(task: Any, size: int) -> Batch:
    """Held-out sequences: so many of each kind where the task can be asked for one, those it has
    no share of in training included; else so many as they come."""
    if not hasattr(task, "given"):
        return task.evaluation(0, size)
    parts = [task.given(kind).evaluation(0, size) for kind in dict.fromkeys(task.kinds)]
    sides = ("tokens", "positions", "targets", "kind")
    return Batch(**{side: np.concatenate([getattr(one, side) for one in parts]) for side in sides})


def _shape(family: Any) -> tuple[int, int]:
    return family.layers, family.heads
