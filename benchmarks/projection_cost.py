"""How long it takes to project checkpoints of transformers, and how much memory a large one takes.

    python benchmarks/projection_cost.py [--quick] [--json]

Checkpoints of a two-layer transformer of width 64 (16 tokens, 20 positions) are written by a short
training run and projected from their files, as `project` does by default and with rebuilt=True.
Printed beside the seconds: their ratio to reading and checking the same files. Then one model of 4
layers, 8 heads, width 512 and vocabulary 512 in coordinates of the first orders, in a process of
its own, with the peak of its memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time

from manifold import project
from training import RunConfig, open_run, train
from training.run import Run

LIMIT_SECONDS = 30.0
LIMIT_BYTES = 2e9
RECALL = {
    "name": "associative_recall",
    "n_blocks": 4,
    "n_common": 8,
    "n_rare": 8,
    "track_slots": 4,
    "f_r": 0.4,
    "f_v": 0.4,
}
CELLS = {
    "attention only": {"mlp": False, "layer_norm": False},
    "LayerNorm": {"mlp": False, "layer_norm": True},
    "LayerNorm and MLP": {"mlp": True, "layer_norm": True},
}
LARGE = """
import time, resource, torch
from manifold import invariant_basis, lift, remove_gauge
from training.families.transformer import Transformer
from training.tasks import AssociativeRecall
task = AssociativeRecall(n_blocks=8, n_common=256, n_rare=256, track_slots=4, f_r=.4, f_v=.4)
family = Transformer(layers=4, heads=8, width=512, mlp=False, layer_norm=False)
params = family.initialise(task, 0, torch.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
factors = lift(params, family, task).factored
lifted = time.perf_counter() - start
for order in {orders}:
    start = time.perf_counter()
    basis = invariant_basis(task, "transformer", layers=4, heads=8, order=order)
    made = time.perf_counter() - start
    start = time.perf_counter()
    free = remove_gauge(basis, factors)
    c = basis.coordinates(free)
    taken = time.perf_counter() - start
    left_out = basis.left_out(free)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    shares = left_out["W4"], left_out["Wbar"]
    print(order, basis.dim, lifted, made, taken, *shares, before * 1024, peak)
"""


def checkpoints(root: str, family: dict, count: int) -> Run:
    config = RunConfig(
        **{
            "task": RECALL,
            "family": {"name": "transformer", "layers": 2, "heads": 1, "width": 64, **family},
            "optimiser": {"name": "adamw", "lr": 1e-3},
            "steps": count - 1,
            "batch_size": 16,
            "eval_every": count,
            "eval_size": 16,
            "checkpoints": {"every": 1},
        }
    )
    return open_run(train(config, root=root).path)


def reading(run: Run) -> float:
    start = time.perf_counter()
    for step in run.steps:
        _ = run[step].weights
    return time.perf_counter() - start


def projecting(run: Run, rebuilt: bool) -> float:
    start = time.perf_counter()
    project(open_run(run.path), rebuilt=rebuilt)
    return time.perf_counter() - start


def large(orders: list[int]) -> list[dict]:
    """Coordinates of a large model in a process of its own."""
    code = LARGE.replace("{orders}", str(orders))
    lines = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    names = "order coordinates lift_s basis_s project_s left_out_W4 left_out_Wbar before peak"
    return [dict(zip(names.split(), map(float, line.split()), strict=True)) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="50 checkpoints, no large model")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    count = 50 if arguments.quick else 500
    rows: dict = {"checkpoints": count, "cells": {}, "large": []}
    for name, family in CELLS.items():
        with tempfile.TemporaryDirectory() as root:
            run = checkpoints(root, family, count)
            read = reading(run)
            plain, whole = projecting(run, False), projecting(run, True)
        rows["cells"][name] = {"read_s": read, "project_s": plain, "rebuilt_s": whole}
        if not arguments.json:
            print(
                f"{name}: {count} checkpoints projected in {plain:.1f} s (x{plain / read:.1f} of "
                f"reading them), with rebuilt=True in {whole:.1f} s (x{whole / read:.1f})"
            )
    if not arguments.quick:
        rows["large"] = large([0, 1, 2])
        for row in rows["large"] if not arguments.json else []:
            print(
                f"4 layers, 8 heads, width and vocabulary 512, order {row['order']:.0f}: "
                f"{row['coordinates']:.0f} coordinates in {row['project_s']:.1f} s, peak memory "
                f"{row['peak'] / 1e9:.2f} GB; left out of W4 {row['left_out_W4']:.2f} and of Wbar "
                f"{row['left_out_Wbar']:.2f} of the squared norm"
            )
    rows["peak_of_this"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if arguments.json:
        print(json.dumps(rows, indent=1))
    slow = [c for c in rows["cells"].values() if c["project_s"] * 500 / count > LIMIT_SECONDS]
    big = [row for row in rows["large"] if row["peak"] > LIMIT_BYTES]
    sys.exit(1 if slow or big else 0)


if __name__ == "__main__":
    main()
