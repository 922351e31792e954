"""What predicting a training run by the reduced field costs, against training it.

    python benchmarks/field_cost.py [--quick] [--json]

Recall from zero on the exact population, 2 layers, rate 1, batch 256, to t = 2000. The prediction
is one integration of the field at the horizon (its construction included). Of the training a few
steps are measured and multiplied by their number: every step costs the same. CPU seconds, one
thread. The embedding's width d is tokens and positions together; the sequence stays as long.
Then the exact flow of 1-hop induction to t = 3000.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from manifold import reduced_field
from training.families.attention_only import AttentionOnly
from training.tasks import AssociativeRecall, KHop

LIMITS = {128: 1 / 20, 512: 1 / 100}
"""Prediction over training, at each width."""
LIMIT_SECONDS = 1.0
STEPS, BATCH, RATE = 2000, 256, 1.0


def recall(width: int) -> AssociativeRecall:
    tokens = width - 16  # 4 tracks of 4 slots
    return AssociativeRecall(
        n_blocks=3, n_common=tokens // 2, n_rare=tokens // 2, track_slots=4, f_r=0.3, f_v=0.3
    )


def training_seconds(task: AssociativeRecall, steps: int) -> float:
    """CPU seconds of one step of SGD on the full matrices in float32, sampling included."""
    model = AttentionOnly(layers=2, scale=0.0)
    params = model.initialise(task, 0, torch.float32)
    trained = [name for name in params if name not in model.frozen]
    params = {name: p.requires_grad_(name in trained) for name, p in params.items()}

    def step(k: int) -> None:
        batch = task.batch(seed=0, k=k, size=BATCH)
        tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
        logits = model.forward_last(params, tokens, positions)[:, 0]
        loss = cross_entropy(logits, torch.from_numpy(batch.targets[:, -1]))
        slopes = torch.autograd.grad(loss, [params[name] for name in trained])
        with torch.no_grad():
            for name, slope in zip(trained, slopes, strict=True):
                params[name].sub_(slope, alpha=RATE)

    step(0)
    start = time.process_time()
    for k in range(1, steps + 1):
        step(k)
    return (time.process_time() - start) / steps


def prediction_seconds(task: AssociativeRecall) -> tuple[float, str]:
    start = time.process_time()
    field = reduced_field(task)
    field.integrate(np.zeros(field.dim), [STEPS * RATE], rtol=1e-4)
    return time.process_time() - start, str(field)


def measure(quick: bool) -> dict:
    torch.set_num_threads(1)
    found: dict = {}
    for width in (128,) if quick else LIMITS:
        task = recall(width)
        predicted, field = prediction_seconds(task)
        trained = STEPS * training_seconds(task, 3 if quick else 10)
        found[f"d={width}"] = {
            "field": field,
            "prediction_seconds": predicted,
            "training_seconds": trained,
            "ratio": predicted / trained,
            "limit": LIMITS[width],
        }
    hop = reduced_field(KHop(hops=1, n_tokens=5))
    start = time.process_time()
    hop.integrate(np.zeros(hop.dim), [3000.0])
    found["1-hop to t=3000"] = {"seconds": time.process_time() - start, "limit": LIMIT_SECONDS}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="d = 128 alone, 3 training steps")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.quick)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, row in found.items():
        if "ratio" in row:
            print(
                f"{name}: {row['field']}; prediction {row['prediction_seconds']:.2f} s, training "
                f"{row['training_seconds']:.1f} s, 1/{1 / row['ratio']:.0f} "
                f"(limit 1/{1 / row['limit']:.0f})"
            )
        else:
            print(f"{name}: {row['seconds']:.2f} s (limit {row['limit']:g} s)")


if __name__ == "__main__":
    main()
