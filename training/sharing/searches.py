"""Named searches for N*: in which order the sizes of an ascending grid are asked.

A search asks `solves(size)` until the smallest size that succeeds has a neighbour below it that
failed, or nothing below it is left. It keeps no state: what was asked is known to who asked.

second_start: where to try again should the top fail (None: nowhere). With several lengths success
need not be monotone once a short one has run out of sequences (theory section 7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

Solves = Callable[[int], bool]
Search = Callable[[Solves, Sequence[int], int | None], None]

FAILURE = 12.0
"""What a failed size costs, a solved one being 1: all members to their ends against one until it
solves. On the curves of benchmarks/search_cost.py, with four members, that is 2 to 28 in
member-steps, with a median of 22; in seconds it is less, since stacked members cost less than their
sum and every size has to be begun."""
MULTIPLIER = 1000
MOST_SIZES = 20


def descent(solves: Solves, grid: Sequence[int], second_start: int | None = None) -> None:
    """From the top, each time to the size that makes the expected cost of the rest least.

    That is over N* equally likely at every place of the grid between the largest failure and the
    smallest success, and a failure as dear as FAILURE successes. So it goes down in strides that
    shrink, the last ones of one grid step, where bisection would fail half of the time.
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
    success, failure = len(grid) - 1, -1
    if not solves(grid[success]):
        return False
    while success - failure > 1:
        place = success - _stride(success - failure)[0]
        if solves(grid[place]):
            success = place
        else:
            failure = place
    return True


@cache
def _stride(places: int) -> tuple[int, float]:
    """How far below the smallest success to ask next, and the expected cost from there on.

    places: where N* may be, from just above the largest failure up to the smallest success.
    """
    if places == 1:
        return 0, 0.0

    def cost(down: int) -> float:
        solved = places - down
        return (solved * (1 + _stride(solved)[1]) + down * (FAILURE + _stride(down)[1])) / places

    best = min(range(1, places), key=cost)
    return best, cost(best)


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
