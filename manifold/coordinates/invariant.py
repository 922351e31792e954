"""Which directions span the invariant manifold: the exact commutant, and the paper's basis."""

from __future__ import annotations

from math import comb

import numpy as np

from manifold.coordinates.basis import READOUT, Basis, Direction
from manifold.coordinates.factored import LARGEST as ENTRIES
from manifold.coordinates.naming import candidates, embed, named_directions, numbered
from manifold.groups.commutant import CommutantBasis, commutant
from manifold.groups.generators import generators, orbits
from training.families.attention_only import paths, projectors
from training.tasks.base import Task

FRAMES = ("attention_only", "transformer")
"""Families with effective matrices. attention_only: tokens centred within classes, positions
within tracks; transformer: one-hot, nothing centred."""

LARGEST = 1_000_000
"""Directions of the largest basis that is built."""
RANK_TOLERANCE = 1e-9  # relative; the entries are rationals with small denominators


def invariant_basis(
    task: Task,
    family: str = "attention_only",
    layers: int = 2,
    heads: int = 1,
    order: int | None = None,
) -> Basis:
    """The exact commutant of the task's group on every path block (theory, section 3).

    family "attention_only": directions P B P in the centred frame, 6 / 24 / 12 of them in
    W1 / W2 / Wbar for associative recall with one head; "transformer": B in the one-hot frame,
    16 / 64 / 36. Gradient flow that starts on their span stays there.

    Names: layer (and head, where there are several), direction, query path -> key path:
    "1:M", "2:I_c I->V1", "2.1:M I->V1.0"; the read-out "out:C I". Directions that the task names
    come first, then what completes the span: I_x on the diagonal of class x, J_xy other pairs of
    the classes x and y, numbered where there are several.

    order: only path blocks whose query and key path together pass through at most so many heads
    (0: the embeddings alone; 1: the compositions of an induction circuit; None: all). Deep models
    with many heads need it: their path blocks grow as (1 + heads)^(2 layers). What is left out of
    a model's norm is said by `Basis.left_out`.

    ValueError where a direction named by the task does not commute with its generators, where the
    task has no symmetry, for fewer than one layer or head, above a million directions, and for
    elements of more than 2^27 entries together.
    """
    _check_size(layers, heads)
    frame = frame_projector(task, family)
    _check_symmetry(task)
    orbitals = commutant(generators(task))
    count, readouts = _independent(orbitals, frame, task.vocabulary)
    _check_dimension(count, readouts, layers, heads, order)
    _check_entries(count, len(frame))
    scale = np.sqrt(orbitals.sizes)  # orthonormal coordinates of the commutant
    names, elements = [], np.empty((count, *frame.shape))
    chosen = np.empty((count, orbitals.dim))
    for name, matrix in candidates(task, orbitals):
        projected, found = frame @ matrix @ frame, chosen[: len(names)]
        vector = orbitals.coordinates(projected) * scale
        rest = vector - found.T @ (found @ vector)
        rest -= found.T @ (found @ rest)
        if np.linalg.norm(rest) > RANK_TOLERANCE * np.linalg.norm(matrix):
            chosen[len(names)] = rest / np.linalg.norm(rest)
            elements[len(names)] = projected
            names.append(name)
        if len(names) == count:
            break
    return _on_every_block(task, family, layers, heads, numbered(names), elements, order)


def paper_basis(task: Task, layers: int = 2, heads: int = 1, block_length: int = 2) -> Basis:
    """{I_t, C, I_p, M, .., M^(k-1)} on every path block, k = block_length; not closed.

    The basis of arXiv 2607.11875 in the centred frame, for comparison: I_t stands for I_c and
    I_r, and the inverse shifts are absent (theory, section 3).
    """
    _check_size(layers, heads)
    token, position = named_directions(task)
    size = task.vocabulary + task.n_positions
    is_token = (np.arange(size) < task.vocabulary).astype(float)
    chosen = {"I_t": np.diag(is_token)} | {n: token[n] for n in ("C",) if n in token}
    chosen["I_p"] = np.diag(1 - is_token)
    shifts = ["M", *(f"M^{j}" for j in range(2, block_length))][: block_length - 1]
    chosen |= {name: position[name] for name in shifts if name in position}
    frame = frame_projector(task, "attention_only")
    stack = np.stack([frame @ matrix @ frame for matrix in chosen.values()])
    return _on_every_block(task, "attention_only", layers, heads, tuple(chosen), stack)


def four_coordinates(task: Task) -> Basis:
    """The summary circuit alpha, beta, gamma, delta of a 2-layer, 1-head attention_only model.

    alpha 1: M (previous token); beta 2: I_t from I to V1 (match); gamma: output I_t from V2
    (copy); delta: output C from I (answer in weights).
    """
    missing = {"C", "M"} - {*task.symmetry.token_directions, *task.symmetry.position_directions}
    if missing:
        raise ValueError(
            f"four_coordinates: the directions C and M are needed, and the task's symmetry "
            f"does not name {' and '.join(sorted(missing))}"
        )
    return paper_basis(task).select(["1:M", "2:I_t I->V1", "out:I_t V2", "out:C I"])


def frame_projector(task: Task, family: str) -> np.ndarray:
    """P (d, d), block-diagonal in tokens and positions: how the family's embedding acts on W."""
    if family not in FRAMES:
        raise ValueError(
            f"family must be one of {', '.join(FRAMES)} (those with effective matrices), "
            f"got {family!r}"
        )
    if family == "transformer":
        return np.eye(task.vocabulary + task.n_positions)
    return embed(task, *projectors(task))


