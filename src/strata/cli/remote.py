"""A running server as the partner of `strata chat`: chat completions over HTTP, streamed.

Any server with the OpenAI API will do. The standard library is enough for it.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from strata.cli.talk import Show, Turn
from strata.errors import StrataError, UsageError
from strata.text import Part, Piece

CONNECT_S = 10.0
SILENCE_S = 600.0
"""Longest silence of a reply; a server of this project says every ten seconds that it is still there."""
_PARTS = (("reasoning_content", Part.REASONING), ("reasoning", Part.REASONING), ("content", Part.ANSWER))


class ServerError(StrataError):
    """A server that cannot be reached, refuses, or breaks off."""


class Remote:
    """The server at `url`. `options`: fields of the request that the user gave (temperature, max_tokens, ...)."""

    def __init__(self, url: str, key: str, options: Mapping[str, Any]) -> None:
        self.url, self._secure, self._host, self._base = _parsed(url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if key:
            if not (key.isascii() and key.isprintable()):
                raise UsageError("The API key has characters that no HTTP header can carry.")
            self._headers["Authorization"] = f"Bearer {key}"
        self._options = options
        self._model, self._context = self._ask_who()

    @property
    def about(self) -> str:
        """Model and address."""
        context = f", context {self._context} tokens" if self._context else ""
        return f"{self._model} at {self.url}{context}"

    def reply(self, turn: Turn, show: Show) -> str:
        """See `Partner`."""
        fields: dict[str, Any] = {"model": self._model, "messages": turn.messages, "stream": True, **self._options}
        if turn.thinking is not None:
            fields["chat_template_kwargs"] = {"enable_thinking": turn.thinking}
        with self._request("POST", "/chat/completions", json.dumps(fields).encode()) as answer:
            finish = ""
            for event in self._events(answer):
                for choice in event.get("choices") or ():
                    delta = choice.get("delta") or {}
                    for key, part in _PARTS:
                        if text := delta.get(key):
                            show(Piece(part, text))
                    finish = choice.get("finish_reason") or finish
            if not finish:
                raise ServerError(f"The server at {self.url} ended the connection in the middle of the reply.")
            return finish

    def _ask_who(self) -> tuple[str, int | None]:
        with self._request("GET", "/models") as answer:
            body = self._json(answer)
        try:
            first = body["data"][0]
            return str(first["id"]), (first.get("meta") or {}).get("n_ctx")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ServerError(f"What answers at {self.url} is no server with the OpenAI API.") from None

    @contextlib.contextmanager
    def _request(self, method: str, path: str, body: bytes | None = None) -> Iterator[http.client.HTTPResponse]:
        """An answer with status 200. Everything that goes wrong while it is read is a ServerError."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, timeout=CONNECT_S)
        try:
            try:
                connection.connect()
                connection.sock.settimeout(SILENCE_S)
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(self._unreachable(error)) from None
            connection.request(method, f"{self._base}{path}", body, self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ServerError(self._refusal(answer))
            yield answer
        except TimeoutError:
            raise ServerError(f"The server at {self.url} said nothing for {SILENCE_S:.0f} s.") from None
        except (OSError, http.client.HTTPException):
            raise ServerError(f"The server at {self.url} ended the connection before its answer was whole.") from None
        finally:
            connection.close()

    def _events(self, answer: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
        """The events of a stream, up to [DONE]. An error event is raised as what it says."""
        while line := answer.readline():
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError:
                raise ServerError(f"The server at {self.url} sent an event that is not JSON: {data[:80]!r}.") from None
            if error := event.get("error"):
                raise ServerError(_message(error) or "The server failed in the middle of the reply.")
            yield event

    def _json(self, answer: http.client.HTTPResponse) -> Any:
        try:
            return json.loads(answer.read())
        except ValueError:
            return None

    def _unreachable(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLError):
            return f"No encrypted connection to {self.url}: {error.reason or error}."
        if isinstance(error, TimeoutError):
            return f"Nothing answers at {self.url} within {CONNECT_S:.0f} s."
        why = getattr(error, "strerror", None) or str(error)
        return f"There is no server at {self.url} ({why}); `strata serve` starts one."

    def _refusal(self, answer: http.client.HTTPResponse) -> str:
        body = self._json(answer)
        said = _message(body.get("error")) if isinstance(body, dict) else ""
        if answer.status in (401, 403) and "key" in (said or "key").lower():
            given = "refuses the key that it was given" if "Authorization" in self._headers else "wants a key"
            return f"The server at {self.url} {given}; set STRATA_API_KEY, or name a file with --api-key-file."
        if answer.status == 404 and not said:
            return f"There is no OpenAI API at {self.url}{self._base}."
        return said or f"The server at {self.url} answered with status {answer.status} {answer.reason}."


def _message(error: Any) -> str:
    """The sentence of an error in any of the usual forms."""
    text = error.get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""


def _parsed(url: str) -> tuple[str, bool, str, str]:
    """Address as shown, whether it is encrypted, host and port, and the path of the API. Raises UsageError."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise UsageError(f"--url {url!r} is not the address of a server, like http://127.0.0.1:8080.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    path = parts.path.rstrip("/")
    base = path if path.endswith("/v1") else f"{path}/v1"
    return f"{parts.scheme}://{place}{path.removesuffix('/v1')}", parts.scheme == "https", place, base
