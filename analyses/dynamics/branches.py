"""Where in-weights and in-context states end in the full commutant field (theory, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analyses.claim import Claim, Comparison
from analyses.dynamics.base import Say
from analyses.figures import PALETTE, canvas, svg
from manifold import Branch, ReducedField, continue_branch, equilibrium, in_context, reduced_field
from training.tasks.associative_recall import AssociativeRecall

TITLE: str = "The same states in every coordinate: where each of them ends"
DECAY, SPAN = 1e-3, (0.01, 1.0)
SETTINGS: Mapping[str, tuple[int, int, int, int | None]] = {
    "n = 3, N_c = 6, N_r = 5, exact": (3, 6, 5, None),
    "n = 6, N_c = N_r = 8, 900 sequences": (6, 8, 8, 900),
}
BEGIN = {"from zero": (0.02, 0.2), "in context": (0.2,)}
"""Values of f_v from which a state is followed both ways, by the start of the flow."""
STRONG = 3
"""Coordinates named of each state."""
AT = 0.2
"""f_v at which the theory finds both states."""
IN_WEIGHTS, IN_CONTEXT = "in weights", "in context"
SAMPLE = "a sample of"
"""What a field calls itself whose sequences are drawn."""


def field_of(n: int, common: int, rare: int, samples: int | None) -> ReducedField:
    """All coordinates; m = 4, b = 1, query from common tokens, distractors f_r = f_v = 0.3."""
    task = AssociativeRecall(
        n_blocks=n,
        n_common=common,
        n_rare=rare,
        track_slots=4,
        f_r=0.0,
        f_v=0.2,
        distractor_f_r=0.3,
        distractor_f_v=0.3,
    )
    return reduced_field(task, samples=samples)


def measure(folder: Path, say: Say, quick: bool = False) -> dict[str, Any]:
    """Facts; `folder` is not needed, nothing is trained."""
    quickly: Mapping[str, tuple[int, int, int, int | None]] = {"n = 1, quick": (1, 4, 2, None)}
    settings = quickly if quick else SETTINGS
    begin = {"from zero": (0.2,), "in context": (0.2,)} if quick else BEGIN
    rows = {}
    for name, sizes in settings.items():
        field, found = field_of(*sizes), []
        starts = {"from zero": np.zeros(field.dim), "in context": in_context(field)}
        for start, values in begin.items():
            for at in values:
                say(f"{name}: {start} at f_v = {at:g}")
                state = equilibrium(field.at(f_v=at), starts[start], DECAY)
                known = [one for one in found if _same(one, at, state)]
                if known:
                    known[0]["also"].append(f"{start} at {at:g}")
                    continue
                found.append(_followed(field, start, at, state, say))
        rows[name] = {"field": str(field), "dim": field.dim, "states": found}
    return {"weight_decay": DECAY, "settings": rows}


def _followed(
    field: ReducedField, start: str, at: float, state: np.ndarray, say: Say
) -> dict[str, Any]:
    """A state, and its branch to both ends of SPAN."""
    ways = {}
    for name, span in {"down": (SPAN[1], SPAN[0]), "up": SPAN}.items():
        branch = continue_branch(field, state, span=span, at=at, weight_decay=DECAY, step=0.3)
        ways[name] = _way(field, branch)
        say(f"  {name}: {ways[name]['end']}")
    return {
        "start": start,
        "f_v": at,
        "also": [],
        **_read(field, state),
        "leading": ways["up"]["leading"][0],
        "ways": ways,
    }


def _way(field: ReducedField, branch: Branch) -> dict[str, Any]:
    """Points, what they answer, and where the stretch that attracts ends."""
    table = branch.table
    stable = table["stable"].to_numpy(bool)
    upto = len(stable) if stable.all() else int(stable.argmin())
    gone = [one for one in branch.bifurcations if _between(one.value, table["f_v"], upto)]
    if stable.all():
        end = f"attracts throughout; {branch.ended}"
    elif gone:
        end = f"{gone[0].kind} at f_v = {gone[0].value:.6f}"
    else:
        end = f"stops attracting near f_v = {table['f_v'].iloc[max(upto - 1, 0)]:.4f}"
    read = [_read(field, state) for state in branch.states]
    return {
        "end": end,
        "bifurcations": [[one.kind, one.value] for one in branch.bifurcations],
        "unresolved": list(branch.unresolved),
        "f_v": table["f_v"].tolist(),
        "stable": stable.tolist(),
        "leading": table["leading"].tolist(),
        "mismatch": [one["mismatch"] for one in read],
        "iwl": [one["iwl"] for one in read],
        "first": branch.states[0].tolist(),
        "strongest": [one["strongest"] for one in (read[0], read[-1])],
    }


def _between(value: float, f_v: Any, upto: int) -> bool:
    """Is the value beside the last point that attracts?"""
    near = np.asarray(f_v)[max(upto - 2, 0) : upto + 1]
    wide = 0.5 * (near.max() - near.min())
    return bool(near.min() - wide <= value <= near.max() + wide)


def _same(one: Mapping[str, Any], at: float, state: np.ndarray) -> bool:
    return one["f_v"] == at and np.allclose(one["ways"]["up"]["first"], state, atol=1e-5)


def _read(field: ReducedField, state: np.ndarray) -> dict[str, Any]:
    accuracy = field.kinds(state)["accuracy"].to_dict()
    order = np.argsort(-np.abs(state))[:STRONG]
    return {
        "mismatch": float(accuracy["mismatch"]),
        "iwl": float(accuracy["iwl"]),
        "strongest": {field.names[i]: float(state[i]) for i in order},
    }


def text(facts: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {one['start']}, {one['f_v']:g}{_also(one)} | {one['leading']:.1e} | "
        f"{one['mismatch']:.2f} | {one['iwl']:.2f} | {_strongest(one['strongest'])} | "
        f"{one['ways']['down']['end']} | {one['ways']['up']['end']} |"
        for name, setting in facts["settings"].items()
        for one in setting["states"]
    ]
    fields = "; ".join(f"{name}: {one['field']}" for name, one in facts["settings"].items())
    return "\n".join(
        [
            "The four coordinates are a summary, and their folds need not be those of the model. "
            f"In all coordinates ({fields}) at weight decay {facts['weight_decay']:g} the flow is "
            "followed until it is at rest, from zero and from a planted induction circuit, the "
            "state is polished by Newton's method, and its branch is followed in the query's f_v "
            f"both ways over {SPAN[0]:g} to {SPAN[1]:g}. Accuracy on mismatch and iwl queries is "
            "at the state where it begins.",
            "",
            f"Which states attract at f_v = {AT:g}, by the points of every branch that passes "
            "there, wherever it began (in weights: mismatch below 1/2 and iwl above; in context: "
            "mismatch above): " + "; ".join(map(_attracts, facts["settings"].items())) + ".",
            "",
            "| setting | state from, at f_v | largest eigenvalue | mismatch | iwl | strongest | "
            "down | up |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "![Mismatch and iwl accuracy along each branch](dynamics/branches.svg)",
        ]
    )


def _attracts(named: tuple[str, Mapping[str, Any]]) -> str:
    name, setting = named
    inside, outside = stretches(setting, IN_WEIGHTS), stretches(setting, IN_CONTEXT)
    said = f"at {name} {len(through(inside))} in weights, {len(through(outside))} in context"
    if inside:
        said += f"; in weights they attract up to f_v = {reach(inside):.3f}"
    if SAMPLE in setting["field"]:
        said += " (one sample: how far another's states differ is not known)"
    return said


def _also(one: Mapping[str, Any]) -> str:
    return f" (also {', '.join(one['also'])})" if one["also"] else ""


def _strongest(named: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in named.items())


def figures(facts: Mapping[str, Any]) -> Mapping[str, str]:
    settings = facts["settings"]
    with canvas(2 * len(settings), width=4.4 * len(settings), height=3.2, sharey=True) as drawn:
        figure, axes = drawn
        for pair, (name, setting) in zip(
            zip(axes[::2], axes[1::2], strict=True), settings.items(), strict=True
        ):
            for axis, kind in zip(pair, ("mismatch", "iwl"), strict=True):
                for number, one in enumerate(setting["states"]):
                    _draw(axis, one, kind, number)
                axis.set(xlabel="f_v of the query", xscale="log", title=f"{kind}, n = {name[4]}")
        axes[0].set_ylabel("accuracy")
        axes[0].legend(fontsize=7)
        return {"branches.svg": svg(figure)}


def _draw(axis: Axes, one: Mapping[str, Any], kind: str, number: int) -> None:
    """Solid where it attracts; a dot where it begins."""
    label: str | None = f"{one['start']} at {one['f_v']:g}"
    for way in one["ways"].values():
        f_v, values, stable = (np.array(way[key]) for key in ("f_v", kind, "stable"))
        axis.plot(f_v, np.where(stable, values, np.nan), color=PALETTE[number], label=label)
        axis.plot(f_v, np.where(stable, np.nan, values), ":", color=PALETTE[number])
        label = None
    axis.plot(one["f_v"], one[kind], "o", ms=5, color=PALETTE[number])


def claims(facts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """At f_v = 0.2 two states attract, and the one in the weights does beyond f_v = 0.4."""
    return tuple(_claim(name, setting) for name, setting in facts["settings"].items())


def _claim(name: str, setting: Mapping[str, Any]) -> Claim:
    """Of one setting; where the field is one sample, no interval is known, nor a verdict."""
    short_of = "samples (there is one)" if SAMPLE in setting["field"] else ""
    inside, outside = stretches(setting, IN_WEIGHTS), stretches(setting, IN_CONTEXT)
    found = [
        _compared(f"states {what} that attract at f_v = {AT:g}", len(through(spans)), (1.0, np.inf))
        for what, spans in (("in weights", inside), ("in context", outside))
    ]
    if inside:
        what = "f_v up to which the state in the weights attracts"
        found.append(_compared(what, reach(inside), (0.4, 1.0)))
    return Claim(
        number=f"full field, {name}",
        source="theory, section 5",
        statement=f"as the theory finds at n = 6, so at {name}: at f_v = {AT:g}, decay {DECAY:g} a "
        "state in the weights and one in context attract in all coordinates; the former does past "
        "f_v = 0.4",
        comparisons=tuple(replace(one, short_of=short_of) for one in found),
    )


def _compared(what: str, value: float, expected: tuple[float, float]) -> Comparison:
    return Comparison(
        what=what, value=float(value), low=float(value), high=float(value), expected=expected
    )


def stretches(setting: Mapping[str, Any], kind: str) -> list[tuple[float, float]]:
    """Least and largest f_v of every unbroken stretch of a branch that attracts and answers so.

    kind: IN_WEIGHTS, wrong on mismatch and right on iwl queries; IN_CONTEXT, right on mismatch;
    each by an accuracy of more than 1/2, point by point, wherever on the branch.
    """
    spans = []
    for one in setting["states"]:
        down, up = one["ways"]["down"], one["ways"]["up"]
        f_v, stable, mismatch, iwl = (
            np.array([*down[key][::-1], *up[key]]) for key in ("f_v", "stable", "mismatch", "iwl")
        )
        answers = mismatch > 0.5 if kind == IN_CONTEXT else (mismatch < 0.5) & (iwl > 0.5)
        held = np.flatnonzero(stable.astype(bool) & answers)
        for run in np.split(held, np.flatnonzero(np.diff(held) > 1) + 1):
            if len(run):
                spans.append((float(f_v[run].min()), float(f_v[run].max())))
    return spans


def through(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that pass f_v = AT."""
    return [(low, high) for low, high in spans if low <= AT <= high]


def reach(spans: Sequence[tuple[float, float]]) -> float:
    """The largest f_v of those that pass AT; where none does, of all."""
    return max(high for _, high in through(spans) or spans)
