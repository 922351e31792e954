"""What fits recover from checkpoints, in words, tables, a figure and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.dynamics.share import wilson
from analyses.figures import canvas, line_style, svg
from manifold.dynamics.rollout import FAR

NEAR, ROLLOUT, SPARSE = 0.03, 0.02, 0.1
"""What is asked: the mixture from one run, rollout errors of structured and of sparse fits."""
WORDS = {"all": "full models, all coordinates", "four": "full models, four coordinates"}


def write(facts: Mapping[str, Any]) -> str:
    task = facts["task"]
    intro = (
        f"Which equation made these checkpoints, and which data? Asked at n = {task['n']}, N_c = "
        f"{task['n_common']}, N_r = {task['n_rare']}, f_r = f_v = 0.4, b = 1, where the mixture is "
        + _mixture(facts["truth"])
        + ". Four coordinates: flows of one sample of the population "
        f"({facts['samples']['made']:,} sequences) and minibatch SGD (512) to time "
        f"{facts['until']:,}, fitted with the fields of another ({facts['samples']['fitted']:,}), "
        "so that the field's own sampling error is in every fit and in every interval. Full "
        "models: attention_only trained by SGD at rate 1, batch 512, from weights of 0.01, "
        "projected by `project`. Every run is held out once, in fits to the others; the densest "
        "series has fewer runs, for its cost. Intervals of weights: bootstrap over checkpoint "
        "intervals and the field's sample; of errors: bootstrap over runs."
    )
    return "\n\n".join(
        [
            intro,
            "![Weights of the mixture from single runs, and rollout errors](dynamics/fit.svg)",
            _structured(facts),
            _coverage(facts),
            _sparse(facts),
        ]
    )


def _mixture(values: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.2f} {kind}" for kind, value in values.items())


def _sets(facts: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from facts["series"].items()
    for name, one in facts["trained"].items():
        yield WORDS[name], one


def _errors(fits: Sequence[Mapping[str, Any]]) -> list[float]:
    return [run[0] if run[0] is not None else float("inf") for fit in fits for run in fit["errors"]]


def _off(fit: Mapping[str, Any], truth: Mapping[str, float]) -> float:
    """Largest difference of a weight of the mixture from the truth."""
    return max(abs(fit["values"][kind]["value"] - weight) for kind, weight in truth.items())


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with a bootstrap interval over runs; infinite where one is."""
    array = np.array(values, dtype=float)
    if not np.isfinite(array).all():
        return float("inf"), float("inf"), float("inf")
    picks = np.random.default_rng(0).integers(0, len(array), (2000, len(array)))
    low, high = np.percentile(array[picks].mean(1), (2.5, 97.5))
    return float(array.mean()), float(low), float(high)


def _number(values: Sequence[float]) -> str:
    mean, low, high = _mean(values)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]" if np.isfinite(mean) else "diverges"


def _structured(facts: Mapping[str, Any]) -> str:
    truth, rows = facts["truth"], []
    for name, one in _sets(facts):
        values = [fit["values"] for fit in one["folds"]]
        middle = {k: float(np.mean([v[k]["value"] for v in values])) for k in values[0]}
        rows.append(
            f"| {name} | {one['runs']} | {one['checkpoints']} | "
            + ", ".join(f"{middle[kind]:.3f}" for kind in truth)
            + f"; {middle['weight_decay']:.4f}; {middle['time_scale']:.3f} | "
            f"{_number([_off(fit, truth) for fit in one['singles']])}, "
            f"worst {max(_off(fit, truth) for fit in one['singles']):.3f} | "
            f"{_number(_errors(one['folds']))} | {_number(_errors(one['singles']))} |"
        )
    return (
        "**Structured fit** (the exact fields of the query kinds, with unknown weights, decay and "
        "time scale; the truth of the last two is 0 and 1):\n\n"
        f"| runs | number | checkpoints | mean of the fits: {', '.join(truth)}; decay; time scale "
        "| "
        "largest error of a weight, from one run | rollout error of runs held out | the same, "
        "fitted to one run |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows)
    )


def _coverage(facts: Mapping[str, Any]) -> str:
    truth = facts["truth"]

    def held(fits: Sequence[Mapping[str, Any]]) -> str:
        said = []
        for kind, weight in truth.items():
            found = [fit["values"][kind] for fit in fits]
            inside = sum(one["low"] <= weight <= one["high"] for one in found)
            width = float(np.mean([one["high"] - one["low"] for one in found]))
            said.append(f"{inside} {kind} (mean width {width:.3f})")
        least = wilson(len(fits), len(fits))["low"]
        return ", ".join(said) + f" of {len(fits)}, where all would show {least:.2f} or more"

    each = "; ".join(f"{name}: {held(one['singles'])}" for name, one in _sets(facts))
    return (
        "**Do the intervals hold the truth?** Of fits to one run, 95% intervals of the weights "
        f"that do: {each}. Those share one sample of the field, so that they err together; SGD "
        f"runs each fitted with a sample of its own: {held(facts['own'])}. In four coordinates "
        "full models follow another equation than the one fitted, so that the weights are wrong, "
        "the error of the rollout says so, and only the width of the intervals lets them hold the "
        "truth: give the full basis."
    )


