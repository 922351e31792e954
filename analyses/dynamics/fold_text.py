"""What the study of folds says, and what it says of the theory's claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics.share import mean

THEORY = (0.0919474877, 0.0394612950)
"""Upper and lower fold, f_v, of the exact field at n = 3."""
SAMPLED = (0.301, 0.066)
"""The same at n = 6, N_c = N_r = 8, one sample of 500 of each kind, which scatters by 2%."""
SCATTER = 0.02


def text(facts: Mapping[str, Any]) -> str:
    exact = facts["exact"]["branches"]
    folds = exact["from zero"]["folds"]
    off = max((abs(f["f_v"] - theory) for f, theory in zip(folds, THEORY, strict=False)), default=0)
    lines = [
        "Fixed points of the reduced flow on alpha, beta, gamma, delta with weight decay "
        f"(exact population, n = 3, N_c = 6, N_r = 5, m = 4, b = 1, f_r = 0, distractors at .3) "
        "are continued in the query's f_v from where the flow comes to rest: from zero at the low "
        "end, and from an induction circuit at the high end. At weight decay "
        f"{facts['weight_decay']:g} they fold at f_v = {_values(folds)} "
        f"(within {off:.0e} of the theory's, "
        f"residual at most {max((f['residual'] for f in folds), default=0):.0e}).",
        "",
        "| fold | eigenvalues | w . dF/dp | w . D2F(v, v) | null vector |",
        "|---|---|---|---|---|",
        *(
            f"| {f['f_v']:.10f} | {', '.join(f'{v:.1e}' for v in f['eigenvalues'])} | "
            f"{f['transversality']:.2e} | {f['quadratic']:.2e} | "
            f"{', '.join(f'{v:.3f}' for v in f['null_vector'])} |"
            for f in folds
        ),
        "",
        "**With the weight decay and with f_r.** " + " ".join(map(_told, facts["curves"].values())),
        "",
        "![Folds in f_v against weight decay, against f_r, and by n and b](dynamics/folds.svg)",
        "",
        "**Other settings.** Where the branch from zero has no fold, the answer passes from "
        "weights to context in a crossover: every eigenvalue stays negative while "
        "mismatch queries' mean loss falls through ln 2. In-context states may be a branch of "
        "their own, which folds all the same.",
        "",
        "| setting | from zero: folds | crossover | largest eigenvalue | in context, where it is "
        "another branch: folds |",
        "|---|---|---|---|---|",
        *(_line(name, row) for name, row in _settings(facts)),
        "",
        _sampled(facts),
    ]
    return "\n".join(lines)


def _values(folds: list[dict[str, Any]]) -> str:
    return " and ".join(f"{fold['f_v']:.10f}" for fold in folds) or "none"


def _told(curve: Mapping[str, Any]) -> str:
    name = {"weight_decay": "weight decay"}.get(curve["second"], curve["second"])
    first, last = curve["along"][0], curve["along"][-1]
    found = [f"The fold at {curve['from']:.4f}, followed in {name} from {first:g},"]
    for turn in curve["turns"]:
        found.append(
            f"turns round at about {turn['at']:.2g} (f_v {turn['f_v']:.2f}): two folds meet there "
            "because branches reconnect, the quadratic coefficient keeps its sign,"
        )
    for cusp in curve["cusps"]:
        found.append(f"meets a cusp at {cusp['values'][1]:.6g} +- {cusp['error'][1]:.0e},")
    if not curve["cusps"]:
        found.append("meets no cusp,")
    found.append(f"and is at f_v = {curve['f_v'][-1]:.3f} at {last:.4g} ({curve['ended']}).")
    return " ".join(found)


def _settings(facts: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    rows = [(f"n = 3, b = 1, decay {row['weight_decay']:g}", row) for row in facts["decays"]]
    return rows + [
        (f"n = {r['n']}, b = {r['b']}" + ("" if r["exact"] else f", sample {r['seed']}"), r)
        for r in facts["shapes"]
    ]


def _line(name: str, row: Mapping[str, Any]) -> str:
    zero, other = row["branches"]["from zero"], row["branches"].get("in context")
    crossed = ", ".join(f"{one['f_v']:.4f}" for one in zero["crossovers"]) or "none"
    there = "the same branch" if other is None else _values(other["folds"])
    return (
        f"| {name} | {_values(zero['folds'])} | {crossed} | "
        f"{zero['largest eigenvalue']:.1e} | {there} |"
    )


def _pair(row: Mapping[str, Any]) -> tuple[float, float]:
    """Upper and lower fold of a field: where from zero and where in context ends; nan if none."""
    values = [f["f_v"] for branch in row["branches"].values() for f in branch["folds"]]
    return (max(values), min(values)) if len(values) > 1 else (math.nan, math.nan)


def sampled_folds(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Mean, its 95% interval by Student's t over samples, and the relative scatter of each fold."""
    pairs = np.array([_pair(row) for row in facts["samples"]])
    pairs, found = pairs[np.isfinite(pairs).all(1)], {}
    for name, values in zip(("upper", "lower"), pairs.T, strict=True):
        if len(values) < 2:
            continue
        middle = mean(values)
        found[name] = {
            "mean": middle["value"],
            "low": middle["low"],
            "high": middle["high"],
            "scatter": float(values.std(ddof=1) / values.mean()),
            "samples": len(values),
        }
    return found


def _sampled(facts: Mapping[str, Any]) -> str:
    parts = [
        f"{name} fold {f['mean']:.4f} [{f['low']:.4f}, {f['high']:.4f}], scatter of one sample "
        f"{f['scatter']:.1%}"
        for name, f in sampled_folds(facts).items()
    ]
    return (
        f"**Sampled.** n = 6, N_c = N_r = 8, 500 sequences of each kind, {len(facts['samples'])} "
        f"sample seeds: {'; '.join(parts) or 'no two folds'} (the theory, from one sample: "
        f"{SAMPLED[0]} and {SAMPLED[1]}, scatter {SCATTER:.0%})."
    )


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    folds = facts["exact"]["branches"]["from zero"]["folds"]
    values = tuple(
        _exactly(f"{name} fold at n = 3", fold["f_v"], (theory - 1e-8, theory + 1e-8))
        for name, fold, theory in zip(("upper", "lower"), folds, THEORY, strict=False)
    )
    without = [
        (name, row)
        for name, row in _settings(facts)
        if name in ("n = 2, b = 1", "n = 3, b = 1, decay 0.004")
    ]
    counts = tuple(
        _exactly(f"folds, {name}, {start}", float(len(branch["folds"])), (0.0, 0.0))
        for name, row in without
        for start, branch in row["branches"].items()
    )
    sampled = tuple(
        Comparison(
            what=f"{name} fold at n = 6, mean of samples",
            value=found["mean"],
            low=found["low"],
            high=found["high"],
            expected=(theory * (1 - 2 * SCATTER), theory * (1 + 2 * SCATTER)),
        )
        for (name, found), theory in zip(sampled_folds(facts).items(), SAMPLED, strict=False)
    )
    return (
        Claim(
            number="folds",
            source="theory, section 5",
            statement="with decay, in-weights and in-context states end in saddle-nodes",
            comparisons=values + sampled,
        ),
        Claim(
            number="no folds",
            source="theory, section 5",
            statement="at n = 2, and at n = 3 with decay 4e-3, there are no folds",
            comparisons=counts,
        ),
    )


def _exactly(what: str, value: float, expected: tuple[float, float]) -> Comparison:
    return Comparison(what=what, value=value, low=value, high=value, expected=expected)
