"""Two heads of layer 1 for one job: how much of it one of them does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics import rival_figures
from analyses.dynamics.base import Say
from analyses.dynamics.rival_runs import TASK, confined, full_config, project_centred
from analyses.dynamics.share import median, wilson
from manifold import RIVALRIES, Circuit, Rivalry, invariant_basis, reduced_field, who_won
from training import train_many

TITLE: str = "Two heads for one job: sharing"
REDUCED = RIVALRIES["two heads"]
FULL = Rivalry(
    layers=2,
    heads=2,
    circuits=tuple(
        Circuit(
            name=f"head {h}",
            coordinates=(f"1.{h}:M", f"2.0:I_t I->V1.{h}", f"2.1:I_t I->V1.{h}", "out:I_t V2.0",
                         "out:I_t V2.1"),
        )
        for h in range(2)
    ),
)  # fmt: skip
"""As the built-in rivalry, whichever head of layer 2 does the matching."""
SCALES = (0.1, 0.5, 1.0)
SIZES = {"reduced": 60, "steps": 2000, "full": 16, "updates": 1500}
QUICK = {"reduced": 3, "steps": 60, "full": 2, "updates": 20}


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    size, scales = (QUICK, SCALES[-1:]) if quick else (SIZES, SCALES)
    field = reduced_field(TASK, coordinates=REDUCED.basis(TASK))
    groups = []
    for scale in scales:
        say(f"five coordinates at scale {scale:g}")
        rows = confined(field, REDUCED, scale, size["reduced"], size["steps"])
        groups.append({"kind": "reduced", "scale": scale, "rows": rows})
    whole = reduced_field(TASK, coordinates=invariant_basis(TASK, layers=2, heads=2))
    for scale in scales[:2]:
        say(f"{size['full']} runs of full matrices at scale {scale:g}")
        family = {"name": "attention_only", "layers": 2, "heads": 2, "scale": scale}
        configs = [
            full_config(family, seed, size["updates"], study="rival_heads")
            for seed in range(size["full"])
        ]
        runs = [
            run for run in train_many(configs, root=folder) if run.status["state"] != "diverged"
        ]
        ends = np.stack([project_centred(whole, run, -1) for run in runs])
        won = who_won(whole, ends, FULL)
        rows = [
            {
                "dominance": float(won["dominance"].values[i]),
                "rebuilt_loss": float(won["loss"].values[i]),
                "without": won["without"].values[i].tolist(),
                "loss": float(run.metrics["validation_loss"].dropna().iloc[-1]),
            }
            for i, run in enumerate(runs)
        ]
        groups.append({"kind": "full", "scale": scale, "rows": rows})
    for group in groups:
        group["dominance"] = median([row["dominance"] for row in group["rows"]])
        if group["kind"] == "reduced":
            sides = [_leads(row) for row in group["rows"]]
            group["side"] = wilson(sum(sides), len(sides))
    return {"task": asdict(TASK), "sizes": size, "groups": groups}


def _leads(row: Mapping[str, Any]) -> bool:
    """Whether the head that was to do more of the work does more of it."""
    without = row["without"]
    return (row["grade"] > 0) == (without[0] > without[1])


def text(facts: Mapping[str, Any]) -> str:
    size, groups = facts["sizes"], facts["groups"]
    head = (
        "With two heads in layer 1, either can hear the previous token, and layer 2 match what it "
        "brings. Dominance is what one head's work adds to the loss when it is taken out, less the "
        "other's, over their sum: 1 where one does it all, 0 where they share. No winner is "
        "claimed where dominance is small."
    )
    found = "\n".join(f"- {_finding(group)}" for group in groups)
    notes = (
        f"The reduced model has five coordinates (`1.h:M`, `2.0:I_t I->V1.h`, `out:I_t V2.0`), "
        f"{size['reduced']} starts a scale, SGD of rate 1 and batch 64 for {size['steps']} steps. "
        f"Full matrices have two heads in layer 2 as well, all entries drawn at scale, "
        f"{size['full']} seeds a scale, {size['updates']} steps of batch 32; there the work of a "
        "head of layer 1 is what either head of layer 2 gets from it."
    )
    figure = "![Dominance of one head, each run and the medians](dynamics/rival_heads.svg)"
    return "\n\n".join([head, found, figure, notes])


def _finding(group: Mapping[str, Any]) -> str:
    d, losses = group["dominance"], [row["loss"] for row in group["rows"]]
    where = "five coordinates" if group["kind"] == "reduced" else "full matrices"
    said = (
        f"{where}, scale {group['scale']:g}: median dominance {d['value']:.2f} "
        f"[{d['low']:.2f}, {d['high']:.2f}] over {len(losses)} runs, median loss "
        f"{np.median(losses):.3f}"
    )
    if "side" in group:
        s = group["side"]
        said += (
            f"; which head does more is predicted in {s['share']:.2f} "
            f"[{s['low']:.2f}, {s['high']:.2f}]"
        )
    return f"{said}."


def figures(facts: Mapping[str, Any]) -> Mapping[str, str]:
    return {"rival_heads.svg": rival_figures.dominance(facts["groups"])}


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    full = [g for g in facts["groups"] if g["kind"] == "full"]
    return (
        Claim(
            number="heads share",
            source="ours",
            statement="in full matrices two heads of layer 1 share the work: median dominance "
            "below a third, so that no winner is to be named",
            comparisons=tuple(
                Comparison(
                    what=f"median dominance, scale {g['scale']:g}",
                    value=g["dominance"]["value"],
                    low=g["dominance"]["low"],
                    high=g["dominance"]["high"],
                    expected=(0.0, 1 / 3),
                )
                for g in full
            ),
        ),
    )
