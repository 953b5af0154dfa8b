"""Drafts from a conversation's own history: what followed the last tokens when they stood there before. Pure.

Prompt lookup decoding (Saxena, 2023): agents repeat files, and a repeated passage is its own best draft. The index is
exact and incremental: every position remembers the previous end of the same n-gram, so an append and a removal take
constant time, and a draft takes time in its depth and the few candidates compared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHORTEST = 3
CANDIDATES = 8
LONGEST_COMPARED = 32
FORCED = 1000
"""Instead of a length: these tokens were not found in the history, a grammar leaves nothing else."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that followed the longest earlier occurrence of the last `matched` tokens."""

    tokens: tuple[int, ...]
    matched: int


NOTHING = Proposal((), 0)


class Lookup:
    """The history of one conversation, indexed by its n-grams of `shortest` tokens."""

    def __init__(self, tokens: Iterable[int] = (), shortest: int = SHORTEST) -> None:
        if shortest < 1:
            raise ValueError(f"an n-gram has at least 1 token, not {shortest}")
        self.shortest = shortest
        self._tokens: list[int] = []
        self._previous: list[int] = []  # by end position: the end of the same n-gram before, 0 for none
        self._latest: dict[int, int] = {}  # by n-gram: its latest end
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, token: int) -> None:
        """One more token of the conversation."""
        self._tokens.append(token)
        end = len(self._tokens)
        if end < self.shortest:
            self._previous.append(0)
            return
        key = self._key(end)
        self._previous.append(self._latest.get(key, 0))
        self._latest[key] = end

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self.append(token)

    def truncate(self, length: int) -> None:
        """Forget everything behind the first `length` tokens, as if it had never been appended."""
        for end in range(len(self._tokens), max(length, 0), -1):
            previous = self._previous.pop()
            if end >= self.shortest:
                key = self._key(end)
                if previous:
                    self._latest[key] = previous
                else:
                    del self._latest[key]
            self._tokens.pop()

    def follow(self, tokens: Sequence[int]) -> None:
        """Become the history `tokens`: what differs from it is forgotten, the rest appended."""
        common = 0
        for held, wanted in zip(self._tokens, tokens, strict=False):
            if held != wanted:
                break
            common += 1
        self.truncate(common)
        self.extend(tokens[common:])

    def draft(self, depth: int) -> Proposal:
        """Up to `depth` tokens that may come next; NOTHING where the last n-gram is new.

        Of the latest earlier occurrences the one whose match reaches furthest back wins, the later one among equals. A
        match so near the end that fewer than `depth` tokens follow is a repetition, and is drafted as one.
        """
        end = len(self._tokens)
        if depth < 1 or end <= self.shortest:
            return NOTHING
        best, longest = 0, 0
        candidate = self._previous[end - 1]
        for _ in range(CANDIDATES):
            if not candidate:
                break
            matched = self._matched(candidate, end)
            if matched > longest:
                best, longest = candidate, matched
                if matched >= LONGEST_COMPARED:
                    break
            candidate = self._previous[candidate - 1]
        if not best:
            return NOTHING
        period = end - best
        return Proposal(tuple(self._tokens[best + at % period] for at in range(depth)), longest)

    def _matched(self, earlier: int, end: int) -> int:
        """How many tokens before both ends are equal, at least an n-gram, counted up to LONGEST_COMPARED."""
        tokens, count = self._tokens, self.shortest
        most = min(earlier, LONGEST_COMPARED)
        while count < most and tokens[earlier - 1 - count] == tokens[end - 1 - count]:
            count += 1
        return count

    def _key(self, end: int) -> int:
        """The n-gram that ends before `end`, as one integer: exact, so that equal keys are equal tokens."""
        key = 0
        for token in self._tokens[end - self.shortest : end]:
            key = key << 32 | token
        return key
