"""Seconds for a commutant against the size of the action: orbitals, and orthogonal matrices.

    python benchmarks/commutant_cost.py [--quick] [--json]

One thread. The best of three calls each. Orthogonal actions are hidden by a random rotation.
Printed with each: dimension, and the residual that the result reports. Fails if orbitals at d = 256
take 0.2 s, an orthogonal action at d = 128 takes 10 s, or a residual reaches 1e-10.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.linalg import expm

from manifold import commutant
from training.tasks.base import generator

ORBITALS, ORTHOGONAL, RESIDUAL = (256, 0.2), (128, 10.0), 1e-10
SIZES = (16, 32, 64, 128, 256)


def cycle(d: int) -> np.ndarray:
    return np.roll(np.arange(d), -1)[None]


def symmetric(d: int) -> np.ndarray:
    return np.stack([cycle(d)[0], [1, 0, *range(2, d)]])


def transpositions(d: int) -> np.ndarray:
    """S_d by d - 1 generators."""
    return np.array([[*range(i), i + 1, i, *range(i + 2, d)] for i in range(d - 1)])


def wreath(d: int) -> np.ndarray:
    """Z_4 wr S_(d / 4): tracks of 4 slots."""
    turn = np.arange(d)
    turn[:4] = [1, 2, 3, 0]
    tracks = np.arange(d).reshape(-1, 4)
    return np.stack([turn, *(tracks[g].ravel() for g in symmetric(d // 4))])


def matrices(permutations: np.ndarray) -> np.ndarray:
    return np.eye(permutations.shape[1])[permutations].transpose(0, 2, 1)


def quarter_turns(d: int) -> np.ndarray:
    return np.kron(np.eye(d // 2), [[0.0, -1.0], [1.0, 0.0]])[None]


def quaternions(d: int) -> np.ndarray:
    i = np.kron([[0.0, -1.0], [1.0, 0.0]], np.diag([1.0, -1.0]))
    j = np.kron(np.eye(2), [[0.0, -1.0], [1.0, 0.0]])
    return np.stack([np.kron(np.eye(d // 4), unit) for unit in (i, j)])


def spin(d: int) -> np.ndarray:
    """SO(3) on the real form of the largest spin that fits, a fixed rest; two random rotations."""
    l = (d - 1) // 2
    m = np.arange(-l, l + 1)
    raising = np.diag(np.sqrt(l * (l + 1) - m[:-1] * (m[:-1] + 1)), -1)
    momenta = np.diag(m), (raising + raising.T) / 2, (raising - raising.T) / 2j
    real = np.zeros((2 * l + 1, 2 * l + 1), complex)
    real[l, l] = 1
    for k in range(1, l + 1):
        sign = (-1) ** k
        real[l + k, [l + k, l - k]] = np.array([sign, 1]) / np.sqrt(2)
        real[l - k, [l - k, l + k]] = np.array([1j, -1j * sign]) / np.sqrt(2)
    found = np.tile(np.eye(d), (2, 1, 1))
    for g, axis in enumerate(generator(d, *b"spin").standard_normal((2, 3))):
        turn = expm(-1j * sum(a * j for a, j in zip(axis, momenta, strict=True)))
        found[g, : 2 * l + 1, : 2 * l + 1] = (real @ turn @ real.conj().T).real
    return found


PERMUTATIONS: Mapping[str, Callable[[int], np.ndarray]] = {
    "cyclic": cycle,
    "symmetric": symmetric,
    "symmetric, d - 1 generators": transpositions,
    "Z_4 wreath symmetric": wreath,
}
ROTATIONS: Mapping[str, Callable[[int], np.ndarray]] = {
    "trivial": lambda d: np.eye(d)[None],
    "cyclic": lambda d: matrices(cycle(d)),
    "symmetric": lambda d: matrices(symmetric(d)),
    "symmetric, d - 1 generators": lambda d: matrices(transpositions(d)),
    "Z_4 wreath symmetric": lambda d: matrices(wreath(d)),
    "quarter turns": quarter_turns,
    "quaternions": quaternions,
    "SO(3), the largest spin": spin,
}


def hidden(action: np.ndarray) -> np.ndarray:
    d = action.shape[1]
    turn = np.linalg.qr(generator(d, *b"hidden").standard_normal((d, d)))[0]
    return turn @ action @ turn.T


def measure(kind: str, name: str, action: np.ndarray) -> dict[str, Any]:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        basis = commutant(action)
        seconds.append(time.perf_counter() - start)
    return {
        "algorithm": kind,
        "group": name,
        "d": action.shape[1],
        "dim": basis.dim,
        "residual": basis.residual,
        "seconds": min(seconds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the sizes of the two claims alone")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    rows = []
    for kind, groups, (claimed, _) in (
        ("orbitals", PERMUTATIONS, ORBITALS),
        ("orthogonal", ROTATIONS, ORTHOGONAL),
    ):
        for name, make in groups.items():
            for d in (claimed,) if words.quick else SIZES:
                action = make(d)
                rows.append(measure(kind, name, action if kind == "orbitals" else hidden(action)))
    claims = {
        f"{kind} at d = {d} under {limit} s": max(
            row["seconds"] for row in rows if (row["algorithm"], row["d"]) == (kind, d)
        )
        for kind, (d, limit) in (("orbitals", ORBITALS), ("orthogonal", ORTHOGONAL))
    }
    worst = max(row["residual"] for row in rows)
    holds = worst < RESIDUAL and all(
        seconds < limit
        for seconds, (_, limit) in zip(claims.values(), (ORBITALS, ORTHOGONAL), strict=True)
    )
    if words.json:
        print(json.dumps({"rows": rows, "claims": claims, "residual": worst, "holds": holds}))
    else:
        for row in rows:
            print(
                f"{row['algorithm']:<10} {row['group']:<28} d {row['d']:>4}  dim {row['dim']:>6}  "
                f"residual {row['residual']:.0e}  {row['seconds']:.4f} s"
            )
        for claim, seconds in claims.items():
            print(f"{claim}: {seconds:.3f} s at most")
        print(f"residual under {RESIDUAL:.0e}: {worst:.1e} at most")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
