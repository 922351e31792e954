"""The trained transformers behind docs/manifold.md: three kinds, three seeds, and a control."""

from __future__ import annotations

from dataclasses import dataclass

from analyses.studies.base import RECALL
from training import RunConfig
from training.tasks import AssociativeRecall, Batch
from training.tasks.base import generator

STUDY = "manifold"
SEEDS = (0, 1, 2)
STEPS = 3000
KINDS = {
    "attention only": {"layer_norm": False, "mlp": False},
    "LayerNorm": {"layer_norm": True, "mlp": False},
    "LayerNorm and MLP": {"layer_norm": True, "mlp": True},
}
CONTROL = "shuffled labels"
"""Attention only, trained on `ShuffledLabels`: what a network captures that learnt by heart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledLabels(AssociativeRecall):
    """The same sequences in the same numbers, but `sequences` of them for ever, their labels
    permuted among them once: they can be memorised, and nothing else can be learnt."""

    sequences: int = 512

    def batch(self, seed: int, k: int, size: int, train_size: int | None = None) -> Batch:
        every = AssociativeRecall.batch(self, seed, 0, self.sequences)
        order = generator(seed, *b"shuffled labels").permutation(self.sequences)
        targets = every.targets.copy()
        targets[:, -1] = targets[order, -1]
        rows = generator(seed, k, *b"shuffled rows").integers(self.sequences, size=size)
        return Batch(
            tokens=every.tokens[rows],
            positions=every.positions[rows],
            targets=targets[rows],
            kind=every.kind[rows],
        )


def configs(steps: int = STEPS) -> dict[tuple[str, int], RunConfig]:
    """(kind, seed) to the configuration of its run, the control last."""
    shuffled = {**RECALL, "name": f"{__name__}:{ShuffledLabels.__name__}"}
    wanted = [(kind, seed) for kind in (*KINDS, CONTROL) for seed in SEEDS]
    return {
        (kind, seed): _config(
            shuffled if kind == CONTROL else RECALL,
            KINDS.get(kind, KINDS["attention only"]),
            seed,
            steps,
        )
        for kind, seed in wanted
    }


def _config(task: dict, family: dict, seed: int, steps: int) -> RunConfig:
    return RunConfig(
        **{
            "study": STUDY,
            "task": task,
            "family": {"name": "transformer", "layers": 2, "heads": 1, "width": 64, **family},
            "optimiser": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
            "steps": steps,
            "batch_size": 256,
            "seeds": {"init": seed, "data": seed, "eval": seed},
            "eval_every": 100,
            "eval_size": 1000,
            "checkpoints": {"doubling": True, "every": 100},
        }
    )
