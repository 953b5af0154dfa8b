"""A bare HTTP/1.1 client on asyncio: one connection a request, each piece of the answer stamped when it is read."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SILENCE_S = 120.0  # an answer that says nothing for so long is taken for lost
_TEXT_KEYS = ("reasoning_content", "content")


@dataclass
class Answer:
    """What came back, and when (seconds of `time.perf_counter`). `fault`: how the connection failed, if it did."""

    sent: float
    ended: float = 0.0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    fault: str = ""

    @property
    def status(self) -> int:
        """The HTTP status; 0 when no whole status line came."""
        words = self._head().split(b"\r\n", 1)[0].split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    @property
    def whole(self) -> bool:
        """Whether the answer came to the end that its framing promises."""
        if self.fault or not self.status:
            return False
        raw = self._raw()
        if self._chunked():
            return raw.endswith(b"0\r\n\r\n")
        length = self._header(b"content-length")
        return length is not None and len(raw) == int(length)

    @property
    def body(self) -> bytes:
        """The body, out of its chunks."""
        return b"".join(part for _, part in self._parts())

    def json(self) -> Any:
        """The body as JSON; None when it is not."""
        with contextlib.suppress(ValueError):
            return json.loads(self.body)
        return None

    def events(self) -> list[tuple[float, Any]]:
        """Server-sent events with the time when each was complete; the data as JSON where it is."""
        found, rest = [], b""
        for when, part in self._parts():
            *events, rest = (rest + part).split(b"\n\n")
            for event in events:
                data = b"\n".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
                with contextlib.suppress(ValueError):
                    found.append((when, json.loads(data)))
        return found

    def first_text(self) -> float | None:
        """When the first text of a chat completion's stream came, thinking too."""
        for when, event in self.events():
            delta = (event.get("choices") or [{}])[0].get("delta") or {}
            if any(delta.get(key) for key in _TEXT_KEYS):
                return when
        return None

    def tokens(self, kind: str = "completion") -> int:
        """Completion or prompt tokens that the usage of a chat completion's stream tells."""
        told = [event["usage"][f"{kind}_tokens"] for _, event in self.events() if event.get("usage")]
        return int(told[-1]) if told else 0

    def _head(self) -> bytes:
        return b"".join(data for _, data in self.pieces).partition(b"\r\n\r\n")[0]

    def _raw(self) -> bytes:
        return b"".join(data for _, data in self.pieces).partition(b"\r\n\r\n")[2]

    def _header(self, name: bytes) -> bytes | None:
        for line in self._head().split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return None

    def _chunked(self) -> bool:
        return (self._header(b"transfer-encoding") or b"").lower() == b"chunked"

    def _parts(self) -> Iterator[tuple[float, bytes]]:
        """The body's parts, each with the time when its last byte was there."""
        ends, size = [], 0
        for when, data in self.pieces:
            size += len(data)
            ends.append((size, when))
        start = len(self._head()) + 4
        raw = self._raw()
        if not self._chunked():
            yield ends[-1][1] if ends else self.sent, raw
            return
        at, index = 0, 0
        while (line := raw.find(b"\r\n", at)) > 0 and (length := int(raw[at:line], 16)):
            at = line + 2 + length + 2
            while index < len(ends) - 1 and ends[index][0] < start + at:
                index += 1
            yield ends[index][1], raw[line + 2 : line + 2 + length]


def request(path: str, body: bytes, kind: str = "application/json", method: str = "POST") -> bytes:
    """A whole request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def send(port: int, data: bytes, patience_s: float = SILENCE_S) -> Answer:
    """Send bytes and read up to the end of the connection, or until nothing has come for `patience_s`."""
    answer = Answer(time.perf_counter())
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        await writer.drain()
        while True:
            async with asyncio.timeout(patience_s):
                piece = await reader.read(2**16)
            if not piece:
                break
            answer.pieces.append((time.perf_counter(), piece))
    except TimeoutError:
        answer.fault = f"silent for {patience_s:.0f} s"
    except OSError as error:
        answer.fault = f"{type(error).__name__}: {error}"
    finally:
        answer.ended = time.perf_counter()
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return answer


async def post(port: int, path: str, fields: dict[str, Any]) -> Answer:
    """A request of JSON, and its answer."""
    return await send(port, request(path, json.dumps(fields).encode()))
