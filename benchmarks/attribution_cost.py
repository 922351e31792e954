"""How long edge attribution by integrated gradients takes, and how much memory.

    python benchmarks/attribution_cost.py [--quick] [--json]

One transformer of 6 layers, 4 heads, width 256, MLP 1024, over lengths 2 to 10, sequences of 2 n
tokens, 64 pairs a length, 5 steps, float32; then 100 checkpoints of one of 2 layers and width 64 on
the longest of these sequences. CPU seconds, and the peak of memory; exit code 1 beyond the limits.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from types import SimpleNamespace

import numpy as np
import torch

from circuits.attribution import score_edges
from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.pair import Pair
from training.families.transformer import Transformer
from training.tasks.base import IGNORE, Batch

LIMIT_LARGE, LIMIT_CHECKPOINTS = 60.0, 120.0
LIMIT_BYTES = 4e9
PAIRS, STEPS, VOCABULARY = 64, 5, 100
LENGTHS = range(2, 11)
SIZES = SimpleNamespace(vocabulary=VOCABULARY, n_positions=2 * max(LENGTHS))


def pair_of(time_: int) -> Pair:
    """Random tokens, one of them changed, and another answer."""
    rng = np.random.default_rng(time_)
    clean = rng.integers(0, VOCABULARY, (PAIRS, time_))
    corrupt = clean.copy()
    corrupt[:, 0] = (clean[:, 0] + rng.integers(1, VOCABULARY, PAIRS)) % VOCABULARY
    sides = []
    for tokens in (clean, corrupt):
        targets = np.full(tokens.shape, IGNORE)
        targets[:, -1] = tokens[:, 0]
        positions = np.broadcast_to(np.arange(time_), tokens.shape).copy()
        kind = np.zeros(PAIRS, dtype=int)
        sides.append(Batch(tokens=tokens, positions=positions, targets=targets, kind=kind))
    return Pair(clean=sides[0], corrupt=sides[1], sequences=PAIRS, final=time_ - 1)


def attribute(family: Transformer, seeds: range, lengths: range | list[int]) -> dict:
    """CPU seconds of all members and lengths together."""
    models = [family.initialise(SIZES, seed, torch.float32) for seed in seeds]  # type: ignore
    pairs = [pair_of(2 * n) for n in lengths]
    start, edges = time.process_time(), 0
    for params in models:
        for pair in pairs:
            whole = graph(family, params, pair.clean.tokens.shape[1], pair.final)
            score_edges(EdgePatcher(family, params, whole, pair), "ig inputs", STEPS)
            edges = len(whole.edges)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"cpu_seconds": seconds, "edges": edges, "peak_bytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="length 2 alone, 5 checkpoints")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    count = 5 if arguments.quick else 100
    small = Transformer(layers=2, heads=4, width=64)
    large = Transformer(layers=6, heads=4, width=256)
    rows = {
        "checkpoints": attribute(small, range(count), [max(LENGTHS)]) | {"count": count},
        "large": attribute(large, range(1), [2] if arguments.quick else LENGTHS),
    }
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(
            f"6 layers, width 256: {rows['large']['edges']} edges in "
            f"{rows['large']['cpu_seconds']:.1f} CPU seconds over all lengths; {count} checkpoints "
            f"of 2 layers, width 64: {rows['checkpoints']['edges']} edges in "
            f"{rows['checkpoints']['cpu_seconds']:.1f}; peak memory "
            f"{rows['large']['peak_bytes'] / 1e9:.2f} GB"
        )
    slow = (
        rows["large"]["cpu_seconds"] > LIMIT_LARGE
        or rows["checkpoints"]["cpu_seconds"] > LIMIT_CHECKPOINTS
        or rows["large"]["peak_bytes"] > LIMIT_BYTES
    )
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
