"""HookedModel: the family's own forward, with every tap a TransformerLens hook."""

import pytest
import torch

from training import RunConfig, train
from training.families import LSTM, AttentionOnly, DenseSSM, Mamba, Transformer
from training.tasks import AssociativeRecall, ModularAddition

RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=4, track_slots=3, f_r=0.4, f_v=0.4)
SUM = ModularAddition(modulus=4, lengths=(3, 4), format="cot", layout="usual")
CASES = [
    (RECALL, AttentionOnly(layers=2, heads=1, scale=0.3)),
    (RECALL, Transformer(layers=2, heads=2, width=8, mlp=False, layer_norm=False)),
    (SUM, Transformer(layers=1, heads=2, width=8)),
    (SUM, DenseSSM(width=6)),
    (SUM, LSTM(width=6)),
    (SUM, Mamba(width=6, layers=2, state=3)),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{type(case[1]).__name__}")
def case(request):
    from training.hooked import HookedModel

    task, family = request.param
    params = family.initialise(task, 0, torch.float64)
    batch = task.evaluation(0, 12)
    tokens, positions = torch.tensor(batch.tokens), torch.tensor(batch.positions.copy())
    model = HookedModel(family, params, time=tokens.shape[1])
    return family, params, model, tokens, positions


def test_logits_are_those_of_the_forward(case):
    family, params, model, tokens, positions = case
    pure = family.forward(params, tokens, positions, lambda name, x: x)
    assert torch.equal(model(tokens, positions), pure)


def test_the_cache_holds_every_hook(case):
    family, params, model, tokens, positions = case
    seen = {}
    family.forward(params, tokens, positions, lambda name, x: seen.setdefault(name, x))
    logits, cache = model.run_with_cache(tokens, positions)
    assert set(cache) == set(family.hook_names(tokens.shape[1])) == set(seen)
    assert all(torch.equal(cache[name], seen[name]) for name in seen)
    assert torch.equal(logits, model(tokens, positions))


def test_an_edit_through_a_hook_is_the_same_edit_through_the_tap(case):
    family, params, model, tokens, positions = case
    plain = model(tokens, positions)
    changed = 0
    for name in family.hook_names(tokens.shape[1]):
        hooked = model.run_with_hooks(
            tokens, positions, fwd_hooks=[(name, lambda x, hook: 0.5 * x.clamp_min(-3))]
        )
        tapped = family.forward(
            params,
            tokens,
            positions,
            lambda at, x, name=name: 0.5 * x.clamp_min(-3) if at == name else x,
        )
        assert torch.equal(hooked, tapped), name
        changed += not torch.equal(hooked, plain)
    assert changed >= 0.8 * len(family.hook_names(tokens.shape[1]))
    assert torch.equal(model(tokens, positions), plain)


def test_parameters_keep_their_names_and_what_is_frozen_stays_so(case):
    family, params, model, *_ = case
    assert set(model.state_dict()) == set(params)
    asks = {name: p.requires_grad for name, p in model.named_parameters()}
    assert {name for name, trained in asks.items() if not trained} == set(family.frozen)


def test_a_longer_sequence_has_its_own_hooks():
    from training.hooked import HookedModel

    family = DenseSSM(width=4)
    model = HookedModel(family, family.initialise(SUM, 0, torch.float32), time=3)
    tokens = torch.zeros(2, 7, dtype=torch.long)
    _, cache = model.run_with_cache(tokens)
    assert set(cache) == set(family.hook_names(7))
    assert {f"hook_state.{t}" for t in range(7)} < set(cache)
    zeroed = model.run_with_hooks(
        torch.zeros(2, 9, dtype=torch.long), fwd_hooks=[("hook_state.8", lambda x, hook: 0 * x)]
    )
    assert torch.equal(zeroed[:, 8], model.state_dict()["unembed.b_U"].expand(2, -1))


def test_a_checkpoint_gives_its_model(tmp_path):
    config = RunConfig(task=SUM, family=DenseSSM(width=4), steps=4, batch_size=8, eval_size=20)
    run = train(config, root=tmp_path)
    kept = run.last
    batch = run.task.evaluation(0, 5)
    logits = kept.model()(torch.tensor(batch.tokens))
    pure = run.family.forward(
        kept.params(),
        torch.tensor(batch.tokens),
        torch.tensor(batch.positions.copy()),
        lambda name, x: x,
    )
    assert torch.equal(logits, pure)
    with pytest.raises(ValueError, match=r"tokens have shape \(4,\); allowed: \(batch, time\)"):
        kept.model()(torch.zeros(4, dtype=torch.long))
