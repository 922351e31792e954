"""What every family says of its own wiring, against what its forward does."""

import dataclasses

import pytest
import torch

from training.families import FAMILIES
from training.families.attention_only import AttentionOnly
from training.families.dense_ssm import DenseSSM
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.transformer import Transformer
from training.families.wiring import Node, Reader, Wiring
from training.tasks import AssociativeRecall, ModularAddition

SUM = ModularAddition(modulus=3, lengths=(3,), format="cot")
RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=4, track_slots=3, f_r=0.3, f_v=0.3)
CASES = {
    "attention_only": (AttentionOnly(layers=2, heads=2, scale=0.5), RECALL),
    "transformer": (Transformer(layers=2, heads=2, width=8), SUM),
    "transformer, bare": (
        Transformer(layers=2, heads=2, width=8, mlp=False, layer_norm=False, positions="rotary"),
        SUM,
    ),
    "lstm": (LSTM(width=5), SUM),
    "dense_ssm": (DenseSSM(width=5), SUM),
    "mamba": (Mamba(width=6, layers=2, state=3), SUM),
}


@pytest.fixture(params=CASES)
def case(request):
    """Family, parameters that are all at work, two batches that differ in every token."""
    family, task = CASES[request.param]
    params = family.initialise(task, 0, torch.float64)
    rng = torch.Generator().manual_seed(1)
    frozen = family.frozen
    params = {
        name: x if name in frozen else x + 0.3 * torch.randn(x.shape, generator=rng).to(x)
        for name, x in params.items()
    }
    batches = [task.batch(seed, 0, 3) for seed in (0, 1)]
    rows = [tuple(map(torch.from_numpy, (b.tokens, b.positions))) for b in batches]
    tokens, positions = rows[1]
    rows[1] = ((rows[0][0] + tokens + 1) % task.vocabulary, positions.flip(-1))
    return family, params, rows


def run(case, which, edit=None):
    """Logits and every tap's value of one of the two batches."""
    family, params, rows = case
    seen = {}

    def tap(name, x):
        seen[name] = x
        return x if edit is None else edit(name, x)

    return family.forward(params, *rows[which], tap), seen


def wiring_of(case) -> Wiring:
    family, params, rows = case
    return family.wiring(params, rows[0][0].shape[-1])


def read(reader: Reader, seen):
    return Node(name=reader.name, tap=reader.tap, part=reader.part).of(seen[reader.tap])


def test_every_family_of_ours_has_a_wiring():
    assert {name.split(",")[0] for name in CASES} == set(FAMILIES)


def test_readers_differ_by_the_sum_of_what_their_sources_wrote(case):
    wiring, (_, first), (_, second) = wiring_of(case), run(case, 0), run(case, 1)
    for reader in wiring.readers:
        change = read(reader, second) - read(reader, first)
        if "token" not in reader.name:
            assert change.abs().max() > 1e-6, f"{reader.name} reads the same in both"
        total = torch.zeros_like(change)
        for name in reader.sources:
            node = wiring[name]
            part = node.of(second[node.tap]) - node.of(first[node.tap])
            total[..., node.offset : node.offset + part.shape[-1]] += part
        torch.testing.assert_close(total, change, rtol=1e-10, atol=1e-12)


def test_taps_come_in_the_order_of_the_wiring(case):
    family, _, rows = case
    order = {name: i for i, name in enumerate(family.hook_names(rows[0][0].shape[-1]))}
    wiring = wiring_of(case)
    nodes = [order[node.tap] for node in wiring.nodes]
    assert nodes == sorted(nodes)
    for reader in wiring.readers:
        assert all(order[wiring[name].tap] <= order[reader.tap] for name in reader.sources)


def test_editing_what_is_read_reaches_the_logits_and_only_through_the_reader(case):
    """With every reader set to what it reads in the other run, nothing of this run is left."""
    wiring, (_, second) = wiring_of(case), run(case, 1)
    parts = {}
    for reader in wiring.readers:
        parts.setdefault(reader.tap, []).append(reader)

    def edit(name, x):
        for reader in parts.get(name, ()):
            node = Node(name="", tap=name, part=reader.part)
            x = node.put(x, node.of(second[name]))
        return x

    logits, _ = run(case, 0, edit)
    other, _ = run(case, 1)
    torch.testing.assert_close(logits, other, rtol=1e-9, atol=1e-11)


def test_heads_set_apart_compute_what_they_do_together(case):
    plain, _ = run(case, 0)
    apart, _ = run(case, 0, lambda _, x: x.clone())
    torch.testing.assert_close(apart, plain, rtol=1e-11, atol=1e-13)


def test_stacked_members_set_apart_equal_single_ones(case):
    family, params, rows = case
    other = {name: x if name in family.frozen else 1.1 * x for name, x in params.items()}
    stacked = {name: torch.stack([params[name], other[name]]) for name in params}
    inputs = [torch.stack([x, x]) for x in rows[0]]
    both = family.forward(stacked, *inputs, lambda _, x: x.clone())
    for i, one in enumerate((params, other)):
        alone = family.forward(one, *rows[0])
        torch.testing.assert_close(both[i], alone, rtol=1e-10, atol=1e-12)


def test_a_wiring_that_contradicts_itself_is_refused():
    node = Node(name="embed", tap="hook_embed")
    reader = Reader(name="logits", tap="x", feeds="logits", sources=("embed", "head"))
    with pytest.raises(ValueError, match="nothing writes head"):
        Wiring(nodes=(node,), readers=(reader,))
    with pytest.raises(ValueError, match="nodes embed are there twice"):
        Wiring(nodes=(node, dataclasses.replace(node, tap="other")), readers=())
