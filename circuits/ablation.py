"""What a patched edge carries, where it is not what it carries in the corrupted run."""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import Tensor

from circuits.edge_patching import record
from circuits.graph import Graph
from circuits.pair import Pair
from training.families.base import Family, Params
from training.tasks.base import generator

ABLATIONS = ("corrupted", "mean", "mean per position", "zero", "resample")

_STEP = re.compile(r"\.\d+$")
_RESAMPLE = 6


def ablation(
    family: Family, params: Params, graph: Graph, pair: Pair, how: str, seed: int = 0
) -> dict[str, Tensor] | None:
    """What every node of the graph writes instead: `instead` of an EdgePatcher.

    corrupted: None, which is the corrupted run. mean: over clean sequences and positions (steps,
    in a recurrent family); mean per position: over clean sequences alone. zero: 0. resample: each
    sequence takes all its nodes' outputs from another clean one of the batch, drawn by `seed` among
    those with another answer (from any other one where all have the same).

    Means and zero leave nothing of a sequence; they can push states to where no input leads, which
    the corrupted run and resampling cannot. ValueError for another name, and for resampling a
    single sequence.
    """
    if how not in ABLATIONS:
        raise ValueError(f"ablation is {how!r}; allowed: {', '.join(ABLATIONS)}")
    if how == "corrupted":
        return None
    rows = (torch.from_numpy(x) for x in (pair.clean.tokens, pair.clean.positions))
    clean, _ = record(family, params, graph, *rows)
    if how == "zero":
        return {name: torch.zeros_like(value[:1]) for name, value in clean.items()}
    if how == "resample":
        other = torch.from_numpy(_others(pair, seed))
        return {name: value[other] for name, value in clean.items()}
    means = {name: value.mean(0, keepdim=True) for name, value in clean.items()}
    return means if how == "mean per position" else _over_positions(graph, means)


def _others(pair: Pair, seed: int) -> np.ndarray:
    """(batch,) another row of each, with another answer where there is one."""
    answers = pair.answers(pair.clean)
    allowed = answers[:, None] != answers
    alone = np.flatnonzero(~allowed.any(1))
    tokens = pair.clean.tokens
    allowed[alone] = (tokens[alone, None] != tokens).any(2)
    if not allowed.any(1).all():
        raise ValueError("resample needs two different sequences; there is one: ask for more pairs")
    drawn = generator(seed, _RESAMPLE).random(allowed.shape)
    return np.where(allowed, drawn, -1.0).argmax(1)


def _over_positions(graph: Graph, means: dict[str, Tensor]) -> dict[str, Tensor]:
    """Means over the axis of time, or over the nodes that are one and the same at other steps."""
    steps: dict[tuple[str, int | None], list[str]] = {}
    for node in graph.nodes:
        stem = _STEP.sub("", node.tap)
        if stem != node.tap:
            steps.setdefault((stem, node.part), []).append(node.name)
    found = {
        node.name: means[node.name].mean(1, keepdim=True)
        for node in graph.nodes
        if not _STEP.search(node.tap)
    }
    for names in steps.values():
        mean = torch.stack([means[name] for name in names]).mean(0)
        found |= dict.fromkeys(names, mean)
    return found
