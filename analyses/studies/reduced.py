"""Does the reduced ODE follow full training? Projected checkpoints against the field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from analyses.figures import Figure, canvas, line_style, svg
from analyses.settings import Settings
from analyses.studies.base import RECALL, Progress, Section
from manifold import ReducedField, project, reduced_field
from training import RunConfig, train_many

SHOWN = {
    "1:M": "alpha",
    "2:I_c I->V1": "beta, common",
    "2:I_r I->V1": "beta, rare",
    "out:I_c V2": "gamma, common",
    "out:I_r V2": "gamma, rare",
    "out:C I": "delta",
}
"""The coordinates of the induction circuit and of in-weights recall, with the summary's symbols."""


def configs(settings: Settings, seed: int) -> list[RunConfig]:
    """One run from zero, and several from small random weights."""
    starts = [(0.0, 0)] + [(0.01, 1 + k) for k in range(settings.small_seeds)]
    return [
        RunConfig(
            **{
                "study": "recall",
                "task": RECALL,
                "family": {"name": "attention_only", "layers": 2, "heads": 1, "scale": scale},
                "optimiser": {"name": "sgd", "lr": 1.0},
                "steps": settings.recall_steps,
                "batch_size": settings.recall_batch,
                "seeds": {"init": seed + k, "data": seed + k, "eval": seed},
                "eval_every": max(1, settings.recall_steps // 20),
                "eval_size": 1000,
                "checkpoints": {
                    "every": max(1, settings.recall_steps // 80),
                    "steps": settings.error_times,
                },
            }
        )
        for scale, k in starts
    ]


def run(folder: Path, settings: Settings, seed: int, progress: Progress) -> dict:
    """Train, project every checkpoint, and integrate the field from the projected start."""
    progress(0.0, "training from zero and from small weights")
    runs = train_many(
        configs(settings, seed),
        root=folder / "runs",
        progress=lambda step, total, _: progress(0.75 * step / total, f"training, step {step}"),
    )
    task = runs[0].task
    progress(0.75, "projecting checkpoints, building the reduced field")
    coords = project(runs)
    field = reduced_field(task, samples=settings.field_samples, seed=seed + 1)
    members = []
    for index, run in enumerate(runs):
        progress(0.8 + 0.2 * index / len(runs), "integrating the reduced field")
        members.append(_compare(run, coords.isel(run=index), field, settings))
    return {
        "task": RECALL,
        "scores": _scores(coords.isel(run=0), field),
        "dim": len(field.names),
        "samples": settings.field_samples,
        "sampling_error": field.sampling_error(coords["c"][0, coords.sizes["step"] // 2].values),
        "members": members,
        "r2": members[0]["r2"],
        "relative_error": members[0]["relative_error"],
        "emergence": members[0]["emergence"],
        "captured": members[0]["captured"],
    }


def _compare(run, coords: xr.Dataset, field: ReducedField, settings: Settings) -> dict:
    """One run's trajectory beside the integrated one: R^2 over all coordinates and times."""
    times = coords["time"].to_numpy()
    full = coords["c"].to_numpy()
    reduced = field.integrate(full[0], times, rtol=1e-4)  # far below the sampling error
    error = np.linalg.norm(reduced - full, axis=1) / np.linalg.norm(full, axis=1).clip(1e-12)
    at = {str(t): float(error[np.flatnonzero(times == t)[0]]) for t in settings.error_times}
    names = [str(n) for n in coords["coordinate"].to_numpy()]
    emergence = {}
    for name in SHOWN:
        column = names.index(name)
        emergence[name] = {
            "full": half_time(times, full[:, column]),
            "reduced": half_time(times, reduced[:, column]),
        }
    captured = coords["captured"].isel(step=-1)
    return {
        "initialisation": run.family.scale,
        "seeds": run.config.seeds.model_dump(),
        "run_id": run.run_id,
        "times": times.tolist(),
        "names": names,
        "full": full.tolist(),
        "reduced": reduced.tolist(),
        "error": error.tolist(),
        "r2": float(1 - ((full - reduced) ** 2).sum() / ((full - full.mean(0)) ** 2).sum()),
        "relative_error": at,
        "emergence": emergence,
        "captured": {str(m): float(captured.sel(matrix=m)) for m in captured["matrix"].to_numpy()},
        "loss": float(run.metrics["validation_loss"].dropna().iloc[-1]),
    }


def _scores(coords: xr.Dataset, field: ReducedField, points: int = 40) -> dict[str, list[float]]:
    """ICL score (accuracy on rare and mismatch) and IWL score (on iwl) at evenly spaced times.

    Of the model rebuilt from the coordinates, so that the same sequences serve every checkpoint.
    """
    times = coords["time"].to_numpy()
    wanted = np.linspace(0, times[-1], points)
    rows = np.unique([int(np.abs(times - t).argmin()) for t in wanted])
    icl, iwl = [], []
    for row in rows:
        accuracy: dict = field.kinds(coords["c"][row].to_numpy())["accuracy"].to_dict()
        icl.append((accuracy["rare"] + accuracy["mismatch"]) / 2)
        iwl.append(accuracy["iwl"])
    return {"times": times[rows].tolist(), "icl": icl, "iwl": iwl}


def half_time(times: np.ndarray, values: np.ndarray) -> float | None:
    """When a coordinate first passes half of its largest size, interpolated; None if it never
    moved. Of the largest and not of the last value, since in-weights recall falls back."""
    half = values[np.argmax(np.abs(values))] / 2
    if abs(half) < 1e-3:
        return None
    past = np.flatnonzero(values / half >= 1)
    if not len(past) or past[0] == 0:
        return None
    i = past[0]
    share = (half - values[i - 1]) / (values[i] - values[i - 1])
    return float(times[i - 1] + share * (times[i] - times[i - 1]))


def section(facts: dict) -> Section:
    worst = max(facts["relative_error"].values())
    order = sorted(
        (value["full"], SHOWN[name])
        for name, value in facts["emergence"].items()
        if value["full"] is not None
    )
    others = [m["r2"] for m in facts["members"][1:]]
    times = ", ".join(facts["relative_error"])
    seeds = ", ".join(str(m["seeds"]["init"]) for m in facts["members"][1:])
    findings = (
        f"{facts['dim']} coordinates and a reduced ODE follow full training from zero with "
        f"R² = {facts['r2']:.4f} (relative error at most {worst:.3f} at times {times}), and from "
        f"small random weights with R² = {min(others):.4f} to {max(others):.4f} "
        f"(data and init seeds {seeds}).",
        "In order of emergence (time at which half of the largest value is reached): "
        + "; ".join(f"{name} {t:.0f}" for t, name in order)
        + ".",
    )
    findings += (_winner(facts["scores"]),)
    return Section(
        anchor="reduced",
        title="Training in coordinates, against the reduced ODE",
        findings=findings,
        text=(
            "Each checkpoint of an attention-only model on associative recall is projected onto "
            "the invariant manifold of the task's symmetry. The reduced field is integrated from "
            "the projected start and never sees the run again. Its expectation is taken over a "
            f"sample of {facts['samples']:,} sequences of its own; that alone gives the flow a "
            f"standard error of {facts['sampling_error']['flow']:.1%} midway. Time is the sum of "
            "learning rates.",
        ),
        figures=(_trajectories(facts), _score_figure(facts), _errors(facts)),
    )


def _winner(scores: dict[str, list[float]]) -> str:
    """Which score passes 0.9 when, and where they end."""
    parts = []
    for name, other in (("iwl", "icl"), ("icl", "iwl")):
        passed = [i for i, score in enumerate(scores[name]) if score >= 0.9]
        text = f"the {name.upper()} score "
        if passed:
            time, beside = scores["times"][passed[0]], scores[other][passed[0]]
            text += f"passes 0.9 by time {time:.0f} ({other.upper()} {beside:.2f} there)"
        else:
            text += "never passes 0.9"
        parts.append(text)
    end = f"at the end IWL is {scores['iwl'][-1]:.2f} and ICL {scores['icl'][-1]:.2f}"
    return f"From zero, {parts[0]}, {parts[1]}; {end}."


def _trajectories(facts: dict) -> Figure:
    member = facts["members"][0]
    times, rows = np.array(member["times"]), {"time": member["times"]}
    with canvas(height=3.4) as (figure, (axis,)):
        for index, (name, label) in enumerate(SHOWN.items()):
            column = member["names"].index(name)
            full = np.array(member["full"])[:, column]
            reduced = np.array(member["reduced"])[:, column]
            color = line_style(index)["color"]
            axis.plot(times, reduced, color=color, lw=1.2)
            axis.plot(times[::2], full[::2], "osv^DX"[index], color=color, ms=3.5, label=label)
            born = facts["emergence"][name]["full"]
            if born is not None:
                axis.axvline(born, color=color, lw=1.0, ls=":")
            rows[f"{name} full"], rows[f"{name} reduced"] = full, reduced
        axis.set(xlabel="time (sum of learning rates)", ylabel="coordinate")
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Six coordinates along training from zero: markers are projected checkpoints, lines "
        f"the integrated reduced field; R² = {member['r2']:.4f}.",
        caption="Markers: projected checkpoints of the full model. Lines: the reduced field. "
        "Dotted: emergence (half of the largest value).",
        table=pd.DataFrame(rows),
    )


def _score_figure(facts: dict) -> Figure:
    scores = facts["scores"]
    with canvas(height=2.4) as (figure, (axis,)):
        for index, (name, label) in enumerate({"icl": "ICL", "iwl": "IWL"}.items()):
            marker = "os"[index]
            axis.plot(
                scores["times"], scores[name], marker=marker, ms=3, label=label, **line_style(index)
            )
        axis.set(xlabel="time (sum of learning rates)", ylabel="score", ylim=(-0.02, 1.02))
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="In-context and in-weights scores along training.",
        caption="ICL: accuracy where only the context can answer (rare and mismatch queries). IWL: "
        "accuracy where only the weights can (the query's pair is not in the context).",
        table=pd.DataFrame(scores),
    )


def _errors(facts: dict) -> Figure:
    rows = []
    with canvas(height=2.4) as (figure, (axis,)):
        for index, member in enumerate(facts["members"]):
            label = f"init {member['initialisation']:g}, seed {member['seeds']['init']}"
            axis.plot(member["times"][1:], member["error"][1:], label=label, **line_style(index))
            rows += [
                {"run": label, "time": t, "relative error": e}
                for t, e in zip(member["times"], member["error"], strict=True)
            ]
        axis.set(xlabel="time", ylabel="relative error", xscale="log", yscale="log")
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Relative error between projected and integrated coordinates against time, one line "
        "for each run.",
        caption="Distance between the two trajectories, relative to the full one's norm.",
        table=pd.DataFrame(rows),
    )
