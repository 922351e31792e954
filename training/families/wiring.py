"""What writes and what reads inside a forward pass, as data: the edges of a circuit graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of the computation whose output others read.

    tap: the hook that hands out its value. part: its place along the axis before the last, where
    the hook's value holds several (heads, gates); None where it is one. offset: where its value
    begins along the last axis of what a reader sees; 0 but where outputs are laid side by side.
    """

    name: str
    tap: str
    part: int | None = None
    offset: int = 0

    def of(self, value: Tensor) -> Tensor:
        """This node's output (..., width) out of its hook's value."""
        return value if self.part is None else value[..., self.part, :]

    def put(self, value: Tensor, output: Tensor) -> Tensor:
        """The hook's value with this node's output replaced."""
        if self.part is None:
            return output
        mixed = value.clone()
        mixed[..., self.part, :] = output
        return mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """An input of a node: the sum of what `sources` write, up to constants.

    name: unlike any other reader's. tap, part: as in Node; a hook handed back unchanged (the very
    tensor) costs nothing, so that heads are only kept apart where somebody edits what they read.
    feeds: the node that reads; "logits" at the end.
    """

    name: str
    tap: str
    part: int | None = None
    feeds: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Nodes in the order they are computed, and readers in the order they read.

    An edge is a reader with one of its sources. Law: two runs differ at a reader by the sum of
    the differences of its sources, each at its offset.
    """

    nodes: tuple[Node, ...]
    readers: tuple[Reader, ...]

    def __post_init__(self) -> None:
        for what, some in (("nodes", self.nodes), ("readers", self.readers)):
            names = [one.name for one in some]
            if len(set(names)) < len(names):
                twice = sorted({name for name in names if names.count(name) > 1})
                raise ValueError(f"wiring: {what} {', '.join(twice)} are there twice")
        unknown = {s for r in self.readers for s in r.sources} - {n.name for n in self.nodes}
        if unknown:
            raise ValueError(f"wiring: nothing writes {', '.join(sorted(unknown))}")

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)


class Stream:
    """The wiring of a residual stream as it is built: a reader reads all that is written before."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._readers: list[Reader] = []

    def write(self, name: str, tap: str, part: int | None = None, offset: int = 0) -> None:
        self._nodes.append(Node(name=name, tap=tap, part=part, offset=offset))

    def read(self, name: str, tap: str, feeds: str, part: int | None = None) -> None:
        sources = tuple(node.name for node in self._nodes)
        self._readers.append(Reader(name=name, tap=tap, part=part, feeds=feeds, sources=sources))

    def attend(self, layer: int, offsets: Sequence[int]) -> None:
        """A layer of heads, each reading three times (q, k, v) and writing at its offset."""
        names = [f"head {layer}.{head}" for head in range(len(offsets))]
        for head, name in enumerate(names):
            for side in "qkv":
                self.read(f"{name} {side}", f"blocks.{layer}.hook_{side}_input", name, head)
        for head, (name, offset) in enumerate(zip(names, offsets, strict=True)):
            self.write(name, f"blocks.{layer}.attn.hook_result", head, offset)

    def wiring(self) -> Wiring:
        return Wiring(nodes=tuple(self._nodes), readers=tuple(self._readers))