def _sparse(facts: Mapping[str, Any]) -> str:
    rows = []
    for name, one in facts["series"].items():
        for library, fits in one["sparse"].items():
            states = [fit["status"] for fit in fits]
            errors = [
                error
                for fit in fits
                for error in fit["errors"]
                if fit["status"] == "fitted" and error is not None
            ]
            said = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
            terms = [fit["terms"] for fit in fits if fit["of"]]
            kept = f"{min(terms)} to {max(terms)} of {fits[0]['of']}" if terms else "none"
            rows.append(
                f"| {name} | {library} | {said} | {kept} | {_number(errors) if errors else ''} |"
            )
    return (
        "**Sparse fit** (pysindy's terms in integral form, threshold by rollout on a fitted run; "
        "no field is known to it). A fit one of whose rollouts does not arrive is divergent, and "
        "says so; errors are those of the fits that arrive:\n\n"
        "| runs | library | fits | terms left | rollout error of runs held out |\n"
        "|---|---|---|---|---|\n" + "\n".join(rows)
    )


def _in_others(facts: Mapping[str, Any]) -> str:
    """How far off full models are in coordinates that are not their own."""
    if "four" not in facts["trained"]:
        return ""
    off = [_off(fit, facts["truth"]) for fit in facts["trained"]["four"]["singles"]]
    return f" ({WORDS['four']}, which are not, are off by {_number(off)})"


def claimed(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    truth = facts["truth"]
    sets = {k: v for k, v in _sets(facts) if k != WORDS["four"]}

    def compared(values: Mapping[str, Sequence[float]], most: float) -> tuple[Comparison, ...]:
        found = []
        for name, numbers in values.items():
            mean, low, high = _mean([min(number, FAR) for number in numbers])
            found.append(
                Comparison(what=name, value=mean, low=low, high=high, expected=(0.0, most))
            )
        return tuple(found)

    single = {name: [_off(fit, truth) for fit in one["singles"]] for name, one in sets.items()}
    held = {name: _errors(one["folds"]) for name, one in sets.items()}
    sparse = {
        name: [
            FAR if error is None else min(error, FAR)
            for fit in one["sparse"]["sigmoid products"]
            for error in fit["errors"]
        ]
        for name, one in facts["series"].items()
    }
    sparse = {name: errors for name, errors in sparse.items() if errors}
    return (
        Claim(
            number="mixture",
            source="ours",
            statement=f"the checkpoints of one run tell the data's mixture to {NEAR} "
            f"(largest error of a weight, mean over runs), in the coordinates of the run's own "
            f"manifold{_in_others(facts)}",
            comparisons=compared(single, NEAR),
        ),
        Claim(
            number="structured",
            source="ours",
            statement=f"a structured fit predicts runs held out to {ROLLOUT}, in the coordinates "
            "of the run's own manifold",
            comparisons=compared(held, ROLLOUT),
        ),
        Claim(
            number="sparse",
            source="ours",
            statement=f"a sparse fit of sigmoid products predicts runs held out to {SPARSE} "
            f"(one that does not arrive counts as {FAR:g})",
            comparisons=compared(sparse, SPARSE),
        ),
    )


def draw(facts: Mapping[str, Any]) -> str:
    names = [name for name, _ in _sets(facts)]
    with canvas(columns=2, width=9.4, height=3.4) as (figure, (weights, errors)):
        for index, (kind, truth) in enumerate(facts["truth"].items()):
            style = line_style(index)
            weights.axhline(truth, color=style["color"], lw=0.8, linestyle=style["linestyle"])
            for column, (_, one) in enumerate(_sets(facts)):
                found = [fit["values"][kind] for fit in one["singles"]]
                value = np.array([f["value"] for f in found])
                low, high = (np.array([f[end] for f in found], float) for end in ("low", "high"))
                at = column + 0.24 * (index - 1) + 0.018 * (np.arange(len(found)) - len(found) / 2)
                weights.errorbar(
                    at,
                    value,
                    yerr=np.maximum([value - low, high - value], 0.0),
                    fmt="osv"[index],
                    ms=2.5,
                    lw=0.7,
                    color=style["color"],
                    label=kind if column == 0 else None,
                )
        for column, (_, one) in enumerate(_sets(facts)):
            for index, (label, fits) in enumerate(
                {"to the others": one["folds"], "to one run": one["singles"]}.items()
            ):
                points = _errors(fits)
                errors.plot(
                    np.full(len(points), column + 0.2 * (index - 0.5)),
                    points,
                    "ov"[index],
                    ms=3.5,
                    color=line_style(index)["color"],
                    label=f"fitted {label}" if column == 0 else None,
                )
        errors.axhline(ROLLOUT, color="0.5", lw=0.8)
        errors.set(yscale="log", ylabel="rollout error of runs held out")
        weights.set(ylabel="weight, from one run (lines: the truth)")
        for axis in (weights, errors):
            axis.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
            axis.tick_params(axis="x", labelrotation=30, labelsize=7)
            axis.legend(fontsize=7)
        return svg(figure)
