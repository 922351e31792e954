"""A model of one token whose circuit is known: token -> mover -> finisher -> logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuits.ablation import ablation
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.pair import Pair
from training.families.base import no_tap
from training.families.wiring import Stream
from training.tasks.base import Batch

TRUE = ("embed -> mover", "mover -> finisher", "finisher -> logits")
BACKUP = ("mover -> backup", "backup -> logits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Four places of V in a residual stream. embed writes the token in the first; mover takes it to
    the second, finisher from there to the third, which alone is read at the end, up to 1. idle
    takes it to the fourth. backup does what finisher does; with it either alone is enough.
    """

    tokens: int = 5
    backup: bool = False
    gain: float = 8.0

    @property
    def names(self):
        return ("mover", "idle", "finisher", *(("backup",) if self.backup else ()))

    @property
    def frozen(self):
        return ()

    def initialise(self, task, seed, dtype=torch.float64):
        return {"scale": torch.ones(1, dtype=dtype)}

    def hook_names(self, time):
        sides = [f"{name}_{side}" for name in self.names for side in ("in", "out")]
        return ("embed", *sides, "last")

    def wiring(self, params, time):
        stream = Stream()
        stream.write("embed", "embed")
        for name in self.names:
            stream.read(name, f"{name}_in", name)
            stream.write(name, f"{name}_out")
        stream.read("logits", "last", "logits")
        return stream.wiring()

    def forward(self, params, tokens, positions, tap=no_tap):
        v = self.tokens
        at = {"mover": (0, 1), "idle": (0, 3), "finisher": (1, 2), "backup": (1, 2)}
        one = torch.nn.functional.one_hot(tokens, 4 * v).to(params["scale"].dtype)
        x = tap("embed", one * params["scale"])
        for name in self.names:
            read = tap(f"{name}_in", x).unflatten(-1, (4, v))
            out = torch.zeros_like(read)
            source, target = at[name]
            out[..., target, :] = read[..., source, :]
            x = x + tap(f"{name}_out", out.flatten(-2))
        end = tap("last", x).unflatten(-1, (4, v))[..., 2, :]
        return self.gain * end.clamp(max=1.0)


def toy_patcher(count: int = 12, how: str = "corrupted", **options) -> EdgePatcher:
    """how: what patched edges carry; only with zero is one of two backups enough."""
    family = Toy(**options)
    rng = np.random.default_rng(0)
    clean = rng.integers(0, family.tokens, (count, 1))
    corrupt = (clean + rng.integers(1, family.tokens, clean.shape)) % family.tokens
    batches = [
        Batch(tokens=x, positions=0 * x, targets=x, kind=np.zeros(count, dtype=int))
        for x in (clean, corrupt)
    ]
    params = family.initialise(None, 0)
    pair = Pair(clean=batches[0], corrupt=batches[1], sequences=count, final=0)
    parts = family, params, graph(family, params, 1, 0), pair
    return EdgePatcher(*parts, ablation(*parts, how))
