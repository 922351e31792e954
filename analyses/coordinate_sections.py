"""A run's report: its checkpoints in coordinates of the manifold, or of the group it tracks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from analyses.coordinates import facts
from analyses.figures import PALETTE, Figure, canvas, line_style, svg
from analyses.studies.base import Section
from manifold import project, state_coordinates
from training import Run

ROUNDING = 1e-10
LEARNT = 0.95
"""Accuracy below which a length's states say little."""
STATES = ("representation_error", "coincidence")
CONTROLS = {"representation_error": "representation_chance", "coincidence": "coincidence_shuffled"}


def manifold_section(run: Run) -> tuple[Section, dict[str, Any]]:
    """Coordinates along training, and the loss of the model that is made of them alone."""
    data = project(run, rebuilt=True)
    (found,) = facts(data)
    here = data.isel(run=0)
    top = found["strongest"]
    said = ", ".join(f"{name} = {value:.2f}" for name, value in list(top.items())[:6])
    last = {name: found[name]["last"] for name in ("loss", "rebuilt_loss", "captured")}
    shares = "; ".join(
        f"{block} {share:.3f} (chance {found['captured_by_chance'][block]:.3f})"
        for block, share in last["captured"].items()
    )
    accuracy = ", ".join(
        f"{kind} {value:.3f}"
        for kind, value in found["rebuilt_accuracy"]["last"].items()
        if value == value
    )
    section = Section(
        anchor="coordinates",
        title="Coordinates on the invariant manifold",
        findings=(
            f"Rebuilt from its {data.sizes['coordinate']} coordinates alone the model has loss "
            f"{last['rebuilt_loss']:.2g} (the network's own: {last['loss']:.2g}); the strongest: "
            f"{said}.",
        ),
        text=(
            f"Accuracy of the rebuilt model: {accuracy}. Captured share of the squared norm: "
            f"{shares}. It means little beside the loss of the rebuilt model.",
            _lifted(found["logit_error"]["last"]),
        ),
        figures=(_along_training(here, list(top)),),
    )
    return section, found


def _lifted(error: float) -> str:
    if error < ROUNDING:
        return "The effective matrices before any projection have exactly the network's logits."
    return (
        f"The effective matrices before any projection have the network's logits up to {error:.2g} "
        "of their size: norms and MLPs are taken as affine."
    )


def _along_training(here: xr.Dataset, names: list[str]) -> Figure:
    chosen = here["c"].sel(coordinate=names)
    with canvas(2, width=8.4, height=3.2) as (figure, (coordinates, losses)):
        for index, name in enumerate(names):
            line = chosen.sel(coordinate=name)
            coordinates.plot(here["step"], line, label=name, **line_style(index))
        losses.plot(here["step"], here["loss"], label="network", **line_style(0))
        losses.plot(here["step"], here["rebuilt_loss"], label="rebuilt", color=PALETTE[1], ls="--")
        coordinates.set(xlabel="step", ylabel="coordinate")
        losses.set(xlabel="step", ylabel="loss (nats)", yscale="log")
        coordinates.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
        losses.legend(fontsize=7)
        drawing = svg(figure)
    table = pd.DataFrame(chosen.values, columns=pd.Index(names)).assign(
        step=here["step"].values, loss=here["loss"].values, rebuilt_loss=here["rebuilt_loss"].values
    )
    return Figure(
        svg=drawing,
        alt="Left: the strongest coordinates along training. Right: loss of the network, and of "
        "the model rebuilt from its coordinates.",
        caption=f"The {len(names)} coordinates that are strongest at the end; when the network is "
        "right, and when its coordinates are.",
        table=table,
    )


def states_section(run: Run) -> tuple[Section, dict[str, Any]]:
    """How far a recurrent run's states are the group's elements, and the same at every length."""
    data = state_coordinates(run)
    (found,) = facts(data)
    last = {name: found[name]["last"]["value"] for name in (*STATES, *CONTROLS.values())}
    section = Section(
        anchor="states",
        title="States as group elements",
        findings=(
            f"Where the state codes the value, acting by x and then y differs from acting by xy by "
            f"{last['representation_error']:.2f} of its size (wrong products: "
            f"{last['representation_chance']:.2f}); {_coincide(last)}.{_unlearnt(found)}",
        ),
        text=(
            "0 is a representation of the group, and one set of states for all lengths; 1 is "
            "nothing of the kind. Whole states also hold what the read-out ignores, so that they "
            "come further from 0 than the directions that code the value.",
        ),
        figures=(_states_along_training(data.isel(run=0)),),
    )
    return section, found


def _coincide(last: dict[str, float]) -> str:
    if np.isnan(last["coincidence"]):
        return "whether states of equal value coincide across lengths cannot be asked of one length"
    return (
        f"states of equal value and different length lie {last['coincidence']:.2f} apart "
        f"(shuffled values: {last['coincidence_shuffled']:.2f})"
    )


def _unlearnt(found: dict[str, Any]) -> str:
    poor = [n for n, share in found["accuracy"]["last"].items() if not share >= LEARNT]
    return f" Not learnt to {LEARNT}: length {', '.join(poor)}." if poor else ""


def _states_along_training(here: xr.Dataset) -> Figure:
    columns = {}
    with canvas(2, width=8.4, height=3.2, sharey=True) as (figure, axes):
        for axis, name in zip(axes, STATES, strict=True):
            for index, space in enumerate(("value", "reachable")):
                columns[f"{name}, {space}"] = here[name].sel(subspace=space).values
                label = "where the value is coded" if space == "value" else "whole state"
                axis.plot(here["step"], columns[f"{name}, {space}"], label=label,
                          **line_style(index))  # fmt: skip
            columns[CONTROLS[name]] = here[CONTROLS[name]].sel(subspace="value").values
            axis.plot(here["step"], columns[CONTROLS[name]], "k:", lw=0.8, label="control")
            axis.set(title=name.replace("_", " "), xlabel="step")
        axes[-1].legend(fontsize=7)
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Representation error and coincidence of states across lengths along training, each "
        "beside its control.",
        caption="0: the states are the group's elements, the same at every length.",
        table=pd.DataFrame({"step": here["step"].values, **columns}),
    )
