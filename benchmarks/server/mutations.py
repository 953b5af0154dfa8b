"""Requests that were valid until something was done to them, the same ones for the same seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.server.exchange import request

_MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
_TOOL = {"name": "look", "description": "Looks.", "parameters": _SCHEMA}
_TEXT = {"type": "input_text", "text": "Hello."}
VALID: Mapping[str, tuple[dict[str, Any], ...]] = {
    "/v1/chat/completions": (
        {"model": "m", "messages": _MESSAGES, "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 1},
        {"messages": _MESSAGES, "max_completion_tokens": 3, "stream": True, "stream_options": {"include_usage": True},
         "stop": ["x", "yz"], "logit_bias": {"5": -1.5}, "presence_penalty": 0.1, "frequency_penalty": 0.2},
        {"messages": [*_MESSAGES, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": [
            {"type": "text", "text": "More."}]}], "max_tokens": 2, "logprobs": True, "top_logprobs": 2},
        {"messages": _MESSAGES, "max_tokens": 3, "reasoning_effort": "low",
         "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}}},
        {"messages": _MESSAGES, "max_tokens": 3, "chat_template_kwargs": {"enable_thinking": False},
         "guided_regex": "[a-z]+"},
        {"messages": _MESSAGES, "max_tokens": 3, "n": 2, "tools": [{"type": "function", "function": _TOOL}],
         "tool_choice": "auto", "parallel_tool_calls": False},
        {"messages": [*_MESSAGES, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "Seen."}], "max_tokens": 3, "stream": True,
         "tools": [{"type": "function", "function": {**_TOOL, "strict": True}}],
         "tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    "/v1/completions": (
        {"model": "m", "prompt": "Once upon", "max_tokens": 3, "echo": True, "n": 2, "stop": "\n", "seed": 3},
        {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 2, "logprobs": 2, "stream": True},
    ),
    "/v1/messages": (
        {"model": "m", "max_tokens": 3, "messages": _MESSAGES[1:], "system": [{"type": "text", "text": "Be brief."}],
         "temperature": 1, "top_p": 0.9, "stop_sequences": ["zzz"], "metadata": {"user_id": "u"}},
        {"model": "m", "max_tokens": 3, "tool_choice": {"type": "auto"}, "tools": [
            {"name": "look", "description": "Looks.", "input_schema": _SCHEMA}], "messages": [
            *_MESSAGES[1:],
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Seen."}]}]},
        {"model": "m", "max_tokens": 3, "stream": True, "thinking": {"type": "adaptive"},
         "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}]},
    ),
    "/v1/messages/count_tokens": ({"model": "m", "messages": _MESSAGES[1:], "system": "Be brief."},),
    "/v1/responses": (
        {"model": "m", "input": "Say hello.", "max_output_tokens": 3, "instructions": "Be brief.", "store": True,
         "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}}},
        {"model": "m", "input": [{"role": "user", "content": [_TEXT]}], "max_output_tokens": 3, "stream": True,
         "include": ["reasoning.encrypted_content"], "truncation": "auto"},
        {"model": "m", "max_output_tokens": 3, "tools": [{"type": "function", **_TOOL}], "input": [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "Seen."}]},
    ),
    "/v1/responses/input_tokens": ({"model": "m", "input": [{"role": "user", "content": [_TEXT]}]},),
    "/tokenize": ({"content": "Hello there.", "add_special": True, "with_pieces": True},),
    "/detokenize": ({"tokens": [5, 6, 7, 300]},),
}  # fmt: skip
"""For each route some valid requests; one that is not here gets everybody's."""

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, -0.0, 1e-320, "", " ", "\0", "\ud800",
    "\U0001f600" * 9, "a" * 3000, "<|im_end|>", "<tool_call>", "{{ 7 * 7 }}", "../../etc/passwd", [], {}, [[]], [None],
    {"type": None}, {"type": "object"}, {"": ""}, [{}] * 50, {"type": "text"}, "Infinity", "null",
)  # fmt: skip
_KINDS = ("text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin-1", "a/b/c", "\x7f")


def malformed(paths: list[str], seed: int) -> Iterator[bytes]:
    """Whole HTTP requests, without end."""
    draw = random.Random(seed)
    everybody = [body for bodies in VALID.values() for body in bodies]
    while True:
        path = draw.choice(paths)
        fields = copy.deepcopy(draw.choice(VALID.get(path, tuple(everybody))))
        mutate = draw.choice((_in_fields, _in_fields, _in_fields, _in_bytes, _in_json, _in_frame))
        yield mutate(path, fields, draw)


