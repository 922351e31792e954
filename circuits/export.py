"""Circuits for other programs: a table, and the graph format of the MIB benchmark."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from circuits.circuit import Circuit
from circuits.graph import LOGITS
from training import Run
from training.families.attention_only import AttentionOnly
from training.families.transformer import Transformer


def edge_table(circuit: Circuit) -> pd.DataFrame:
    """Every edge of the graph in the order of the forward pass.

    source, reader, node (the one that reads), effect, low, high (95%, as in `EdgeScores.table`),
    kept: whether it is in the circuit.
    """
    here = circuit.graph
    where = {(edge.source, edge.reader): i for i, edge in enumerate(here.edges)}
    table = circuit.scores.table
    order = [where[key] for key in zip(table["source"], table["reader"], strict=True)]
    table = table.iloc[np.argsort(order)].reset_index(drop=True)
    table.insert(2, "node", [here.reader[name].feeds for name in table["reader"]])
    table["kept"] = circuit.mask
    return table


def mib_graph(circuit: Circuit, run: Run) -> dict:
    """The circuit as the MIB benchmark's circuit track reads it (`Graph.from_json` of EAP-IG).

    cfg: n_layers, n_heads, d_model, parallel_attn_mlp. nodes: name to in_graph; edges: name to
    score and in_graph. Names: input, a0.h1 (head 1 of layer 0), m0 (the MLP of layer 0), logits;
    edges input->a0.h1<q> for the query's side of a head, a0.h1->m0, a0.h1->logits. Tokens and
    positions are one node there: scores of their edges add up, and one is in the graph where
    either is. ValueError for a family without heads, which the format cannot hold.
    """
    family = run.family
    if not isinstance(family, AttentionOnly | Transformer):
        raise ValueError(
            f"MIB's format holds embeddings, heads and MLPs; {type(family).__name__} has other "
            "nodes: use the table"
        )
    task = run.task
    width = family.width if isinstance(family, Transformer) else task.vocabulary + task.n_positions
    edges: dict[str, dict] = {}
    for edge, value, kept in zip(
        circuit.graph.edges, circuit.scores.values, circuit.mask, strict=True
    ):
        name = f"{_mib_name(edge.source)}->{_mib_reader(edge.reader)}"
        one = edges.setdefault(name, {"score": 0.0, "in_graph": False})
        one["score"] += float(value)
        one["in_graph"] |= bool(kept)
    names = {_mib_name(node.name): False for node in circuit.graph.nodes}
    names |= {_mib_name(name): True for name in circuit.nodes} | {LOGITS: True}
    cfg = {
        "n_layers": family.layers,
        "n_heads": family.heads,
        "d_model": width,
        "parallel_attn_mlp": False,
    }
    nodes = {name: {"in_graph": kept} for name, kept in names.items()}
    return {"cfg": cfg, "nodes": nodes, "edges": edges}


def _mib_name(node: str) -> str:
    head, mlp = re.fullmatch(r"head (\d+)\.(\d+)", node), re.fullmatch(r"MLP (\d+)", node)
    if head:
        return f"a{head[1]}.h{head[2]}"
    if mlp:
        return f"m{mlp[1]}"
    return node if node == LOGITS else "input"


def _mib_reader(reader: str) -> str:
    side = re.fullmatch(r"(head .*) ([qkv])", reader)
    return f"{_mib_name(side[1])}<{side[2]}>" if side else _mib_name(reader)
