"""A family whose mechanism is set by hand: where each length keeps its answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from training.families.base import no_tap
from training.families.wiring import Node, Reader, Wiring
from training.tasks.modular_addition import ModularAddition


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The running sum, one-hot, in block 0 (shared) or in a block of its own for each length.

    The state is turned by a random rotation, so that no unit belongs to a block. `gain` is the
    logit of the answer; 0 is a model that knows nothing.
    """

    modulus: int
    blocks: int
    shared: bool
    gain: float = 6.0

    @property
    def frozen(self):
        return ()

    def hook_names(self, time):
        return tuple(f"hook_state.{t}" for t in range(time))

    def wiring(self, params, time):
        states = [Node(name=f"state {t}", tap=f"hook_state.{t}") for t in range(time)]
        reads = [
            Reader(name=f"logits {t}", tap=node.tap, feeds="logits", sources=(node.name,))
            for t, node in enumerate(states)
        ]
        return Wiring(nodes=tuple(states), readers=tuple(reads))

    def forward(self, params, tokens, positions, tap=no_tap):
        total, logits = torch.zeros_like(tokens[:, 0]), []
        rotation = params["rotation"]
        for t in range(tokens.shape[1]):
            total = (total + tokens[:, t]) % self.modulus
            block = 0 if self.shared else t
            place = F.one_hot(block * self.modulus + total, self.blocks * self.modulus)
            state = tap(f"hook_state.{t}", place.to(rotation.dtype) @ rotation)
            read = (state @ rotation.mT).reshape(len(tokens), self.blocks, self.modulus).sum(1)
            logits.append(self.gain * F.pad(read, (0, 2)))
        return torch.stack(logits, 1)


def planted_run(shared: bool, gain: float = 6.0, seed: int = 0):
    """What the circuit rooms ask of a run, around a planted model on Z_4, lengths 4, 5, 6."""
    task = ModularAddition(modulus=4, lengths=(4, 5, 6), format="acot")
    family = Planted(modulus=4, blocks=6, shared=shared, gain=gain)
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(24, 24, generator=generator, dtype=torch.float64)).Q
    checkpoint = SimpleNamespace(params=lambda: {"rotation": rotation}, time=0.0)

    class Run(SimpleNamespace):
        def __getitem__(self, step):
            return checkpoint

    return Run(task=task, family=family, steps=(0,))


@pytest.fixture(name="planted_run")
def planted_run_fixture():
    return planted_run