def _check_size(layers: int, heads: int) -> None:
    wrong = [
        f"{name} got {value!r}; allowed: an integer from 1 on"
        for name, value in (("layers", layers), ("heads", heads))
        if type(value) is not int or value < 1
    ]
    if wrong:
        raise ValueError("; ".join(wrong))


def _check_symmetry(task: Task) -> None:
    symmetry = task.symmetry
    given = {
        "token_generators": np.asarray(symmetry.token_generators),
        "position_generators": np.asarray(symmetry.position_generators),
    }
    if all((g == np.arange(g.shape[-1])).all() for g in given.values()):
        shapes = " and ".join(f"{name} {g.shape}" for name, g in given.items())
        raise ValueError(
            f"{task}: has no symmetry of tokens or positions at all its lengths ({shapes} hold no "
            f"more than the identity), so that every matrix is invariant and coordinates in the "
            f"commutant would say nothing; allowed: a task with generators"
        )


def count_directions(
    elements: int, readouts: int, layers: int, heads: int, order: int | None = None
) -> int:
    """sum over layers of heads (1 + heads)^(2 (l - 1)) elements + (1 + heads)^layers readouts,
    with only the path blocks that `order` leaves."""
    total = 0
    for layer in range(layers + 1):
        # ways[k]: paths through k of the layers below, each by any head
        ways = [comb(layer, k) * heads**k for k in range(layer + 1)]
        allowed = 2 * layer if order is None else order
        if layer < layers:
            pairs = sum(
                first * second
                for i, first in enumerate(ways)
                for j, second in enumerate(ways)
                if i + j <= allowed
            )
            total += heads * pairs * elements
        else:
            total += sum(ways[: allowed + 1]) * readouts
    return total


def _independent(orbitals: CommutantBasis, frame: np.ndarray, vocabulary: int) -> tuple[int, int]:
    """How many P B P are independent, and how many of these have token rows.

    B -> P B P is a projection on the commutant, since P commutes with the group: its rank is its
    trace, the sum over orbitals of P B P at any one pair of each.
    """
    _, first = np.unique(orbitals.labels, return_index=True)
    total = np.zeros(2)
    for k, (i, j) in enumerate(zip(*np.divmod(first, len(frame)), strict=True)):
        rows, columns = np.flatnonzero(frame[i]), np.flatnonzero(frame[j])
        inside = orbitals.labels[np.ix_(rows, columns)] == k
        total[int(i < vocabulary)] += frame[i, rows] @ inside @ frame[columns, j]
    return round(total.sum()), round(total[1])


def _check_entries(count: int, d: int) -> None:
    if count * d * d > ENTRIES:
        raise ValueError(
            f"basis: {count} elements of {d} x {d} are {count * d * d} entries, allowed {ENTRIES}; "
            f"the group leaves too much free: a task with more generators, or fewer tokens and "
            f"positions"
        )


def _check_dimension(
    elements: int, readouts: int, layers: int, heads: int, order: int | None
) -> None:
    size = count_directions(elements, readouts, layers, heads, order)
    if size > LARGEST:
        fits = {
            k: found
            for k in range(2 * layers)
            if (found := count_directions(elements, readouts, layers, heads, k)) <= LARGEST
        }
        raise ValueError(
            f"basis: {layers} layers of {heads} heads would have {size} coordinates, allowed "
            f"{LARGEST}; give order, the heads passed on query and key path together: "
            + ", ".join(f"order={k} has {found}" for k, found in fits.items())
        )


def _on_every_block(
    task: Task,
    family: str,
    layers: int,
    heads: int,
    names: tuple[str, ...],
    stack: np.ndarray,
    order: int | None = None,
) -> Basis:
    """The elements on every path block of every layer; those with token rows on the read-out."""
    n = task.vocabulary
    allowed = 2 * layers if order is None else order
    rows = [i for i, matrix in enumerate(stack) if matrix[:n].any()]
    read = tuple(names[i] for i in rows)
    directions = []
    for layer in range(1, layers + 1):
        below = paths(layer - 1, heads)
        passed = [path.count("V") for path in below]
        for head in range(heads):
            title = f"{layer}" if heads == 1 else f"{layer}.{head}"
            for q, query in enumerate(below):
                for k, key in enumerate(below):
                    if passed[q] + passed[k] > allowed:
                        continue
                    route = f" {query}->{key}" if layer > 1 else ""
                    for e, name in enumerate(names):
                        label, block = f"{title}:{name}{route}", f"W{layer}"
                        directions.append(_direction(label, block, head, q, k, e))
    for k, key in enumerate(paths(layers, heads)):
        if key.count("V") > allowed:
            continue
        for e, name in enumerate(read):
            directions.append(_direction(f"out:{name} {key}", READOUT, 0, 0, k, e))
    return Basis(
        family=family,
        layers=layers,
        heads=heads,
        vocabulary=n,
        n_positions=task.n_positions,
        frame=frame_projector(task, family),
        element_names=names,
        elements=stack,
        readout_names=read,
        readouts=stack[rows, :n],
        directions=tuple(directions),
        group=_group(task),
    )


def _group(task: Task) -> str:
    """Generators and orbits in words."""
    parts = []
    for what, moves in (
        ("tokens", task.symmetry.token_generators),
        ("positions", task.symmetry.position_generators),
    ):
        orbit = orbits(np.asarray(moves))
        sizes = ", ".join(str(n) for n in np.bincount(orbit))
        parts.append(f"{len(orbit)} {what} in orbits of {sizes} under {len(moves)} generators")
    return "; ".join(parts)


def _direction(name: str, block: str, head: int, query: int, key: int, element: int) -> Direction:
    return Direction(name=name, block=block, head=head, query=query, key=key, element=element)
