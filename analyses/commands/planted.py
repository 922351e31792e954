"""`kappalens planted`."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analyses.commands.base import Json, bars

if TYPE_CHECKING:
    from circuits.planted import Recovery

EXAMPLES = (
    "Examples: kappalens planted | kappalens planted --models 7 --methods exact "
    '--methods "ig inputs" --json'
)


def planted(
    models: Annotated[
        int, typer.Option(min=1, help="With a circuit, and as many without; kinds in turn.")
    ] = 50,
    methods: Annotated[
        list[str] | None, typer.Option(help="Only this one; may be given several times.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of sizes, places, weights, sequences.")] = 0,
    json_: Json = False,
) -> None:
    """Look for circuits in models whose circuits are known, and in models without any.

    By method: how well its ranking tells true edges from others (auroc; chance 0.5), how far the
    number of edges found lies from the true one (size_error), and how many edges it finds where
    there are none (false_findings). 50 models take a few minutes.
    """
    from circuits.attribution import METHODS
    from circuits.planted import control_models, planted_models, recover

    chosen = tuple(methods or METHODS)
    unknown = sorted(set(chosen) - set(METHODS))
    if unknown:
        raise ValueError(f"--methods got {', '.join(unknown)}; allowed: {', '.join(METHODS)}")
    with bars(quiet=json_) as shown:
        row = shown.add_task("", name="planted", total=2 * models)
        recovery = recover(
            chain(planted_models(models, seed), control_models(models, seed)),
            chosen,
            watch=lambda model: shown.update(row, advance=1, description=model.construction),
        )
    typer.echo(json.dumps(_record(recovery)) if json_ else _text(recovery))


def _record(recovery: Recovery) -> dict[str, Any]:
    from circuits.planted import ALPHA, BASELINE, LEVEL

    table = recovery.constructions()
    return {
        "level": LEVEL,
        "alpha": ALPHA,
        "methods": [m for m in recovery.methods() if m["method"] != BASELINE],
        "baseline": {
            "method": BASELINE,
            "auroc": next(m["auroc"] for m in recovery.methods() if m["method"] == BASELINE),
            "chance": 0.5,
        },
        "constructions": json.loads(table.to_json(orient="records") or "[]"),
    }


def _text(recovery: Recovery) -> str:
    record = _record(recovery)
    first = record["methods"][0]
    lines = [
        f"{first['models']} models with a circuit, {first['controls']} without (of which "
        f"{first['controls_with_gap']} have a gap by chance); an edge is found from "
        f"{record['level']:.0%} of the gap on",
        "",
        f"{'method':<16} auroc (95%)               lowest  size error  missed  wrong  false found",
    ]
    for m in record["methods"]:
        interval = f"{m['auroc']:.4f} ({m['auroc_low']:.4f} to {m['auroc_high']:.4f})"
        lines.append(
            f"{m['method']:<16} {interval:<25} {m['auroc_lowest']:.4f} {m['size_error']:>11.3f}"
            f" {m['missed']:>7} {m['wrong']:>6} {m['false_findings']:>12}"
        )
    lines += [
        f"ranked by how much the source differs alone: {record['baseline']['auroc']:.4f}; chance: "
        "0.5",
        "",
        f"{'construction':<14} {'method':<16} auroc  lowest  size error  missed  wrong  apart",
    ]
    for c in record["constructions"]:
        if c["method"] == record["baseline"]["method"]:
            continue
        apart = f"{c['apart_found']} of {c['apart']}" if c["apart"] else ""
        lines.append(
            f"{c['construction']:<14} {c['method']:<16} {c['auroc']:.3f}  {c['lowest']:.3f}"
            f" {c['size_error']:>11.3f} {c['missed']:>7} {c['wrong']:>6}  {apart}"
        )
    return "\n".join(lines)
