"""What the study of folds says, and what it says of the theory's claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics.share import mean

NAMES = ("upper", "lower")
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
        "**Other settings.** In a crossover the answer passes from weights to context with every "
        "eigenvalue negative: mismatch queries' mean loss falls through ln 2. "
        + _passes(_settings(facts)),
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
    signs = {value > 0 for value in curve["quadratic"]}
    because = (
        " because branches reconnect, the quadratic coefficient keeps its sign,"
        if len(signs) == 1
        else ", and the quadratic coefficient changes its sign along the curve,"
    )
    for turn in curve["turns"]:
        found.append(
            f"turns round at about {turn['at']:.2g} (f_v {turn['f_v']:.2f}): two folds meet there"
            f"{because}"
        )
    for cusp in curve["cusps"]:
        found.append(f"meets a cusp at {cusp['values'][1]:.6g} +- {cusp['error'][1]:.0e},")
    if not curve["cusps"]:
        found.append("meets no cusp,")
    found.append(f"and is at f_v = {curve['f_v'][-1]:.3f} at {last:.4g} ({curve['ended']}).")
    return " ".join(found)


def _passes(rows: list[tuple[str, Mapping[str, Any]]]) -> str:
    """How branches from zero without a fold pass, and those in context that do not fold."""

    def listed(names: list[str]) -> str:
        return f"{len(names)} ({'; '.join(names)})" if names else "0"

    zero = {name: row["branches"]["from zero"] for name, row in rows}
    unfolded = [name for name, one in zero.items() if not one["folds"]]
    crossed = [name for name in unfolded if zero[name]["crossovers"]]
    other = {n: r["branches"]["in context"] for n, r in rows if "in context" in r["branches"]}
    return (
        f"Of {len(rows)} settings the branch from zero has no fold in {len(unfolded)}: it crosses "
        f"over in {len(crossed)}, and has neither fold nor crossover in "
        f"{listed([name for name in unfolded if name not in crossed])}. In-context states are a "
        f"branch of their own in {len(other)}, without a fold in "
        f"{listed([name for name, one in other.items() if not one['folds']])}."
    )


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
    for name, values in zip(NAMES, pairs.T, strict=True):
        if len(values) < 2:
            continue
        middle = mean(values)
        found[name] = {
            "mean": middle["value"],
            "low": middle["low"],
            "high": middle["high"],
            "scatter": float(values.std(ddof=1) / values.mean()),
            "samples": len(values),
            "of": len(facts["samples"]),
        }
    return found


def _sampled(facts: Mapping[str, Any]) -> str:
    parts = [
        f"{name} fold {f['mean']:.4f} [{f['low']:.4f}, {f['high']:.4f}], scatter of one sample "
        f"{f['scatter']:.1%}" + _lacking(f)
        for name, f in sampled_folds(facts).items()
    ]
    return (
        f"**Sampled.** n = 6, N_c = N_r = 8, 500 sequences of each kind, {len(facts['samples'])} "
        f"sample seeds: {'; '.join(parts) or 'no two folds'} (the theory, from one sample: "
        f"{SAMPLED[0]} and {SAMPLED[1]}, scatter {SCATTER:.0%})."
    )


def _lacking(found: Mapping[str, float]) -> str:
    lacks = found["of"] - found["samples"]
    return f" ({lacks:g} of {found['of']:g} samples have no two folds)" if lacks else ""


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    folds = facts["exact"]["branches"]["from zero"]["folds"]
    values = tuple(
        _exactly(f"{name} fold at n = 3", fold["f_v"], (theory - 1e-8, theory + 1e-8))
        for name, fold, theory in zip(NAMES, folds, THEORY, strict=False)
    )
    number = _exactly("folds from zero at n = 3", float(len(folds)), (2.0, 2.0))
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
        _meant(name, sampled_folds(facts).get(name), theory)
        for name, theory in zip(NAMES, SAMPLED, strict=True)
    )
    absent = {"n = 2, b = 1", "n = 3, b = 1, decay 0.004"} - {name for name, _ in without}
    return (
        Claim(
            number="folds",
            source="theory, section 5",
            statement="with decay, in-weights and in-context states end in saddle-nodes",
            comparisons=(number, *values, *sampled),
        ),
        Claim(
            number="no folds",
            source="theory, section 5",
            statement="at n = 2, and at n = 3 with decay 4e-3, there are no folds",
            comparisons=counts,
            missing=tuple(sorted(absent)),
        ),
    )


def _meant(name: str, found: Mapping[str, float] | None, theory: float) -> Comparison:
    """The mean over samples; undetermined where it is of fewer samples than there are."""
    what = f"{name} fold at n = 6, mean of samples"
    expected = theory * (1 - 2 * SCATTER), theory * (1 + 2 * SCATTER)
    if found is None:
        return Comparison(
            what=what,
            value=None,
            low=-math.inf,
            high=math.inf,
            expected=expected,
            short_of="samples with two folds",
        )
    lacks = found["samples"] < found["of"]
    return Comparison(
        what=what + _lacking(found),
        value=found["mean"],
        low=found["low"],
        high=found["high"],
        expected=expected,
        short_of="samples with two folds" if lacks else "",
    )


def _exactly(what: str, value: float, expected: tuple[float, float]) -> Comparison:
    return Comparison(what=what, value=value, low=value, high=value, expected=expected)
