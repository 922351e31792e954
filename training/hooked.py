"""A family's forward as a TransformerLens model: every tap a HookPoint of the same name.

Importing this file imports transformer_lens, which takes seconds; training never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from training.families import Family


class HookedModel(HookedRootModule):
    """One member with `run_with_cache`, `run_with_hooks` and the rest of HookedRootModule.

    family: whose forward is run. params: name -> tensor, without a member axis; they become
    parameters under their own names (`model.state_dict()["blocks.0.attn.W_Q"]`), those in
    `family.frozen` without a gradient. time: tokens per sequence for which hook points exist at
    first; longer sequences add theirs (Dense-SSM has one per step), shorter ones leave some unused.
    """

    def __init__(self, family: Family, params: Mapping[str, Tensor], *, time: int) -> None:
        super().__init__()
        self.family = family
        self.time = 0
        for name, value in params.items():
            module, leaf = self._parent(name)
            module.register_parameter(
                leaf, nn.Parameter(value, requires_grad=name not in family.frozen)
            )
        self.extend(time)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits (batch, time, vocabulary) of tokens (batch, time).

        positions: as `tokens`, or (time,); None: 0, 1, 2, ... Associative recall needs its own.
        """
        if tokens.ndim != 2:
            raise ValueError(f"tokens have shape {tuple(tokens.shape)}; allowed: (batch, time)")
        self.extend(tokens.shape[1])
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.family.forward(
            dict(self.named_parameters()), tokens, positions.expand(tokens.shape), self._tap
        )

    def extend(self, time: int) -> None:
        """Hook points for sequences of up to `time` tokens."""
        if time <= self.time:
            return
        self.time = time
        known = {name for name, _ in self.named_modules()}
        for name in self.family.hook_names(time):
            if name not in known:
                module, leaf = self._parent(name)
                module.add_module(leaf, HookPoint())
        self.setup()

    def run_with_cache(self, *args: Any, **kwargs: Any) -> Any:
        """As in HookedRootModule; a sequence longer than any before has its hook points cached."""
        self._extend_for(args, kwargs)
        return super().run_with_cache(*args, **kwargs)

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """As in HookedRootModule; hooks of a sequence longer than any before can be named."""
        self._extend_for(args, kwargs)
        return super().run_with_hooks(*args, **kwargs)

    def _extend_for(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        tokens = args[0] if args else kwargs["tokens"]
        self.extend(tokens.shape[-1])

    def _tap(self, name: str, x: Tensor) -> Tensor:
        point = self.hook_dict.get(name)
        if point is None:
            raise ValueError(
                f"{type(self.family).__name__} taps {name!r}, which its hook_names leaves out"
            )
        return point(x)

    def _parent(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds `name`, made where it is missing, and the last part of the name."""
        *path, leaf = name.split(".")
        module: nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        return module, leaf
