"""A transformer whose norms and MLPs have become affine maps: a stream that heads alone mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manifold.coordinates.sequences import check_sequences
from training.families.positions import sinusoids
from training.families.transformer import Transformer
from training.tasks.base import Task

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """x <- (x + sum over heads of A x value write) after, A = causal softmax of x query key^T x^T.

    query (1 / sqrt(head width) in it), key, value: (.., heads, w, k); write: (.., heads, k, w);
    after: (.., w, w), what follows attention and precedes the next layer.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    write: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """x = a token's row plus a position's row, then the layers, then logits = x read.

    rows: (.., d, w), d = vocabulary + n_positions, w = width + 1. The last entry of x is 1 on
    every path's tokens together, since token rows hold 1 there and attention rows sum to 1: it
    carries all biases, exactly. read: (.., w, vocabulary). Leading axes: checkpoints, or none.
    """

    rows: np.ndarray
    layers: tuple[Layer, ...]
    read: np.ndarray

    @property
    def vocabulary(self) -> int:
        return self.read.shape[-1]

    @property
    def n_positions(self) -> int:
        return self.rows.shape[-2] - self.vocabulary

    @property
    def heads(self) -> int:
        return self.layers[0].query.shape[-3]

    @property
    def lead(self) -> tuple[int, ...]:
        """Shape of the leading axes."""
        return self.rows.shape[:-2]

    def logits(self, tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """(.., batch, time, vocabulary) of tokens and positions (batch, time), none hidden."""
        check_sequences(tokens, positions, self.vocabulary, self.n_positions)
        rows = torch.from_numpy(self.rows)
        x = rows[..., tokens, :] + rows[..., self.vocabulary + positions, :]
        time = tokens.shape[1]
        future = torch.full((time, time), -torch.inf, dtype=x.dtype).triu(1)
        for index, layer in enumerate(self.layers):
            sides = np.stack([layer.query, layer.key, layer.value], axis=-4)
            merged = np.moveaxis(sides, -2, -4)  # (.., w, 3, heads, k)
            merged = merged.reshape(*self.lead, x.shape[-1], -1)
            y = _affine(x, merged).unflatten(-1, sides.shape[-4:-2] + sides.shape[-1:])
            query, key, value = y.movedim(-4, -2).unbind(-4)  # (.., batch, heads, time, k)
            z = ((query @ key.mT + future).softmax(-1) @ value).transpose(-3, -2).flatten(-2)
            x = x + _affine(z, layer.write.reshape(*self.lead, -1, x.shape[-1]))
            last = index == len(self.layers) - 1
            x = _affine(x, layer.after @ self.read if last else layer.after)
        return x.numpy()


def fold(
    weights: Arrays,
    family: Transformer,
    task: Task,
    scales: Mapping[str, np.ndarray],
    maps: tuple[np.ndarray, ...],
) -> Stream:
    """The stream of a transformer's weights, each with the same leading axes or none.

    scales: by norm, what stands for 1 / standard deviation, (..); unused without LayerNorm.
    maps: by layer, the affine map (.., w, width) that stands for the MLP; empty without one.
    """
    embedding = weights["embed.W_E"]
    lead, (n, width) = embedding.shape[:-2], embedding.shape[-2:]
    rows = np.zeros((*lead, n + task.n_positions, width + 1))
    rows[..., :n, :width], rows[..., :n, width] = embedding, 1.0
    if family.positions == "learned":
        rows[..., n:, :width] = weights["pos_embed.W_pos"]
    elif family.positions == "sinusoidal":
        places = torch.arange(task.n_positions)[None]
        rows[..., n:, :width] = sinusoids(places, width, torch.float64)[0].numpy()
    folded = _Folded(weights, family, scales)
    return Stream(
        rows=rows,
        layers=tuple(
            folded.layer(index, maps[index] if maps else None) for index in range(family.layers)
        ),
        read=folded.after_norm("ln_final", weights["unembed.W_U"], None),
    )


class _Folded:
    """Affine maps of the stream, (.., w, out): the last row is the bias."""

    def __init__(
        self, weights: Arrays, family: Transformer, scales: Mapping[str, np.ndarray]
    ) -> None:
        self.weights, self.family, self.scales = weights, family, scales

    def after_norm(self, norm: str, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """x -> (scale (x - mean x) gain + shift) weight + bias; weight (.., out) per width."""
        if self.family.layer_norm:
            extra = (1,) * (weight.ndim - self.weights["embed.W_E"].ndim)  # a heads axis
            lead = self.weights["embed.W_E"].shape[:-2]
            width = weight.shape[-2]
            gain = self.weights[f"{norm}.w"].reshape(*lead, *extra, width, 1)
            shift = self.weights[f"{norm}.b"].reshape(*lead, *extra, 1, width) @ weight
            scale = self.scales[norm].reshape(*lead, *extra, 1, 1)
            bias = shift[..., 0, :] if bias is None else shift[..., 0, :] + bias
            weight = gain * weight
            weight = scale * (weight - weight.mean(-2, keepdims=True))
        if bias is None:
            bias = np.zeros((*weight.shape[:-2], weight.shape[-1]))
        return np.concatenate([weight, bias[..., None, :]], axis=-2)

    def layer(self, index: int, mlp: np.ndarray | None) -> Layer:
        block = f"blocks.{index}."
        query, key, value = (
            self.after_norm(
                block + "ln1",
                self.weights[f"{block}attn.W_{side}"],
                self.weights.get(f"{block}attn.b_{side}"),
            )
            for side in "QKV"
        )
        write = self.weights[f"{block}attn.W_O"]
        write = np.concatenate([write, np.zeros((*write.shape[:-1], 1))], axis=-1)
        width = write.shape[-1]
        after = np.broadcast_to(np.eye(width), (*write.shape[:-3], width, width)).copy()
        bias = self.weights.get(f"{block}attn.b_O")
        if bias is not None:
            after[..., -1, :-1] += bias
        if mlp is not None:
            after[..., :-1] += after @ mlp
        return Layer(
            query=query / np.sqrt(query.shape[-1]), key=key, value=value, write=write, after=after
        )


def _affine(x: Tensor, weight: np.ndarray) -> Tensor:
    """x (.., batch, time, in) times weight (.., in, out), one product for each leading index."""
    product = x.flatten(-3, -2) @ torch.from_numpy(weight)
    return product.unflatten(-2, x.shape[-3:-1])
