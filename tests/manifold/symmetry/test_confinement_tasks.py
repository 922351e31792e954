"""Confinement for every task of the block-list class, each over its own exact law."""

import numpy as np
import pytest

from manifold.coordinates.invariant import invariant_basis
from manifold.groups.commutant import commutant
from manifold.symmetry.confinement import (
    confinement_slopes,
    exact_confinement,
    gradient_confinement,
    random_point,
)
from manifold.symmetry.full_loss import loss_gradient
from training.tasks import (
    AssociativeRecall,
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    PermutationInversion,
    RelationRetrieval,
)
from training.tasks.base import IGNORE, Batch

TINY = {
    "recall": AssociativeRecall(
        n_blocks=1, n_common=4, n_rare=3, track_slots=3, f_r=0.3, f_v=0.2, distractor_f_r=0.5
    ),
    "2-gram": InContextNgram(n_blocks=2, n_tokens=3, track_slots=3),
    "3-gram": InContextNgram(n_blocks=2, n_tokens=4, n=3, track_slots=3),
    "1-hop": KHop(hops=1, n_tokens=4, track_slots=3),
    "indirect object": IndirectObject(n_blocks=1, n_names=3),
    "words": IndirectObject(n_blocks=2, n_names=4, function_words=True, track_slots=3),
    "conditional": ConditionalRetrieval(
        n_blocks=3, n_contexts=2, n_keys=2, n_values=2, track_slots=3
    ),
    "relation": RelationRetrieval(n_blocks=2, n_keys=2, n_values=3, track_slots=3),
    "inversion": PermutationInversion(n_tokens=3, track_slots=2),
}
"""Laws of 384 to 93,312 outcomes."""
FAST = ("recall", "2-gram", "1-hop", "indirect object", "words")
WIDE = {
    "recall": AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.2),
    "2-gram": InContextNgram(n_blocks=3, n_tokens=5),
    "3-gram": InContextNgram(n_blocks=2, n_tokens=5, n=3),
    "1-hop": KHop(hops=1, n_tokens=6),
    "2-hop": KHop(hops=2, n_tokens=6),
    "indirect object": IndirectObject(n_blocks=2, n_names=5),
    "words": IndirectObject(n_blocks=2, n_names=5, function_words=True),
    "conditional": ConditionalRetrieval(n_blocks=3, n_contexts=2, n_keys=3, n_values=3),
    "relation": RelationRetrieval(n_blocks=2, n_keys=4, n_values=4),
    "inversion": PermutationInversion(n_tokens=4),
}
"""Tracks of twice the longest block, so that no two shifts within a block coincide."""


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in TINY]
)
def test_the_gradient_of_the_exact_law_does_not_leave_the_manifold(name):
    """To 1e-20 in squared share, per matrix; measured 1e-31 to 4e-27."""
    task = TINY[name]
    basis = invariant_basis(task)
    share = exact_confinement(task, bases={"exact": basis}).set_index("matrix")["share"]
    assert (share < 1e-20).all(), share
    gradient = loss_gradient(basis, random_point(basis), task.batch(0, 0, 200))
    assert all(np.sum(part**2) > 1e-10 for part in gradient.values())


@pytest.mark.slow
def test_two_hops_are_confined_in_tokens_and_in_positions():
    """17,280 sequences and 122,880 placements are too many together. The law is their product, and
    a matrix commutes with a product of groups when it commutes with each: every sequence at one
    placement, and every placement (m = 2) of one sequence, each averaged alone."""
    task = KHop(hops=2, n_tokens=6, track_slots=2)
    basis, program = invariant_basis(task), task.program
    laid, probability = program.law()
    places = program.placements()
    answer = np.full(laid.tokens.shape, IGNORE)
    answer[:, -1] = laid.target
    n, d = task.vocabulary, task.vocabulary + task.n_positions
    token, position = task.symmetry.token_generators, task.symmetry.position_generators
    still_tokens = np.tile(np.arange(n), (len(position), 1))
    still_places = np.tile(np.arange(n, d), (len(token), 1))
    whole_law = Batch(
        tokens=laid.tokens,
        positions=np.tile(places[77], (len(laid.tokens), 1)),
        targets=answer,
        kind=laid.kind,
    )
    every_place = Batch(
        tokens=np.tile(laid.tokens[5], (len(places), 1)),
        positions=places,
        targets=np.tile(answer[5], (len(places), 1)),
        kind=np.zeros(len(places), int),
    )
    for batch, weights, moves in (
        (whole_law, probability, np.hstack([token, still_places])),
        (every_place, None, np.hstack([still_tokens, position + n])),
    ):
        orbitals, rows = commutant(moves), commutant(moves, moves[:, :n])
        gradient = loss_gradient(basis, random_point(basis), batch, weights)
        for block, matrix in gradient.items():
            tall = matrix if matrix.ndim == 2 else matrix[0]
            height = n if block == "Wbar" else d
            space = rows if block == "Wbar" else orbitals
            for i in range(0, tall.shape[0], height):
                for j in range(0, tall.shape[1], d):
                    part = tall[i : i + height, j : j + d]
                    rest = part - space.project(part)
                    assert np.sum(rest**2) < 1e-20 * np.sum(tall**2)


@pytest.mark.parametrize("name", WIDE)
def test_inverse_shifts_are_dead_in_layer_1_and_alive_above(name):
    """One-hot frame: the coordinate gradient along M^-j is exactly 0 in layer 1, j < k."""
    task = WIDE[name]
    basis = invariant_basis(task, "transformer")
    slope = basis.inner(loss_gradient(basis, random_point(basis), task.batch(0, 0, 200)))
    named = dict(zip(basis.names, slope, strict=True))
    longest, slots = max(task.program.blocks), task.program.track_slots
    assert slots >= 2 * longest
    for j in range(1, longest):
        back = "M^T" if j == 1 else f"M^{slots - j}"
        assert named[f"1:{back}"] == 0.0
        assert abs(named["1:M" if j == 1 else f"1:M^{j}"]) > 1e-9
        above = [abs(v) for n, v in named.items() if n.startswith(f"2:{back} ")]
        assert len(above) == 4
        assert max(above) > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_the_sampled_share_falls_as_one_over_the_batch(name):
    task = WIDE[name]
    table = gradient_confinement(
        task, batch_sizes=(2000, 10_000, 50_000), bases={"exact": invariant_basis(task)}
    )
    slopes = confinement_slopes(table)
    for matrix in ("W1", "W2", "Wbar", "all"):
        assert slopes["exact", matrix] == pytest.approx(-1, abs=0.15)
