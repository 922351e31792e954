"""A report of one run: its learning curve, and what the rooms can say of its task and family."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analyses.circuit_facts import circuit_facts, figures_of
from analyses.coordinate_sections import manifold_section, states_section
from analyses.demo import write_report
from analyses.figures import Figure, canvas, line_style, svg
from analyses.page import SCHEMA_VERSION, plain, render, versions, write_json, write_text
from analyses.studies.base import Section
from manifold.states.recurrent_states import has_states
from training import (
    AttentionOnly,
    ModularAddition,
    Run,
    StateTracking,
    Transformer,
    audit,
    open_run,
)
from training.tasks.block_list import BlockList


def report(folder: str | Path) -> Path:
    """report.html and report.json of a demo's folder or of a run's; returns the page."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give a demo's or a run's folder")
    if (folder / "demo.json").exists():
        return write_report(folder)
    return write_run_report(open_run(folder))


def write_run_report(run: Run, *, samples: int = 256, seed: int = 0) -> Path:
    """report.html and report.json inside the run's folder."""
    sections = [_learning(run)]
    facts: dict[str, Any] = {"metrics": run.metrics.to_dict(orient="list")}
    for key, title, part in _parts(run, samples, seed):
        section, facts[key] = _read(key, title, part)
        sections.append(section)
    amiss = audit(run.path, read_weights=False).findings
    facts["audit"] = [asdict(finding) for finding in amiss]
    notes = {
        "run": run.run_id,
        "audit of the small files": "; ".join(f.message for f in amiss) or "nothing found",
        "status": f"{run.status['state']} at step {run.status['step']}",
        "configuration": json.dumps(run.config.canonical()),
        **versions(),
    }
    page = render(
        title=f"Run {run.run_id}",
        lead="One training run, read from its checkpoints.",
        sections=sections,
        notes=notes,
    )
    facts |= {"schema_version": SCHEMA_VERSION, "run_id": run.run_id, "status": run.status}
    write_json(run.path / "report.json", plain(facts))
    return write_text(run.path / "report.html", page)


Part = Callable[[], tuple[Section, dict[str, Any]]]


def _parts(run: Run, samples: int, seed: int) -> Iterator[tuple[str, str, Part]]:
    """What the rooms can say of the run's task and family: a key, a title, and how to find out."""
    if isinstance(run.task, BlockList) and isinstance(run.family, AttentionOnly | Transformer):
        yield "coordinates", "Coordinates on the invariant manifold", lambda: manifold_section(run)
    if isinstance(run.task, StateTracking) and has_states(run.family):
        yield "states", "States as group elements", lambda: states_section(run)
    if isinstance(run.task, ModularAddition) and len(run.task.lengths) > 1:
        yield "circuits", "Circuits by length", lambda: _circuits(run, samples, seed)


def _read(key: str, title: str, part: Part) -> tuple[Section, dict[str, Any]]:
    """The section; where the run cannot be read in this way, a section that says why."""
    try:
        return part()
    except ValueError as error:
        why = f"{title}: not read. {error}"
        found = Section(anchor=key, title=title, findings=(why,), text=(), figures=())
        return found, {"not_read": str(error)}


def _learning(run: Run) -> Section:
    metrics = run.metrics
    scores = [c for c in metrics.columns if c.startswith("accuracy.")]
    with canvas(2, width=7.4, height=2.8) as (figure, (losses, accuracy)):
        for index, name in enumerate(("train_loss", "validation_loss")):
            rows = metrics.dropna(subset=[name])
            losses.plot(rows["step"], rows[name], label=name.split("_")[0], **line_style(index))
        for index, name in enumerate(scores):
            rows = metrics.dropna(subset=[name])
            label = name.removeprefix("accuracy.")
            accuracy.plot(rows["step"], rows[name], label=label, **line_style(index))
        losses.set(xlabel="step", ylabel="loss (nats)", yscale="log")
        accuracy.set(xlabel="step", ylabel="final-answer accuracy", ylim=(-0.02, 1.02))
        for axis in (losses, accuracy):
            axis.legend(fontsize=7)
        drawing = svg(figure)
    measured, status = metrics.dropna(subset=["validation_loss"]), run.status
    if measured.empty:
        finding = f"The run is {status['state']} at step {status['step']}; nothing was measured."
    else:
        last = measured.iloc[-1]
        finding = (
            f"The run is {status['state']} at step {status['step']}: validation loss "
            f"{last['validation_loss']:.4f}, accuracy {last['validation_accuracy']:.3f} at step "
            f"{last['step']:.0f}."
        )
    return Section(
        anchor="learning",
        title="Learning curve",
        findings=(finding,),
        text=(str(status.get("why", "")),) if status.get("why") else (),
        figures=(
            Figure(
                svg=drawing,
                alt="Training and validation loss, and final-answer accuracy by query kind or "
                "length, against step.",
                caption="Loss, and final-answer accuracy by query kind or length.",
                table=metrics,
            ),
        ),
    )


def _circuits(run: Run, samples: int, seed: int) -> tuple[Section, dict]:
    facts = circuit_facts(run, samples=samples, seed=seed)
    section = Section(
        anchor="circuits",
        title="Circuits by length",
        findings=(facts["sentence"],),
        text=(
            "The subspace circuit of each length at the final token, read at every other length.",
        ),
        figures=tuple(figures_of([facts])),
    )
    return section, facts
