"""What a search for N* costs: the named searches replayed on recorded success curves.

A curve is one search's whole grid: at every size, every member trained to its own end (solved, out
of patience, out of steps). On it any search can be replayed, since a member's course does not
depend on the others. Rules, by how a size is trained:

    leader     the member that solved the size before alone, then the others, who are halted at the
               first success: what `sample_size` does (before N50);
    together   all members, halted at the first success;
    to the end all members to their own ends: what arXiv 2602.18333 describes.

Printed for each curve, rule and search: N*, sizes tried, member-steps, and these against the
paper's search with all members to their ends, and against the paper's search under the same rule.
Fails if the default (descent, leader) has a geometric mean of N* that is off by more than 5%, costs
more than 0.6 on average, or more than 1 on any curve.

    python benchmarks/search_cost.py [--json] [--record NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from training import SEARCHES, RunConfig, searches_of, train_many
from training.naming import describe
from training.sharing.sample_size import second_start, size_grid

CURVES = Path(__file__).with_name("curves")
RULES = ("leader", "together", "to the end")
DEFAULT, REFERENCE = ("descent", "leader"), ("paper", "to the end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """ends: for each size of the grid, every member's last step and whether it had solved."""

    name: str
    grid: tuple[int, ...]
    second_start: int | None
    ends: Mapping[int, Sequence[tuple[int, bool]]]

    @classmethod
    def read(cls, path: Path) -> Curve:
        plain = json.loads(path.read_text())
        return cls(
            name=path.stem,
            grid=tuple(plain["grid"]),
            second_start=plain["second_start"],
            ends={
                int(size): [(step, solved) for step, solved in members]
                for size, members in plain["ends"].items()
            },
        )

    def replay(self, search: str, rule: str) -> tuple[int | None, int, int]:
        """N*, how many sizes were tried, and member-steps."""
        tried: dict[int, int] = {}
        everyone = tuple(range(len(self.ends[self.grid[0]])))
        leader: list[int] = []

        def solves(size: int) -> bool:
            tried[size] = 0
            alone = rule == "leader" and leader
            rest = [member for member in everyone if member not in leader]
            for members in (leader, rest) if alone else (everyone,):
                ends = [(*self.ends[size][member], member) for member in members]
                first = min(((step, member) for step, won, member in ends if won), default=None)
                limit = first[0] if first and rule != "to the end" else max(e[0] for e in ends)
                tried[size] += sum(min(step, limit) for step, _, _ in ends)
                if first:
                    leader[:] = [first[1]]
                    return True
            return False

        SEARCHES[search](solves, self.grid, self.second_start)
        solved = [size for size in tried if any(won for _, won in self.ends[size])]
        return min(solved, default=None), len(tried), sum(tried.values())

    @property
    def failure(self) -> float:
        """What a failed size costs, all members to their ends, in the first successes of one."""
        first = {s: min((n for n, won in e if won), default=None) for s, e in self.ends.items()}
        failed = [sum(n for n, _ in self.ends[s]) for s, step in first.items() if step is None]
        solved = [step for step in first.values() if step is not None]
        return float(np.median(failed) / np.median(solved))


def _cell(
    task: Mapping[str, Any], family: Mapping[str, Any], lrs: Sequence[float], steps: int
) -> tuple[RunConfig, tuple[float, ...]]:
    config = RunConfig(
        study="curves",
        task={"name": "modular_addition", "validation_size": 200, **task},
        family=family,
        steps=steps,
        eval_every=25,
        eval_size=600,
        stop={"loss": 0.02, "patience": 300, "margin": 0.1},
        checkpoints={"doubling": False, "every": None},
    )
    return config, tuple(lrs)


def _dense_ssm(modulus: int, lengths: tuple[int, ...], format: str) -> Any:
    task = {"modulus": modulus, "lengths": lengths, "format": format}
    return _cell(task, {"name": "dense_ssm", "width": 16}, (1e-2, 3e-3), 600)


def _lstm(modulus: int, lengths: tuple[int, ...], format: str) -> Any:
    task = {"modulus": modulus, "lengths": lengths, "format": format}
    return _cell(task, {"name": "lstm", "width": 32}, (1e-2, 3e-3), 1000)


def _transformer(modulus: int, lengths: tuple[int, ...], format: str) -> Any:
    task = {"modulus": modulus, "lengths": lengths, "format": format}
    family = {"name": "transformer", "layers": 1, "heads": 2, "width": 32}
    return _cell(task, family, (3e-3, 1e-3), 2000)


