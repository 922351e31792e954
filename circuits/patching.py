"""Exact node patching: the plain reference every faster attribution is checked against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from circuits.contrast import MINIMUM_GAP, contrast, length_task
from probes import run_with_tap
from training import Run
from training.families.base import Family, Params
from training.tasks.base import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A unit of the computation: a hook's value, or one head of it."""

    name: str
    hook: str
    head: int | None = None

    def mix(self, value: Tensor, other: Tensor) -> Tensor:
        """`value` with this node's part taken from `other`; heads are the axis before the last."""
        if self.head is None:
            return other
        mixed = value.clone()
        mixed[..., self.head, :] = other[..., self.head, :]
        return mixed


def nodes(family: Family, params: Params, batch: Batch) -> list[Node]:
    """Heads and MLPs of a transformer; states after each token of a recurrent family."""
    heads: dict[str, int] = {}

    def tap(name: str, value: Tensor) -> Tensor:
        if name.endswith("hook_z"):
            heads[name] = value.shape[-2]
        return value

    run_with_tap(family, params, batch, tap)
    return list(_nodes(family.hook_names(batch.tokens.shape[1]), heads))


def _nodes(names: tuple[str, ...], heads: dict[str, int]) -> Iterator[Node]:
    for name in names:
        if name in heads:
            layer = name.split(".")[1]
            for head in range(heads[name]):
                yield Node(name=f"head {layer}.{head}", hook=name, head=head)
        elif re.fullmatch(r"blocks\.\d+\.hook_mlp_out", name):
            yield Node(name=f"MLP {name.split('.')[1]}", hook=name)
        elif re.fullmatch(r"hook_state\.\d+", name):
            yield Node(name=f"state {name.split('.')[1]}", hook=name)


def patch_nodes(
    run: Run, step: int | None = None, *, samples: int = 256, seed: int = 0
) -> pd.DataFrame:
    """Effect of replacing each node by its corrupted value in the clean run, at every length.

    Rows: node and length. raw: mean fall of the metric M in logits; effect: that over the gap
    M(clean) - M(corrupt), 1 when the node carries the whole difference; low, high: its 95%
    interval (normal, over clean sequences). Nodes after a sequence's final token are left out:
    they cannot matter. effect is missing where the gap is below 0.3 logits (undefined there).
    """
    step = run.steps[-1] if step is None else step
    task, family, params, rows = length_task(run.task), run.family, run[step].params(), []
    for length in task.lengths:
        pair = contrast(family, params, task, length, samples, seed)
        other = _cache(family, params, pair.corrupt)
        for node in nodes(family, params, pair.clean):
            if node.hook.startswith("hook_state") and int(node.hook.split(".")[1]) > pair.final:
                continue
            logits = run_with_tap(family, params, pair.clean, _patch(node, other))
            fall = pair.by_sequence(pair.clean_gap - pair.metric(logits))
            half = 1.96 * fall.std(ddof=1) / np.sqrt(len(fall))
            scale = pair.gap if pair.gap >= MINIMUM_GAP else np.nan
            rows.append(
                {
                    "length": length,
                    "node": node.name,
                    "raw": fall.mean(),
                    "effect": fall.mean() / scale,
                    "low": (fall.mean() - half) / scale,
                    "high": (fall.mean() + half) / scale,
                }
            )
    return pd.DataFrame(rows)


def _cache(family: Family, params: Params, batch: Batch) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}

    def tap(name: str, value: Tensor) -> Tensor:
        seen[name] = value
        return value

    run_with_tap(family, params, batch, tap)
    return seen


def _patch(node: Node, other: dict[str, Tensor]):
    def tap(name: str, value: Tensor) -> Tensor:
        return node.mix(value, other[name]) if name == node.hook else value

    return tap
