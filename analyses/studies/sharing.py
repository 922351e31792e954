"""Do lengths share a mechanism? kappa beside kappa_sep, and the circuits of the joint models."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analyses.circuit_facts import circuit_facts, figures_of, label
from analyses.figures import Figure
from analyses.kappa_figure import Mark, kappa_drawing
from analyses.settings import Cell, Settings
from analyses.studies.base import Progress, Section, interval
from circuits.length_matrix import MINIMUM_ACCURACY
from training import NStar, Run, RunConfig, SharingFactor, open_run, sharing_factor


def config(cell: Cell) -> RunConfig:
    return RunConfig(
        **{
            "study": cell.name,
            "task": cell.task,
            "family": cell.family,
            "optimiser": {"name": "adam", "lr": cell.lrs[0]},
            "steps": cell.steps,
            "batch_size": 64,
            "eval_every": 25,
            "eval_size": 600,
            "stop": {"loss": 0.02, "patience": 300, "margin": 0.1},
            "checkpoints": {"every": 128},
        }
    )


def run(folder: Path, settings: Settings, seed: int, progress: Progress) -> dict:
    """The search of the one cell in `settings`, then the circuits of its joint model."""
    (cell,) = settings.cells
    factor = sharing_factor(
        config(cell),
        root=folder / "runs",
        lrs=cell.lrs,
        seeds=tuple(range(seed, seed + cell.seeds)),
        data_seeds=(seed,),
        n50=False,
        progress=lambda share, text: progress(0.9 * share, text),
    )
    record = factor.record()
    for replicate in record["replicates"]:
        for search in replicate["searches"].values():
            for trial in search["trials"]:
                for member in trial["members"]:
                    member["run"] = Path(member["run"]).name
    facts = {"kappa": record, "sentence": factor.sentence(), "circuits": None}
    joint = _to_read(factor)
    if joint is not None:
        progress(0.9, "circuits of the joint model")
        facts["circuits"] = circuit_facts(
            joint, samples=settings.circuit_samples, seed=seed, others=_joint_runs(factor)
        )
    progress(1.0, "done")
    return facts


def _to_read(factor: SharingFactor) -> Run | None:
    """The joint model of the largest size whose every length is learnt, else of the largest."""
    runs = [open_run(path) for path in _joint(factor).solved.values()]
    learnt = [run for run in runs if _worst(run) >= MINIMUM_ACCURACY]
    return (learnt or runs or [None])[-1]


def _joint_runs(factor: SharingFactor) -> list[Run]:
    """What was trained of the joint search at the sizes that were learnt, halted ones included."""
    members = [m for t in _joint(factor).trials if t.solved for m in t.members]
    return [open_run(m.run) for m in members if m.state != "waiting"]


def _joint(factor: SharingFactor) -> NStar:
    """The joint search of the one data seed."""
    (replicate,) = factor.replicates
    return replicate.joint


def _worst(run: Run) -> float:
    metrics = run.last.metrics
    return min(metrics[f"accuracy.{kind}"] for kind in run.task.kinds)


def section(cells: list[dict]) -> Section:
    learnt = [cell["circuits"] for cell in cells if cell["circuits"]]
    findings = [f"{cell['sentence']} {_members(cell)}" for cell in cells]
    for facts in learnt:
        findings.append(f"{label(facts)}: {_meeting(facts)}{facts['sentence']}")
    figures = [_kappa_figure(cells)]
    if learnt:
        figures += figures_of(learnt)
    return Section(
        anchor="sharing",
        title="Do lengths share a mechanism? kappa and circuits by length",
        findings=tuple(findings),
        text=(
            "kappa = sum_n N*_n / N*_joint: how many more training sequences separate lengths need "
            "than one joint model. kappa_sep is what it would be if the lengths were learnt by "
            "separate mechanisms; well above it they share, below it they interfere. N* is the "
            "smallest size on a grid of steps of 1.3 at which one member of the grid reaches a "
            "validation loss of 0.02; a bound is printed where a search ran out of data.",
            "Circuits are read on the joint model of the largest size tried at which every length "
            "was learnt, at lengths it answers with at least 0.95 accuracy. A value near 1 says "
            "that at the end of training lengths keep the answer in the same directions; the "
            "gradient cosines say whether they helped each other on the way there. "
            + "; ".join(
                f"{label(f)}: {f['train_size']} sequences, step {f['step']}" for f in learnt
            )
            + ".",
        ),
        figures=tuple(figures),
    )


def _members(cell: dict) -> str:
    """What was tried at each size."""
    (replicate,) = cell["kappa"]["replicates"]
    search = replicate["searches"]["joint"]
    seeds = ", ".join(map(str, search["seeds"]))
    return (
        f"Tried at each size of data seed {replicate['data_seed']}: {len(search['lrs'])} learning "
        f"rates, seeds {seeds} of the weights."
    )


def _meeting(facts: dict) -> str:
    """What happens where different steps meet at one absolute position."""
    if "same position" not in facts["gradient_cosines"]:
        return ""
    mean = facts["gradient_cosines"]["same position"]
    low, high = facts["gradient_cosines_interval"]["same position"]
    runs = facts["gradient_cosines_by_run"]["same position"].values()
    return (
        f"gradients of different steps at the same absolute position have cosine {mean:+.2f} "
        f"{interval(low, high)}, in {len(runs)} runs of {facts['gradient_cosines_seeds']} seeds "
        f"from {min(runs):+.2f} to {max(runs):+.2f}. "
    )


def _kappa_figure(cells: list[dict]) -> Figure:
    rows, marks = [], []
    for k in (cell["kappa"] for cell in cells):
        layout = "" if k["format"] == "acot" else f", {k['layout']}"
        lengths = ", ".join(map(str, k["lengths"]))
        name = f"{k['family']} {k['format']}{layout}\n{k['task']}, lengths {lengths}"
        low, high = k["kappa_interval"]
        known = {key: k[key] for key in ("kappa", "bound", "kappa_sep")}
        marks.append(Mark(name=name, low=low, high=high, **known))
        rows.append(
            {
                "cell": f"{k['family']} {k['task']} {k['format']} {k['layout']}",
                **{f"N* at {n}": v for n, v in k["n_star"].items()},
                "N* joint": k["n_star_joint"],
                "kappa": k["kappa"],
                "bound": k["bound"],
                "kappa_low": low,
                "kappa_high": high,
                "N_sep": k["n_sep"],
                "kappa_sep": k["kappa_sep"],
                "kappa / kappa_sep": k["ratio"],
            }
        )
    return Figure(
        svg=kappa_drawing(marks),
        alt="kappa beside kappa_sep for each cell. " + " ".join(c["sentence"] for c in cells),
        caption="Dots: kappa, with the range its search grid leaves open. Diamonds: kappa_sep.",
        table=pd.DataFrame(rows),
    )
