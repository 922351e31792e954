"""A field's sample in parts: what a quantity is on each tells its sampling error."""

from __future__ import annotations

import numpy as np

from manifold.dynamics.field import ReducedField


def sample_parts(field: ReducedField, count: int) -> list[list[np.ndarray]]:
    """Of each drawn kind `count` weights (S,), each of which sums to 1.

    The draws of the sample, shared out evenly at random, so that every part is a sample itself; for
    `ReducedField._gradient`. ValueError where the field is exact, or a kind has fewer draws.
    """
    people, found = field.population, []
    if field.exact:
        raise ValueError("an exact field has no sample to be shared out")
    each = people.drawn // len(np.unique(people.kind))
    if each < count:
        raise ValueError(
            f"the field is a sample of {each} sequences of each kind; at least {count} are needed "
            f"for its sampling error: give reduced_field more samples"
        )
    rng = np.random.default_rng(0)
    for kind in field.drawn_kinds:
        mine = people.kind == field.task.kinds.index(kind)
        counts = np.rint(people.share * mine * each).astype(int)
        cards = rng.permutation(np.repeat(np.arange(len(counts)), counts))
        found.append(
            [
                np.bincount(hand, minlength=len(counts)) / len(hand)
                for hand in np.array_split(cards, count)
            ]
        )
    return found


def redrawn(parts: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Bootstrap means (draws, kinds, ..) of values (kinds, parts, ..), each kind by itself.

    Spread a little, sqrt(parts / (parts - 1)), since a mean of few parts varies too little.
    """
    kinds, count = parts.shape[:2]
    whole = parts.mean(1)
    shares = rng.multinomial(count, np.full(count, 1 / count), size=(draws, kinds)) / count
    return whole + (count / (count - 1)) ** 0.5 * (
        np.einsum("dkp,kp...->dk...", shares, parts) - whole
    )
