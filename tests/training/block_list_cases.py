"""One small instance of each task of the block-list class, for the tests of every room.

The laws are small enough to be enumerated, and tracks have twice the slots of the longest block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, permutations, product

import numpy as np

from training.tasks import (
    AssociativeRecall,
    BlockList,
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    PermutationInversion,
    RelationRetrieval,
)
from training.tasks.program import Draw, Drawn, Program

RECALL = AssociativeRecall(n_blocks=2, n_common=4, n_rare=3, track_slots=4, f_r=0.3, f_v=0.2)

UNIFORM: dict[str, BlockList] = {
    "2-gram": InContextNgram(n_blocks=2, n_tokens=4),
    "2-gram, 2 copies": InContextNgram(n_blocks=3, n_tokens=3, burstiness=2),
    "3-gram": InContextNgram(n_blocks=2, n_tokens=4, n=3),
    "1-hop": KHop(hops=1, n_tokens=5),
    "1-hop, 3 chains": KHop(hops=1, n_tokens=6, chains=3),
    "2-hop": KHop(hops=2, n_tokens=6),
    "indirect object": IndirectObject(n_blocks=1, n_names=3),
    "indirect object, 2 blocks": IndirectObject(n_blocks=2, n_names=5),
    "indirect object, words": IndirectObject(n_blocks=2, n_names=4, function_words=True),
    "conditional retrieval": ConditionalRetrieval(n_blocks=3, n_contexts=2, n_keys=3, n_values=3),
    "relation retrieval": RelationRetrieval(n_blocks=2, n_keys=3, n_values=3),
    "permutation inversion": PermutationInversion(n_tokens=3),
}
"""Those whose law is uniform over the sequences of `every`."""

CASES: dict[str, BlockList] = {"associative recall": RECALL, **UNIFORM}


def half_used(program: Program) -> Program:
    """The program with a defect: its first draw never takes the second token it could take."""
    first = program.draws[0]

    def alternatives(drawn: Drawn) -> list[tuple[str, np.ndarray]]:
        found = []
        for factor, mask in first.alternatives(drawn):
            kept = mask.copy()
            kept[:, 1] = False
            found.append((factor, kept))
        return found

    broken = Draw(name=first.name, alternatives=alternatives)
    return replace(program, draws=(broken, *program.draws[1:]))


def solve(task: BlockList, row: list[int]) -> int:
    """The answer, read from the sequence as a person would."""
    match task:
        case AssociativeRecall() | KHop():
            label = {row[i]: row[i + 1] for i in range(0, len(row) - 1, 2)}
            token = row[-1]
            for _ in range(getattr(task, "hops", 1)):
                token = label[token]
            return token
        case InContextNgram(n=n):
            key = row[len(row) - n + 1 :]
            blocks = [row[i : i + n] for i in range(0, len(row) - n + 1, n)]
            (answer,) = {block[-1] for block in blocks if block[:-1] == key}
            return answer
        case IndirectObject(n_names=n_names):
            names = [token for token in row if token < n_names]
            subject, names = names[-1], names[:-1]
            at = names.index(subject)
            return names[at + 1] if at % 2 == 0 else names[at - 1]
        case ConditionalRetrieval():
            table = {(row[i], row[i + 1]): row[i + 2] for i in range(0, len(row) - 2, 3)}
            return table[row[-2], row[-1]]
        case RelationRetrieval(n_keys=n_keys, n_values=n_values):
            values = {row[i]: row[i + 1 : i + 3] for i in range(0, len(row) - 2, 3)}
            return values[row[-2]][row[-1] - n_keys - n_values]
        case PermutationInversion():
            return {row[i + 1]: row[i] for i in range(0, len(row) - 1, 2)}[row[-1]]
    raise ValueError(f"no solver for {type(task).__name__}")


def every(task: BlockList) -> Iterator[tuple[int, ...]]:
    """Every sequence that the definition of the task allows, its answer last; some repeatedly."""
    match task:
        case InContextNgram(n=n, n_blocks=count, n_tokens=size, burstiness=copies):
            for blocks in product(permutations(range(size), n), repeat=count):
                for asked in blocks:
                    others = [block for block in blocks if block != asked]
                    free = all(block[0] not in asked[:-1] for block in others)
                    if free and count - len(others) == copies:
                        yield (*chain(*blocks), *asked)
        case KHop(hops=hops, chains=chains, n_tokens=size):
            for tokens in permutations(range(size), chains * (hops + 1)):
                lines = [tokens[i : i + hops + 1] for i in range(0, len(tokens), hops + 1)]
                blocks = [line[j : j + 2] for line in lines for j in range(hops)]
                for order in permutations(blocks):
                    yield (*chain(*order), lines[0][0], lines[0][-1])
        case IndirectObject(n_blocks=count, n_names=size, function_words=words):
            link, end = ((size,), (size + 1,)) if words else ((), ())
            for names in permutations(range(size), 2 * count):
                pairs = [names[i : i + 2] for i in range(0, 2 * count, 2)]
                context = chain(*((a, *link, b) for a, b in pairs))
                row = tuple(context)
                for a, b in pairs:
                    yield (*row, a, *end, b)
                    yield (*row, b, *end, a)
        case ConditionalRetrieval(n_contexts=n_c, n_keys=n_u, n_values=n_v, n_blocks=count):
            keys, values = range(n_c, n_c + n_u), range(n_c + n_u, n_c + n_u + n_v)
            for pairs in permutations(product(range(n_c), keys), count):
                for labels in product(values, repeat=count):
                    for (c, u), v in zip(pairs, labels, strict=True):
                        same = [(x == c, y == u) for x, y in pairs]
                        hard = (True, False) in same and (False, True) in same
                        if hard and labels.count(v) == 1:
                            blocks = ((*pair, w) for pair, w in zip(pairs, labels, strict=True))
                            yield (*chain(*blocks), c, u, v)
        case RelationRetrieval(n_blocks=count, n_keys=n_u, n_values=n_v):
            two = list(permutations(range(n_u, n_u + n_v), 2))
            for keys in permutations(range(n_u), count):
                for values in product(two, repeat=count):
                    blocks = [(u, *pair) for u, pair in zip(keys, values, strict=True)]
                    for u, *pair in blocks:
                        for c in (0, 1):
                            yield (*chain(*blocks), u, n_u + n_v + c, pair[c])
        case PermutationInversion(n_tokens=size):
            for firsts in permutations(range(size)):
                for images in permutations(range(size)):
                    pairs = list(zip(firsts, images, strict=True))
                    for i, image in pairs:
                        yield (*chain(*pairs), image, i)
