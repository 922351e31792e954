"""How large the demo's studies are: the full setting, and a quick one that checks the path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the kappa table: a task, a family, and the grid of its search.

    lrs x seeds (of the initial weights) members are tried at each size, at most `steps` steps each.
    """

    name: str
    task: dict[str, object]
    family: dict[str, object]
    lrs: tuple[float, ...]
    seeds: int
    steps: int


TRANSFORMER = {
    "name": "transformer",
    "layers": 1,
    "heads": 2,
    "width": 32,
    "mlp": True,
    "layer_norm": True,
}


def _cot(layout: str) -> Cell:
    return Cell(
        name=f"transformer-cot-{layout}",
        task={
            "name": "modular_addition",
            "modulus": 5,
            "lengths": (3, 4, 5),
            "format": "cot",
            "layout": layout,
            "validation_size": 200,
        },
        family=TRANSFORMER,
        lrs=(3e-3, 1e-3),
        seeds=2,
        steps=2000,
    )


def _dense_ssm(modulus: int, lengths: tuple[int, ...], seeds: int, steps: int) -> Cell:
    return Cell(
        name="dense-ssm-acot",
        task={
            "name": "modular_addition",
            "modulus": modulus,
            "lengths": lengths,
            "format": "acot",
            "validation_size": 200,
        },
        family={"name": "dense_ssm", "width": 16},
        lrs=(1e-2, 3e-3),
        seeds=seeds,
        steps=steps,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes of every study; the defaults are the demo's."""

    quick: bool = False
    recall_steps: int = 2000
    recall_batch: int = 512
    small_seeds: int = 3
    field_samples: int = 6000
    error_times: tuple[int, ...] = (20, 100, 500, 1000, 2000)
    confinement_batches: tuple[int, ...] = (1_000, 10_000, 100_000)
    transformer_steps: int = 2000
    elimination_samples: int = 4000
    decays: tuple[float, ...] = (1e-3, 4e-3)
    cells: tuple[Cell, ...] = (
        _cot("usual"),
        _cot("aligned"),
        _dense_ssm(4, (4, 5, 6), seeds=3, steps=600),
    )
    circuit_samples: int = 256


FULL = Settings()
QUICK = Settings(
    quick=True,
    recall_steps=100,
    recall_batch=128,
    small_seeds=1,
    field_samples=500,
    error_times=(20, 100),
    confinement_batches=(100, 500, 2_500),
    transformer_steps=200,
    elimination_samples=300,
    cells=(_dense_ssm(3, (4, 5), seeds=1, steps=400),),
    circuit_samples=128,
)
