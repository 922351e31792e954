"""A catalogue of groups and of pairs of their representations, as generators; data only."""

import itertools

import numpy as np

from training.tasks.base import generator

# Permutations (g, n): row r sends point j to [r, j].


def cycle(n, step=1):
    return (np.arange(n) + step) % n


def swap(n):
    return np.array([1, 0, *range(2, n)])


def symmetric(n):
    return np.stack([cycle(n), swap(n)])


def alternating(n):
    """By the 3-cycles (0 1 k)."""
    threes = np.tile(np.arange(n), (n - 2, 1))
    for row, k in zip(threes, range(2, n), strict=True):
        row[[0, 1, k]] = 1, k, 0
    return threes


def dihedral(n):
    return np.stack([cycle(n), np.arange(n)[::-1]])


def wreath(m, k):
    """Z_m wr S_k on k tracks of m slots."""
    turn = np.arange(m * k)
    turn[:m] = np.roll(turn[:m], -1)
    blocks = np.arange(m * k).reshape(k, m)
    return np.stack([turn, blocks[cycle(k)].ravel(), blocks[swap(k)].ravel()])


def on_pairs(action, ordered):
    """The same elements on pairs of points."""
    n = action.shape[1]
    pairs = list((itertools.permutations if ordered else itertools.combinations)(range(n), 2))
    order = (lambda p: tuple(p)) if ordered else (lambda p: tuple(sorted(p)))
    return np.array([[pairs.index(order(g[list(p)])) for p in pairs] for g in action])


def regular(action):
    """The group acting on its own elements from the left."""
    group = [tuple(range(action.shape[1]))]
    for element in group:
        for g in action:
            image = tuple(g[list(element)].tolist())
            if image not in group:
                group.append(image)
    return np.array([[group.index(tuple(g[list(e)].tolist())) for e in group] for g in action])


def beside(one, two):
    """One group on the points of both actions."""
    return np.concatenate([one, two + one.shape[1]], axis=1)


def product(one, two):
    """The direct product, each factor on points of its own."""
    still = [np.tile(np.arange(a.shape[1]), (len(b), 1)) for a, b in ((one, two), (two, one))]
    return np.concatenate([beside(one, still[1]), beside(still[0], two)])


# Orthogonal matrices (g, n, n).


def matrices(action):
    return np.eye(action.shape[1])[action].transpose(0, 2, 1)


def plane(*angles):
    """One rotation of each plane, as a single generator."""
    found = np.zeros((1, 2 * len(angles), 2 * len(angles)))
    for i, t in enumerate(angles):
        at = slice(2 * i, 2 * i + 2)
        found[0, at, at] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return found


def copies(action, count):
    return np.stack([np.kron(np.eye(count), g) for g in action])


def tensor(one, two):
    return np.stack([np.kron(g, h) for g, h in zip(one, two, strict=True)])


def direct_sum(one, two):
    n, m = one.shape[1], two.shape[1]
    found = np.zeros((len(one), n + m, n + m))
    found[:, :n, :n], found[:, n:, n:] = one, two
    return found


def hidden(action):
    """The same action in a random orthonormal basis."""
    n = action.shape[1]
    turn = np.linalg.qr(generator(n, *b"hidden").standard_normal((n, n)))[0]
    return turn @ action @ turn.T


def left_multiplication(quaternions):
    """Unit quaternions (g, 4) on the quaternions, from the left."""
    return np.array(
        [
            [[a, -b, -c, -d], [b, a, -d, c], [c, d, a, -b], [d, -c, b, a]]
            for a, b, c, d in quaternions
        ]
    )


def turns(quaternions):
    """The rotations of space x -> q x q*, (g, 3, 3)."""
    left, flip = left_multiplication(quaternions), np.diag([1.0, -1, -1, -1])
    return (left @ flip @ left @ flip)[:, 1:, 1:]


def on_axes(rotations, axes):
    """The rotations' permutations of axes, which have no direction."""
    return np.array([np.abs(axes @ r @ axes.T).argmax(1) for r in rotations])


