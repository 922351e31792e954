"""Which of two circuits wins, predicted before training: by the field, and by regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics import rival_figures
from analyses.dynamics.base import Say
from analyses.dynamics.forecasts import judge
from analyses.dynamics.rival_runs import TASK, confined, full_config, trained
from analyses.dynamics.share import median, wilson
from manifold import RIVALRIES, basin, predict_winner, reduced_field
from training import KHop, RunConfig

TITLE: str = "Which circuit wins"
RIVALRY, NAMES = RIVALRIES["1-hop"], ("A", "B")
SCALES = (0.1, 0.5, 1.0)
NOISE = 0.1
"""Standard deviation of every entry, added to the starts near the manifold."""
AXES = ("1:M", "1:I_t")
"""Where the basin is drawn: what layer 1 is to attend to under A, and under B."""
ENOUGH = 0.95
"""Share of verdicts that is to be predicted."""
AT = 0.3
"""Value of every other coordinate there."""
TWO_HOP = KHop(hops=2, chains=2, n_tokens=8)
KINDS = {
    "six": "SGD on the six coordinates, drawn at scale",
    "near": f"SGD on full matrices, coordinates drawn at scale, entries {NOISE:g} added",
    "full": "SGD on full matrices, entries drawn at scale",
    "attention": "transformer, attention only",
    "norms": "transformer, LayerNorm",
}
FULL = {"seeds": 60, "full": 40, "near": 30, "steps": 1500, "confined": 2000, "transformers": 16,
        "updates": 800, "grid": 7, "two": 12, "two_horizon": 8000.0}  # fmt: skip
QUICK = {"seeds": 4, "full": 2, "near": 2, "steps": 60, "confined": 60, "transformers": 2,
         "updates": 20, "grid": 2, "two": 1, "two_horizon": 50.0}  # fmt: skip


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    size, scales = (QUICK, SCALES[-1:]) if quick else (FULL, SCALES)
    six = reduced_field(TASK, coordinates=RIVALRY.basis(TASK))
    whole = reduced_field(TASK)
    groups = []

    def note(kind: str, scale: float | None, rows: list[dict]) -> None:
        say(f"{KINDS[kind]} {scale}: scores")
        groups.append({"kind": kind, "scale": scale, "rows": rows, "scores": judge(rows, NAMES)})

    for scale in scales:
        say(f"six coordinates at scale {scale:g}")
        note("six", scale, confined(six, RIVALRY, scale, size["seeds"], size["confined"]))
    for kind, count in (("full", size["full"]), ("near", size["near"])):
        for scale in scales:
            say(f"{count} runs of full matrices, {kind}, at scale {scale:g}")
            configs = [
                full_config(_family(kind, scale), seed, size["steps"]) for seed in range(count)
            ]
            note(kind, scale, trained(whole, RIVALRY, configs, folder, float(size["steps"])))
    for kind, norms in (("attention", False), ("norms", True)):
        say(f"{size['transformers']} transformers, {KINDS[kind]}")
        configs = [_transformer(norms, seed, size["updates"])
                   for seed in range(size["transformers"])]  # fmt: skip
        note(kind, None, trained(whole, RIVALRY, configs, folder, float(size["steps"])))
    say("basins")
    drawn = basin(six, RIVALRY, np.full(six.dim, AT), AXES, ((-1.5, 1.5), (-1.5, 1.5)),
                  (size["grid"],) * 2, 50.0 if quick else 1000.0)  # fmt: skip
    return {
        "task": asdict(TASK),
        "sizes": size,
        "guessing": six.loss(np.zeros(six.dim)),
        "groups": groups,
        "basin": {"axes": AXES, "at": AT, "sides": [drawn[name].values for name in AXES],
                  "winner": drawn["winner"].values, "boundary": drawn["boundary"].values},
        "two_hop": _two_hop(size, say),
    }  # fmt: skip


def _family(kind: str, scale: float) -> dict[str, Any]:
    if kind == "full":
        return {"name": "attention_only", "scale": scale}
    return {"name": "analyses.dynamics.rival_runs:NearManifold", "spread": scale, "scale": NOISE}


def _transformer(norms: bool, seed: int, updates: int) -> RunConfig:
    family = {"name": "transformer", "layers": 2, "heads": 1, "width": 32, "mlp": False,
              "layer_norm": norms}  # fmt: skip
    rule = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01}
    return full_config(family, seed, updates, optimiser=rule, batch_size=64)


def _two_hop(size: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Where the field says that 2-hop induction ends, nine coordinates drawn at scale 1."""
    say("2-hop")
    rivalry = RIVALRIES["2-hop"]
    field = reduced_field(TWO_HOP, coordinates=rivalry.basis(TWO_HOP))
    starts = np.random.default_rng(0).standard_normal((size["two"], field.dim))
    found = predict_winner(field, starts, rivalry, size["two_horizon"])
    return {
        "task": asdict(TWO_HOP),
        "horizon": size["two_horizon"],
        "start": starts,
        **{name: found[name].values for name in ("winner", "loss", "dominance", "without")},
    }


