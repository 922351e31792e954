"""The tables of a symmetry check: by matrix, generator, path block and point."""

from __future__ import annotations

import numpy as np
import pandas as pd

from manifold.coordinates.basis import READOUT, Basis
from manifold.groups.generators import orbits
from manifold.symmetry.full_loss import unflat
from training.tasks.base import Task


def squares(basis: Basis, vector: np.ndarray) -> np.ndarray:
    return np.array([np.sum(part**2) for part in unflat(basis, vector).values()])


def rank(here: float, there: np.ndarray) -> float:
    return float((1 + np.sum(there >= here)) / (1 + len(there)))


def without_noise(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Square of each entry of the mean, from products of different parts alone: unbiased."""
    own = np.einsum("i,ij,ij->j", weights**2, vectors, vectors)
    return ((weights @ vectors) ** 2 - own) / (1.0 - np.sum(weights**2))


def matrix_table(
    basis: Basis, whole: np.ndarray, here: np.ndarray, there: np.ndarray
) -> pd.DataFrame:
    """whole: the gradient; here, there: squares off the manifold, of data and of moved copies."""
    norms = squares(basis, whole)
    inside = norms - here
    rows = [
        {
            "matrix": block,
            "share": here[i] / norms[i] if norms[i] else 0.0,
            "floor": float(np.mean(there[:, i] / (inside[i] + there[:, i]))) if norms[i] else 0.0,
        }
        for i, block in enumerate(basis.blocks)
    ]
    return pd.DataFrame(rows)


def generator_table(task: Task, moves: np.ndarray, tests: np.ndarray) -> pd.DataFrame:
    rows = []
    for i, move in enumerate(moves):
        token = bool((move[: task.vocabulary] != np.arange(task.vocabulary)).any())
        mean = float(tests[1:, i].mean())
        rows.append(
            {
                "generator": _cycles(move, task.vocabulary),
                "kind": "token" if token else "position",
                "frequency": tests[0, i] / mean if mean else 1.0,
                "p": rank(tests[0, i], tests[1:, i]),
            }
        )
    return _largest_first(rows, "frequency")


def _cycles(move: np.ndarray, vocabulary: int) -> str:
    """ "tokens (0 1)(2 3)"; at most three cycles of six points are written."""
    name, offset = (
        ("tokens", 0)
        if (move != np.arange(len(move)))[:vocabulary].any()
        else (
            "positions",
            vocabulary,
        )
    )
    left, found = set(np.flatnonzero(move != np.arange(len(move))).tolist()), []
    while left:
        point = start = min(left)
        cycle = []
        while True:
            cycle.append(str(point - offset))
            left.discard(point)
            point = int(move[point])
            if point == start:
                break
        found.append("(" + " ".join(cycle[:6]) + (" .." if len(cycle) > 6 else "") + ")")
    return f"{name} {''.join(found[:3])}{'..' if len(found) > 3 else ''}"


def direction_table(
    basis: Basis, moves: np.ndarray, clean: np.ndarray, total: float
) -> pd.DataFrame:
    """Share without noise of each path block, between the orbits of tokens and positions."""
    names = _orbit_names(basis, moves)
    labels = {name: np.array([n == name for n in names]) for name in dict.fromkeys(names)}
    n, d = basis.vocabulary, len(names)
    rows = []
    for block, square in unflat(basis, clean).items():
        below = basis.paths(block)
        heads = square.reshape(-1, *square.shape[-2:])
        for head, matrix in enumerate(heads):
            queries = [""] if block == READOUT else list(below)
            for q, query in enumerate(queries):
                for k, key in enumerate(below):
                    width = n if block == READOUT else d
                    part = matrix[q * width : (q + 1) * width, k * d : (k + 1) * d]
                    for left, a in labels.items():
                        for right, b in labels.items():
                            if block == READOUT and not a[:n].any():
                                continue
                            share = part[np.ix_(a[:width], b)].sum() / total
                            title = block if basis.heads == 1 else f"{block}.{head}"
                            route = f"{query}->{key}" if query else key
                            rows.append(
                                {
                                    "matrix": title,
                                    "paths": route,
                                    "between": f"{left} -> {right}",
                                    "share": share,
                                }
                            )
    return _largest_first(rows, "share")


def _orbit_names(basis: Basis, moves: np.ndarray) -> list[str]:
    """For each point, the range of its orbit: "tokens 0-5", "positions 0-11", "token 6"."""
    orbit, names = orbits(moves), []
    for point in range(len(orbit)):
        members = np.flatnonzero(orbit == orbit[point])
        kind, offset = ("token", 0) if point < basis.vocabulary else ("position", basis.vocabulary)
        first, last = members[0] - offset, members[-1] - offset
        names.append(f"{kind} {first}" if first == last else f"{kind}s {first}-{last}")
    return names


def point_table(
    basis: Basis, moves: np.ndarray, clean: np.ndarray, total: float, counts: np.ndarray
) -> pd.DataFrame:
    """Each token and position: its frequency over its orbit's mean, and the share in its rows and
    columns together."""
    d, n = moves.shape[1], basis.vocabulary
    share = np.zeros(d)
    for block, square in unflat(basis, clean).items():
        for matrix in square.reshape(-1, *square.shape[-2:]):
            columns = matrix.sum(0).reshape(-1, d).sum(0)
            rows = matrix.sum(1)
            share += columns
            share[: n if block == READOUT else d] += rows.reshape(
                -1, n if block == READOUT else d
            ).sum(0)
    often, orbit = counts.sum((0, 2)), orbits(moves)
    mean = np.array([often[orbit == o].mean() for o in orbit])
    rows = [
        {
            "point": f"token {i}" if i < n else f"position {i - n}",
            "frequency": often[i] / mean[i] if mean[i] else 1.0,
            "share": share[i] / total,
        }
        for i in range(d)
    ]
    return _largest_first(rows, "share")


def _largest_first(rows: list[dict], column: str) -> pd.DataFrame:
    return pd.DataFrame(rows).sort_values(column, ascending=False, ignore_index=True, kind="stable")