GOLDEN = (1 + np.sqrt(5)) / 2
UNITS = np.eye(4)[1:3]
"""The quaternions i and j, which generate the group of 8."""
CUBE = turns(np.array([[1, 0, 0, 1], [np.sqrt(0.5)] * 4]) * np.sqrt(0.5))
DIAGONALS = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]])
ICOSAHEDRON = turns(np.array([[0, 1, 1 / GOLDEN, GOLDEN], [1, 1, 1, 1]]) / 2)
EVEN_5 = np.array([[1, 0, 3, 2, 4], [2, 1, 4, 3, 0]])
"""A_5 by an element of order 2 and one of order 3 whose product has order 5, as ICOSAHEDRON."""
SIGN = np.array([[[-1.0]], [[-1.0]]])
KLEIN = np.array([[1, 0, 3, 2], [2, 3, 0, 1]])
RECALL = product(
    np.array([[1, 0, 2, 3, 4, 5], [2, 3, 0, 1, 4, 5], [2, 3, 4, 5, 0, 1]]), symmetric(4)
)
"""Tokens of associative recall: three pairs that may be swapped and exchanged, four rare ones."""

PERMUTATIONS = {
    "trivial on 4": np.empty((0, 4), int),
    "the identity on 3": np.arange(3)[None],
    "Z_2": swap(2)[None],
    "Z_6": cycle(6)[None],
    "Z_7": cycle(7)[None],
    "Z_12 on 4 + 3": beside(cycle(4)[None], cycle(3)[None]),
    "Z_8 twice": beside(cycle(8)[None], cycle(8)[None]),
    "units of Z_7": ((3 * np.arange(7)) % 7)[None],
    "affine group of Z_5": np.stack([cycle(5), (2 * np.arange(5)) % 5]),
    "Klein's four": KLEIN,
    "dihedral, triangle": dihedral(3),
    "dihedral, pentagon": dihedral(5),
    "dihedral, hexagon": dihedral(6),
    "S_3 on itself": regular(symmetric(3)),
    "S_3 twice": beside(symmetric(3), symmetric(3)),
    "S_4": symmetric(4),
    "S_5": symmetric(5),
    "S_5 on pairs": on_pairs(symmetric(5), ordered=False),
    "S_4 on ordered pairs": on_pairs(symmetric(4), ordered=True),
    "A_4": alternating(4),
    "A_5": EVEN_5,
    "A_4 on itself": regular(alternating(4)),
    "S_2 x S_3": product(symmetric(2), symmetric(3)),
    "S_3 x Z_4": product(symmetric(3), cycle(4)[None]),
    "Z_4 wr S_3": wreath(4, 3),
    "Z_3 wr S_2": wreath(3, 2)[:2],
    "S_2 wr S_3 x S_4": RECALL,
}

ORTHOGONAL = {
    "trivial, as matrices": np.empty((0, 3, 3)),
    "minus one": -np.eye(2)[None],
    "quarter turn": plane(np.pi / 2),
    "quarter turn of 3 planes": plane(*[np.pi / 2] * 3),
    "quarter turn beside a half": plane(np.pi / 2, np.pi),
    "fifths of a turn, 1 and 2": plane(2 * np.pi / 5, 4 * np.pi / 5),
    "quaternions": left_multiplication(UNITS),
    "quaternions, 3 copies": copies(left_multiplication(UNITS), 3),
    "quaternions beside their signs": direct_sum(left_multiplication(UNITS), matrices(KLEIN)),
    "signed permutations of 3": np.concatenate([matrices(symmetric(3)), [np.diag([-1.0, 1, 1])]]),
    "cube": CUBE,
    "icosahedron": ICOSAHEDRON,
    "icosahedron, squared": tensor(ICOSAHEDRON, ICOSAHEDRON),
    "S_4 by its square": tensor(matrices(symmetric(4)), matrices(symmetric(4))),
}
ORTHOGONAL |= {
    f"{name}, hidden": hidden(action)
    for name, action in {
        "Z_5": matrices(cycle(5)[None]),
        "S_4": matrices(symmetric(4)),
        "Z_4 wr S_3": matrices(wreath(4, 3)),
        "S_3 on itself": matrices(PERMUTATIONS["S_3 on itself"]),
        "quarter turn of 3 planes": ORTHOGONAL["quarter turn of 3 planes"],
        "quaternions, 3 copies": ORTHOGONAL["quaternions, 3 copies"],
        "icosahedron, squared": ORTHOGONAL["icosahedron, squared"],
    }.items()
}

