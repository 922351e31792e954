"""Stacked training against one nn.Module at a time, on one core, and the way to the machine's peak.

K members of one configuration (seeds apart) take the same batches two ways: as one `Stack`, and
as K modules of plain torch with torch.optim.Adam, one after the other. Rounds alternate, both are
measured in CPU seconds of this process, and the best round counts. Losses must agree to float32
tolerance at every step.

    python benchmarks/stacked_training.py [--json] [--quick] [--cell NAME]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from reference_modules import MODULES
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from training import RunConfig
from training.stack import Member, Stack
from training.tasks import IGNORE, Batch, ModularAddition

LR, BATCH = 3e-3, 64
TOLERANCE = 2e-4
"""Of the losses, relative, after the few dozen steps that are compared."""
TRANSFORMER = {"name": "transformer", "layers": 2, "heads": 2, "width": 32}
CELLS = {
    "dense_ssm d=16": ("acot", {"name": "dense_ssm", "width": 16}, "DenseSSM", 7.0),
    "lstm d=32": ("acot", {"name": "lstm", "width": 32}, "LSTM", 3.0),
    "transformer d=32": ("cot", TRANSFORMER, "Transformer", 2.0),
    "transformer d=32, GPT-2": ("cot", TRANSFORMER | {"activation": "gelu_new"}, "GPT2", None),
    "mamba d=16": ("acot", {"name": "mamba", "width": 16}, "Mamba", None),
}
"""Name: format, family, the module it is held against, the ratio that is asked of it."""
MEMBERS = {"dense_ssm d=16": 24, "lstm d=32": 24}
GROUPS = {
    "matrix products": ("mm", "bmm", "addmm", "baddbmm", "baddbmm_"),
    "copies and gathers": (
        *("copy_", "cat", "stack", "index", "index_select", "gather", "_index_put_impl_"),
        *("index_copy_", "index_add_", "fill_", "zero_", "scatter_", "scatter_add_", "nonzero"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One cell. Seconds are of CPU for one update of all members.

    peak_share: multiply-adds of the products really made, over the machine's peak for a large
    product. product_rate: the same while a product runs. shares: of the stacked update's time.
    """

    cell: str
    members: int
    stacked_seconds: float
    single_seconds: float
    ratio: float
    target: float | None
    loss_gap: float
    gigaflops: float
    peak_share: float
    product_rate: float
    shares: dict[str, float]


def peak(repeats: int = 12, size: int = 1024) -> float:
    """Floating point operations a second of a product of two large matrices, float32."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = min(_seconds(lambda: a @ b) for _ in range(repeats))
    return 2 * size**3 / best


def _seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def batches_of(task: ModularAddition, members: int, steps: int, size: int) -> list[list[Batch]]:
    """[step][member]; each member has data of its own."""
    return [[task.batch(m, k, size, None) for m in range(members)] for k in range(steps)]


class Singles:
    """The same members as modules, each with its optimiser."""

    def __init__(
        self,
        reference: str,
        configs: Sequence[RunConfig],
        weights: Sequence[dict[str, np.ndarray]],
    ) -> None:
        make = MODULES[reference]
        self.modules: list[nn.Module] = []
        for config, values in zip(configs, weights, strict=True):
            params = {name: torch.from_numpy(value.copy()) for name, value in values.items()}
            self.modules.append(make(config.family, config.task, params))
        self.rules = [torch.optim.Adam(m.parameters(), lr=LR) for m in self.modules]

    def step(self, batches: Sequence[Batch]) -> list[float]:
        losses = []
        for module, rule, batch in zip(self.modules, self.rules, batches, strict=True):
            tokens, positions, targets = (
                torch.from_numpy(np.ascontiguousarray(getattr(batch, name), dtype=np.int64))
                for name in ("tokens", "positions", "targets")
            )
            logits = module(tokens, positions)
            loss = functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE
            )
            rule.zero_grad()
            loss.backward()
            rule.step()
            losses.append(loss.item())
        return losses


def measure(cell: str, *, members: int, steps: int, rounds: int, top: float) -> Result:
    form, family, reference, target = CELLS[cell]
    task = ModularAddition(modulus=4, lengths=(4, 5, 6), format=form)
    fields = {"task": task, "family": family, "steps": 1, "optimiser": {"lr": LR}}
    configs = [
        RunConfig.model_validate({**fields, "batch_size": BATCH, "seeds": {"init": i, "data": i}})
        for i in range(members)
    ]
    weights = [
        {n: v.numpy() for n, v in c.family.initialise(task, c.seeds.init, torch.float32).items()}
        for c in configs
    ]
    stack = Stack(
        [Member(config=c, weights=w, optimiser={}) for c, w in zip(configs, weights, strict=True)]
    )
    singles = Singles(reference, configs, weights)
    batches = batches_of(task, members, steps, BATCH)
    gap, count = 0.0, 0
    fast, slow = [], []
    for index in range(rounds):
        one, other = [], []
        fast.append(
            _seconds(lambda o=one, c=count: o.extend(_stacked_round(stack, batches, c))) / steps
        )
        slow.append(_seconds(lambda o=other: o.extend(singles.step(b) for b in batches)) / steps)
        if index == 0:
            gap = _gap(np.array(one), np.array(other))
        count += steps
    if gap > TOLERANCE:
        raise SystemExit(f"{cell}: losses differ by {gap:.1e}, allowed {TOLERANCE:.0e}")
    flops = _operations(stack, batches[0], count + 1)
    shares, in_products = _profile(stack, batches, count + 2)
    return Result(
        cell=cell,
        members=members,
        stacked_seconds=min(fast),
        single_seconds=min(slow),
        ratio=min(slow) / min(fast),
        target=target,
        loss_gap=gap,
        gigaflops=flops / 1e9,
        peak_share=flops / min(fast) / top,
        product_rate=flops / (in_products * min(fast)) / top,
        shares=shares,
    )


def _stacked_round(
    stack: Stack, batches: Sequence[Sequence[Batch]], done: int
) -> list[list[float]]:
    return [stack.step(b, done + i + 1)[0].tolist() for i, b in enumerate(batches)]


def _gap(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest relative difference of losses (steps, members)."""
    return float((np.abs(ours - theirs) / np.maximum(theirs, 1e-2)).max())


