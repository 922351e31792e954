"""`kappalens circuits`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analyses.commands.base import Json, bars, find_own_modules

if TYPE_CHECKING:
    from circuits.circuit import Circuit

EXAMPLES = (
    "Examples: kappalens circuits runs/study/4f0c | "
    "kappalens circuits runs/study/4f0c --step 512 --step 2048 --out circuit | "
    "kappalens circuits runs/study/4f0c --length 4 --method exact --json"
)


def circuits(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    step: Annotated[
        list[int] | None,
        typer.Option(help="Checkpoint, the last unless given; may be given several times."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Length of the sequences, the longest unless given.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of query, such as rare.")] = None,
    part: Annotated[
        str | None,
        typer.Option(help="Input that is corrupted, such as query, key or value; else each."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="exact, attribution, 'ig inputs', 'ig activations', ACDC or 'learned mask'."
        ),
    ] = "ig inputs",
    ablation: Annotated[
        str,
        typer.Option(
            help="What patched edges carry: corrupted, mean, 'mean per position', zero, resample."
        ),
    ] = "corrupted",
    samples: Annotated[int, typer.Option(min=1, help="Pairs, about.")] = 256,
    patience: Annotated[
        float, typer.Option(help="Seconds that exact patching may be expected to take.")
    ] = 600.0,
    seed: Annotated[int, typer.Option(min=0, help="Which pairs, and which random sets.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for circuits.html, a CSV and an SVG, and MIB's format."),
    ] = None,
    json_: Json = False,
) -> None:
    """Find the circuit of one run's checkpoints: the fewest edges that carry the answer.

    Clean sequences are compared with ones in which one input is changed so that the answer changes.
    Each circuit comes with its faithfulness, the interval of that, and random sets of as many
    edges; where a model has not learned there is none, and the answer says so.
    """
    from analyses.circuit_report import facts_of, write_circuits
    from analyses.page import plain
    from circuits.discover import check, prepare, search
    from training import open_run

    find_own_modules()
    check(method)
    run = open_run(folder)
    steps = list(dict.fromkeys(step or [run.steps[-1]]))
    found: dict[int, tuple[Circuit, str]] = {}
    with bars(json_) as shown:
        bar = shown.add_task("", name=f"run {run.run_id}", total=2 * len(steps))
        for one in steps:
            shown.update(bar, description=f"step {one}: clean and corrupted runs")
            patcher = prepare(
                run, one, length=length, kind=kind, part=part, ablation=ablation,
                samples=samples, seed=seed,
            )  # fmt: skip
            shown.update(bar, advance=1, description=f"step {one}: {method}")
            circuit = search(patcher, method, patience=patience, seed=seed)
            found[one] = circuit, patcher.pair.sentence
            shown.update(bar, advance=1)
        shown.update(bar, description="done")
    facts = facts_of(run, found, method=method, ablation=ablation, length=length, kind=kind)
    files = [] if out is None else write_circuits(out, run, found, facts)
    if json_:
        typer.echo(json.dumps(plain(facts | {"files": list(map(str, files))}), allow_nan=False))
        return
    typer.echo("\n\n".join(_text(one) for one in facts["circuits"]))
    if files:
        typer.echo(f"\nReport: {files[0].resolve()}")


def _text(one: dict[str, Any]) -> str:
    """One circuit: the sentence, and its edges, strongest first."""
    lines = [f"Step {one['step']}, {one['pairs']}: {one['sentence']}"]
    if one["defined"]:  # else the sentence has the note
        lines.append(f"  {one['note']}")
    edges = sorted(one["edges"], key=lambda edge: -abs(edge["effect"]))
    if edges:
        width = max(len(edge["edge"]) for edge in edges)
        lines += [f"  {edge['edge']:<{width}}  {edge['effect']:+.3f}" for edge in edges[:20]]
    if len(edges) > 20:
        lines.append(f"  and {len(edges) - 20} more (--json or --out has all)")
    return "\n".join(lines)
