"""The KV pool's books: which holder (a lane, a kept state) holds which chunks of positions. Integers only.

A chunk is 256 positions of every attention layer, as in the extension's caches (`native/state.h`). Holders share the
chunks of a common prefix; a chunk that somebody else holds too is replaced by a fresh one before it is written (copy on
write). The books are the limit: whoever owns the memory allocates a chunk no sooner than it is reserved here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from strata.errors import UsageError

CHUNK = 256


def chunks(tokens: int) -> int:
    """Chunks that `tokens` positions from 0 on take."""
    return -(-tokens // CHUNK)


class Pool:
    """A pool of `tokens` positions, in whole chunks (a rest below 256 is not used). UsageError below one chunk."""

    def __init__(self, tokens: int) -> None:
        if tokens < CHUNK:
            raise UsageError(f"--kv-pool-tokens {tokens} is less than one chunk of {CHUNK} tokens.")
        self.capacity = tokens // CHUNK
        self._free = list(range(self.capacity - 1, -1, -1))
        self._references = [0] * self.capacity
        self._tables: dict[int, list[int]] = {}
        self._next = 0
        self.changes = 0  # chunks taken

    @property
    def tokens(self) -> int:
        """Positions of all chunks."""
        return self.capacity * CHUNK

    @property
    def free(self) -> int:
        """Chunks that nobody holds."""
        return len(self._free)

    @property
    def references(self) -> Sequence[int]:
        """How many holders each chunk has."""
        return self._references

    @property
    def tables(self) -> Mapping[int, Sequence[int]]:
        """Each holder's chunks, in the order of their positions."""
        return MappingProxyType(self._tables)

    def new(self) -> int:
        """A holder of nothing."""
        self._next += 1
        self._tables[self._next] = []
        return self._next

    def held(self, holder: int) -> int:
        """Chunks that a holder reaches, shared ones included."""
        return len(self._tables[holder])

    def own(self, holder: int) -> int:
        """Chunks that nobody else holds."""
        return sum(self._references[chunk] == 1 for chunk in self._tables[holder])

    def missing(self, holder: int, start: int, end: int) -> int:
        """Free chunks that writing positions [start, end) takes: new ones, and copies of shared ones."""
        table = self._tables[holder]
        if start > len(table) * CHUNK:
            raise ValueError(f"positions from {start} do not follow the {len(table)} chunks held")
        last = chunks(end)
        shared = sum(self._references[chunk] > 1 for chunk in table[start // CHUNK : last])
        return shared + max(0, last - len(table))

    def reserve(self, holder: int, start: int, end: int) -> None:
        """Make positions [start, end) the holder's own to write. ValueError if there are not `missing` free chunks."""
        need = self.missing(holder, start, end)
        if need > self.free:
            raise ValueError(f"{need} chunks are needed, {self.free} are free")
        table = self._tables[holder]
        for at in range(start // CHUNK, chunks(end)):
            if at == len(table):
                table.append(self._take())
            elif self._references[table[at]] > 1:
                self._references[table[at]] -= 1
                table[at] = self._take()

    def share(self, holder: int, tokens: int) -> int:
        """A new holder of the first `tokens` positions that `holder` has; takes no free chunk."""
        table = self._tables[holder][: chunks(tokens)]
        if len(table) < chunks(tokens):
            raise ValueError(f"{tokens} positions are not held")
        for chunk in table:
            self._references[chunk] += 1
        twin = self.new()
        self._tables[twin] = table
        return twin

    def trim(self, holder: int, tokens: int) -> None:
        """Let go of the chunks that hold no position below `tokens`."""
        table = self._tables[holder]
        for chunk in table[chunks(tokens) :]:
            self._drop(chunk)
        del table[chunks(tokens) :]

    def release(self, holder: int) -> None:
        """The holder is gone."""
        for chunk in self._tables.pop(holder):
            self._drop(chunk)

    def check(self) -> None:
        """Conservation: every chunk is free, or held once by each of its holders. AssertionError says what is not."""
        counted = [0] * self.capacity
        for holder, table in self._tables.items():
            assert len(set(table)) == len(table), f"holder {holder} holds a chunk twice"
            for chunk in table:
                counted[chunk] += 1
        assert counted == self._references, "references do not match the tables"
        free = set(self._free)
        assert len(free) == len(self._free), "a chunk is free twice"
        assert free == {chunk for chunk, count in enumerate(counted) if count == 0}, "a chunk is lost, or free and held"

    def _take(self) -> int:
        self.changes += 1
        chunk = self._free.pop()
        self._references[chunk] = 1
        return chunk

    def _drop(self, chunk: int) -> None:
        self._references[chunk] -= 1
        if self._references[chunk] == 0:
            self._free.append(chunk)
