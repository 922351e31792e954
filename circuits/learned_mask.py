"""Learned masks: a gate on every edge, trained to lose nothing and to be closed.

Hard-concrete gates (Louizos et al. 2018, arXiv 1712.01312, section 2.3; on edges as in Bhaskar et
al. 2024, arXiv 2406.16778): z = clip(sigmoid((log u - log(1 - u) + a) / beta) (zeta - gamma) +
gamma, 0, 1), u uniform, beta = 2/3, gamma = -0.1, zeta = 1.1. A reader sees, of each source,
z (output now) + (1 - z) (output in the corrupted run). Minimised over a: the loss of the masked run
plus `price` for each gate that is expected open.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from circuits.acdc import loss_of
from circuits.attribution import EdgeScores
from circuits.circuit import Circuit, judge
from circuits.edge_patching import EdgePatcher
from circuits.graph import Graph
from training.families.wiring import Node, Reader

_BETA, _GAMMA, _ZETA = 2 / 3, -0.1, 1.1
_START = 2.0


def learned_mask(
    patcher: EdgePatcher,
    price: float,
    *,
    measure: str = "KL",
    steps: int = 300,
    rate: float = 0.1,
    seed: int = 0,
) -> Circuit:
    """The edges whose gates end up open on one half of the sequences; their worth on the other.

    price: what an edge must be worth, in nats of KL or logits of the metric's fall (`measure`), as
    the threshold of ACDC. steps, rate: of Adam. The scores of the circuit are the probabilities of
    the gates to be open; they are of the whole batch, the same for each sequence. The search is
    random and not convex: another seed may keep another of two backups, and since gates are shut by
    chance while they learn, both where they cost little. ValueError for another measure and for a
    price, steps or rate not above 0.
    """
    for name, value in (("price", price), ("steps", steps), ("rate", rate)):
        if value <= 0:
            raise ValueError(f"{name} is {value}; allowed: above 0")
    half, other = patcher.halves()
    loss = loss_of(half, measure)
    rng = torch.Generator().manual_seed(seed)
    like = patcher.clean_metric
    gate = like.new_full((len(patcher.graph.edges),), _START).requires_grad_()
    optimiser = torch.optim.Adam([gate], lr=rate)
    for _ in range(steps):
        noise = torch.rand(gate.shape, generator=rng, dtype=like.dtype).clamp(1e-6, 1 - 1e-6)
        z = _clipped(((noise / (1 - noise)).log() + gate) / _BETA)
        total = loss(_gated(half, z)[None])[0].mean() + price * _open(gate).sum()
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    last = gate.detach()
    chance = _open(last).double().cpu().numpy()
    scores = EdgeScores(
        graph=patcher.graph,
        method=f"learned mask, {measure}",
        steps=steps,
        gap=half.gap,
        effects=np.repeat(chance[:, None], half.pair.sequences, axis=1),
    )
    kept = (_clipped(last) > 0.5).cpu().numpy()
    return judge(other, scores, kept, chosen=half, seed=seed)


def _clipped(logit: Tensor) -> Tensor:
    return (logit.sigmoid() * (_ZETA - _GAMMA) + _GAMMA).clamp(0, 1)


def _open(gate: Tensor) -> Tensor:
    """Probability that a gate is not 0."""
    return (gate - _BETA * math.log(-_GAMMA / _ZETA)).sigmoid()


def _gated(patcher: EdgePatcher, z: Tensor) -> Tensor:
    """Logits of the clean run with gates (E,) on its edges, differentiable in them."""
    tap = _Gates(patcher.graph, patcher.corrupt, z)
    return patcher.family.forward(patcher.params, *patcher.rows, tap)


class _Gates:
    """The tap: remembers what nodes write, and lets through of it what the gates do."""

    def __init__(self, graph: Graph, corrupt: dict[str, Tensor], z: Tensor) -> None:
        self.graph, self.corrupt, self.z = graph, corrupt, z
        self.writers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            self.writers.setdefault(node.tap, []).append(node)
        self.readers: dict[str, list[Reader]] = {}
        for reader in graph.readers:
            self.readers.setdefault(reader.tap, []).append(reader)
        self.moved: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for node in self.writers.get(name, ()):
            self.moved[node.name] = node.of(value) - self.corrupt[node.name]
        for reader in self.readers.get(name, ()):
            here = Node(name=reader.name, tap=name, part=reader.part)
            value = here.put(value, self._read(reader, here.of(value)))
        return value

    def _read(self, reader: Reader, x: Tensor) -> Tensor:
        x = x.clone()
        for source, z in zip(reader.sources, self.z[self.graph.columns[reader.name]], strict=True):
            moved, start = self.moved[source], self.graph.node[source].offset
            x[..., start : start + moved.shape[-1]] -= (1 - z) * moved
        return x
