"""How `full` reads: sentences, tables and drawings from its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from analyses.dynamics.full_cases import BY_RATE
from analyses.figures import PALETTE, canvas, svg

DRAWN = ("2-hop", "recall, n = 3", "conditional retrieval", "conditional retrieval, rate 50")
MARKS = {True: "o", False: "^"}


def text(facts: Mapping[str, Any]) -> str:
    rows = facts["rows"]
    asked = [row for row in rows if row["target"] is not None]
    kept = [row for row in asked if row["r2"] >= row["target"]]
    missed = [row for row in asked if row["r2"] < row["target"]]
    parts = [
        "Full matrices of attention_only are trained by SGD from zero, or from small random "
        "weights, and every checkpoint is projected on the invariant manifold. The reduced field "
        "is integrated from the projected start alone, with the sum of learning rates as time; "
        "it sees nothing of the run. R^2 is over all coordinates and "
        f"{len(rows[0]['times'])} evenly spaced times. Of {len(asked)} runs with a target (0.999, "
        "or 0.995 for the deeper tasks) "
        f"{len(kept)} reach it, with R^2 from {min(r['r2'] for r in kept or asked):.4f} to "
        f"{max(r['r2'] for r in asked):.5f}." + _missed(missed),
        *_rates(rows),
        *_depth(rows, facts["starts"]),
        *_why(facts["why"]),
        *_stuck(rows),
        *_saddle(rows),
        *_sampled(facts["sampling"]),
        *_leaves(rows),
        "Runs at a batch of 1,024, or at another rate than docs/manifold.md's, were added after "
        "the first had been seen; they have no target. Since the time of escape from a saddle is "
        "partly chance, the table also has R^2 after the best shift in time of the whole "
        "predicted path (at most a tenth of the horizon either way).",
        _table(rows),
        "![The share of variance that the field does not foresee, and the losses of four runs]"
        "(dynamics/full.svg)",
    ]
    return "\n\n".join(parts)


def _missed(missed: Sequence[Mapping[str, Any]]) -> str:
    if not missed:
        return ""
    each = "; ".join(f"{_run(r)} {r['r2']:.4f} for {r['target']}" for r in missed)
    return f" Short of it: {each}."


def _run(row: Mapping[str, Any]) -> str:
    return f"{row['case']} from {_start(row)}"


def _start(row: Mapping[str, Any]) -> str:
    return f"scale {row['scale']:g}" if row["scale"] else "zero"


def _of(rows: Sequence[Mapping[str, Any]], case: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["case"] == case]


def _rates(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Conditional retrieval on both sides of the stability limit."""
    slow = _of(rows, "conditional retrieval")
    others = [row for row in rows if row["case"].startswith(BY_RATE)]
    if not slow or not others:
        return []
    each = "; ".join(
        f"rate {row['rate']:g}: {row['r2']:.5f}, accuracy {row['accuracy']:.3f}"
        for row in [*slow, *others]
    )
    limit = slow[0]["limit"]
    above = [row["rate"] for row in others if row["rate"] > limit]
    return [
        "**Learning rate.** Gradient descent is stable below 2 / (largest curvature). Along the "
        "path that the field foresees for conditional retrieval the least such limit is "
        f"{limit:.1f} (on the manifold; off it curvature may be larger still). R^2 and accuracy at "
        f"time {slow[0]['times'][-1]:.0f}, {each}. Above the limit, at rate "
        f"{' and '.join(f'{rate:g}' for rate in above)}, training does not follow the flow; well "
        "below it it does. (The theory's prototype found curvature 10, a limit of 0.2, at sizes "
        "that it does not state; at these it is not so.) The limits of all other paths stand in "
        "the table."
    ]


