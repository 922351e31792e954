"""Mamba: a diagonal recurrence whose step size, input and output maps are chosen by the token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from training.families.base import Params, Tap, lookup, no_tap
from training.families.wiring import Node, Reader, Wiring
from training.tasks.base import Task

EPSILON = 1e-5
"""Added to the mean square in each norm, as in Mamba."""
STEP_RANGE = (1e-3, 0.1)
"""Step sizes at the start are log-uniform between these."""
EMBEDDING_STD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """x <- x + mixer(norm x) in each layer, logits = W_U norm_f(x) (arXiv 2312.00752, section 3).

    The mixer, E = expand * width channels: (u, z) = W_in x; u <- silu(causal convolution of u, one
    kernel of `conv` steps per channel); (d, B_t, C_t) = W_x u; step = softplus(W_dt d + b_dt);

    s_t = exp(step A) s_(t-1) + step u_t B_t^T, A = -exp(A_log), s (E, state), zero at the start;
    y_t = s_t C_t + D u_t, and W_out (y silu(z)) is written.

    layers, width: of the residual stream. state: numbers kept per channel. dt_rank: width of d,
    None for width / 16 rounded up. No positions.

    Parameters have the names and shapes of Hugging Face's MambaForCausalLM with an untied head:
    backbone.embeddings.weight (vocabulary, width), backbone.layers.{l}.norm.weight and
    .mixer.{A_log, D, conv1d.weight, conv1d.bias, in_proj.weight, x_proj.weight, dt_proj.weight,
    dt_proj.bias, out_proj.weight}, backbone.norm_f.weight, lm_head.weight (vocabulary, width);
    the logits are those of that model. The start is that model's too, but for in_proj, x_proj and
    lm_head, which are uniform within 1 / sqrt(fan-in) as in nn.Linear and the authors' own code
    (there a normal of deviation 0.1 whatever the width).
    Everything is computed in the dtype of the parameters; float32 is what the family is meant for
    (there is no half-precision path), float64 serves tests.

    Hooks: hook_embed, then for each layer l blocks.{l}.hook_resid_pre, hook_state.{t} (batch, E,
    state) after token t, from which the next step starts, and hook_resid_post.
    """

    width: int
    layers: int = 1
    state: int = 16
    expand: int = 2
    conv: int = 4
    dt_rank: int | None = None

    def __post_init__(self) -> None:
        names = ("width", "layers", "state", "expand", "conv", "dt_rank")
        values = {name: getattr(self, name) for name in names}
        problems = [
            f"{name}: got {value}, allowed 1 or more"
            for name, value in values.items()
            if value is not None and value < 1
        ]
        if problems:
            raise ValueError("Mamba: " + "; ".join(problems))

    @property
    def frozen(self) -> tuple[str, ...]:
        return ()

    @property
    def any_length(self) -> bool:
        return True

    @property
    def _rank(self) -> int:
        return self.dt_rank or math.ceil(self.width / 16)

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        d, v, inner, rank = self.width, task.vocabulary, self.expand * self.width, self._rank

        def uniform(*shape: int, limit: float) -> Tensor:
            return (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * limit

        low, high = map(math.log, STEP_RANGE)
        embedding = torch.randn((v, d), generator=draw, dtype=torch.float64) * EMBEDDING_STD
        params = {"backbone.embeddings.weight": embedding}
        for layer in range(self.layers):
            step = uniform(inner, limit=0.5).add(0.5).mul(high - low).add(low).exp()
            rates = torch.arange(1, self.state + 1, dtype=torch.float64).log()
            mixer = {
                "A_log": rates.repeat(inner, 1),
                "D": torch.ones(inner, dtype=torch.float64),
                "conv1d.weight": uniform(inner, 1, self.conv, limit=self.conv**-0.5),
                "conv1d.bias": torch.zeros(inner, dtype=torch.float64),
                "in_proj.weight": uniform(2 * inner, d, limit=d**-0.5),
                "x_proj.weight": uniform(rank + 2 * self.state, inner, limit=inner**-0.5),
                "dt_proj.weight": uniform(inner, rank, limit=rank**-0.5),
                "dt_proj.bias": step + torch.log(-torch.expm1(-step)),
                "out_proj.weight": uniform(d, inner, limit=inner**-0.5),
            }
            name = f"backbone.layers.{layer}."
            params[name + "norm.weight"] = torch.ones(d, dtype=torch.float64)
            params |= {f"{name}mixer.{leaf}": value for leaf, value in mixer.items()}
        params["backbone.norm_f.weight"] = torch.ones(d, dtype=torch.float64)
        params["lm_head.weight"] = uniform(v, d, limit=d**-0.5)
        return {name: value.to(dtype) for name, value in params.items()}

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        x = tap("hook_embed", lookup(params["backbone.embeddings.weight"], tokens))
        for layer in range(self.layers):
            name, block = f"backbone.layers.{layer}.", f"blocks.{layer}."
            x = tap(block + "hook_resid_pre", x)
            seen = _norm(tap(block + "hook_mixer_in", x), params[name + "norm.weight"])
            out = tap(block + "hook_mixer_out", self._mixer(params, name, block, seen, tap))
            x = tap(block + "hook_resid_post", x + out)
        return _linear(_norm(x, params["backbone.norm_f.weight"]), params["lm_head.weight"])

    def hook_names(self, time: int) -> tuple[str, ...]:
        sides = ("state_in", "state", "state_out")
        states = [f"hook_{side}.{t}" for t in range(time) for side in sides]
        parts = ["hook_resid_pre", "hook_mixer_in", *states, "hook_mixer_out", "hook_resid_post"]
        blocks = [f"blocks.{layer}.{part}" for layer in range(self.layers) for part in parts]
        return ("hook_embed", *blocks)

    def wiring(self, params: Params, time: int) -> Wiring:
        """Embedding, mixers, and in each mixer its states (E, N) step by step.

        What a mixer reads of the residual also enters its states; that is one reader, the mixer's.
        """
        nodes, readers, written = [Node(name="embed", tap="hook_embed")], [], ["embed"]
        for layer in range(self.layers):
            block, mixer = f"blocks.{layer}.", f"mixer {layer}"
            readers.append(
                Reader(name=mixer, tap=f"{block}hook_mixer_in", feeds=mixer, sources=tuple(written))
            )
            for t in range(time):
                state = f"state {layer}.{t}"
                if t:
                    tap, before = f"{block}hook_state_in.{t}", (f"state {layer}.{t - 1}",)
                    readers.append(
                        Reader(name=f"{state} state", tap=tap, feeds=state, sources=before)
                    )
                nodes.append(Node(name=state, tap=f"{block}hook_state.{t}"))
                tap = f"{block}hook_state_out.{t}"
                readers.append(
                    Reader(name=f"{mixer} state {t}", tap=tap, feeds=mixer, sources=(state,))
                )
            nodes.append(Node(name=mixer, tap=f"{block}hook_mixer_out"))
            written.append(mixer)
        tap = f"blocks.{self.layers - 1}.hook_resid_post"
        readers.append(Reader(name="logits", tap=tap, feeds="logits", sources=tuple(written)))
        return Wiring(nodes=tuple(nodes), readers=tuple(readers))

    def _mixer(self, params: Params, name: str, block: str, x: Tensor, tap: Tap) -> Tensor:
        """What the mixer writes, from the normalised residual x (..., batch, time, width)."""
        p = {leaf: params[f"{name}mixer.{leaf}"] for leaf in _LEAVES}
        u, gate = _linear(x, p["in_proj.weight"]).chunk(2, dim=-1)
        u = functional.silu(_convolve(u, p["conv1d.weight"].squeeze(-2), p["conv1d.bias"]))
        read = _linear(u, p["x_proj.weight"])
        low, enter, leave = read.split([self._rank, self.state, self.state], dim=-1)
        step = functional.softplus(_linear(low, p["dt_proj.weight"]) + _spread(p["dt_proj.bias"]))
        rate = -p["A_log"].exp()
        if tap is no_tap:
            seen: Tensor = _Scan.apply(step, rate, u, enter, leave)  # type: ignore[assignment]
        else:
            seen = self._step_by_step(step, rate, u, enter, leave, block, tap)
        y = seen + _spread(p["D"]) * u
        return _linear(y * functional.silu(gate), p["out_proj.weight"])

    def _step_by_step(
        self,
        step: Tensor,
        rate: Tensor,
        u: Tensor,
        enter: Tensor,
        leave: Tensor,
        block: str,
        tap: Tap,
    ) -> Tensor:
        """s_t C_t (..., batch, time, E), each state handed to its hook."""
        decay = torch.exp(step[..., None] * _spread(rate, before=-3))
        enters = (step * u)[..., None] * enter[..., None, :]
        state = torch.zeros_like(enters.select(-3, 0))
        seen = []
        pairs = zip(decay.unbind(-3), enters.unbind(-3), leave.unbind(-2), strict=True)
        for t, (keep, add, out) in enumerate(pairs):
            state = keep * tap(f"{block}hook_state_in.{t}", state)
            state = tap(f"{block}hook_state.{t}", state + add)
            seen.append((tap(f"{block}hook_state_out.{t}", state) @ out[..., None]).squeeze(-1))
        return torch.stack(seen, dim=-2)


_LEAVES = (
    *("A_log", "D", "conv1d.weight", "conv1d.bias", "in_proj.weight"),
    *("x_proj.weight", "dt_proj.weight", "dt_proj.bias", "out_proj.weight"),
)


def _spread(parameter: Tensor, before: int = -2) -> Tensor:
    """A parameter with axes for batch and time put in before its own, which is the last one.

    before = -3 for a parameter with two axes of its own.
    """
    return parameter.unsqueeze(before).unsqueeze(before)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., batch, time, in) times weight (..., out, in), in one product per member.

    With one input it is none: the gradient of such a product would be one of matrix and vector,
    which for a single member is rounded otherwise than for several.
    """
    if weight.shape[-1] == 1:
        return x * _spread(weight.squeeze(-1))
    return (x.flatten(-3, -2) @ weight.mT).unflatten(-2, x.shape[-3:-1])


