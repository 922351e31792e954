"""Named searches for N*: in which order the sizes of an ascending grid are asked.

A search asks `solves(size)` until the smallest size that succeeds has a neighbour below it that
failed, or nothing below it is left. It keeps no state: what was asked is known to who asked.

second_start: where to try again should the top fail (None: nowhere). With several lengths success
need not be monotone once a short one has run out of sequences (theory section 7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

Solves = Callable[[int], bool]
Search = Callable[[Solves, Sequence[int], int | None], None]

STRIDE = 3
"""Grid steps that `descent` goes down at a time: a factor of about 2.2."""
MULTIPLIER = 1000
MOST_SIZES = 20


def descent(solves: Solves, grid: Sequence[int], second_start: int | None = None) -> None:
    """From the top down STRIDE grid steps at a time while sizes succeed, then bisection.

    Failures cost most, since nobody ends early in one, and this meets few: the first is at most a
    factor of 2.2 below N*.
    """
    _with_second_start(_descend, solves, grid, second_start)


def paper(solves: Solves, grid: Sequence[int], second_start: int | None = None) -> None:
    """The hybrid binary-geometric search of arXiv 2602.18333, on a grid.

    What is known of it: it starts at the largest size, has a geometric multiplier of 1000 and
    tries at most 20 sizes. Our reading: the next size is the smallest success divided by the
    multiplier while that is above the largest failure, else the mean of the two; each is moved to
    the nearest size of the grid between them. The second start is ours too.
    """
    _with_second_start(_divide, solves, grid, second_start)


SEARCHES: Mapping[str, Search] = MappingProxyType({"descent": descent, "paper": paper})


def _with_second_start(
    search: Callable[[Solves, Sequence[int]], bool],
    solves: Solves,
    grid: Sequence[int],
    second_start: int | None,
) -> None:
    if search(solves, grid) or second_start is None:
        return
    below = [size for size in grid[:-1] if size <= second_start]
    if below:
        search(solves, below)


def _descend(solves: Solves, grid: Sequence[int]) -> bool:
    success, failure, place = None, -1, len(grid) - 1
    while success != 0 and solves(grid[place]):
        success, place = place, max(0, place - STRIDE)
    if success is None:
        return False
    if success > 0:
        failure = place
    while success - failure > 1:
        middle = (success + failure) // 2
        if solves(grid[middle]):
            success = middle
        else:
            failure = middle
    return True


def _divide(solves: Solves, grid: Sequence[int]) -> bool:
    success, failure = len(grid) - 1, -1
    if not solves(grid[success]):
        return False
    for _ in range(MOST_SIZES - 1):
        if success - failure <= 1:
            break
        low = grid[failure] if failure >= 0 else 0
        target = grid[success] / MULTIPLIER
        if failure >= 0 and target <= low:
            target = (grid[success] + low) / 2
        middle = min(max(_nearest(grid, target), failure + 1), success - 1)
        if solves(grid[middle]):
            success = middle
        else:
            failure = middle
    return True


def _nearest(grid: Sequence[int], target: float) -> int:
    place = bisect_left(grid, target)
    if place == 0 or place == len(grid):
        return min(place, len(grid) - 1)
    return place if grid[place] - target < target - grid[place - 1] else place - 1
