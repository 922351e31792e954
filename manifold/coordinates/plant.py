"""A transformer made from chosen coordinates: known truth for whatever reads coordinates back."""

from __future__ import annotations

import numpy as np
import torch

from manifold.coordinates.basis import READOUT, Basis
from manifold.groups.haar import haar
from training.families.transformer import Transformer
from training.tasks.base import generator


def plant(
    basis: Basis, c: np.ndarray, rotation: int | None = None
) -> tuple[Transformer, dict[str, torch.Tensor]]:
    """A transformer, float64, whose effective matrices are those of `basis.matrices(c)`.

    No norm, no MLP, learned positions. Its stream holds each path of the residual in d entries of
    its own; every head copies all paths below it to its own place, and scores and logits read the
    matrices. rotation: seed of a random rotation of the whole stream, which changes every
    parameter and no effective matrix.

    ValueError for a basis in another frame than the transformer's.
    """
    if basis.family != "transformer":
        raise ValueError(
            f"plant: a basis in the transformer frame is needed, got one in {basis.family!r}; "
            f"give invariant_basis(task, 'transformer', ..)"
        )
    d, heads = basis.vocabulary + basis.n_positions, basis.heads
    paths = (1 + heads) ** basis.layers
    head_width = -(-d * paths // heads)
    family = Transformer(
        layers=basis.layers, heads=heads, width=heads * head_width, mlp=False, layer_norm=False
    )
    turn = np.eye(family.width)
    if rotation is not None:
        turn = haar(generator(rotation, *b"plant"), *turn.shape)
    matrices = basis.matrices(c)
    place = np.eye(family.width)[: d * paths] @ turn
    weights = {
        "embed.W_E": place[: basis.vocabulary],
        "pos_embed.W_pos": place[basis.vocabulary : d],
    }
    for layer in range(basis.layers):
        wide = d * (1 + heads) ** layer
        here = place[:wide]
        copy = np.eye(wide, head_width)
        scores = np.sqrt(head_width) * matrices[f"W{layer + 1}"]
        fresh = [place[wide * (1 + h) : wide * (2 + h)] for h in range(heads)]
        weights |= {
            f"blocks.{layer}.attn.W_Q": np.stack([here.T @ s @ copy for s in scores]),
            f"blocks.{layer}.attn.W_K": np.stack([here.T @ copy] * heads),
            f"blocks.{layer}.attn.W_V": np.stack([here.T @ copy] * heads),
            f"blocks.{layer}.attn.W_O": np.stack([copy.T @ to for to in fresh]),
        }
    weights["unembed.W_U"] = place.T @ matrices[READOUT].T
    return family, {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