PAIRS = {
    "S_4, points to pairs": (symmetric(4), on_pairs(symmetric(4), ordered=False)),
    "S_4, ordered pairs to points": (on_pairs(symmetric(4), ordered=True), symmetric(4)),
    "S_3, points to sign": (symmetric(3)[1:], SIGN[1:]),
    "S_4, itself to sign": (regular(symmetric(4)), SIGN),
    "cube, diagonals to space": (on_axes(CUBE, DIAGONALS), CUBE),
    "cube, pairs of diagonals to space": (on_pairs(on_axes(CUBE, DIAGONALS), ordered=True), CUBE),
    "A_5, points to space": (EVEN_5, ICOSAHEDRON),
    "A_5, ordered pairs to space": (on_pairs(EVEN_5, ordered=True), ICOSAHEDRON),
    "Z_6 to Z_3": (cycle(6)[None], cycle(3)[None]),
    "Z_4 to a quarter turn": (cycle(4)[None], plane(np.pi / 2)),
    "Z_5 to two fifths of a turn": (cycle(5)[None], plane(4 * np.pi / 5)),
    "a fifth of a turn to two": (plane(2 * np.pi / 5), plane(4 * np.pi / 5)),
    "a fifth of a turn to its inverse": (plane(2 * np.pi / 5), plane(-2 * np.pi / 5)),
    "quaternions to their signs": (left_multiplication(UNITS), matrices(KLEIN)),
    "quaternions to three, hidden": (
        left_multiplication(UNITS),
        hidden(copies(left_multiplication(UNITS), 3)),
    ),
    "pentagon to the plane": (
        dihedral(5),
        np.concatenate([plane(2 * np.pi / 5), np.diag([1.0, -1.0])[None]]),
    ),
    "sums of 3 in Z_5": (cycle(5)[None], cycle(5, step=3)[None]),
    "sums of 5 in Z_5": (cycle(5)[None], cycle(5, step=5)[None]),
    "slots to tracks": (wreath(4, 3), np.stack([np.arange(3), cycle(3), swap(3)])),
    "S_2 and S_3, apart": tuple(
        product(symmetric(2), symmetric(3))[:, at] - at.start for at in (slice(0, 2), slice(2, 5))
    ),
}

FINITE = {name: (action, None) for name, action in (PERMUTATIONS | ORTHOGONAL).items()} | PAIRS
"""name -> generators, generators_out or None."""


def spin(l):
    """The character of SO(3) (l whole) or SU(2) (half) at a rotation by t; period 4 pi."""
    return lambda t: sum(np.cos(m * t) for m in np.arange(-l, l + 1))


def times(*characters):
    return lambda t: float(np.prod([c(t) for c in characters]))


_random = generator(3, *b"rotations").standard_normal((2, 4))
ANY = _random / np.linalg.norm(_random, axis=1, keepdims=True)
"""Two random unit quaternions; they generate a dense subgroup of SU(2)."""
VECTOR = turns(ANY)
SQUARE = tensor(VECTOR, VECTOR)

ROTATIONS = {
    "SO(3), vectors": ((VECTOR, None), (spin(1), None), 1),
    "SO(3), squares": ((SQUARE, None), (times(spin(1), spin(1)), None), 2),
    "SO(3), squares, hidden": ((hidden(SQUARE), None), (times(spin(1), spin(1)), None), 2),
    "SO(3), squares to vectors": ((SQUARE, VECTOR), (times(spin(1), spin(1)), spin(1)), 2),
    "SO(3), cubes": ((tensor(SQUARE, VECTOR), None), (times(*[spin(1)] * 3), None), 3),
    "SO(3), three vectors": ((copies(VECTOR, 3), None), (lambda t: 3 * spin(1)(t), None), 1),
    "SU(2)": ((left_multiplication(ANY), None), (lambda t: 2 * spin(0.5)(t), None), 1),
    "SU(2) to vectors": (
        (left_multiplication(ANY), VECTOR),
        (lambda t: 2 * spin(0.5)(t), spin(1)),
        1,
    ),
    "SU(2), square to vectors": (
        (tensor(left_multiplication(ANY), left_multiplication(ANY)), VECTOR),
        (lambda t: 4 * spin(0.5)(t) ** 2, spin(1)),
        1,
    ),
}
"""name -> generators in and out, their characters, the largest spin."""

ALL = FINITE | {name: pair for name, (pair, _, _) in ROTATIONS.items()}
