"""Head scores against loops over tokens, and on attention that is known."""

import numpy as np
import pytest
import torch

from circuits.edge_patching import EdgePatcher
from circuits.graph import graph
from circuits.heads import (
    attention,
    duplicate_token,
    head_scores,
    induction,
    k_hop,
    previous_token,
    step_input,
)
from circuits.pair import Pair
from training.families.dense_ssm import DenseSSM
from training.families.transformer import Transformer
from training.tasks import ModularAddition

TOKENS = np.random.default_rng(0).integers(0, 4, (6, 12))
SUM = ModularAddition(modulus=4, lengths=(3, 4), format="cot")


def by_loops(rule):
    """(batch, time, time) from `rule(x, i, j)`."""
    rows, time = TOKENS.shape
    return np.array(
        [[[rule(TOKENS[b], i, j) for j in range(time)] for i in range(time)] for b in range(rows)]
    )


def hop(x, i):
    """What followed the last earlier token like x_i, or None."""
    earlier = [j for j in range(i) if x[j] == x[i]]
    return earlier[-1] + 1 if earlier else None


def hops(x, i, k):
    for _ in range(k):
        i = None if i is None else hop(x, i)
    return i


def test_patterns_are_what_their_words_say():
    rules = {
        previous_token: lambda x, i, j: j == i - 1,
        duplicate_token: lambda x, i, j: j < i and x[j] == x[i],
        induction: lambda x, i, j: 0 < j <= i and x[j - 1] == x[i],
    }
    for pattern, rule in rules.items():
        np.testing.assert_array_equal(pattern(TOKENS), by_loops(rule))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_hops_follow_the_last_earlier_token(k):
    np.testing.assert_array_equal(k_hop(TOKENS, k), by_loops(lambda x, i, j: j == hops(x, i, k)))


def test_no_pattern_looks_ahead():
    ahead = ~np.tri(TOKENS.shape[1], dtype=bool)
    for pattern in (previous_token, duplicate_token, induction, lambda x: k_hop(x, 2)):
        assert not (pattern(TOKENS) & ahead).any()


@pytest.mark.parametrize("layout", ["usual", "aligned", "right_aligned"])
def test_the_input_of_a_step_is_where_the_layout_puts_it(layout):
    task = ModularAddition(modulus=4, lengths=(3, 4), format="cot", layout=layout)
    batch = task.sequences(3, 5, 0)
    found, steps = step_input(task, batch), task.step(batch)
    assert found is not None
    states = batch.targets
    for b, i in zip(*np.nonzero(steps), strict=True):
        (j,) = np.flatnonzero(found[b, i])
        before = 0 if steps[b, i] == 1 else states[b, i - 1]
        assert (before + batch.tokens[b, j]) % 4 == states[b, i]


def patcher(family, task=SUM, length=4):
    params = family.initialise(task, 0, torch.float64)
    clean = task.sequences(length, 20, 0)
    corrupt, final = task.corrupt(clean, 0), int(task.final(clean)[0])
    pair = Pair(clean=clean, corrupt=corrupt, sequences=len(clean), final=final)
    return EdgePatcher(family, params, graph(family, params, clean.tokens.shape[1], final), pair)


def test_uniform_attention_scores_its_baseline():
    """Queries of zero attend to all tokens alike."""
    family = Transformer(layers=2, heads=2, width=8)
    here = patcher(family)
    params = {n: 0 * x if n.endswith("W_Q") else x for n, x in here.params.items()}
    table = head_scores(EdgePatcher(family, params, here.graph, here.pair), SUM)
    np.testing.assert_allclose(table["score"], table["baseline"], rtol=1e-9)
    assert {"previous token", "duplicate token", "induction", "step input", "pointer"} <= set(
        table["pattern"]
    )


def test_a_score_is_the_mean_attention_that_lands_there():
    family = Transformer(layers=2, heads=2, width=8, init_std=1.0)
    here = patcher(family)
    table = head_scores(here, SUM).set_index(["head", "pattern"])
    heads = attention(family, here.params, here.pair.clean)
    tokens = here.pair.clean.tokens
    for name, weights in heads.items():
        landed = [
            sum(float(weights[b, i, j]) for j in range(i) if tokens[b, j] == tokens[b, i])
            for b in range(len(tokens))
            for i in range(tokens.shape[1])
            if tokens[b, i] in tokens[b, :i]
        ]
        row = table.loc[(name, "duplicate token")]
        assert row["score"] == pytest.approx(np.mean(landed), rel=1e-9)
        assert float(row["low"]) <= float(row["score"]) <= float(row["high"])
    assert np.abs(table["score"] - table["baseline"]).max() > 0.05
    pairs = table.xs("pointer", level="pattern")
    assert list(pairs.index) == ["head 1.0", "head 1.1"]
    first, second = heads[pairs.loc["head 1.0", "via"]], heads["head 1.0"]
    time = tokens.shape[1]
    landed = [
        float((first[b, i, : time - 1] * second[b, i, 1:]).sum())
        for b in range(len(tokens))
        for i in range(2, time)
    ]
    assert pairs.loc["head 1.0", "score"] == pytest.approx(np.mean(landed), rel=1e-9)


def test_an_effect_is_that_of_patching_all_the_head_writes():
    family = Transformer(layers=2, heads=2, width=8, init_std=1.0)
    here = patcher(family)
    table = head_scores(here, SUM).drop_duplicates("head").set_index("head")

    def edit(name, value):
        if name == "blocks.0.attn.hook_result":
            value = value.clone()
            value[..., 1, :] = here.corrupt["head 0.1"]
        return value

    logits = family.forward(here.params, *here.rows, edit)
    fall = float((here.clean_metric - here.pair.metric(logits)).mean())
    assert table.loc["head 0.1", "effect"] == pytest.approx(fall, rel=1e-9)


def test_a_family_without_heads_is_told_so():
    with pytest.raises(ValueError, match="DenseSSM has no attention heads"):
        head_scores(patcher(DenseSSM(width=4)), SUM)
