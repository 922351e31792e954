"""Searches: right on every monotone law, no size asked twice, a second start if the top fails."""

import math

import pytest

from training.sample_size import RATIO, size_grid
from training.searches import MOST_SIZES, SEARCHES, STRIDE


def ask(name, grid, law, second_start=None):
    """Sizes asked by a search, in order, under a law of success."""
    asked = []

    def solves(size):
        asked.append(size)
        return law(size)

    SEARCHES[name](solves, grid, second_start)
    return asked


@pytest.mark.parametrize("name", sorted(SEARCHES))
@pytest.mark.parametrize("length", [1, 2, 3, 4, 11, 21, 54])
def test_every_threshold_is_bracketed_between_neighbours(name, length):
    grid = size_grid(round(12 * RATIO ** (length - 1)))
    assert len(grid) == length
    for first in range(length + 1):
        threshold = grid[first] if first < length else math.inf
        asked = ask(name, grid, lambda size, t=threshold: size >= t)
        assert len(asked) == len(set(asked)), "no size is asked twice"
        assert asked[0] == grid[-1]
        if first == length:
            assert asked == [grid[-1]]
            continue
        assert min(size for size in asked if size >= threshold) == threshold
        if first:
            assert grid[first - 1] in asked


@pytest.mark.parametrize("length", [11, 21, 54])
def test_sizes_asked_are_few(length):
    grid = size_grid(round(12 * RATIO ** (length - 1)))
    for threshold in grid:
        asked = {name: ask(name, grid, lambda size, t=threshold: size >= t) for name in SEARCHES}
        assert len(asked["paper"]) <= MOST_SIZES
        assert len(asked["descent"]) <= math.ceil(length / STRIDE) + STRIDE
        failures = [size for size in asked["descent"] if size < threshold]
        assert all(size * 2.3 > threshold for size in failures), "it never looks far below N*"


def test_the_paper_divides_by_a_thousand_and_then_halves():
    grid = size_grid(16_000_000)
    asked = ask("paper", grid, lambda size: size >= 2_000)
    assert asked[0] == 16_000_000
    assert asked[1] == pytest.approx(16_000, rel=0.15)
    assert asked[2] == pytest.approx(16, rel=0.15)
    for size, half in zip(asked[3:6], asked[1:2] + asked[3:5], strict=True):
        assert size == pytest.approx(half / 2, rel=0.3)


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_failing_top_is_searched_again_from_the_uniform_mixture(name):
    grid = size_grid(3525)
    asked = ask(name, grid, lambda size: 100 <= size <= 300, second_start=300)
    assert asked[:2] == [3525, 280]
    assert min(size for size in asked if 100 <= size <= 300) == 127
    assert 98 in asked
    assert ask(name, grid, lambda size: False, second_start=300) == [3525, 280]
    assert ask(name, grid, lambda size: False, second_start=3) == [3525]
    assert 280 not in ask(name, grid, lambda size: size >= 500, second_start=300)[:2]
