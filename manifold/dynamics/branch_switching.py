"""The other branch through a transcritical or pitchfork point."""

from __future__ import annotations

import numpy as np

from manifold.dynamics.bifurcation import Bifurcation
from manifold.dynamics.continuation import Branch, branch_of
from manifold.dynamics.course import Course, Trail
from manifold.dynamics.curve import Point, correct


def switch_branch(branch: Branch, bifurcation: Bifurcation) -> Branch:
    """The branch that crosses `branch` at one of its branch points, both ways from there.

    The table runs from one end through the bifurcation to the other, with the span and steps of
    `branch`. ValueError for a kind where no branches cross; RuntimeError where the other branch
    cannot be told from the first within 1e-4 of a step.
    """
    if bifurcation.directions is None:
        raise ValueError(
            f"no branches cross at a {bifurcation.kind}; allowed: transcritical, pitchfork"
        )
    course = branch.course
    y = course.scaled(bifurcation.state, bifurcation.value)
    along = bifurcation.directions[1] / course.lengths(len(y) - 1)
    along = along / np.linalg.norm(along)
    middle = Point(y=y, rows=course.rows(y), tangent=along)
    ways = [course.follow(_leave(course, middle, sign * along)) for sign in (-1.0, 1.0)]
    back, on = ways
    trail = Trail(
        points=[*reversed(back.points), middle, *on.points],
        bifurcations=[*reversed(back.bifurcations), bifurcation, *on.bifurcations],
        unresolved=[*reversed(back.unresolved), *on.unresolved],
        ended=f"at its first point {back.ended}; at its last {on.ended}",
    )
    return branch_of(course, trail)


def _leave(course: Course, middle: Point, along: np.ndarray) -> Point:
    """The first point beside the bifurcation, with its tangent pointing away."""
    length = course.step / 10
    for _ in range(12):
        guess = middle.y + length * along
        ahead = correct(course, guess, along, course.rows(guess), length)
        if ahead is not None:
            chord = ahead.y - middle.y
            if chord @ along > 0.95 * np.linalg.norm(chord) and ahead.tangent @ along > 0.9:
                return ahead
        length /= 2
    raise RuntimeError("the other branch was not found beside the bifurcation")
