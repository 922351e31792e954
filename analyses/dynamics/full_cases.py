"""The trainings that the reduced field is held against: every block-list task, and what decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyses.manifold_runs import FROM_ZERO
from training import RunConfig

STUDY = "full"
BY_RATE = "conditional retrieval, rate "
ZERO, SMALL = (0.0, 0), (0.01, 1)
"""(scale of the initial weights, seed of weights and batches)."""
CLOSE, CLOSER = 0.995, 0.999
"""Least R^2 that issue and theory ask for."""
RECALL_3 = {
    "name": "associative_recall",
    "n_blocks": 3,
    "n_common": 6,
    "n_rare": 5,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
    "burstiness": 1,
}
"""Recall whose 1,836 orbits are enumerated; at n = 4 there are over 20,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """attention_only on one task by SGD, from each of `starts`.

    target: least R^2; None where none is asked. states: of the predicted path, evenly spaced, at
    which its largest curvature is looked for. points: checkpoints
    after the start, evenly spaced.
    """

    name: str
    task: dict
    layers: int = 2
    heads: int = 1
    lr: float = 1.0
    steps: int = 3000
    batch: int = 256
    starts: tuple[tuple[float, int], ...] = (ZERO,)
    target: float | None = None
    states: int = 25
    points: int = 100

    def __post_init__(self) -> None:
        if self.steps < self.points or self.steps % self.points:
            raise ValueError(
                f"case {self.name}: steps got {self.steps}; allowed: a multiple of {self.points}, "
                f"the number of evenly spaced checkpoints"
            )

    def config(self, start: tuple[float, int]) -> RunConfig:
        scale, seed = start
        every = self.steps // self.points
        return RunConfig(
            **{
                "study": STUDY,
                "task": self.task,
                "family": {
                    "name": "attention_only",
                    "layers": self.layers,
                    "heads": self.heads,
                    "scale": scale,
                },
                "optimiser": {"name": "sgd", "lr": self.lr},
                "steps": self.steps,
                "batch_size": self.batch,
                "seeds": {"init": seed, "data": seed, "eval": 0},
                "eval_every": every,
                "eval_size": 1000,
                "checkpoints": {"doubling": False, "every": every},
            }
        )


def _case(task: str, name: str = "", **changes) -> Case:
    """The task as docs/manifold.md trains it from zero, with what is different here."""
    setting = FROM_ZERO[task]
    kept = {"layers": setting.layers, "lr": setting.lr, "steps": setting.steps}
    return Case(name=name or task, task=setting.task, **{**kept, **changes})


_OBJECT = _case("indirect object", starts=(SMALL,), steps=600)
CASES = (
    _case("1-hop", starts=(ZERO, SMALL), target=CLOSER),
    _case("2-gram", starts=(ZERO, SMALL), target=CLOSER),
    Case(name="recall, n = 3", task=RECALL_3, starts=(ZERO, SMALL), target=CLOSER),
    _case("associative recall", "recall, n = 4", target=CLOSER),
    _case("indirect object", starts=(ZERO, SMALL), target=CLOSER),
    _case("indirect object, words", target=CLOSER, steps=3000),
    _case("indirect object, words", "words, batch 1,024", batch=1024, steps=3000),
    _case("indirect object, words", "words, rate 0.2", lr=0.2, steps=15_000),
    _case("2-hop", starts=(ZERO, SMALL, (0.01, 2), (0.01, 3)), target=CLOSE),
    _case("2-hop", "2-hop, 2 layers", layers=2, starts=(ZERO, SMALL)),
    _case("3-gram", target=CLOSE),
    _case("permutation inversion", target=CLOSE, starts=(ZERO, SMALL, (0.1, 1))),
    _case(
        "permutation inversion",
        "permutation inversion, rate 0.2",
        lr=0.2,
        steps=15_000,
        starts=(SMALL,),
    ),
    _case("conditional retrieval", target=CLOSE, states=100),
    *(
        _case(
            "conditional retrieval",
            f"{BY_RATE}{rate:g}",
            lr=rate,
            steps=steps,
            points=points,
            states=100,
        )
        for rate, steps, points in ((1.0, 1500, 100), (10.0, 150, 50), (50.0, 30, 30))
    ),
    _case("1-hop", "1-hop, 2 heads", heads=2, starts=(SMALL,), target=CLOSER),
    _case(
        "conditional retrieval",
        "conditional retrieval, 2 layers of 2 heads",
        layers=2,
        heads=2,
        steps=5000,
        starts=(SMALL,),
        target=CLOSE,
    ),
    _case("relation retrieval"),
)
"""Sizes, rates and steps of docs/manifold.md."""
WHY = (
    replace(_OBJECT, name="rate 1, batch 256"),
    replace(_OBJECT, name="rate 1, batch 1,024", batch=1024),
    replace(_OBJECT, name="rate 0.2, batch 256", lr=0.2, steps=3000),
)
"""Indirect object once more, to the same time: what it is that parts training from the flow."""


def quick(cases: Sequence[Case]) -> tuple[Case, ...]:
    """A few of them, the last start alone, for a few steps."""
    names = ("1-hop", "2-hop, 2 layers", "conditional retrieval", "1-hop, 2 heads", WHY[0].name)
    few = [case for case in cases if case.name in names]
    return tuple(replace(c, steps=40, points=10, starts=c.starts[-1:], states=2) for c in few)
