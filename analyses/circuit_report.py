"""Circuits of one run: their facts, and a folder with the page, the drawings and the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyses.circuit_figure import circuit_figure
from analyses.page import SCHEMA_VERSION, render, versions, write_drawing, write_json, write_text
from analyses.studies.base import Section
from circuits.circuit import Circuit
from circuits.export import edge_table, mib_graph
from training import Run
from training.families.attention_only import AttentionOnly
from training.families.transformer import Transformer


def facts_of(run: Run, found: Mapping[int, tuple[Circuit, str]], **asked: object) -> dict[str, Any]:
    """Everything that is said of the circuits, step to (circuit, its pairs in words)."""
    circuits = [_facts(step, circuit, pairs) for step, (circuit, pairs) in found.items()]
    return {"schema_version": SCHEMA_VERSION, "run": run.run_id, **asked, "circuits": circuits}


def _facts(step: int, circuit: Circuit, pairs: str) -> dict[str, Any]:
    curve = circuit.curve
    value, low, high = circuit.faithfulness
    return {
        "step": step,
        "pairs": pairs,
        "defined": circuit.defined,
        "sentence": str(circuit),
        "note": circuit.note,
        "method": circuit.scores.method,
        "gap": circuit.scores.gap,
        "graph": {"nodes": len(circuit.graph.nodes), "edges": len(circuit.graph.edges)},
        "faithfulness": {"value": value, "low": low, "high": high},
        "random": {"mean": circuit.random[0], "high": circuit.random[1]},
        "completeness": circuit.completeness,
        "cpr": None if curve is None else curve.cpr,
        "cmd": None if curve is None else curve.cmd,
        "random_cpr": None if curve is None else curve.random_cpr,
        "random_cmd": None if curve is None else curve.random_cmd,
        "nodes": list(circuit.nodes),
        "edges": _edges(circuit),
    }


def _edges(circuit: Circuit) -> list[dict[str, Any]]:
    falls = dict(zip(circuit.minimality["edge"], circuit.minimality["fall"], strict=True))
    values = circuit.scores.values
    return [
        {"edge": str(edge), "effect": float(values[i]), "needed": float(falls[str(edge)])}
        for i, edge in enumerate(circuit.graph.edges)
        if circuit.mask[i]
    ]


def write_circuits(
    out: Path, run: Run, found: Mapping[int, tuple[Circuit, str]], facts: dict[str, Any]
) -> list[Path]:
    """circuits.html and circuits.json, and for each step a table of all edges (CSV), the drawing
    (SVG) and, of a transformer, MIB's graph (JSON); the page first.

    ValueError where the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = [write_text(out / "circuits.html", _page(run, found))]
        files.append(write_json(out / "circuits.json", facts))
        for step, (circuit, _) in found.items():
            table = edge_table(circuit).to_csv(index=False)
            files.append(write_text(out / f"edges-{step}.csv", table))
            if circuit.defined:
                drawing = circuit_figure(circuit).svg
                files.append(write_drawing(out / f"circuit-{step}.svg", drawing))
            if isinstance(run.family, AttentionOnly | Transformer):
                files.append(write_json(out / f"mib-{step}.json", mib_graph(circuit, run)))
    except OSError as error:
        raise ValueError(
            f"--out {out}: cannot be written ({error.strerror or error}); give a folder that you "
            "may write"
        ) from error
    return files


def _page(run: Run, found: Mapping[int, tuple[Circuit, str]]) -> str:
    sections = [_section(step, circuit, pairs) for step, (circuit, pairs) in found.items()]
    return render(
        title=f"Circuits of run {run.run_id}",
        lead="The fewest edges of the computation that carry the answer.",
        sections=sections,
        notes={
            "run": run.run_id,
            "configuration": json.dumps(run.config.canonical()),
            **versions(),
        },
    )


def _section(step: int, circuit: Circuit, pairs: str) -> Section:
    name = f"Step {step}"
    text = [
        f"{pairs}: clean sequences beside the same ones with one input changed so that the answer "
        "changes. Faithfulness: the share of the difference between their answers that the "
        "circuit's edges carry when every other edge carries what it does in the ablated run. "
        f"{circuit.note[:1].upper()}{circuit.note[1:]}."
    ]
    curve = circuit.curve
    if curve is not None:
        text.append(
            f"Over all sizes of the ranking: CPR {curve.cpr:.2f} (random sets "
            f"{curve.random_cpr:.2f}), CMD {curve.cmd:.2f} (random sets {curve.random_cmd:.2f})."
        )
    return Section(
        anchor=f"step-{step}",
        title=name,
        findings=(f"{name}: {circuit}.",),
        text=tuple(text),
        figures=(circuit_figure(circuit, name),) if circuit.defined else (),
    )
