"""Responses that are kept for a while, so that a conversation may go on from one of them by its id."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException


@dataclass(frozen=True, slots=True)
class Kept:
    """A response as it was sent, the items it answered, and its conversation (without instructions, answer too)."""

    response: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    size: int


class Store:
    """In memory: the last `most` responses, and no more than `most_bytes` of them; the oldest is forgotten first."""

    def __init__(self, most: int = 256, most_bytes: int = 256 * 2**20) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, kept: Kept) -> None:
        """Keep one more. One that is larger than all the room is not kept."""
        if kept.size > self._most_bytes:
            return
        self._kept[kept.response["id"]] = kept
        self.size += kept.size
        while len(self._kept) > self._most or self.size > self._most_bytes:
            self.size -= self._kept.popitem(last=False)[1].size

    def get(self, number: str) -> Kept:
        """A response by its id. Raises HTTPException 404."""
        found = self._kept.get(number)
        if found is None:
            raise HTTPException(
                404,
                f"There is no response {number[:100]!r} here: it was sent with store false, deleted, or forgotten "
                f"(the last {self._most} are kept until the server ends).",
            )
        return found

    def delete(self, number: str) -> None:
        """Forget one. Raises HTTPException 404."""
        self.size -= self.get(number).size
        del self._kept[number]
