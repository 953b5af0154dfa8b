"""A radix tree of token sequences: which kept state a prompt may resume from, and which one is worth least.

Worth is GreedyDual-Size-Frequency (Cherkasova, HP Labs HPL-98-69): uses x cost to rebuild / size, above the worth of
the last victim at the time of the last use, so that what was once used often ages. The cost to rebuild is the number
of tokens to read again from the deepest kept state above, so it grows when that one goes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from strata.memory.tokens import Tokens, common, packed

V = TypeVar("V")
SCALE = 2**30  # worth in tokens a GiB, so that integers suffice


class Node(Generic[V]):
    """A sequence of tokens that is kept (`value` is not None) or at which others part."""

    __slots__ = ("_children", "_edge", "_parent", "aged", "length", "number", "pinned", "size", "uses", "value")

    def __init__(self, parent: "Node[V] | None", edge: Tokens, length: int) -> None:
        self._parent = parent
        self._edge = edge
        self._children: dict[int, Node[V]] = {}
        self.length = length
        self.value: V | None = None
        self.size = 1
        self.pinned = False
        self.uses = 0
        self.aged = 0
        self.number = 0

    @property
    def above(self) -> "Node[V] | None":
        """The deepest kept node whose tokens are a proper prefix of this one's."""
        node = self._parent
        while node is not None and node.value is None:
            node = node._parent
        return node

    @property
    def cost(self) -> int:
        """Tokens to read again if this one went."""
        above = self.above
        return self.length - (0 if above is None else above.length)

    @property
    def worth(self) -> int:
        return self.aged + self.uses * self.cost * SCALE // self.size

    def tokens(self) -> Tokens:
        """The whole sequence."""
        parts: list[Tokens] = []
        node: Node[V] | None = self
        while node is not None:
            parts.append(node._edge)
            node = node._parent
        return np.concatenate(parts[::-1])


class Tree(Generic[V]):
    """Values at token sequences. The empty sequence is never kept."""

    def __init__(self) -> None:
        self._root: Node[V] = Node(None, packed([]), 0)
        self._kept: dict[int, Node[V]] = {}
        self._age = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Node[V]]:
        """Kept nodes, oldest first."""
        return iter(list(self._kept.values()))

    def at(self, tokens: Sequence[int] | Tokens) -> Node[V] | None:
        """The node kept at exactly these tokens."""
        tokens = packed(tokens)
        path = self._walk(tokens)
        return path[-1] if path and path[-1].length == len(tokens) and path[-1].value is not None else None

    def path(self, tokens: Sequence[int] | Tokens) -> list[Node[V]]:
        """Kept nodes whose tokens are a prefix of these (or all of them), shortest first."""
        return [node for node in self._walk(packed(tokens)) if node.value is not None]

    def deepest(self, prompt: Sequence[int] | Tokens) -> Node[V] | None:
        """The longest kept proper prefix of a prompt: its last token at least has to be computed."""
        return next((node for node in reversed(self.path(prompt)) if node.length < len(prompt)), None)

    def common(self, prompt: Sequence[int] | Tokens) -> int:
        """How many tokens a prompt has in common with any kept sequence: where they part, or either ends."""
        prompt = packed(prompt)
        path = self._walk(prompt)
        node = path[-1] if path else self._root
        child = node._children.get(int(prompt[node.length])) if node.length < len(prompt) else None
        return node.length + (0 if child is None else common(child._edge, prompt[node.length :]))

    def insert(self, tokens: Sequence[int] | Tokens, value: V, *, size: int, pinned: bool = False) -> Node[V]:
        """Keep `value` of `size` bytes at these tokens. ValueError for no tokens, and where something is kept."""
        tokens = packed(tokens)
        if not len(tokens):
            raise ValueError("no tokens")
        node = self._place(tokens)
        if node.value is not None:
            raise ValueError("something is kept there")
        self._number += 1
        node.value, node.size, node.pinned, node.uses, node.aged = value, max(1, size), pinned, 1, self._age
        node.number = self._number
        self._kept[node.number] = node
        return node

    def touch(self, node: Node[V]) -> None:
        """The node was used."""
        node.uses += 1
        node.aged = self._age

    def remove(self, node: Node[V]) -> V:
        """Keep the node no longer; what was kept. ValueError if nothing was."""
        if node.value is None:
            raise ValueError("nothing is kept there")
        value, node.value = node.value, None
        node.pinned = False
        del self._kept[node.number]
        self._tidy(node)
        return value

    def victim(self, allowed: Callable[[Node[V]], bool] = lambda node: True) -> Node[V] | None:
        """The node to give up: the least worth of those `allowed`, pinned ones last, older ones first among equals."""
        candidates = [node for node in self._kept.values() if allowed(node)]
        return min(candidates, key=lambda node: (node.pinned, node.worth, node.number), default=None)

    def passed(self, victim: Node[V]) -> None:
        """A victim is about to be removed: what is used from now on is worth more than it was."""
        if not victim.pinned:
            self._age = max(self._age, victim.worth)

    def check(self) -> None:
        """AssertionError where the structure is not a radix tree: edges, lengths, leaves, nodes with one child."""
        kept, stack = set(), [self._root]
        while stack:
            node = stack.pop()
            if node.value is not None:
                kept.add(node.number)
                assert self._kept.get(node.number) is node, "a kept node is not listed"
            for first, child in node._children.items():
                assert child._parent is node, "a child has another parent"
                assert len(child._edge), "an edge is empty"
                assert child._edge[0] == first, "a child is filed under another token"
                assert child.length == node.length + len(child._edge), "a length is not the sum of its edges"
                assert child.value is not None or len(child._children) > 1, "a node is neither kept nor a fork"
                stack.append(child)
        assert kept == set(self._kept), "a listed node is not in the tree"

    def _walk(self, tokens: Tokens) -> list[Node[V]]:
        """Nodes below the root that lie wholly on the path of these tokens."""
        node, found = self._root, []
        while node.length < len(tokens):
            child = node._children.get(int(tokens[node.length]))
            if child is None or common(child._edge, tokens[node.length :]) < len(child._edge):
                break
            found.append(child)
            node = child
        return found

    def _place(self, tokens: Tokens) -> Node[V]:
        """The node of these tokens, made where there is none."""
        path = self._walk(tokens)
        node = path[-1] if path else self._root
        if node.length == len(tokens):
            return node
        child = node._children.get(int(tokens[node.length]))
        if child is not None:
            node = self._split(child, common(child._edge, tokens[node.length :]))
            if node.length == len(tokens):
                return node
        edge = tokens[node.length :].copy()
        leaf: Node[V] = Node(node, edge, len(tokens))
        node._children[int(edge[0])] = leaf
        return leaf

    def _split(self, child: Node[V], at: int) -> Node[V]:
        """A fork after the first `at` tokens of a child's edge."""
        parent = child._parent
        assert parent is not None
        fork: Node[V] = Node(parent, child._edge[:at], parent.length + at)
        parent._children[int(fork._edge[0])] = fork
        child._edge, child._parent = child._edge[at:], fork
        fork._children[int(child._edge[0])] = child
        return fork

    def _tidy(self, node: Node[V]) -> None:
        """Drop a node that is neither kept nor a fork, and its parent if it is one no longer."""
        parent = node._parent
        if parent is None or node.value is not None or len(node._children) > 1:
            return
        if not node._children:
            del parent._children[node._edge[0]]
            self._tidy(parent)
            return
        (child,) = node._children.values()
        child._edge, child._parent = np.concatenate([node._edge, child._edge]), parent
        parent._children[child._edge[0]] = child
