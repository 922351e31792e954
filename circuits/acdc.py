"""ACDC: edges are tried one by one, from the logits down, and removed where nothing is lost.

Conmy et al. 2023 (arXiv 2304.14997, algorithm 1). An edge goes for good if patching it, beside all
that went before, makes the measure worse by less than the threshold tau. Unlike attribution it sees
what an edge is worth in the circuit that is left, and so keeps one of two backups; which one
depends on the order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from circuits.attribution import EdgeScores
from circuits.circuit import Circuit, judge
from circuits.edge_patching import EdgePatcher
from circuits.graph import LOGITS

MEASURES = ("KL", "logit difference")
_TOGETHER = 8


def acdc(patcher: EdgePatcher, threshold: float, *, measure: str = "KL", seed: int = 0) -> Circuit:
    """The edges that are left, of one half of the sequences, and what they are worth on the other.

    threshold: what an edge must be worth. measure: KL, nats of D(whole model | patched) at the
    token where the answer is predicted; logit difference, logits by which the metric falls. The
    scores of the circuit are what each edge was worth when it was tried; 0 where what it leads to
    was gone already. seed: of intervals and random sets alone; the search has no chance in it.
    ValueError for another measure and a threshold that is not above 0.
    """
    if threshold <= 0:
        raise ValueError(
            f"threshold is {threshold}; allowed: above 0, such as 0.01 {_UNITS.get(measure, '')}"
        )
    half, other = patcher.halves()
    kept, worth = search(half, threshold, loss_of(half, measure))
    scores = EdgeScores(
        graph=patcher.graph,
        method=f"ACDC, {measure}",
        steps=0,
        gap=half.gap,
        effects=half.pair.by_sequence(worth),
    )
    return judge(other, scores, kept, chosen=half, seed=seed)


def search(
    patcher: EdgePatcher, threshold: float, worse: Callable[[Tensor], Tensor]
) -> tuple[np.ndarray, Tensor]:
    """The edges left (E,), and what each was worth when it was tried (E, batch)."""
    graph, removed = patcher.graph, np.zeros(len(patcher.graph.edges), dtype=bool)
    worth = patcher.clean_metric.new_zeros(len(removed), len(patcher.clean_metric))
    now, live = patcher.metric(removed[None], worse)[0], {LOGITS}
    for reader in reversed(graph.readers):
        columns = np.arange(len(removed))[graph.columns[reader.name]][::-1]
        if reader.feeds not in live:
            removed[columns] = True
            continue
        now = _reduce(patcher, worse, columns, removed, worth, now, threshold)
        live |= {graph.edges[i].source for i in columns if not removed[i]}
    return ~removed, worth


def _reduce(
    patcher: EdgePatcher,
    worse: Callable[[Tensor], Tensor],
    columns: np.ndarray,
    removed: np.ndarray,
    worth: Tensor,
    now: Tensor,
    threshold: float,
) -> Tensor:
    """Tries the edges into one reader in this order; the measure (batch,) with what is left.

    Several are tried in one forward, each with all before it removed as well, and what comes after
    the first that must stay is tried again: the same as one by one.
    """
    while len(columns):
        ahead = columns[:_TOGETHER]
        masks = np.repeat(removed[None], len(ahead), axis=0)
        for k in range(len(ahead)):
            masks[k, ahead[: k + 1]] = True
        values = torch.cat([now[None], patcher.metric(masks, worse)])
        rise = values.diff(dim=0)
        stays = np.flatnonzero(rise.mean(1).cpu().numpy() >= threshold)
        gone = int(stays[0]) if len(stays) else len(ahead)
        tried = ahead[: gone + 1]
        worth[torch.from_numpy(tried.copy())] = rise[: len(tried)]
        removed[ahead[:gone]] = True
        now, columns = values[gone], columns[len(tried) :]
    return now


_UNITS = {"KL": "nats", "logit difference": "logits"}


def loss_of(patcher: EdgePatcher, measure: str) -> Callable[[Tensor], Tensor]:
    """What grows as less of the model's answer is left, (K, batch) from logits (K, batch, ..).

    ValueError for none of MEASURES.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}; allowed: {', '.join(MEASURES)}")
    pair = patcher.pair
    if measure == "logit difference":
        return lambda logits: -pair.metric(logits)
    none = np.zeros((1, len(patcher.graph.edges)), dtype=bool)
    whole = patcher.metric(none, lambda x: x[..., pair.final, :].log_softmax(-1))[0]

    def divergence(logits: Tensor) -> Tensor:
        here = logits[..., pair.final, :].log_softmax(-1)
        return (whole.exp() * (whole - here)).sum(-1)

    return divergence
