"""Our edge effects and circuits against transformer-lens's own tools, on a model both can run.

transformer-lens 4.3 has plain edge attribution and ablation outside a circuit, for transformers
alone, one pair of sequences at a time.
"""

import dataclasses

import numpy as np
import pytest
import torch

from circuits.attribution import score_edges
from circuits.edge_patching import EdgePatcher
from circuits.faithfulness import faithfulness
from circuits.graph import graph
from tests.circuits.slow_forwards import BATCH, SIZES, TIME, made
from training.families.transformer import Transformer

pytestmark = pytest.mark.slow
FAMILY = Transformer(layers=2, heads=2, width=8)


def gpt2_of(params):
    """Our weights as Hugging Face's GPT-2, float64; that is our layout with an untied head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=SIZES.vocabulary,
        n_positions=SIZES.n_positions,
        n_embd=FAMILY.width,
        n_layer=FAMILY.layers,
        n_head=FAMILY.heads,
        activation_function="gelu",
        tie_word_embeddings=False,
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).double().eval()
    weights = {
        "transformer.wte.weight": params["embed.W_E"],
        "transformer.wpe.weight": params["pos_embed.W_pos"],
        "transformer.ln_f.weight": params["ln_final.w"],
        "transformer.ln_f.bias": params["ln_final.b"],
        "lm_head.weight": params["unembed.W_U"].mT,
    }
    for layer in range(FAMILY.layers):
        ours = {name: params[f"blocks.{layer}.{name}"] for name in OURS}
        sides = [ours[f"attn.W_{side}"].transpose(0, 1).flatten(1) for side in "QKV"]
        biases = [ours[f"attn.b_{side}"].flatten() for side in "QKV"]
        block = {
            "ln_1.weight": ours["ln1.w"],
            "ln_1.bias": ours["ln1.b"],
            "ln_2.weight": ours["ln2.w"],
            "ln_2.bias": ours["ln2.b"],
            "attn.c_attn.weight": torch.cat(sides, 1),
            "attn.c_attn.bias": torch.cat(biases),
            "attn.c_proj.weight": ours["attn.W_O"].flatten(0, 1),
            "attn.c_proj.bias": ours["attn.b_O"],
            "mlp.c_fc.weight": ours["mlp.W_in"],
            "mlp.c_fc.bias": ours["mlp.b_in"],
            "mlp.c_proj.weight": ours["mlp.W_out"],
            "mlp.c_proj.bias": ours["mlp.b_out"],
        }
        weights |= {f"transformer.h.{layer}.{name}": value for name, value in block.items()}
    model.load_state_dict(weights, strict=True)
    return model, config


OURS = (
    *(f"attn.{kind}_{side}" for side in "QKVO" for kind in "Wb"),
    *("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out", "ln1.w", "ln1.b", "ln2.w", "ln2.b"),
)


@pytest.fixture(scope="module")
def theirs():
    """A bridge with our weights, float64, and the pair: tokens differ, positions run from 0.

    Its native architecture has no hook per head before q, k and v, so GPT-2's is taken.
    """
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    family, params, pair = made("transformer")
    assert family == FAMILY
    in_order = np.broadcast_to(np.arange(TIME), pair.clean.tokens.shape).copy()
    pair = dataclasses.replace(
        pair,
        clean=dataclasses.replace(pair.clean, positions=in_order),
        corrupt=dataclasses.replace(pair.corrupt, positions=in_order),
    )
    model, config = gpt2_of(params)
    bridge = build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=config)
    bridge.eval()
    patcher = EdgePatcher(family, params, graph(family, params, TIME, pair.final), pair)
    return bridge, patcher


def edge_of(writer, reader):
    """Their edge, without its position, in our words."""
    source = {
        "embed": "embed",
        "attn_head_out": f"head {writer.layer}.{writer.head}",
        "mlp_out": f"MLP {writer.layer}",
    }[writer.kind]
    side = reader.kind[0]
    into = {"mlp_in": f"MLP {reader.layer}", "logits": "logits"}
    return f"{source} -> {into.get(reader.kind, f'head {reader.layer}.{reader.head} {side}')}"


def metric_of(pair, row):
    right, wrong = pair.answers(pair.clean)[row], pair.answers(pair.corrupt)[row]
    return lambda logits: logits[0, pair.final, right] - logits[0, pair.final, wrong]


def test_the_models_are_the_same(theirs):
    bridge, patcher = theirs
    tokens, positions = patcher.rows
    ours = patcher.family.forward(patcher.params, tokens, positions)
    torch.testing.assert_close(bridge(tokens), ours, rtol=1e-9, atol=1e-11)


def test_edge_attribution_agrees(theirs):
    """They take the gradient at their corrupted run and ours is the clean one: sides change."""
    from transformer_lens.tools.analysis.attribution_patching import (
        EdgeAttributionConfig,
        attribution_patch,
    )

    bridge, patcher = theirs
    found = score_edges(patcher, "attribution")
    tokens = [torch.from_numpy(b.tokens) for b in (patcher.pair.clean, patcher.pair.corrupt)]
    ours = {str(edge): found.effects[i] for i, edge in enumerate(patcher.graph.edges)}
    for row in range(BATCH):
        clean, corrupt = (side[row : row + 1] for side in tokens)
        scored = attribution_patch(
            bridge,
            clean=corrupt,
            corrupt=clean,
            metric_fn=metric_of(patcher.pair, row),
            config=EdgeAttributionConfig(granularity="edge"),
        )
        theirs_: dict[str, float] = {}
        for (writer, reader), score in scored.edge_scores.items():
            name = edge_of(writer, reader)
            theirs_[name] = theirs_.get(name, 0.0) - score
        missing = {name for name in ours if not name.startswith("positions")} - set(theirs_)
        assert not missing
        for name, score in theirs_.items():
            assert score == pytest.approx(ours[name][row], rel=1e-7, abs=1e-9), name
    constant = [effect for name, effect in ours.items() if name.startswith("positions")]
    assert np.abs(constant).max() == 0


def test_circuits_carry_as_much(theirs):
    from transformer_lens.tools.analysis.attribution_patching import Node
    from transformer_lens.tools.analysis.attribution_patching import faithfulness as recovered

    bridge, patcher = theirs
    rng = np.random.default_rng(0)
    kept = rng.random((3, len(patcher.graph.edges))) < 0.6
    kept |= np.array([edge.source == "positions" for edge in patcher.graph.edges])
    reached = patcher.metric(~kept)
    gaps = patcher.clean_metric - patcher.corrupt_metric
    tokens = [torch.from_numpy(b.tokens) for b in (patcher.pair.clean, patcher.pair.corrupt)]
    for mask, metric in zip(kept, reached, strict=True):
        names = {str(e) for e, on in zip(patcher.graph.edges, mask, strict=True) if on}
        circuit = [pair for pair in every_edge(Node) if edge_of(*pair) in names]
        for row in range(2):
            found = recovered(
                bridge,
                *(side[row : row + 1] for side in tokens),
                metric_of(patcher.pair, row),
                circuit,
            )
            ours = (metric[row] - patcher.corrupt_metric[row]) / gaps[row]
            assert found.recovered == pytest.approx(float(ours), rel=1e-6, abs=1e-8)
    assert np.isfinite(faithfulness(patcher, kept).value).all() or patcher.gap < 0.3


def every_edge(node):
    """Their edges of a model of FAMILY's size."""
    for position in range(TIME):
        written = [node(kind="embed", position=position)]
        for layer in range(FAMILY.layers):
            for kind in ("q_input", "k_input", "v_input"):
                for head in range(FAMILY.heads):
                    reader = node(kind=kind, layer=layer, head=head, position=position)
                    yield from ((writer, reader) for writer in written)
            written += [
                node(kind="attn_head_out", layer=layer, head=head, position=position)
                for head in range(FAMILY.heads)
            ]
            reader = node(kind="mlp_in", layer=layer, position=position)
            yield from ((writer, reader) for writer in written)
            written.append(node(kind="mlp_out", layer=layer, position=position))
        reader = node(kind="logits", layer=FAMILY.layers - 1, position=position)
        yield from ((writer, reader) for writer in written)