def _norm(x: Tensor, gain: Tensor) -> Tensor:
    """x over its root mean square along the last axis, times a gain (..., width)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * _spread(gain)


def _convolve(u: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Each channel's causal convolution: sum_j kernel[.., j] u_(t - J + 1 + j), zero before 0.

    u (..., batch, time, E), kernel (..., E, J), bias (..., E).
    """
    time, reach = u.shape[-2], kernel.shape[-1]
    padded = functional.pad(u, (0, 0, reach - 1, 0))
    taps = _spread(kernel, before=-3).unbind(-1)
    out = _spread(bias)
    for j, tap in enumerate(taps):
        out = out + padded.narrow(-2, j, time) * tap
    return out


class _Scan(Function):
    """s_t C_t of the recurrence, with its gradient written out: what is kept is the decays and
    states alone, and a step works on memory that is still in the cache."""

    @staticmethod
    def forward(
        ctx: Any, step: Tensor, rate: Tensor, u: Tensor, enter: Tensor, leave: Tensor
    ) -> Tensor:
        """step, u (..., batch, time, E), rate (..., E, S), enter, leave (..., batch, time, S)."""
        rates = rate.unsqueeze(-3)
        time, size = u.shape[-2], (*u.shape[:-2], *rate.shape[-2:])
        decays, states = u.new_empty(time, *size), u.new_zeros(time + 1, *size)
        adds, seen = (step * u).unsqueeze(-1), []
        for t in range(time):
            torch.mul(step[..., t, :, None], rates, out=decays[t]).exp_()
            torch.mul(decays[t], states[t], out=states[t + 1])
            states[t + 1].addcmul_(adds[..., t, :, :], enter[..., t, None, :])
            seen.append((states[t + 1] * leave[..., t, None, :]).sum(-1))
        ctx.save_for_backward(step, rate, u, enter, leave, decays, states)
        return torch.stack(seen, dim=-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        step, rate, u, enter, leave, decays, states = ctx.saved_tensors
        (g,) = gradients
        rates = rate.unsqueeze(-3)
        d_step, d_add = torch.empty_like(step), torch.empty_like(step)
        d_enter, d_leave = torch.empty_like(enter), torch.empty_like(leave)
        d_rate, ds = torch.zeros_like(rate), torch.zeros_like(states[0])
        added = step * u
        for t in reversed(range(len(decays))):
            out = g[..., t, :, None]
            d_leave[..., t, :] = (out.mT @ states[t + 1]).squeeze(-2)
            ds.addcmul_(out, leave[..., t, None, :])
            d_add[..., t, :] = (ds * enter[..., t, None, :]).sum(-1)
            d_enter[..., t, :] = (added[..., t, None, :] @ ds).squeeze(-2)
            ds.mul_(decays[t])
            through = ds * states[t]
            d_step[..., t, :] = (through * rates).sum(-1)
            d_rate += through.mul_(step[..., t, :, None]).sum(-3)
        return d_step.addcmul_(d_add, u), d_rate, d_add.mul_(step), d_enter, d_leave