def _operations(stack: Stack, batches: Sequence[Batch], step: int) -> int:
    """Floating point operations of the matrix products in one update."""
    with FlopCounterMode(display=False) as counter:
        stack.step(batches, step)
    return counter.get_total_flops()


def _profile(
    stack: Stack, batches: Sequence[Sequence[Batch]], step: int
) -> tuple[dict[str, float], float]:
    """Shares of one update's time by kind of kernel, and that of the products.

    "outside kernels": the interpreter, autograd's bookkeeping, numpy. The profiler reads the wall
    clock, so on a busy machine these shares are rough.
    """
    begin = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as record:
        _stacked_round(stack, batches, step)
    whole = time.perf_counter() - begin
    times = dict.fromkeys([*GROUPS, "elementwise, sums and softmax"], 0.0)
    for event in record.key_averages():
        if event.key.startswith("aten::"):
            leaf = event.key.removeprefix("aten::")
            group = next((g for g, names in GROUPS.items() if leaf in names), None)
            times[group or "elementwise, sums and softmax"] += event.self_cpu_time_total * 1e-6
    shares = {name: value / whole for name, value in times.items()}
    shares["outside kernels"] = max(0.0, 1 - sum(shares.values()))
    return shares, shares["matrix products"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--quick", action="store_true", help="few steps: a check, not a measurement"
    )
    parser.add_argument("--cell", choices=list(CELLS), action="append", help="default: all")
    parser.add_argument(
        "--members", type=int, help="in a stack; default 24, or 16 of the larger ones"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    steps, rounds = (4, 2) if options.quick else (25, 7)
    top = peak()
    results = [
        measure(
            cell,
            members=options.members or MEMBERS.get(cell, 16),
            steps=steps,
            rounds=rounds,
            top=top,
        )
        for cell in options.cell or CELLS
    ]
    if options.json:
        rows = [{name: getattr(r, name) for name in Result.__dataclass_fields__} for r in results]
        print(json.dumps({"peak_gigaflops": top / 1e9, "cells": rows}, indent=1))
        return
    print(f"peak {top / 1e9:.1f} GFLOP/s (1024 x 1024 float32), batch {BATCH}; seconds are of CPU")
    for r in results:
        asked = f" (asked {r.target:g})" if r.target else ""
        print(
            f"{r.cell:24s} {r.members} members x{r.ratio:.2f}{asked}: "
            f"{1e3 * r.stacked_seconds:.2f} ms against {1e3 * r.single_seconds:.2f} ms; "
            f"{100 * r.peak_share:.0f}% of the peak, "
            f"{100 * r.product_rate:.0f}% inside products; losses differ by {r.loss_gap:.0e}"
        )
        print("  " + ", ".join(f"{name} {100 * share:.0f}%" for name, share in r.shares.items()))


if __name__ == "__main__":
    main()
