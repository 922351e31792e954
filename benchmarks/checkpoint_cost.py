"""What share of training time goes into checkpoints at the default schedule.

    python benchmarks/checkpoint_cost.py [--quick] [--json]

Stacks of members are trained as a study trains them, one thread, and the time inside what makes a
checkpoint (copies of a member's arrays, hashes, files, renames) is taken apart. A share of one run
of the clock, so a busy machine slows both sides alike. The evaluations that kept steps bring with
them are not part of it; they are printed beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from unittest.mock import patch

from training import RunConfig, train_many
from training.stack import Stack
from training.trainee import Trainee

LIMIT = 0.05
SUM = {"name": "modular_addition", "modulus": 4, "lengths": [4, 5, 6], "format": "acot"}
CELLS = {
    "dense_ssm, width 16": {"name": "dense_ssm", "width": 16},
    "lstm, width 32": {"name": "lstm", "width": 32},
    "mamba, width 16": {"name": "mamba", "width": 16},
    "transformer, 2 layers, width 32": {
        "name": "transformer",
        "layers": 2,
        "heads": 2,
        "width": 32,
    },
}


class Clock:
    """Adds up the seconds inside the calls that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable) -> Callable:
        def call(*arguments, **named):
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - start

        return call


def measure(family: dict, members: int, steps: int) -> dict[str, float]:
    """Shares of the wall time of one `train_many` of so many members."""
    configs = [
        RunConfig(task=SUM, family=family, steps=steps, seeds={"init": seed, "data": seed})
        for seed in range(members)
    ]
    checkpoints, evaluations = Clock(), Clock()
    with (
        tempfile.TemporaryDirectory() as root,
        patch.object(Stack, "member", checkpoints.around(Stack.member)),
        patch.object(Trainee, "save", checkpoints.around(Trainee.save)),
        patch.object(Stack, "evaluate", evaluations.around(Stack.evaluate)),
    ):
        start = time.perf_counter()
        runs = train_many(configs, root=root)
        whole = time.perf_counter() - start
        kept = sum(len(run.steps) for run in runs)
    return {
        "members": members,
        "steps": steps,
        "checkpoints": kept,
        "seconds": whole,
        "milliseconds_each": 1e3 * checkpoints.seconds / kept,
        "share": checkpoints.seconds / whole,
        "share_of_evaluations": evaluations.seconds / whole,
    }


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few members and steps")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args()
    members, steps = ((2,), 256) if options.quick else ((1, 8), 2048)
    rows = [
        {"cell": name, **measure(family, count, steps)}
        for name, family in CELLS.items()
        for count in members
    ]
    worst = max(row["share"] for row in rows)
    result = {"limit": LIMIT, "worst": worst, "within": worst < LIMIT, "rows": rows}
    if options.json:
        print(json.dumps(result))
        return
    print(f"{'cell':<34} members  steps  kept  seconds  ms each  checkpoints  evaluations")
    for row in rows:
        print(
            f"{row['cell']:<34} {row['members']:>7} {row['steps']:>6} {row['checkpoints']:>5}"
            f" {row['seconds']:>8.1f} {row['milliseconds_each']:>8.2f} {row['share']:>12.2%}"
            f" {row['share_of_evaluations']:>12.2%}"
        )
    print(f"Worst {worst:.2%}; limit {LIMIT:.0%}.")


if __name__ == "__main__":
    main()
