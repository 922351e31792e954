"""A causal transformer with GPT-2's layout: pre-LayerNorm, four kinds of positions, MLP or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.families.attention import attend_at, rows_at, seen_by
from training.families.base import Params, Tap, lookup, no_tap, read_out
from training.families.kernels import normalise
from training.families.positions import rotate, rotation, sinusoids
from training.families.wiring import Stream, Wiring
from training.tasks.base import Task

POSITIONS = ("learned", "sinusoidal", "rotary", "none")
ACTIVATIONS = {"gelu": "none", "gelu_new": "tanh"}
"""Names of the MLP's nonlinearity, each with torch's name of its approximation."""
EPSILON = 1e-5
"""Added to the variance in LayerNorm, as in GPT-2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """x <- x + attention(ln1 x), x <- x + mlp(ln2 x) in each layer, then logits = W_U ln_final(x).

    layers, heads, width: head dimension is width / heads.
    mlp: two linear maps with `activation` between, hidden width mlp_factor * width.
    activation: "gelu", exact, or "gelu_new", GPT-2's tanh form (a CPU takes three times as long).
    layer_norm: without it the three norms are the identity and own no parameter.
    positions: "learned" adds a table of the task's positions to the embedding, "sinusoidal" fixed
        waves of norm 1, "rotary" turns queries and keys by the position, so that scores depend on
        differences of positions; "none" leaves order to causality.
    init_std: standard deviation of every matrix at the start; None: 1 / sqrt(fan-in) for what acts
        on the residual, and 1 / sqrt(width) for embeddings. What writes into the residual is
        divided by sqrt(number of writers), as in GPT-2.

    Parameters have TransformerLens names and shapes: embed.W_E (vocabulary, width), pos_embed.W_pos
    (positions, width), blocks.{l}.attn.W_Q, W_K, W_V (heads, width, head), W_O (heads, head,
    width), blocks.{l}.mlp.W_in, W_out, blocks.{l}.ln1.w and .b, ln2, ln_final, unembed.W_U (width,
    vocabulary). Attention and MLP have biases (b_Q, b_K, b_V, b_O, b_in, b_out) unless mlp and
    layer_norm are both off: then the model has no bias at all and its lift to effective matrices
    (theory section 3) is exact. Scores are q.k / sqrt(head dimension). b_K adds the same to all
    scores of a query and so changes nothing, but with rotary positions: its gradient is 0, and set
    to 0 here, since Adam would blow its rounding up to a random walk. With init_std 0.02 and
    gelu_new this is GPT-2 with an untied head, its start included. A token with position id -1 is
    seen by itself alone.
    """

    layers: int
    heads: int
    width: int
    mlp: bool = True
    mlp_factor: int = 4
    layer_norm: bool = True
    positions: str = "learned"
    activation: str = "gelu"
    init_std: float | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("Transformer: " + "; ".join(problems))

    def _problems(self) -> Iterator[str]:
        whole = True
        for name in ("layers", "heads", "width", "mlp_factor"):
            if getattr(self, name) < 1:
                whole = False
                yield f"{name}: got {getattr(self, name)}, allowed 1 or more"
        if whole and self.width % self.heads:
            yield f"width: got {self.width}, allowed multiples of heads = {self.heads}"
        elif whole and self.positions == "rotary" and self.width // self.heads % 2:
            allowed = f"even multiples of heads = {self.heads} with rotary positions"
            yield f"width: got {self.width}, allowed {allowed}"
        if self.positions == "sinusoidal" and self.width % 2:
            yield f"width: got {self.width}, allowed even ones with sinusoidal positions"
        for name, allowed in (("positions", POSITIONS), ("activation", tuple(ACTIVATIONS))):
            if getattr(self, name) not in allowed:
                yield f"{name}: got {getattr(self, name)!r}, allowed {', '.join(allowed)}"
        if self.init_std is not None and self.init_std < 0:
            yield f"init_std: got {self.init_std}, allowed 0 or more, or None"

    @property
    def frozen(self) -> tuple[str, ...]:
        return ()

    @property
    def hides(self) -> bool:
        """Tokens with position id -1 are hidden from the others."""
        return True

    @property
    def any_length(self) -> bool:
        """Whether longer sequences than the task's can be run; a table of positions ends."""
        return self.positions != "learned"

    def initialise(self, task: Task, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        writers = self.layers * (2 if self.mlp else 1)
        params: dict[str, Tensor] = {}
        for name, shape in self._shapes(task).items():
            leaf = name.rsplit(".", 1)[1]
            if leaf == "w":
                params[name] = torch.ones(shape, dtype=dtype)
            elif leaf.startswith("b"):
                params[name] = torch.zeros(shape, dtype=dtype)
            else:
                std = self.init_std
                if std is None:
                    std = self._fan_in(leaf) ** -0.5
                if leaf in ("W_O", "W_out"):
                    std /= writers**0.5
                values = torch.randn(shape, generator=draw, dtype=torch.float64) * std
                params[name] = values.to(dtype)
        return params

    def forward(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap = no_tap
    ) -> Tensor:
        return self._logits(params, tokens, positions, tap, None)

    def forward_at(self, params: Params, tokens: Tensor, positions: Tensor, at: Tensor) -> Tensor:
        """Logits at the tokens `at` of each of K members, (K, 1, count, vocabulary).

        at: (K, batch * n), indices into a member's batch * time tokens, n of each sequence in
        turn. From the queries of the last attention on nothing else is computed.
        """
        return self._logits(params, tokens, positions, no_tap, at)

    def _logits(
        self, params: Params, tokens: Tensor, positions: Tensor, tap: Tap, at: Tensor | None
    ) -> Tensor:
        seen = seen_by(positions, params["embed.W_E"].dtype)
        positions = positions.clamp(min=0)
        x = tap("hook_embed", lookup(params["embed.W_E"], tokens))
        if self.positions == "learned":
            x = x + tap("hook_pos_embed", lookup(params["pos_embed.W_pos"], positions))
        elif self.positions == "sinusoidal":
            x = x + tap("hook_pos_embed", sinusoids(positions, self.width, x.dtype))
        turn = None
        if self.positions == "rotary":
            cos, sin = rotation(positions, self.width // self.heads, x.dtype)
            turn = cos.unsqueeze(-2), sin.unsqueeze(-2)
        for layer in range(self.layers):
            block = f"blocks.{layer}."
            x = tap(block + "hook_resid_pre", x)
            here = at if layer == self.layers - 1 else None
            x = rows_at(x, here) + self._attention(params, block, x, turn, seen, tap, here)
            if self.mlp:
                x = tap(block + "hook_resid_mid", x)
                x = x + self._mlp(params, block, x, tap)
            x = tap(block + "hook_resid_post", x)
        weight, bias = self._folded(params, "ln_final", params["unembed.W_U"], None)
        return read_out(self._norm(x), weight, bias)

    def hook_names(self, time: int) -> tuple[str, ...]:
        added = self.positions in ("learned", "sinusoidal")
        names = ["hook_embed"] + ["hook_pos_embed"] * added
        turned = ["rot_q", "rot_k"] * (self.positions == "rotary")
        attention = ["q", "k", "v", *turned, "attn_scores", "pattern", "z", "result"]
        for layer in range(self.layers):
            parts = ["hook_resid_pre", *(f"hook_{side}_input" for side in "qkv")]
            parts += [*(f"attn.hook_{part}" for part in attention), "hook_attn_out"]
            if self.mlp:
                parts += ["hook_resid_mid", "hook_mlp_in", "mlp.hook_post", "hook_mlp_out"]
            names += [f"blocks.{layer}.{part}" for part in [*parts, "hook_resid_post"]]
        return tuple(names)

    def wiring(self, params: Params, time: int) -> Wiring:
        """Embeddings, heads and MLPs; every head reads three times (q, k, v)."""
        stream = Stream()
        stream.write("embed", "hook_embed")
        if self.positions in ("learned", "sinusoidal"):
            stream.write("positions", "hook_pos_embed")
        for layer in range(self.layers):
            stream.attend(layer, [0] * self.heads)
            if self.mlp:
                name = f"MLP {layer}"
                stream.read(name, f"blocks.{layer}.hook_mlp_in", name)
                stream.write(name, f"blocks.{layer}.hook_mlp_out")
        stream.read("logits", f"blocks.{self.layers - 1}.hook_resid_post", "logits")
        return stream.wiring()

    @property
    def _biased(self) -> bool:
        return self.mlp or self.layer_norm

    def _fan_in(self, leaf: str) -> int:
        return self.width * (self.mlp_factor if leaf == "W_out" else 1)

    def _shapes(self, task: Task) -> dict[str, tuple[int, ...]]:
        """Every parameter's shape, in the order in which they are drawn."""
        d, h, dh = self.width, self.heads, self.width // self.heads
        hidden = self.mlp_factor * d
        shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (task.vocabulary, d)}
        if self.positions == "learned":
            shapes["pos_embed.W_pos"] = (task.n_positions, d)
        for layer in range(self.layers):
            block = f"blocks.{layer}."
            for side in "QKV":
                shapes[f"{block}attn.W_{side}"] = (h, d, dh)
                if self._biased:
                    shapes[f"{block}attn.b_{side}"] = (h, dh)
            shapes[f"{block}attn.W_O"] = (h, dh, d)
            if self._biased:
                shapes[f"{block}attn.b_O"] = (d,)
            if self.mlp:
                shapes |= {f"{block}mlp.W_in": (d, hidden), f"{block}mlp.b_in": (hidden,)}
                shapes |= {f"{block}mlp.W_out": (hidden, d), f"{block}mlp.b_out": (d,)}
            for norm in ["ln1", "ln2"] if self.mlp else ["ln1"]:
                if self.layer_norm:
                    shapes |= {f"{block}{norm}.w": (d,), f"{block}{norm}.b": (d,)}
        if self.layer_norm:
            shapes |= {"ln_final.w": (d,), "ln_final.b": (d,)}
        return shapes | {"unembed.W_U": (d, task.vocabulary)}

    def _norm(self, x: Tensor) -> Tensor:
        return normalise(x, EPSILON) if self.layer_norm else x

    def _folded(
        self, params: Params, norm: str, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """A linear map after a norm with the norm's gain and shift taken into it:
        (w * n + b) W + c = n (w W) + (b W + c)."""
        if not self.layer_norm:
            return weight, bias
        shift = (params[f"{norm}.b"].unsqueeze(-2) @ weight).squeeze(-2)
        bias = shift if bias is None else shift + bias
        return params[f"{norm}.w"].unsqueeze(-1) * weight, bias

    def _attention(
        self,
        params: Params,
        block: str,
        x: Tensor,
        turn: tuple[Tensor, Tensor] | None,
        seen: Tensor,
        tap: Tap,
        at: Tensor | None,
    ) -> Tensor:
        """What the heads write, at the tokens `at`, from the residual (..., batch, time, width)."""
        name = block + "attn."
        merged = torch.cat([params[f"{name}W_{side}"] for side in "QKV"], dim=-3)
        bias = None
        if self._biased:
            b_q, b_k, b_v = (params[f"{name}b_{side}"] for side in "QKV")
            if turn is None:
                b_k = b_k.detach() + 0 * b_k
            bias = torch.cat([b_q, b_k, b_v], dim=-2).flatten(-2)
        merged = merged.transpose(-3, -2).flatten(-2)
        merged, bias = self._folded(params, block + "ln1", merged, bias)
        d, shape = self.width, (self.heads, self.width // self.heads)
        write = params[f"{name}W_O"]
        b_O = params[f"{name}b_O"] if self._biased else None
        if tap is no_tap:
            n = self._norm(x)
            b_q, b_kv = (None, None) if bias is None else (bias[..., :d], bias[..., d:])
            q = _linear(rows_at(n, at), merged[..., :d], b_q).unflatten(-1, shape)
            kv = _linear(n, merged[..., d:], b_kv).unflatten(-1, (2, *shape))
            z = attend_at(q, kv, turn, seen, at)
            return _linear(z.flatten(-2), write.flatten(-3, -2), b_O)
        qkv = self._sides(block, x, merged, bias, tap)
        z = self._pattern_by_pattern(name, qkv, turn, seen, tap)
        out = tap(f"{name}hook_result", torch.einsum("...bthe,...hed->...bthd", z, write))
        out = out.sum(-2) if b_O is None else out.sum(-2) + _spread(b_O)
        return tap(block + "hook_attn_out", out)

    def _sides(
        self, block: str, x: Tensor, weight: Tensor, bias: Tensor | None, tap: Tap
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v (..., time, heads, head) of what each head reads; heads that all read the
        residual itself share its norm and one product."""
        shape = (self.heads, self.width // self.heads)
        whole = x.unsqueeze(-2).expand(*x.shape[:-1], self.heads, self.width)
        read = [tap(f"{block}hook_{side}_input", whole) for side in "qkv"]
        if all(one is whole for one in read):
            sides = _linear(self._norm(x), weight, bias).unflatten(-1, (3, *shape))
            q, k, v = sides.unbind(-3)
            return q, k, v
        apart = weight.unflatten(-1, (3, *shape)).unbind(-3)
        sides = [
            torch.einsum("...bthd,...dhe->...bthe", self._norm(one), part)
            for one, part in zip(read, apart, strict=True)
        ]
        if bias is not None:
            each = bias.unflatten(-1, (3, *shape)).unbind(-3)
            sides = [
                side + part.unsqueeze(-3).unsqueeze(-3)
                for side, part in zip(sides, each, strict=True)
            ]
        q, k, v = sides
        return q, k, v

    def _pattern_by_pattern(
        self,
        name: str,
        qkv: tuple[Tensor, Tensor, Tensor],
        turn: tuple[Tensor, Tensor] | None,
        seen: Tensor,
        tap: Tap,
    ) -> Tensor:
        """As `attend`, with every value handed to its hook."""
        q, k, v = (tap(f"{name}hook_{side}", third) for side, third in zip("qkv", qkv, strict=True))
        if turn is not None:
            q = tap(f"{name}hook_rot_q", rotate(q, turn))
            k = tap(f"{name}hook_rot_k", rotate(k, turn))
        q, k, v = (side.transpose(-3, -2) for side in (q, k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        hidden = (seen == 0).unsqueeze(-3)
        scores = tap(f"{name}hook_attn_scores", scores.masked_fill(hidden, -torch.inf))
        pattern = tap(f"{name}hook_pattern", scores.softmax(-1))
        return tap(f"{name}hook_z", (pattern @ v).transpose(-3, -2))

    def _mlp(self, params: Params, block: str, x: Tensor, tap: Tap) -> Tensor:
        name = block + "mlp."
        weight, bias = params[name + "W_in"], params[name + "b_in"]
        weight, bias = self._folded(params, block + "ln2", weight, bias)
        pre = _linear(self._norm(tap(block + "hook_mlp_in", x)), weight, bias)
        post = tap(
            name + "hook_post", functional.gelu(pre, approximate=ACTIVATIONS[self.activation])
        )
        out = _linear(post, params[name + "W_out"], params[name + "b_out"])
        return tap(block + "hook_mlp_out", out)


def _spread(vector: Tensor) -> Tensor:
    """A parameter vector (..., width) set against (..., batch, time, width)."""
    return vector.unsqueeze(-2).unsqueeze(-2)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., batch, time, in) times weight (..., in, out), in one product per member."""
    flat = x.flatten(-3, -2)
    if bias is None:
        y = flat @ weight
    elif flat.ndim == 2:
        y = torch.addmm(bias, flat, weight)
    else:
        y = torch.baddbmm(bias.unsqueeze(-2), flat, weight)
    return y.unflatten(-2, x.shape[-3:-1])
