"""How the study of control reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from analyses.figures import PALETTE, canvas, svg

DASHES = ("-", "--", ":", "-.")
LEARNT = 0.5
"""Mismatch accuracy above which context counts as learnt: more than copying either label does."""
LESSENED = 0.1
"""How much more mismatch accuracy at the end counts as a lesser fall: our choice, a tenth of all
queries, which no paper names."""


def text(facts: Mapping[str, Any]) -> str:
    s = facts["setting"]
    intro = (
        f"Recall from small weights by SGD with decay {s['decay']:g}, {s['seeds']} seeds an arm "
        f"(2 blocks, 6 common and 5 rare tokens, f_r = 0): f_v is {s['early']:g} up to step "
        f"{s['fall']:,} and {s['late']:g} from there on. So the data change at step "
        f"{s['fall']:,}: once f_v falls, context is of no more use, and the decay takes what "
        "nothing needs. Whether holding does the same for a fall under data that stay the same is "
        "not measured here. " + _held_alone(facts) + _held_all(facts)
    )
    found = [
        f"- **{arm}** ({what}): mismatch accuracy {_mean(facts, arm, 'mismatch', s['fall'])} at "
        f"the change and {_mean(facts, arm, 'mismatch', s['steps'])} at the end; iwl "
        f"{_mean(facts, arm, 'iwl', s['fall'])} and {_mean(facts, arm, 'iwl', s['steps'])}; "
        f"context learnt {_when(facts, arm)}; raised live: {_raised(facts, arm)}."
        for arm, what in facts["arms"].items()
    ]
    end = (
        "Numbers are means over seeds, with the least and the largest in brackets; the intervals "
        "of claims are by Student's t over seeds. What counts as a lesser fall, "
        f"{LESSENED:g} more of mismatch at the end, is our own choice. iwl of chance "
        f"is {facts['chance']:.2f}; a model that copies either label of two in context "
        "has a mismatch of 0.5. Every run's curve is in the record.\n\n"
        "![Mismatch and iwl accuracy of the four arms](dynamics/control.svg)"
    )
    return "\n\n".join([intro, "\n".join(found), end])


def _held_alone(facts: Mapping[str, Any]) -> str:
    """What holding delta alone does, as it was asked for first."""
    s = facts["setting"]
    known, end = (
        float(np.mean(at(facts, "delta held", "mismatch", s[k]))) for k in ("fall", "steps")
    )
    free = float(np.mean(at(facts, "untreated", "mismatch", s["steps"])))
    if known <= LEARNT:
        said = f"context is not learnt (mismatch {known:.2f} at the change, {end:.2f} at the end)"
        return f"Holding delta alone does not avoid the fall: {said}. "
    word = "lessens" if end >= free + LESSENED else "does not lessen"
    return f"Holding delta alone {word} the fall: mismatch goes from {known:.2f} to {end:.2f}. "


def _held_all(facts: Mapping[str, Any]) -> str:
    s = facts["setting"]
    all_, free = (
        [float(np.mean(at(facts, arm, "mismatch", s[k]))) for k in ("fall", "steps")]
        for arm in ("all held", "untreated")
    )
    word = "lessens" if all_[1] >= free[1] + LESSENED else "does not lessen"
    return (
        f"Holding all that answers from weights {word} the fall: mismatch goes from {all_[0]:.2f} "
        f"to {all_[1]:.2f}, untreated from {free[0]:.2f} to {free[1]:.2f}."
    )


def at(facts: Mapping[str, Any], arm: str, kind: str, step: int) -> list[float]:
    """Mean of the three observations up to a step, by seed."""
    found = []
    for row in facts["rows"]:
        if row["arm"] == arm:
            at = int(np.searchsorted(row["steps"], step, side="right"))
            found.append(float(np.mean(row["accuracy"][kind][max(0, at - 3) : at])))
    return found


def _mean(facts: Mapping[str, Any], arm: str, kind: str, step: int) -> str:
    values = at(facts, arm, kind, step)
    return f"{np.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def _when(facts: Mapping[str, Any], arm: str) -> str:
    steps = [row["icl_step"] for row in facts["rows"] if row["arm"] == arm]
    said = ", ".join("never" if step is None else f"{step:,}" for step in steps)
    return f"at step {said}" if any(step is not None for step in steps) else "in no seed"


def _raised(facts: Mapping[str, Any], arm: str) -> str:
    counts: dict[str, list[float]] = {}
    runs = [row for row in facts["rows"] if row["arm"] == arm]
    for row in runs:
        for event in row["raised"]:
            if event["kind"] != "onset":
                name = event["what"] if event["kind"] == "swap" else event["kind"]
                counts.setdefault(name, []).append(event["step"])
    said = [
        f"{name} in {len(steps)} of {len(runs)} (step {', '.join(f'{at:.0f}' for at in steps)})"
        for name, steps in sorted(counts.items())
    ]
    return "; ".join(said) or "nothing but onsets"


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    with canvas(2, width=8.0, height=3.2) as (figure, axes):
        for axis, kind in zip(axes, ("mismatch", "iwl"), strict=True):
            for index, arm in enumerate(facts["arms"]):
                for row in facts["rows"]:
                    if row["arm"] == arm:
                        first = row["seed"] == 0
                        axis.plot(
                            row["steps"],
                            row["accuracy"][kind],
                            color=PALETTE[index],
                            label=arm if first else None,
                            alpha=1.0 if first else 0.4,
                            linestyle=DASHES[index],
                        )
            axis.axvline(facts["setting"]["fall"], color="0.6", lw=0.8)
            axis.set(xlabel="step", ylabel=f"accuracy, {kind}", ylim=(-0.02, 1.02))
        axes[1].legend(fontsize=7, loc="center right", bbox_to_anchor=(1.0, 0.72))
        return {"control.svg": svg(figure)}
