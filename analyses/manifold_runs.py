"""The runs behind docs/manifold.md: trained transformers with a control, and every block-list task
from zero."""

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
class FromZero:
    """attention_only from zero by SGD on one task, one head a layer: several would stay equal.

    small: what a smaller instance, whose law can be enumerated, has instead; None where 2 million
    outcomes are not enough.
    """

    task: dict
    small: dict | None
    layers: int = 2
    lr: float = 1.0
    steps: int = 3000


FROM_ZERO = {
    "associative recall": FromZero(
        task=RECALL,
        small={"n_blocks": 2, "n_common": 4, "n_rare": 3},
    ),
    "2-gram": FromZero(
        task={"name": "in_context_ngram", "n_blocks": 3, "n_tokens": 8},
        small={"n_blocks": 2, "n_tokens": 4},
    ),
    "3-gram": FromZero(
        task={"name": "in_context_ngram", "n": 3, "n_blocks": 3, "n_tokens": 8},
        small={"n_blocks": 2, "n_tokens": 4},
        layers=3,
    ),
    "1-hop": FromZero(
        task={"name": "k_hop", "hops": 1, "chains": 3, "n_tokens": 8},
        small={"chains": 2, "n_tokens": 5},
    ),
    "2-hop": FromZero(
        task={"name": "k_hop", "hops": 2, "n_tokens": 8},
        small=None,
        layers=3,
    ),
    "indirect object": FromZero(
        task={"name": "indirect_object", "n_blocks": 1, "n_names": 8},
        small={"n_names": 3},
    ),
    "indirect object, words": FromZero(
        task={"name": "indirect_object", "n_blocks": 2, "n_names": 8, "function_words": True},
        small={"n_names": 4},
        layers=3,
        steps=6000,
    ),
    "conditional retrieval": FromZero(
        task={
            "name": "conditional_retrieval",
            "n_blocks": 3,
            "n_contexts": 3,
            "n_keys": 4,
            "n_values": 6,
        },
        small={"n_contexts": 2, "n_keys": 2, "n_values": 2, "track_slots": 3},
        layers=3,
        lr=0.2,
        steps=7500,
    ),
    "relation retrieval": FromZero(
        task={"name": "relation_retrieval", "n_blocks": 2, "n_keys": 5, "n_values": 6},
        small={"n_keys": 2, "n_values": 2, "track_slots": 3},
    ),
    "permutation inversion": FromZero(
        task={"name": "permutation_inversion", "n_tokens": 5},
        small={"n_tokens": 3, "track_slots": 2},
        layers=3,
        steps=6000,
    ),
}
"""Every task of the block-list class, solved on the manifold by so many layers where the theory
says so (section 4); relation retrieval is not."""


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


def from_zero_config(setting: FromZero) -> RunConfig:
    return RunConfig(
        **{
            "study": STUDY,
            "task": setting.task,
            "family": {
                "name": "attention_only",
                "layers": setting.layers,
                "heads": 1,
                "scale": 0.0,
            },
            "optimiser": {"name": "sgd", "lr": setting.lr},
            "steps": setting.steps,
            "batch_size": 256,
            "eval_every": setting.steps // 12,
            "eval_size": 1000,
            "checkpoints": {"doubling": True, "every": setting.steps // 12},
        }
    )
