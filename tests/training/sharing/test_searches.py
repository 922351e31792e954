"""Searches: right on every monotone law, no size asked twice, the default the cheapest order."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from training.sharing.sample_size import RATIO, size_grid
from training.sharing.searches import FAILURE, MOST_SIZES, SEARCHES


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
def test_the_paper_tries_at_most_twenty_sizes(length):
    grid = size_grid(round(12 * RATIO ** (length - 1)))
    for threshold in grid:
        assert len(ask("paper", grid, lambda size, t=threshold: size >= t)) <= MOST_SIZES


def strides(solves, grid, stride):
    """Down by equal strides to the first failure, then bisection; bisection alone for None."""
    success, failure = len(grid) - 1, -1
    if not solves(grid[success]):
        return
    while success - failure > 1:
        descending = stride is not None and failure < 0
        place = max(0, success - stride) if descending else (success + failure) // 2
        if solves(grid[place]):
            success = place
        else:
            failure = place


def mean_cost(search, grid):
    """Over every place of N*, a success costing 1 and a failure FAILURE."""

    def cost(threshold):
        spent = []

        def solves(size):
            spent.append(1.0 if size >= threshold else FAILURE)
            return size >= threshold

        search(solves, grid)
        return sum(spent)

    return sum(map(cost, grid)) / len(grid)


@pytest.mark.parametrize("length", [2, 5, 11, 23, 54])
def test_no_other_order_costs_less_on_average(length):
    grid = size_grid(round(12 * RATIO ** (length - 1)))
    descent = mean_cost(SEARCHES["descent"], grid)
    for stride in (None, 1, 2, 3, 4, 6):
        assert descent <= mean_cost(lambda s, g, k=stride: strides(s, g, k), grid) + 1e-9
    assert descent <= mean_cost(SEARCHES["paper"], grid) + 1e-9


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


@pytest.mark.slow
def test_the_default_costs_less_on_recorded_curves():
    script = Path(__file__).parents[3] / "benchmarks" / "search_cost.py"
    done = subprocess.run(
        [sys.executable, str(script), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["n_star_ratio"] == pytest.approx(1, abs=0.05)
    assert found["cost_mean"] <= 0.6
    assert found["cost_most"] <= 1
    assert len({row["curve"] for row in found["rows"]}) >= 6
