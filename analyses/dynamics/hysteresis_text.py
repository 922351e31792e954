"""How `hysteresis` reads: sentences, tables and a drawing from its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyses.figures import PALETTE, canvas, svg

ARMS = {
    "weights": "in-weights start",
    "context": "in-context start",
    "fall": "in-context start, low f_v",
}
MARKS = {"weights": ("o", "-"), "context": ("s", "--"), "fall": ("^", "-.")}


def text(facts: Mapping[str, Any]) -> str:
    first = next(iter(facts.values()))
    parts = [
        "Recall with weight decay "
        f"{first['decay']:g}, query from common tokens alone, distractors at f_r = f_v = 0.3. In "
        "the full commutant's reduced field states of rest are found by following the flow and "
        "then Newton, from zero at low f_v (in-weights) and from zero at high f_v (in-context), "
        "each then brought to one f_v at which both exist. They are planted into full matrices, "
        f"noise of {first['noise']:g} is added to every entry, and these are trained by SGD (rate "
        f"{first['rate']:g}, batch 256, weight decay {first['decay']:g}) to time "
        f"{first['rate'] * first['steps']:.0f}. Accuracies are the trained matrices' own, on "
        "held-out mismatch queries (the context must win) and iwl queries (only the weights can "
        "answer). f_v of the sizes other than the theory's were chosen from the states that the "
        "field has there, before any training.",
        *(_setting(name, setting) for name, setting in facts.items()),
        _rest_table(facts),
        _run_table(facts),
        "Marks: trained matrices, each seed; lines: the reduced flow from the same start.",
        "![Accuracy on mismatch along training from both states, and at lower f_v]"
        "(dynamics/hysteresis.svg)",
    ]
    return "\n\n".join(parts)


def _setting(name: str, setting: Mapping[str, Any]) -> str:
    arms, fallen = setting["arms"], setting["rest"]["fallen"]
    both, low = arms["weights"]["f_v"], arms["fall"]["f_v"]
    said = (
        f"**{name}** ({setting['field']}). At f_v = {both:g} the in-weights start ends with "
        f"mismatch {_ends(arms['weights'], 'mismatch')} and iwl {_ends(arms['weights'], 'iwl')}, "
        f"the in-context start with mismatch {_ends(arms['context'], 'mismatch')} and iwl "
        f"{_ends(arms['context'], 'iwl')}: {_verdict(arms)}. At f_v = {low:g} the in-context "
        f"start ends with mismatch {_ends(arms['fall'], 'mismatch')} and iwl "
        f"{_ends(arms['fall'], 'iwl')}, where the noiseless flow foresees "
        f"{arms['fall']['foreseen']['mismatch'][-1]:.2f} and "
        f"{arms['fall']['foreseen']['iwl'][-1]:.2f}."
    )
    if fallen["from_weights"] > 1e-3:
        return (
            f"{said} What it falls to is not the in-weights state itself but a state of rest of "
            f"its own (mismatch {fallen['mismatch']:.2f}, iwl {fallen['iwl']:.2f}), "
            f"{fallen['from_weights']:.2f} of the in-weights state's size away from it."
        )
    return f"{said} What it falls to is the in-weights state."


def _verdict(arms: Mapping[str, Any]) -> str:
    """Whether the sides of 1/2 at the start and all along are kept, in words."""
    stays = {
        "weights": all(m < 0.5 for run in arms["weights"]["runs"] for m in run["mismatch"]),
        "context": all(m >= 0.5 for run in arms["context"]["runs"] for m in run["mismatch"]),
    }
    if all(stays.values()):
        return "each stays on its side of 1/2 at every checkpoint of every seed"
    moved = " and ".join(ARMS[arm] for arm, kept in stays.items() if not kept)
    return f"not every checkpoint of every seed stays on its side of 1/2 ({moved})"


def _ends(arm: Mapping[str, Any], kind: str) -> str:
    return " ".join(f"{run[kind][-1]:.2f}" for run in arm["runs"])


def _rest_table(facts: Mapping[str, Any]) -> str:
    lines = [
        "States of rest of the reduced field:",
        "",
        "| setting | state | f_v | largest eigenvalue | residual | mismatch | iwl | "
        "largest coordinates | stable rate |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, setting in facts.items():
        for state, words in (
            ("weights", "in-weights"),
            ("context", "in-context"),
            ("fallen", "fallen to"),
        ):
            rest = setting["rest"][state]
            largest = ", ".join(f"{key} {value:.2f}" for key, value in rest["largest"].items())
            lines.append(
                f"| {name} | {words} | {rest['f_v']:g} | {rest['leading']:.2e} | "
                f"{rest['residual']:.0e} | {rest['mismatch']:.3f} | {rest['iwl']:.3f} | "
                f"{largest} | {rest['limit']:.0f} |"
            )
    return "\n".join(lines)


def _run_table(facts: Mapping[str, Any]) -> str:
    lines = [
        "Trained full matrices, one number per seed; distance to the state of rest (for the "
        "fall: of the state fallen to), as a share of its size, without what is off the manifold:",
        "",
        "| setting | start | f_v | mismatch: start, end | least and most along training | "
        "iwl: start, end | distance: start, end | off the manifold |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, setting in facts.items():
        for arm, words in ARMS.items():
            found = setting["arms"][arm]
            runs = found["runs"]
            each = [m for run in runs for m in run["mismatch"]]
            off = " ".join(f"{run['off_manifold']:.1e}" for run in runs)
            lines.append(
                f"| {name} | {words} | {found['f_v']:g} | {_both(runs, 'mismatch')} | "
                f"{min(each):.2f}, {max(each):.2f} | {_both(runs, 'iwl')} | "
                f"{_both(runs, 'distance')} | "
                f"{off} |"
            )
    return "\n".join(lines)


def _both(runs: list[Mapping[str, Any]], what: str) -> str:
    """Values at the start and at the end, one per seed each."""
    sides = (" ".join(f"{run[what][at]:.2f}" for run in runs) for at in (0, -1))
    return ", ".join(sides)


def figures(facts: Mapping[str, Any]) -> dict[str, str]:
    with canvas(len(facts), width=3.6 * max(2, len(facts)), height=3.4, sharey=True) as (
        figure,
        axes,
    ):
        for axis, (name, setting) in zip(axes, facts.items(), strict=True):
            for index, (arm, words) in enumerate(ARMS.items()):
                found, (mark, dash) = setting["arms"][arm], MARKS[arm]
                colour = PALETTE[index]
                flow = found["foreseen"]
                axis.plot(flow["times"], flow["mismatch"], dash, color=colour, lw=1)
                for run in found["runs"]:
                    axis.plot(run["times"], run["mismatch"], mark, color=colour, ms=3.5, mfc="none")
                label = f"{words.split(',')[0]}, f_v = {found['f_v']:g}"
                axis.plot([], [], mark + dash, color=colour, mfc="none", ms=3.5, label=label)
            axis.set(title=name, xlabel="time", ylim=(-0.03, 1.03))
            axis.legend(loc="center right", fontsize=7)
        axes[0].set_ylabel("accuracy on mismatch")
        return {"hysteresis.svg": svg(figure)}
