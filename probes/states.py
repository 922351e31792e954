"""Reading and editing the state at the final token, for any family."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.families.base import Family, Params, Tap
from training.tasks.base import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place in a forward pass: a hook, and a time index where its value has a time axis."""

    hook: str
    time: int | None

    def read(self, value: Tensor) -> Tensor:
        """The state (batch, width) out of the hook's value."""
        return value if self.time is None else value[:, self.time]

    def write(self, value: Tensor, state: Tensor) -> Tensor:
        """The hook's value with the state replaced."""
        if self.time is None:
            return state
        edited = value.clone()
        edited[:, self.time] = state
        return edited


def final_site(family: Family, time: int, final: int) -> Site:
    """Where the answer of a sequence that ends at index `final` is still a state.

    A recurrent family: its state after the final token (`hook_state.{final}`). A transformer: the
    residual stream of the last block at the final token, after attention has read and before the
    MLP (`hook_resid_mid`), or after the block where there is no MLP (`hook_resid_post`).
    """
    names = set(family.hook_names(time))
    if f"hook_state.{final}" in names:
        return Site(hook=f"hook_state.{final}", time=None)
    for point in ("hook_resid_mid", "hook_resid_post"):
        layers = [int(n.split(".")[1]) for n in names if n.endswith(point)]
        if layers:
            return Site(hook=f"blocks.{max(layers)}.{point}", time=final)
    raise ValueError(
        f"{type(family).__name__} taps neither hook_state.{final} nor a residual stream; "
        f"it taps {sorted(names)[:6]}"
    )


def run_with_tap(family: Family, params: Params, batch: Batch, tap: Tap) -> Tensor:
    """Logits (batch, time, vocabulary) of one member, without gradients."""
    with torch.no_grad():
        return family.forward(
            params, torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions), tap
        )


def read_state(family: Family, params: Params, batch: Batch, site: Site) -> tuple[Tensor, Tensor]:
    """The state (batch, width) at `site`, and the logits of the same run."""
    found: list[Tensor] = []

    def tap(name: str, value: Tensor) -> Tensor:
        if name == site.hook:
            found.append(site.read(value))
        return value

    logits = run_with_tap(family, params, batch, tap)
    return found[0], logits


def run_with_state(
    family: Family, params: Params, batch: Batch, site: Site, state: Tensor
) -> Tensor:
    """Logits when the state at `site` is replaced by `state` (batch, width)."""

    def tap(name: str, value: Tensor) -> Tensor:
        return site.write(value, state) if name == site.hook else value

    return run_with_tap(family, params, batch, tap)
