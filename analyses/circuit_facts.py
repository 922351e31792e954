"""Everything the circuit rooms say of one jointly trained run, as facts and as figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns

from analyses.figures import PALETTE, Figure, canvas, svg
from circuits import gradient_cosines, length_matrix, patch_nodes
from circuits.contrast import contrast, length_task
from probes import linear_probe, transfer
from training import Run
from training.naming import describe

FEWEST = 8
"""Sequences of each answer that a length must have to be probed."""


def circuit_facts(run: Run, *, samples: int, seed: int, others: Sequence[Run] = ()) -> dict:
    """Length matrix, node patching and probe transfer of the last checkpoint of a joint run, and
    gradient cosines along its training, with that of `others` of the same task."""
    matrix = length_matrix(run, samples=samples, seed=seed)
    along = {r.run_id: r for r in (run, *others)}
    cosines = gradient_cosines(list(along.values()), samples=samples, seed=seed)
    probes, read = _probes(run, samples, seed)
    task = describe("task", run.task)
    return {
        "task": getattr(run.task, "label", task["name"]),
        "family": describe("family", run.family)["name"],
        "format": task["format"],
        "layout": task["layout"],
        "lengths": task["lengths"],
        "run_id": run.run_id,
        "train_size": run.config.train_size,
        "step": matrix.step,
        "site": matrix.site,
        "matrix": matrix.matrix,
        "lower": matrix.lower,
        "upper": matrix.upper,
        "random_baseline": matrix.random_baseline,
        "random_upper": matrix.random_upper,
        "size": matrix.size,
        "width": matrix.width,
        "sequences": matrix.sequences,
        "gap": matrix.gap,
        "accuracy": matrix.accuracy,
        "sharing": matrix.sharing,
        "sharing_interval": matrix.sharing_interval,
        "sentence": matrix.sentence(),
        "gradient_cosines": cosines.means,
        "gradient_cosines_interval": cosines.intervals,
        "gradient_cosines_by_run": cosines.by_run,
        "gradient_cosines_seeds": len({r.config.seeds.init for r in along.values()}),
        "nodes": _units(patch_nodes(run, samples=samples, seed=seed)).to_dict(orient="list"),
        "probe": probes,
        "probe_transfer": read.to_numpy(),
    }


def _units(nodes: pd.DataFrame) -> pd.DataFrame:
    """Heads, MLPs and mixers of layers, and states; no tokens, gates or cells."""
    wanted = nodes["node"].str.match(r"(head|MLP|mixer|state) ")
    return nodes.loc[wanted].reset_index(drop=True)


def _probes(run: Run, samples: int, seed: int) -> tuple[dict, pd.DataFrame]:
    """Linear probes of the answer from the final state, by length and between lengths."""
    params, read, found = run[run.steps[-1]].params(), {}, {}
    task = length_task(run.task)
    for length in task.lengths:
        read_out = contrast(run.family, params, task, length, samples, seed)
        pair = read_out.pair
        once = slice(pair.sequences)  # a repeated sequence would be trained and tested on
        states = read_out.clean_state[once].double().numpy()
        answers = pair.answers(pair.clean)[once]
        if np.bincount(answers, minlength=task.n_answers).min() < FEWEST:
            continue
        read[length] = states, answers
        probe = linear_probe(states, answers, seed=seed)
        found[length] = {
            "accuracy": probe.accuracy,
            "interval": list(probe.interval),
            "control": probe.control,
        }
    return found, transfer(read, seed=seed) if read else pd.DataFrame()


def label(facts: dict) -> str:
    """The cell in a few words."""
    layout = "" if facts["format"] == "acot" else f", {facts['layout']} layout"
    lengths = ", ".join(map(str, facts["lengths"]))
    return f"{facts['family']}, {facts['task']} {facts['format']}{layout}, lengths {lengths}"


def matrices_figure(cells: list[dict]) -> Figure:
    """Length matrices side by side, the random baseline under each value."""
    drawing = _by_length(
        cells,
        [_array(facts["matrix"]) for facts in cells],
        [_array(facts["random_baseline"]) for facts in cells],
        row="circuit of length n",
    )
    return Figure(
        svg=drawing,
        alt="Length matrices: faithfulness at the column's length of the row's circuit. "
        + " ".join(f"{label(f)}: {f['sentence']}" for f in cells),
        caption="Faithfulness of the subspace circuit of length n at length m; below it, in "
        "parentheses, random subspaces of equal size. A dash: not learnt, so not read.",
        table=pd.concat([_matrix_table(facts) for facts in cells], ignore_index=True),
    )


def probes_figure(cells: list[dict]) -> Figure:
    """Probe transfer side by side, the shuffled control under each value."""
    controls = [[p["control"] for p in facts["probe"].values()] for facts in cells]
    rows = [
        {"cell": label(facts), "trained at n": n, "read at m": m, "accuracy": value}
        for facts in cells
        for n, values in zip(facts["lengths"], facts["probe_transfer"], strict=True)
        for m, value in zip(facts["lengths"], values, strict=True)
    ]
    drawing = _by_length(
        cells,
        [_array(facts["probe_transfer"]) for facts in cells],
        [np.tile(_array(c)[:, None], (1, len(c))) for c in controls],
        row="probe trained at length n",
    )
    return Figure(
        svg=drawing,
        alt="Accuracy at the column's length of a linear probe of the answer that was trained at "
        "the row's length.",
        caption="Accuracy at length m of a linear probe of the answer trained on final states of "
        "length n; below it, in parentheses, the same probe on shuffled labels. A probe reads what "
        "is there, not what is used. Cells with too few held-out sequences at a length are left "
        "out.",
        table=pd.DataFrame(rows),
    )


def _by_length(
    cells: list[dict], values: list[np.ndarray], baselines: list[np.ndarray], row: str
) -> str:
    """One heat map for each cell, (n, m), with a baseline under each value."""
    width = max(2.3 * len(cells), 3.0) + 1.0
    with canvas(len(cells), width=width, height=3.0) as (figure, axes):
        for axis, facts, matrix, base in zip(axes, cells, values, baselines, strict=True):
            text = [
                [_entry(v, b) for v, b in zip(vs, bs, strict=True)]
                for vs, bs in zip(matrix, base, strict=True)
            ]
            sns.heatmap(
                matrix,
                ax=axis,
                annot=text,
                fmt="",
                vmin=0,
                vmax=1,
                cmap="cividis",
                cbar=False,
                square=True,
                annot_kws={"fontsize": 8},
                xticklabels=facts["lengths"],
                yticklabels=facts["lengths"],
            )
            layout = "" if facts["format"] == "acot" else f", {facts['layout']}"
            axis.set(
                title=f"{facts['family']}\n{facts['format']}{layout}",
                xlabel="read at length m",
                ylabel=row,
            )
        return svg(figure)


def figures_of(cells: list[dict]) -> list[Figure]:
    """Every figure of the circuits of one cell or several side by side."""
    probed = [facts for facts in cells if len(facts["probe"]) == len(facts["lengths"])]
    return [
        matrices_figure(cells),
        cosines_figure(cells),
        *([probes_figure(probed)] if probed else []),
        *(nodes_figure(facts) for facts in cells),
    ]


def _array(values: object) -> np.ndarray:
    return np.array(values, dtype=float)


def _entry(value: float, baseline: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}\n({baseline:.2f})"


def _matrix_table(facts: dict) -> pd.DataFrame:
    lengths = facts["lengths"]
    columns = ("matrix", "lower", "upper", "random_baseline", "random_upper")
    arrays = {name: _array(facts[name]) for name in columns}
    return pd.DataFrame(
        [
            {"cell": label(facts), "n": n, "m": m}
            | {name: arrays[name][i, j] for name in columns}
            | {"directions": facts["size"][i], "width": facts["width"]}
            | {"sequences": facts["sequences"][j], "training size": facts["train_size"]}
            for i, n in enumerate(lengths)
            for j, m in enumerate(lengths)
        ]
    )


def cosines_figure(cells: list[dict]) -> Figure:
    """Single-step gradient cosines between lengths, by where the two steps stand."""
    rows = [
        {
            "cell": label(facts),
            "group": group,
            "cosine": mean,
            "low": facts["gradient_cosines_interval"][group][0],
            "high": facts["gradient_cosines_interval"][group][1],
        }
        for facts in cells
        for group, mean in facts["gradient_cosines"].items()
    ]
    table = pd.DataFrame(rows)
    names = list(dict.fromkeys(table["cell"])) if rows else []
    with canvas(height=0.8 + 0.55 * max(1, len(names))) as (figure, (axis,)):
        for index, group in enumerate(("same step", "same position", "neither")):
            part = table[table["group"] == group] if rows else table
            y = [names.index(c) + 0.2 * (index - 1) for c in part["cell"]] if rows else []
            if len(y):
                error = [part["cosine"] - part["low"], part["high"] - part["cosine"]]
                axis.errorbar(
                    part["cosine"], y, xerr=error, fmt="os^"[index], color=PALETTE[index],
                    label=group, ms=5, lw=1,
                )  # fmt: skip
        axis.axvline(0, color="black", lw=0.6)
        axis.set(xlabel="cosine of single-step gradients at different lengths")
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt="Cosines of single-step gradients between lengths: the same step, different steps at "
        "the same absolute position, and neither. "
        + "; ".join(f"{r['cell']}, {r['group']}: {r['cosine']:.2f}" for r in rows),
        caption="Same position: different steps at the same absolute position. Negative: what one "
        "length learns there, the other unlearns. Mean along training while the validation loss is "
        "above a tenth of chance; bars: 95% bootstrap intervals over pairs of steps.",
        table=table,
    )


def nodes_figure(facts: dict) -> Figure:
    """Exact node patching at every length of one cell."""
    table = pd.DataFrame(facts["nodes"])
    grid = table.pivot(index="node", columns="length", values="effect")
    grid = grid.loc[list(dict.fromkeys(table["node"]))].astype(float)
    with canvas(width=4.2, height=0.9 + 0.32 * len(grid)) as (figure, (axis,)):
        sns.heatmap(
            grid, ax=axis, annot=True, fmt=".2f", vmin=0, vmax=1, cmap="cividis", cbar=False,
            annot_kws={"fontsize": 8},
        )  # fmt: skip
        axis.set(xlabel="length", ylabel="")
        axis.tick_params(axis="y", rotation=0)
        drawing = svg(figure)
    return Figure(
        svg=drawing,
        alt=f"Exact node patching, {label(facts)}: share of the answer's logit gap lost when a "
        "node is replaced by its value in the corrupted run.",
        caption=f"{label(facts)}: share of the gap that is lost when the node alone is taken from "
        "the corrupted run.",
        table=table,
    )
