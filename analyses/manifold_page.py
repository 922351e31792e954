"""The page on coordinates in the docs, out of trained runs: `make manifold-page`.

    python -m analyses.manifold_page runs

trains what is not trained yet, measures it into docs/manifold.json, and writes the numbers of
docs/manifold.md between its markers, with the drawing beside it. Without a folder only the page is
written again, from the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from analyses.figures import PALETTE, canvas, svg
from analyses.manifold_facts import RIGHT, measure
from analyses.manifold_runs import CONTROL
from analyses.page import insert, write_drawing, write_json
from training.checkpoint import read_json

BEGIN, END = "<!-- numbers: written by `make manifold-page` -->", "<!-- /numbers -->"
ROUNDING = 1e-10
RECORD, PAGE, DRAWING = "manifold.json", "manifold.md", "manifold.svg"


def write_page(docs: Path) -> None:
    """Put the record's tables between the page's markers, and draw it.

    Errors: ValueError where the record is damaged or the markers are missing.
    """
    facts = read_json(docs / RECORD)
    trained = {kind: rows for kind, rows in facts["trained"].items() if kind != CONTROL}
    parts = [
        "## Trained transformers",
        f"![Loss of the network and of the model rebuilt from its coordinates]({DRAWING})",
        _trained(trained),
        _control(facts["trained"][CONTROL]),
        "## Every block-list task, from zero",
        _tasks(facts["tasks"]),
    ]
    insert(docs / PAGE, BEGIN, END, "\n" + "\n\n".join(parts) + "\n")
    write_drawing(docs / DRAWING, _drawing(trained))


def _trained(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    head = (
        "| model, seed | loss | lift's logits off by | rebuilt loss | rebuilt accuracy: rare,"
        " mismatch | the same at step 0 | captured: W1, W2, Wbar (95% of chance) | scores off by:"
        " W1, W2; logits | right, equivariant from step |\n|---|---|---|---|---|---|---|---|---|"
    )
    rows = [
        _line(
            f"{kind}, {seed}",
            f"{row['loss'][-1]:.4f}",
            f"{row['logit_error']:.2f}" if row["logit_error"] > ROUNDING else "exact",
            f"{row['rebuilt_loss'][-1]:.1g}",
            _list(row["rebuilt_accuracy"], ("rare", "mismatch"), 3),
            _list(row["rebuilt_accuracy_at_start"], ("rare", "mismatch"), 2),
            _captured(row["captured"], row["chance"], 2),
            _list(row["function_error"], row["function_error"], 2),
            f"{_step(row['right'])}, {_step(row['equivariant'])}",
        )
        for kind, members in kinds.items()
        for seed, row in enumerate(members)
    ]
    return "\n".join([head, *rows])


def _control(members: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "| control, seed | loss on fresh sequences | rebuilt loss | captured at step 0 | captured"
        " at the end (95% of chance) |\n|---|---|---|---|---|"
    )
    rows = [
        _line(
            f"{CONTROL}, {seed}",
            f"{row['loss'][-1]:.2f}",
            f"{row['rebuilt_loss'][-1]:.2f}",
            _list(row["captured_at_start"], row["captured_at_start"], 3),
            _captured(row["captured"], row["chance"], 3),
        )
        for seed, row in enumerate(members)
    ]
    return "\n".join([head, *rows])


def _tasks(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "| task | layers | coordinates | orbits | gradient off the manifold: exact law"
        " (paper's basis) | its slope in the batch | loss, accuracy at the end | weights"
        " off the manifold | transverse growth: at step 16, at the end |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    rows = [
        _line(
            name,
            f"{row['layers']}",
            f"{row['dim']:,}",
            "over 20,000" if row["orbits"] is None else f"{row['orbits']:,}",
            _exact(row["exact_share"]),
            f"{row['slope']['exact_commutant']:.2f}",
            f"{row['loss']:.3f}, {row['accuracy']:.3f}",
            f"{row['off_manifold']:.1e}",
            ", ".join(f"{rate:.0e}" for rate in row["growth"]["rate"]),
        )
        for name, row in tasks.items()
    ]
    return "\n".join([head, *rows])


def _exact(shares: Mapping[str, float] | None) -> str:
    if shares is None:
        return "not enumerated"
    return f"{shares['exact_commutant']:.0e} ({shares['paper']:.0e})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _list(values: Mapping[str, float], names: Iterable[str], digits: int) -> str:
    return ", ".join(f"{values[name]:.{digits}f}" for name in names)


def _captured(
    shares: Mapping[str, float], chance: Mapping[str, Mapping[str, float]], digits: int
) -> str:
    return ", ".join(
        f"{share:.{digits}f} ({chance[block]['low']:.3f} to {chance[block]['high']:.3f})"
        for block, share in shares.items()
    )


def _step(step: int | None) -> str:
    return "never" if step is None else f"{step:,}"


def _drawing(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    with canvas(len(kinds), width=8.4, height=2.8, sharey=True) as (figure, axes):
        for axis, (kind, members) in zip(axes, kinds.items(), strict=True):
            _panel(axis, kind, members)
        axes[0].set_ylabel("loss (nats)")
        axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return svg(figure)


def _panel(axis: Axes, kind: str, members: Sequence[Mapping[str, Any]]) -> None:
    for seed, row in enumerate(members):
        step = [s + 1 for s in row["step"]]  # so that step 0 has a place on a logarithmic axis
        axis.plot(step, row["loss"], color=PALETTE[0], lw=1, label=None if seed else "network")
        label = None if seed else "rebuilt from\ncoordinates"
        axis.plot(step, row["rebuilt_loss"], color=PALETTE[1], lw=1, ls="--", label=label)
    axis.axhline(RIGHT, color="black", lw=0.6, ls=":")
    axis.set(title=kind, xlabel="step + 1", xscale="log", yscale="log")


if __name__ == "__main__":
    folder = Path("docs")
    if len(sys.argv) > 1:
        write_json(folder / RECORD, measure(Path(sys.argv[1])))
    write_page(folder)