def valid() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request that the mutations begin with, and its path."""
    for path, bodies in VALID.items():
        for body in bodies:
            yield path, body


def _in_fields(path: str, fields: dict[str, Any], draw: random.Random) -> bytes:
    """One to three values, at any depth, are left out, doubled, swapped or odd."""
    for _ in range(draw.randint(1, 3)):
        holder, key = draw.choice(list(_places(fields)))
        what = draw.random()
        if what < 0.2:
            del holder[key]
        elif what < 0.3:
            holder[key] = [holder[key], holder[key]]
        elif what < 0.4:
            holder[key] = {"value": holder[key]}
        elif what < 0.5 and isinstance(holder, dict):
            holder[f"{key}\0"[draw.randint(0, 1) :]] = copy.deepcopy(draw.choice(_ODD))
        else:
            holder[key] = copy.deepcopy(draw.choice(_ODD))
        if not fields:
            break
    return request(path, json.dumps(fields).encode())


def _in_bytes(path: str, fields: dict[str, Any], draw: random.Random) -> bytes:
    """Some bytes of the body are others, more or fewer."""
    body = bytearray(json.dumps(fields).encode())
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(body) + 1)
        what = draw.randrange(4)
        if what == 0:
            body[at:at] = draw.randbytes(draw.randint(1, 4))
        elif what == 1:
            del body[at : at + draw.randint(1, 8)]
        elif what == 2 and at < len(body):
            body[at] ^= 1 << draw.randrange(8)
        else:
            del body[at:]
    return request(path, bytes(body))


def _in_json(path: str, fields: dict[str, Any], draw: random.Random) -> bytes:
    """Texts that a reader of JSON may stumble over."""
    text = json.dumps(fields)
    depth = draw.choice((50, 1000, 100_000))
    texts: tuple[Callable[[], str], ...] = (
        lambda: "[" * depth,
        lambda: "[" * depth + "]" * depth,
        lambda: '{"messages":' * depth + "1" + "}" * depth,
        lambda: text[:-1] + ',"max_tokens":' + "9" * draw.choice((20, 400, 5000)) + "}",
        lambda: text[:-1] + ',"temperature":' + draw.choice(("NaN", "Infinity", "1e999", "-", "0x10", ".5")) + "}",
        lambda: text + draw.choice((text, "\0", ",", "}")),
        lambda: json.dumps(draw.choice(_ODD)),
        lambda: text.replace('"', "'"),
        lambda: "\ufeff" + text,
        lambda: text[:-1] + ',"\\ud800":"\\udfff\\ud800"}',
        lambda: "",
        lambda: "{" + ",".join(f'"k{n}":{n}' for n in range(draw.choice((10, 3000)))) + "}",
    )
    return request(path, draw.choice(texts)().encode("utf-8", "surrogatepass"))


def _in_frame(path: str, fields: dict[str, Any], draw: random.Random) -> bytes:
    """The request around the body: method, path, headers, lengths, chunks."""
    body = json.dumps(fields).encode()
    whole = request(path, body)
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" % path.encode()
    chunks = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    frames: tuple[Callable[[], bytes], ...] = (
        lambda: request(path, body, kind=draw.choice(_KINDS)),
        lambda: request(path, body, method=draw.choice(("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "post", "X" * 99))),
        lambda: request(path + draw.choice(("/", "//", "/x", "/%00", "?beta=true&beta=%ff", "%2f..%2f")), body),
        lambda: whole.replace(b"Host: 127.0.0.1", b"Host: " + draw.choice((b"evil.example", b"", b"[::1", b"a b"))),
        lambda: whole.replace(b"Content-Length: ", b"Content-Length: -"),
        lambda: whole.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1),
        lambda: whole.replace(b"\r\n\r\n", b"\r\nX-Request-Id: " + draw.randbytes(8).hex().encode() * 99 + b"\r\n\r\n"),
        lambda: whole.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"y" * draw.choice((9000, 99_000)) + b"\r\n\r\n"),
        lambda: whole.replace(b"HTTP/1.1", draw.choice((b"HTTP/9.9", b"HTTP/1.0", b"ICE/1", b""))),
        lambda: head + chunks + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        lambda: head + chunks + b"zz\r\n" + body,
        lambda: head + chunks + b"ffffffffffffffffff\r\n" + body,
        lambda: draw.randbytes(draw.randint(1, 300)) + b"\r\n\r\n",
    )
    return draw.choice(frames)()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)
