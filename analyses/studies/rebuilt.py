"""Does a standard transformer run on its coordinates alone, and which circuit do they name?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analyses.figures import PALETTE, Figure, canvas, svg
from analyses.settings import Settings
from analyses.studies.base import RECALL, Progress, Section, interval
from circuits import eliminate
from manifold import (
    captured_by_chance,
    effective_matrices,
    invariant_basis,
    rebuild,
    reduced_field,
    remove_gauge,
)
from training import RunConfig, train

TAU = 0.05
INDUCTION = ("1:M", "2:I_c I->V1", "2:I_r I->V1", "out:I_c V2", "out:I_r V2")
"""The induction circuit: attend to the previous token, match it, copy what is attended to."""


def config(settings: Settings, seed: int) -> RunConfig:
    return RunConfig(
        **{
            "study": "rebuilt",
            "task": RECALL,
            "family": {
                "name": "transformer",
                "layers": 2,
                "heads": 1,
                "width": 64,
                "mlp": False,
                "layer_norm": False,
            },
            "optimiser": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
            "steps": settings.transformer_steps,
            "batch_size": 256,
            "seeds": {"init": seed, "data": seed, "eval": seed},
            "eval_every": max(1, settings.transformer_steps // 20),
            "eval_size": 2000,
        }
    )


def run(folder: Path, settings: Settings, seed: int, progress: Progress) -> dict:
    """Train, lift to effective matrices, project, rebuild, eliminate."""
    trained = train(
        config(settings, seed),
        root=folder / "runs",
        progress=lambda step, total, _: progress(0.6 * step / total, f"training, step {step}"),
    )
    task = trained.task
    basis = invariant_basis(task, family="transformer", layers=2, heads=1)
    captured, chance = {}, {}
    matrices = {}
    for label, step in (("initial", trained.steps[0]), ("final", trained.steps[-1])):
        progress(0.6, f"projecting the {label} weights")
        matrices = remove_gauge(basis, effective_matrices(trained[step]))
        captured[label] = basis.captured(matrices)
        chance[label] = captured_by_chance(basis, matrices, draws=50, seed=seed)
    c = basis.coordinates(matrices)
    score = rebuild(task, basis, c, size=settings.elimination_samples, seed=seed)
    progress(0.7, "eliminating coordinates")
    field = reduced_field(
        task, coordinates=basis, samples=settings.elimination_samples, seed=seed + 1
    )
    found = eliminate(field, c, tau=TAU)
    progress(1.0, "done")
    return {
        "task": RECALL,
        "run_id": trained.run_id,
        "network_loss": float(trained.metrics["validation_loss"].dropna().iloc[-1]),
        "loss": score.loss,
        "accuracy": score.accuracy,
        "dim": basis.dim,
        "captured": captured,
        "captured_by_chance": chance,
        "circuit": found.essential,
        "missing_of_induction": sorted(set(INDUCTION) - set(found.essential)),
        "note": found.note,
        "circuit_loss": found.loss,
        "tau": TAU,
        "path": found.path.to_dict(orient="list"),
        "strongest": {basis.names[i]: float(c[i]) for i in np.argsort(-np.abs(c))[:20]},
    }


def _finding(facts: dict) -> str:
    circuit, missing = facts["circuit"], facts["missing_of_induction"]
    head = (
        f"A trained two-layer transformer rebuilt from its {facts['dim']} coordinates alone has "
        f"loss {facts['loss']:.1e} (the network's own: {facts['network_loss']:.1e})"
    )
    if len(circuit) == facts["dim"] or facts["circuit_loss"] > facts["tau"]:
        return f"{head}; {facts['note']}."
    induction = (
        "among them the whole induction circuit"
        if not missing
        else f"without {', '.join(missing)} of the induction circuit"
    )
    return (
        f"{head}; {len(circuit)} of them are enough for {facts['circuit_loss']:.3f}, {induction}: "
        f"{', '.join(circuit)}."
    )


def section(facts: dict) -> Section:
    final, chance = facts["captured"]["final"], facts["captured_by_chance"]["final"]
    shares = "; ".join(
        f"{m} {share:.2f} (chance {chance[m]['mean']:.3f} "
        f"{interval(chance[m]['low'], chance[m]['high'], 3)})"
        for m, share in final.items()
    )
    initial, base = facts["captured"]["initial"], facts["captured_by_chance"]["initial"]
    before = "; ".join(
        f"{m} {share:.3f} (chance {base[m]['mean']:.3f} "
        f"{interval(base[m]['low'], base[m]['high'], 3)})"
        for m, share in initial.items()
    )
    return Section(
        anchor="rebuilt",
        title="A standard transformer, rebuilt from its coordinates",
        findings=(_finding(facts),),
        text=(
            "The network (no LayerNorm, no MLP) is lifted exactly to effective matrices between "
            "paths, the softmax gauge is removed, and what remains is projected. Captured share of "
            f"the squared norm after training: {shares}. At initialisation: {before}. A working "
            "circuit captures far from all of it: the loss of the rebuilt model is what counts.",
            f"Elimination drops the coordinate whose removal raises the loss least while the loss "
            f"stays under {facts['tau']:g}. Names: layer, direction, query path to key path; I is "
            f"the embedding itself, V1 what layer 1 attended to.",
        ),
        figures=(_figure(facts),),
    )


def _figure(facts: dict) -> Figure:
    circuit = facts["circuit"]
    path = pd.DataFrame(facts["path"])
    with canvas(2, width=7.6, height=3.2, width_ratios=(1.2, 1)) as (figure, (bars, curve)):
        names = list(circuit)[::-1]
        values = [circuit[name] for name in names]
        colors = [PALETTE[0] if v > 0 else PALETTE[1] for v in values]
        bars.barh(names, values, color=colors)
        bars.axvline(0, color="black", lw=0.6)
        bars.set(title="essential coordinates", xlabel="value")
        curve.plot(path["left"], path["loss"], color=PALETTE[0])
        curve.axhline(facts["tau"], color="black", lw=0.6, ls="--")
        curve.set(
            title="loss while eliminating",
            xlabel="coordinates left",
            ylabel="loss of the rebuilt model",
            xscale="log",
            yscale="log",
        )
        drawing = svg(figure)
    table = pd.DataFrame({"coordinate": list(circuit), "value": list(circuit.values())})
    return Figure(
        svg=drawing,
        alt="Left: values of the essential coordinates. Right: loss of the rebuilt model as "
        "coordinates are eliminated, under the dashed budget.",
        caption="The circuit that remains, by name.",
        table=table,
    )
