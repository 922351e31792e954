"""A transformer's weights put together by hand: named parts of the stream, heads term by term."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from manifold.groups.haar import haar
from training.families.transformer import Transformer


class Head:
    """Scores and copies of one head, summed term by term, each in entries of its own."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.scores: list[tuple[np.ndarray, np.ndarray]] = []
        self.copies: list[tuple[np.ndarray, np.ndarray]] = []

    def score(self, query: np.ndarray, key: np.ndarray, strength: float) -> None:
        """Adds strength * (x_t query) . (x_s key), both (width, k)."""
        self.scores.append((strength * query, key))

    def copy(self, read: np.ndarray, write: np.ndarray) -> None:
        """Adds x_s read write to what is written, (width, k) and (k, width)."""
        self.copies.append((read, write))

    @property
    def need(self) -> int:
        """Entries of the head that its terms take."""
        return max(
            (sum(first.shape[1] for first, _ in terms) for terms in (self.scores, self.copies)),
            default=0,
        )


class Stream:
    """Transformer without norm and MLP, of learned positions.

    parts: name to size, the parts of the residual stream; what is left of the width stays empty.
    """

    def __init__(self, layers: int, heads: int, width: int, parts: Mapping[str, int]) -> None:
        need = sum(parts.values())
        if width % heads or width < need:
            raise ValueError(
                f"width is {width}; allowed: multiples of heads = {heads} from {need} on, which "
                "the parts of the stream take"
            )
        self.layers, self.width = layers, width
        self.parts, start = {}, 0
        for name, size in parts.items():
            self.parts[name] = np.eye(width)[:, start : start + size]
            start += size
        self.heads = [[Head(width) for _ in range(heads)] for _ in range(layers)]

    def __getitem__(self, part: str) -> np.ndarray:
        """(width, size): reads this part of the stream; transposed, it writes there."""
        return self.parts[part]

    def build(
        self,
        embed: np.ndarray,
        positions: np.ndarray,
        unembed: np.ndarray,
        noise: float,
        rng: np.random.Generator,
    ) -> tuple[Transformer, dict[str, torch.Tensor]]:
        """Tables (rows, width) and (width, vocabulary) with all heads, turned at random.

        noise: what normal weights added everywhere make of a vector of norm 1, in norm. The stream,
        and each head's queries with its keys and values with its outputs, are turned by a random
        rotation; that changes every weight and nothing that is computed.
        """
        count, d = len(self.heads[0]), self.width
        dh = d // count
        short = max(head.need for layer in self.heads for head in layer)
        if short > dh:
            raise ValueError(f"width is {d}; allowed: {short * count} or more, {short} a head")
        turn = haar(rng, d, d)

        def normal(*shape: int) -> np.ndarray:
            return noise / np.sqrt(shape[-1]) * rng.standard_normal(shape)

        weights = {
            "embed.W_E": (embed + normal(*embed.shape)) @ turn,
            "pos_embed.W_pos": (positions + normal(*positions.shape)) @ turn,
            "unembed.W_U": turn.T @ (unembed + normal(*unembed.shape)),
        }
        for i, layer in enumerate(self.heads):
            sides: dict[str, list[np.ndarray]] = {side: [] for side in "QKVO"}
            for head in layer:
                q, k = _side_by_side(head.scores, d, dh)
                v, o = _side_by_side([(read, write.T) for read, write in head.copies], d, dh)
                first, second = haar(rng, dh, dh), haar(rng, dh, dh)
                sides["Q"].append(turn.T @ (np.sqrt(dh) * q + normal(d, dh)) @ first)
                sides["K"].append(turn.T @ (k + normal(d, dh)) @ first)
                sides["V"].append(turn.T @ (v + normal(d, dh)) @ second)
                sides["O"].append(second.T @ (o.T + normal(dh, d)) @ turn)
            for side, values in sides.items():
                weights[f"blocks.{i}.attn.W_{side}"] = np.stack(values)
        family = Transformer(layers=self.layers, heads=count, width=d, mlp=False, layer_norm=False)
        return family, {name: torch.from_numpy(value) for name, value in weights.items()}


def _side_by_side(
    terms: list[tuple[np.ndarray, np.ndarray]], d: int, dh: int
) -> tuple[np.ndarray, np.ndarray]:
    sides = []
    for side in (0, 1):
        parts = [term[side] for term in terms]
        used = sum(part.shape[1] for part in parts)
        sides.append(np.concatenate([*parts, np.zeros((d, dh - used))], axis=1))
    return sides[0], sides[1]