def text(facts: Mapping[str, Any]) -> str:
    size, groups = facts["sizes"], facts["groups"]
    asked = (
        "Two circuits solve 1-hop induction with two layers of one head. A: hear the previous "
        "token (`1:M`), match it (`2:I_t I->V1`). B: attend to the same token (`1:I_t`), then to "
        "the place after it (`2:M^T V1->I`), also read out through layer 1 (`out:I_t V2V1`). Both "
        "copy from `out:I_t V2`: six coordinates in all. Is the winner known before training? The "
        "prediction integrates the exact field from each run's projected start. A circuit wins "
        "where taking out its own (positive) coordinates costs at least a quarter of the loss of "
        "guessing, and at least twice what taking out the other's costs. Of the theory's six "
        "coordinates five are named there; the sixth, the read-out through layer 1, is our choice."
    )
    parts = [asked, "\n".join(f"- {_finding(group, facts['guessing'])}" for group in groups)]
    parts.append(_separation(groups))
    parts.append(
        "![Share of winners predicted, by the field, by regression and by the majority, against "
        "the scale of the start](dynamics/winner_scores.svg)"
    )
    parts.append(_table(groups))
    parts.append(
        "*right*: share of the runs with a winner whose winner was predicted, with Wilson's 95% "
        "interval. *regression*: leave-one-out logistic regression on the initial coordinates, its "
        "regularisation chosen inside; *sizes*: the same on their magnitudes. *AUROC* and *Brier* "
        "(beside that of always saying the share) are of the field's prediction by degrees, its "
        "lead at the predicted onset; of the regression in brackets. *onset*: measured over "
        "predicted time, median, and their rank correlation. A dash: fewer than three runs have "
        "the rarer outcome, so nothing is to be predicted."
    )
    parts.append(
        f"![Winner in the plane of {AXES[0]} and {AXES[1]}](dynamics/winner_basin.svg)\n\n"
        f"Basins of the six coordinates, the four others at {facts['basin']['at']:g}: the "
        "boundary found by bisection along the lines of the grid "
        f"({len(facts['basin']['boundary'])} points)."
    )
    two = facts["two_hop"]
    ends = {name: list(two["winner"]).count(name) for name in ("A", "B", "neither")}
    parts.append(
        f"2-hop induction in four layers, A matching twice against B pointing twice, nine "
        f"coordinates drawn at scale 1, followed to time {two['horizon']:g}: A wins {ends['A']}, B "
        f"{ends['B']}, neither {ends['neither']} of {len(two['winner'])} by the field; median loss "
        f"{np.median(two['loss']):.2f}. These were not trained."
    )
    parts.append(_alone(groups))
    parts.append(
        f"Sizes: {size['seeds']} seeds a scale on the coordinates, {size['full']} on full "
        f"matrices, {size['near']} near the manifold, {size['transformers']} transformers of width "
        f"32 a kind; {size['confined']} steps of rate 1 and batch 64 on the coordinates, "
        f"{size['steps']} of batch 32 on full matrices, {size['updates']} of AdamW. The theory has "
        "60 seeds everywhere. On the span 1-hop has three orbits, so that SGD's noise on "
        "the coordinates is only in which block answers. Transformers do not follow this flow: "
        "their effective matrices are products of weights, and AdamW is no gradient flow. "
        + _left_out(groups, size)
    )
    return "\n\n".join(parts)


def _alone(groups: list) -> str:
    """What the scales on the coordinates share, and what so many runs can show."""
    total = max(len(group["rows"]) for group in groups if group["kind"] == "six")
    most = wilson(total, total)["low"]
    able = "can" if most >= ENOUGH else "cannot"
    return (
        f"On the six coordinates all scales have the same {total} draws, rescaled, and one seed of "
        f"SGD, so each is judged apart. Were all {total} predicted the interval would begin at "
        f"{most:.3f}: a share of {ENOUGH:g} {able} be confirmed with so many."
    )


def _left_out(groups: list, size: Mapping[str, int]) -> str:
    """Runs of full matrices and transformers that diverged, by what is missing of each group."""
    asked = {"full": "full", "near": "near", "attention": "transformers", "norms": "transformers"}
    lost = {
        label(group): size[asked[group["kind"]]] - len(group["rows"])
        for group in groups
        if group["kind"] in asked
    }
    said = "; ".join(f"{count} of {name}" for name, count in lost.items() if count)
    return f"Left out because they diverged: {said or 'no run'}."


