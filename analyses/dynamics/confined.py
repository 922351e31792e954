"""Minibatch SGD on the coordinates of a reduced field alone: many starts advance together."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from manifold import ReducedField
from training import AttentionOnly
from training.tasks.base import generator


def confined_sgd(
    field: ReducedField,
    starts: np.ndarray,
    *,
    steps: int,
    lr: float = 1.0,
    batch: int = 64,
    every: int = 25,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c <- c - lr Gram^+ (gradient of a fresh batch's mean loss), for each of the starts (K, dim).

    The full matrices, confined to the span: the gradient of theirs is projected. On the span a
    sequence counts through its orbit alone, so that `batch` fresh sequences are drawn as how many
    fall into each orbit, each start with draws of its own.

    Returns times (every `every` steps, 0 and the last one among them), the population's loss then
    (times, K), and the states at the end (K, dim). ValueError for a field that is sampled.
    """
    if not field.exact:
        raise ValueError(f"confined_sgd needs a field that is exact over orbits, got {field}")
    model = _Model(field, len(starts))
    rng = generator(seed, *b"confined sgd")
    c = torch.tensor(np.asarray(starts, dtype=float))
    weights, times, losses = field.weights, [], []
    for step in range(steps + 1):
        c.requires_grad_()
        each = model.losses(c)
        if step % every == 0 or step == steps:
            times.append(step * lr)
            losses.append((each.detach() @ torch.from_numpy(weights)).numpy())
        if step == steps:
            break
        drawn = torch.from_numpy(rng.multinomial(batch, weights, size=len(starts)) / batch)
        (slope,) = torch.autograd.grad((each * drawn).sum(), c)
        velocity = field.basis.raise_index(slope.numpy())
        c = c.detach() - lr * torch.from_numpy(velocity)
    return np.array(times), np.array(losses), c.detach().numpy()


class _Model:
    """Loss of every orbit under K points of the span at once, by the forward of attention_only."""

    def __init__(self, field: ReducedField, count: int) -> None:
        basis, sequences = field.basis, field.population.sequences
        self.family = AttentionOnly(layers=basis.layers, heads=basis.heads)
        units = basis.matrices(np.eye(basis.dim))
        named = {f"blocks.{i}.attn.W": f"W{i + 1}" for i in range(basis.layers)}
        self.units = {
            name: torch.from_numpy(np.ascontiguousarray(units[block]))
            for name, block in {**named, "unembed.W": "Wbar"}.items()
        }
        n = basis.vocabulary
        self.fixed = {
            name: torch.from_numpy(np.array(side)).expand(count, -1, -1)
            for name, side in (
                ("embed.token", basis.frame[:n, :n]),
                ("embed.position", basis.frame[n:, n:]),
            )
        }
        tokens = torch.from_numpy(sequences.tokens.astype(np.int64))
        places = torch.from_numpy(sequences.positions.astype(np.int64)).expand_as(tokens)
        self.tokens, self.places = (x.expand(count, -1, -1) for x in (tokens, places))
        self.target = torch.from_numpy(sequences.target.astype(np.int64)).expand(count, -1)

    def losses(self, c: torch.Tensor) -> torch.Tensor:
        """(K, orbits)."""
        params = self.fixed | {
            name: torch.tensordot(c, unit, dims=1) for name, unit in self.units.items()
        }
        logits = self.family.forward_last(params, self.tokens, self.places)[..., -1, :]
        flat = cross_entropy(logits.flatten(0, 1), self.target.flatten(), reduction="none")
        return flat.view(self.target.shape)