def _stuck(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Starts at which the flow stands still, and training leaves by noise alone."""
    found = [row for row in rows if row["speed"] < 1e-12]
    said = []
    for row in found:
        others = [r for r in rows if r["task"] == row["task"] and r is not row]
        each = "; ".join(
            f"from {_start(r)} at rate {r['rate']:g} {r['r2']:.4f} ({r['r2_aligned']:.4f} after a "
            f"shift by {r['shift']:.0f})"
            for r in others
        )
        said.append(
            f"**A start that the flow cannot leave.** For {row['case']} zero is a point of rest: "
            "the mean gradient vanishes there, and the field foresees no movement at all. Training "
            f"leaves by the noise of its batches (loss {row['losses'][-1]:.4f} at the end), at a "
            f"time that no flow knows. Near it noise still moves that time: R^2 {each}."
        )
    return said


def _depth(rows: Sequence[Mapping[str, Any]], starts: Mapping[str, Any]) -> list[str]:
    shallow, deep = _of(rows, "2-hop, 2 layers"), _of(rows, "2-hop")
    flows = []
    for scale, accuracy in starts["accuracy"].items():
        solved = sum(a >= starts["solved"] for a in accuracy)
        low, high = binomtest(solved, len(accuracy)).proportion_ci(method="wilson")
        flows.append(
            f"{solved} of {len(accuracy)} starts of scale {scale} ({low:.2f} to {high:.2f})"
        )
    said = "**Depth.** "
    if shallow:
        ends = ", ".join(f"{row['accuracy']:.3f}" for row in shallow)
        said += f"2-hop with 2 layers ends at accuracy {ends}. "
    if deep:
        ends = ", ".join(f"{row['accuracy']:.3f}" for row in deep)
        said += f"With 3 layers the trained runs end at {ends}. "
    return [
        f"{said}The flow alone, 3 layers, to time {starts['until']:.0f}, solves "
        f"{' and '.join(flows)} (95% by Wilson; the theory's prototype: 4 of 5)."
    ]


def _why(apart: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(apart) < 2:
        return []
    each = "; ".join(f"{row['case']}: R^2 {row['r2']:.5f}" for row in apart)
    first = apart[0]
    tenth = len(first["errors"]) // 10
    return [
        "**What parts them.** Indirect object is solved so early that its variance over evenly "
        "spaced times is small, and what the first steps leave behind stays (error "
        f"{first['errors'][tenth]:.4f} at time {first['times'][tenth]:.0f}, "
        f"{first['errors'][-1]:.4f} at {first['times'][-1]:.0f}). From one small start to the "
        f"same time: {each}. The stability limit is {first['limit']:.0f}, far above: it is the "
        "noise of batches, which grows with the rate and falls with their size, and the length "
        "of a step. The field itself is exact there."
    ]


def _saddle(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Indirect object with function words: noise picked up at a saddle and magnified on leaving."""
    names = ("indirect object, words", "words, batch 1,024", "words, rate 0.2")
    found = [_of(rows, name) for name in names]
    if not all(found):
        return []
    first, large, slow = (of[0] for of in found)
    loss = np.array(first["foreseen_losses"])
    early = int(np.flatnonzero(loss > 0.75 * loss[0])[-1])
    return [
        "**A saddle.** Indirect object with function words waits at one: its foreseen loss stays "
        f"above three quarters of the start's until time {first['times'][early]:.0f}. Until half "
        f"that time errors are at most {max(first['errors'][1 : early // 2 + 1]):.3f}; leaving the "
        f"saddle magnifies them, to {max(first['errors'][early // 2 :]):.2f}, and training ends in "
        f"another mixture of the same coordinates, equally right (loss {first['losses'][-1]:.4f}, "
        f"foreseen {first['foreseen_losses'][-1]:.4f}). R^2 is {first['r2']:.3f}, and "
        f"{first['r2_aligned']:.3f} after a shift by {first['shift']:.0f}, so the time is not all "
        f"of it. With batch 1,024 R^2 is {large['r2']:.4f}, at rate 0.2 to the same time "
        f"{slow['r2']:.4f}. The least stability limit of the path is {first['limit']:.1f}, far "
        "above the rate."
    ]


def _sampled(sampling: Mapping[str, Any] | None) -> list[str]:
    if sampling is None:
        return []
    return [
        f"**Sampling.** Recall at n = 4 has too many orbits; its field is a sample of "
        f"{sampling['samples']:,}. Fields of two samples agree with R^2 {sampling['r2']:.4f} and "
        f"end {sampling['error']:.3f} of their size apart (bootstrap error of the flow half way "
        f"{sampling['flow']:.3f}): the row of n = 4 is at that floor; n = 3 is exact."
    ]


def _leaves(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = _of(rows, "relation retrieval")
    if not found:
        return []
    row = found[0]
    return [
        "**Where the manifold does not hold.** Relation retrieval cannot be solved on the "
        f"manifold: training ends with {row['off_manifold']:.2g} of its squared norm off it, at "
        f"loss {row['losses'][-1]:.2f} where the field foresees {row['foreseen_losses'][-1]:.2f}, "
        f"and R^2 is {row['r2']:.3f}."
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| task | layers x heads | coordinates, orbits | rate, limit | from | R^2 | target | "
        "error at 1/4, 1/2, end | shift: R^2 | loss, foreseen | accuracy | off the manifold |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        end = len(row["errors"]) - 1
        errors = " ".join(f"{row['errors'][i]:.3f}" for i in (end // 4, end // 2, end))
        limit = "" if row["limit"] is None else f", {row['limit']:.2g}"
        orbits = "sampled" if row["orbits"] is None else f"{row['orbits']:,}"
        lines.append(
            f"| {row['case']} | {row['layers']} x {row['heads']} | {row['dim']}, {orbits} | "
            f"{row['rate']:g}{limit} | {_start(row)} | {row['r2']:.5f} | "
            f"{'' if row['target'] is None else row['target']} | {errors} | "
            f"{row['shift']:+.1f}: {row['r2_aligned']:.5f} | {row['losses'][-1]:.4f}, "
            f"{row['foreseen_losses'][-1]:.4f} | {row['accuracy']:.3f} | "
            f"{row['off_manifold']:.1e} |"
        )
    return "\n".join(lines)


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    rows = facts["rows"]
    names = list(dict.fromkeys(row["case"] for row in rows))
    shown = [_of(rows, name)[0] for name in DRAWN if _of(rows, name)]
    with canvas(1 + len(shown), width=3.4 + 1.9 * len(shown), height=3.6) as (figure, axes):
        for row in rows:
            place = 1 - row["r2"], names.index(row["case"])
            axes[0].plot(*place, MARKS[row["scale"] == 0], color=PALETTE[0], mfc="none", ms=5)
            if row["target"] is not None:
                axes[0].plot(1 - row["target"], place[1], "|", color=PALETTE[3], ms=9, mew=2)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        label = "1 - R^2 (bar: target;\ncircle: from zero, triangle: small)"
        axes[0].set(xscale="log", xlabel=label)
        for axis, row in zip(axes[1:], shown, strict=True):
            times = np.array(row["times"])
            axis.plot(times, row["foreseen_losses"], "-", color=PALETTE[1], label="foreseen")
            axis.plot(times[::2], row["losses"][::2], "k.", ms=3, label="trained")
            axis.set(xlabel="time", ylim=(0, None))
            axis.set_title(row["case"].replace(", rate", ",\nrate"), fontsize=8)
        if shown:
            axes[1].set_ylabel("loss, nats")
            axes[min(2, len(shown))].legend(loc="upper right")
        return {"full.svg": svg(figure)}
