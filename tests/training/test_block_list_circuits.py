"""The known circuits of block-list tasks, planted: they solve their tasks, and each step counts."""

import numpy as np
import pytest
import torch

from tests.training.block_list_cases import CASES, RECALL
from training.families.attention_only import AttentionOnly, paths
from training.tasks import BlockList, InContextNgram, IndirectObject, KHop


def planted(task: BlockList, sizes: dict[str, float]) -> float:
    """Accuracy of attention_only with the task's circuit, self-matches negative, and no more."""
    family = AttentionOnly(layers=task.circuit_layers, scale=0.0)
    params = family.initialise(task, 0, torch.float64)
    n, width = task.vocabulary, task.vocabulary + task.n_positions
    symmetry = task.symmetry
    for name in task.circuit:
        place, direction, *route = name.replace(":", " ").split()
        matrix = np.zeros((width, width))
        if direction in symmetry.token_directions:
            matrix[:n, :n] = symmetry.token_directions[direction]
        else:
            matrix[n:, n:] = symmetry.position_directions[direction]
        value = torch.from_numpy(sizes.get(name, -40.0 if name.endswith("->I") else 40.0) * matrix)
        below = paths(family.layers if place == "out" else int(place) - 1, 1)
        if place == "out":
            at = width * below.index(route[0])
            params["unembed.W"][:, at : at + width] += value[:n]
        else:
            q, k = (width * below.index(x) for x in (route[0] if route else "I->I").split("->"))
            params[f"blocks.{int(place) - 1}.attn.W"][0, q : q + width, k : k + width] += value
    batch = task.evaluation(0, 300)
    tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
    logits = family.forward_last(params, tokens, positions)[:, 0]
    return float((logits.argmax(1).numpy() == batch.targets[:, -1]).mean())


@pytest.mark.parametrize(
    ("task", "layers", "sizes"),
    [
        (RECALL, 2, {}),
        (InContextNgram(n_blocks=3, n_tokens=8), 2, {}),
        (KHop(hops=1, n_tokens=8), 2, {}),
        (KHop(hops=2, n_tokens=8), 3, {}),
        (KHop(hops=3, n_tokens=10), 4, {}),
        (IndirectObject(n_blocks=1, n_names=5), 1, {"out:I_t I": -40.0}),
    ],
    ids=["recall", "2-gram", "1-hop", "2-hop", "3-hop", "indirect object"],
)
def test_the_textbook_circuit_solves_the_task(task, layers, sizes):
    assert task.circuit_layers == layers
    assert planted(task, sizes) > 0.99


@pytest.mark.parametrize("name", ["1:M", "2:I_t I->V1", "3:I_t V2->V1", "out:I_t V3"])
def test_a_circuit_that_lacks_a_step_does_not_solve_the_task(name):
    """1.0 with all of them, at most 0.7 without one. Self-matches only aid: they break a tie."""
    assert planted(KHop(hops=2, n_tokens=8), {name: 0.0}) < 0.8


@pytest.mark.parametrize("task", CASES.values(), ids=CASES)
def test_a_circuit_is_named_by_the_task_s_own_directions(task):
    symmetry = task.symmetry
    known = {*symmetry.token_directions, *symmetry.position_directions}
    assert {name.split(":")[1].split()[0] for name in task.circuit} <= known
    assert bool(task.circuit) == bool(task.circuit_layers)