CELLS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "dense_ssm acot Z_4": (partial(_dense_ssm, 4, (4, 5, 6), "acot"), "joint"),
    "dense_ssm acot Z_4 n=6": (partial(_dense_ssm, 4, (4, 5, 6), "acot"), "6"),
    "dense_ssm acot Z_5": (partial(_dense_ssm, 5, (3, 4, 5), "acot"), "joint"),
    "dense_ssm outcome Z_5": (partial(_dense_ssm, 5, (3, 4, 5), "outcome"), "joint"),
    "dense_ssm outcome Z_5 n=5": (partial(_dense_ssm, 5, (3, 4, 5), "outcome"), "5"),
    "lstm acot Z_4": (partial(_lstm, 4, (4, 5, 6), "acot"), "joint"),
    "lstm acot Z_5 n=5": (partial(_lstm, 5, (3, 4, 5), "acot"), "5"),
    "transformer cot Z_5": (partial(_transformer, 5, (3, 4), "cot"), "joint"),
    "transformer cot Z_5 n=4": (partial(_transformer, 5, (3, 4), "cot"), "4"),
}
"""Cell and the name of its search. Members: two learning rates, seeds 0 and 1."""
SEEDS = (0, 1)


def record(name: str) -> None:
    """Train every member of every size to its own end, and write the curve."""
    make, search = CELLS[name]
    cell, lrs = make()
    config = searches_of(cell)[search]
    task: Any = config.task
    grid = size_grid(task.pool())
    members = [(lr, seed) for seed in SEEDS for lr in lrs]
    every = [
        config.replace(train_size=size, optimiser={"lr": lr}, seeds={"init": seed})
        for size in grid
        for lr, seed in members
    ]
    with tempfile.TemporaryDirectory() as root:
        runs = train_many(every, root=root, progress=partial(_say, name))
        ends = [(run.status["step"], run.status["state"] == "solved") for run in runs]
    width = len(members)
    plain = {
        "task": describe("task", config.task),
        "family": describe("family", config.family),
        "steps": config.steps,
        "stop": config.stop.model_dump(),
        "members": members,
        "second_start": second_start(config),
        "grid": grid,
        "ends": {size: ends[i * width : (i + 1) * width] for i, size in enumerate(grid)},
    }
    text = json.dumps(plain).replace(', "', ',\n"')
    (CURVES / f"{name.replace(' ', '_').replace('=', '')}.json").write_text(text + "\n")


def _say(name: str, step: int, total: int, latest: Mapping[str, float]) -> None:
    if step % 100 == 0:
        print(f"{name}: step {step} of {total}, {latest['alive']:.0f} alive", file=sys.stderr)


def compare(curves: Sequence[Curve]) -> dict[str, Any]:
    """Every search on every curve under every rule, and the verdict on the default."""
    rows = []
    for curve in curves:
        reference = curve.replay(*REFERENCE)[2]
        for rule in RULES:
            alike = curve.replay(REFERENCE[0], rule)[2]
            for search in SEARCHES:
                value, sizes, steps = curve.replay(search, rule)
                rows.append(
                    {
                        "curve": curve.name,
                        "search": search,
                        "rule": rule,
                        "n_star": value,
                        "sizes": sizes,
                        "member_steps": steps,
                        "of_paper": steps / reference,
                        "of_paper_same_rule": steps / alike,
                    }
                )
    failures = {curve.name: curve.failure for curve in curves}
    return {"rows": rows, "failure": failures, **_verdict(rows)}


def _verdict(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ours, theirs = (
        [row for row in rows if (row["search"], row["rule"]) == pair]
        for pair in (DEFAULT, REFERENCE)
    )
    pairs = [(a["n_star"], b["n_star"]) for a, b in zip(ours, theirs, strict=True)]
    alike = [(a is None) == (b is None) for a, b in pairs]
    ratio = float(np.exp(np.mean([np.log(a / b) for a, b in pairs if a and b])))
    cost, same_rule = (
        np.array([row[key] for row in ours]) for key in ("of_paper", "of_paper_same_rule")
    )
    good = abs(ratio - 1) <= 0.05 and all(alike) and len(ours) >= 6
    return {
        "curves": len(ours),
        "n_star_ratio": ratio,
        "cost_mean": float(cost.mean()),
        "cost_most": float(cost.max()),
        "cost_mean_same_rule": float(same_rule.mean()),
        "cost_most_same_rule": float(same_rule.max()),
        "holds": bool(good and cost.mean() <= 0.6 and cost.max() <= 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", nargs="*", metavar="NAME", help="all of them if none is named")
    words = parser.parse_args()
    if words.record is not None:
        for name in words.record or CELLS:
            record(name)
    found = compare([Curve.read(path) for path in sorted(CURVES.glob("*.json"))])
    if words.json:
        print(json.dumps(found, indent=1))
    else:
        for row in found["rows"]:
            print(
                f"{row['curve']:<26} {row['search']:<8} {row['rule']:<10} "
                f"N* {row['n_star'] or 'none':>5} {row['sizes']:>3} sizes "
                f"{row['member_steps']:>7} member-steps, {row['of_paper']:.2f} of the paper's, "
                f"{row['of_paper_same_rule']:.2f} under the same rule"
            )
        print("\n".join(f"{key}: {value}" for key, value in found.items() if key != "rows"))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
