"""Models whose circuits are known, and controls without one: how far discovery can be trusted."""

from collections.abc import Callable, Iterator
from types import MappingProxyType

from circuits.planted import recall, state
from circuits.planted.base import Planted
from circuits.planted.recovery import ALPHA, BASELINE, LEVEL, Recovery, found, recover

CONSTRUCTIONS = MappingProxyType(
    {
        "induction": recall.induction,
        "pointer": recall.pointer,
        "both": recall.both,
        "backup": recall.backup,
        "direct": recall.direct,
        "clocked sum": state.clocked_sum,
        "latch": state.latch,
    }
)
CONTROLS = MappingProxyType(
    {
        "cut": recall.cut,
        "deaf": recall.deaf,
        "random weights": recall.random_weights,
        "other answers": recall.other_answers,
        "unheard": state.unheard,
    }
)


def planted_models(count: int, seed: int = 0) -> Iterator[Planted]:
    """`count` models with a circuit, the constructions in turn, each of a size of its own."""
    return _in_turn(tuple(CONSTRUCTIONS.values()), count, seed)


def control_models(count: int, seed: int = 0) -> Iterator[Planted]:
    """`count` models in which there is nothing to find."""
    return _in_turn(tuple(CONTROLS.values()), count, seed)


def _in_turn(makers: tuple[Callable[[int], Planted], ...], count: int, seed: int):
    for i in range(count):
        yield makers[i % len(makers)](1000 * seed + i)


__all__ = [
    "ALPHA",
    "BASELINE",
    "CONSTRUCTIONS",
    "CONTROLS",
    "LEVEL",
    "Planted",
    "Recovery",
    "control_models",
    "found",
    "planted_models",
    "recover",
]
