"""What watching a training loop costs, as a share of its own time.

    python benchmarks/monitor_cost.py [--quick] [--json]

The demo's recall (4 blocks, 8 common and 8 rare tokens, two layers, batch 512) in a plain loop of
SGD, a Monitor called at each step and projecting every 50: CPU seconds of the loop and of the
monitor, and apart from them those that it takes once, before the loop (the basis, and what xarray
imports with its first data set). Exits 1 where the monitor takes 5% or more of the loop.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch

from manifold import Monitor
from training import AttentionOnly
from training.tasks import AssociativeRecall

LIMIT = 0.05
TASK = AssociativeRecall(n_blocks=4, n_common=8, n_rare=8, track_slots=4, f_r=0.4, f_v=0.4)


def run(steps: int, every: int, batch: int = 512) -> dict[str, float]:
    """CPU seconds, of one thread, of the loop alone and of the monitor."""
    family = AttentionOnly(layers=2, heads=1, scale=0.01)
    weights = family.initialise(TASK, 0, torch.float32)
    trained = [v.requires_grad_() for k, v in weights.items() if k not in family.frozen]
    start = time.process_time()
    monitor = Monitor(TASK, family, every=every)
    assert monitor.trajectory.sizes["step"] == 0
    once, spent = time.process_time() - start, 0.0
    start = time.process_time()
    for step in range(steps + 1):
        if step:
            drawn = TASK.batch(0, step, batch, None)
            tokens, positions = torch.from_numpy(drawn.tokens), torch.from_numpy(drawn.positions)
            logits = family.forward_last(weights, tokens, positions)[:, 0]
            answers = torch.from_numpy(drawn.targets[:, -1])
            gradients = torch.autograd.grad(
                torch.nn.functional.cross_entropy(logits, answers), trained
            )
            with torch.no_grad():
                for value, gradient in zip(trained, gradients, strict=True):
                    value.sub_(gradient)
        before = time.process_time()
        monitor(step, weights)
        spent += time.process_time() - before
    loop = time.process_time() - start - spent
    return {
        "steps": steps,
        "every": every,
        "loop_s": loop,
        "once_s": once,
        "monitor_s": spent,
        "share": spent / loop,
        "raised": len(monitor.raised),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    row = run(200 if arguments.quick else 2000, every=50)
    if arguments.json:
        print(json.dumps(row, indent=1))
    else:
        print(
            f"{row['steps']:.0f} steps in {row['loop_s']:.1f} s; watched every {row['every']:.0f}: "
            f"{row['monitor_s']:.2f} s more, {row['share']:.1%}, and {row['once_s']:.2f} s once "
            f"before; {row['raised']:.0f} events raised"
        )
    sys.exit(1 if row["share"] >= LIMIT else 0)


if __name__ == "__main__":
    main()