def _finding(group: Mapping[str, Any], guessing: float) -> str:
    scores = group["scores"]
    wins = scores["wins"]
    head = (
        f"{label(group)}: A wins {wins['A']}, B {wins['B']}, neither {scores['neither']} of "
        f"{scores['runs']}"
    )
    others = [r for r in group["rows"] if r["trained"] not in NAMES]
    learnt = sum(row["loss"] < guessing / 2 for row in others)
    if learnt:
        head += f" ({learnt} of these learnt it along other coordinates)"
    if "field" not in scores:
        return f"{head}; nothing to score."
    said = f"{head}. The field is right in {share(scores['field'])}"
    if scores["logistic"] is None:
        most = share(scores["majority"])
        below = scores["field"]["share"] < scores["majority"]["share"]
        worse = "; the field is worse than always saying the majority" if below else ""
        return (
            f"{said}, the majority in {most}: too few of the rarer outcome to predict "
            f"anything{worse}."
        )
    best = max(scores[name]["share"] for name in ("logistic", "magnitudes", "majority"))
    here = scores["field"]["share"]
    verdict = "better than" if here > best else "worse than" if here < best else "as good as"
    return (
        f"{said}, regression in {share(scores['logistic'])}, on magnitudes in "
        f"{share(scores['magnitudes'])}, the majority in {share(scores['majority'])}: {verdict} "
        "the best of these by the shares alone."
    )


def label(group: Mapping[str, Any]) -> str:
    scale = "" if group["scale"] is None else f" (scale {group['scale']:g})"
    return KINDS[group["kind"]] + scale


def share(one: Mapping[str, float]) -> str:
    return f"{one['share']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def _separation(groups: list) -> str:
    said = []
    for kind in KINDS:
        rows = [r for g in groups if g["kind"] == kind for r in g["rows"] if r["trained"] in NAMES]
        if rows:
            pairs = [sorted(r["without"], reverse=True) for r in rows]
            winner, loser = (median([p[i] for p in pairs])["value"] for i in (0, 1))
            said.append(f"{KINDS[kind]}: {winner:.2f} against {loser:.2f}")
    return (
        "How clearly winners separate, by the median loss of the model rebuilt from its "
        f"coordinates without the winner against without the loser: {'; '.join(said)}."
    )


def _table(groups: list) -> str:
    head = (
        "| start and training | A, B, neither | right | regression | sizes | majority | AUROC "
        "| Brier, base | onset ratio, rank |\n|---|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(_row(group) for group in groups)])


def _row(group: Mapping[str, Any]) -> str:
    s = group["scores"]
    wins = f"{s['wins']['A']}, {s['wins']['B']}, {s['neither']}"
    if "field" not in s:
        return f"| {label(group)} | {wins} | – | – | – | – | – | – | – |"
    some = s["logistic"] is not None
    onset = s["onset"]
    cells = [
        share(s["field"]),
        share(s["logistic"]) if some else "–",
        share(s["magnitudes"]) if some else "–",
        share(s["majority"]),
        f"{s['auroc']:.2f} ({s['logistic']['auroc']:.2f})" if some else "–",
        f"{s['brier']:.3f}, {s['brier_base']:.3f}"
        + (f" ({s['logistic']['brier']:.3f})" if some else ""),
        (
            f"{onset['ratio']['value']:.2f} [{onset['ratio']['low']:.2f}, "
            f"{onset['ratio']['high']:.2f}], {onset['rank']['value']:.2f} "
            f"[{onset['rank']['low']:.2f}, {onset['rank']['high']:.2f}]"
        )
        if onset
        else "–",
    ]
    return f"| {label(group)} | {wins} | {' | '.join(cells)} |"


def figures(facts: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        "winner_scores.svg": rival_figures.scores(facts["groups"], KINDS),
        "winner_basin.svg": rival_figures.basins(facts["basin"]),
    }


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Each scale apart: all have the same draws, rescaled, and are no larger sample together."""
    found = []
    for group in facts["groups"]:
        if group["kind"] == "six":
            rows = group["rows"]
            right = wilson(sum(row["trained"] == row["predicted"] for row in rows), len(rows))
            found.append(
                Comparison(
                    what=f"share of {right['total']} verdicts predicted at scale "
                    f"{group['scale']:g}",
                    value=right["share"],
                    low=right["low"],
                    high=right["high"],
                    expected=(ENOUGH, 1.0),
                )
            )
    return (
        Claim(
            number="initialisation picks",
            source="2607.11875",
            statement="the start decides which circuit wins: the field predicts at least "
            f"{ENOUGH:g} of SGD on the six coordinates at every scale",
            comparisons=tuple(found),
        ),
    )
