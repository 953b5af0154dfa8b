"""A request always ends with an answer or an error that says why: each way to end, in each API, whole and streamed."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

APIS = ("chat/completions", "messages", "responses")
CUT = {"chat/completions": "length", "messages": "max_tokens", "responses": "max_output_tokens"}
EACH = [(api, stream) for api in APIS for stream in (False, True)]


@dataclass(frozen=True)
class Ended:
    """How a request ended: HTTP's status, and the reason of an answer or the message of an error."""

    status: int
    finish: str | None = None
    error: str = ""
    code: str = ""
    text: str = ""


def body_of(api: str, stream: bool, text: str, limit: int | None = 400) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    if api == "responses":
        return {"input": text, "stream": stream, **({"max_output_tokens": limit} if limit else {})}
    return {"messages": messages, "stream": stream, **({"max_tokens": limit} if limit else {})}


def of_whole(api: str, answer: httpx.Response) -> Ended:
    body, status = answer.json(), answer.status_code
    if status != 200:
        return Ended(status, None, body["error"]["message"], body["error"].get("code") or body["error"]["type"])
    if api == "messages":
        return Ended(status, body["stop_reason"], text="".join(block.get("text", "") for block in body["content"]))
    if api == "responses":
        return of_response(status, body)
    return Ended(status, body["choices"][0]["finish_reason"], text=body["choices"][0]["message"]["content"])


def of_response(status: int, body: dict[str, Any]) -> Ended:
    if body["status"] == "failed":
        return Ended(status, None, body["error"]["message"], body["error"]["code"])
    texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
    reason = (body["incomplete_details"] or {}).get("reason", "stop")
    return Ended(status, reason, text="".join(texts))


def of_stream(api: str, status: int, lines: list[str]) -> Ended:
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    if api == "chat/completions":
        assert lines[-1] == "data: [DONE]"
        if "error" in events[-1]:
            return Ended(status, None, events[-1]["error"]["message"], events[-1]["error"]["code"])
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
        return Ended(status, events[-1]["choices"][0]["finish_reason"], text=text)
    last = events[-1]
    if api == "messages":
        if last["type"] == "error":
            return Ended(status, None, last["error"]["message"], last["error"]["type"])
        assert last["type"] == "message_stop"
        finish = next(event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta")
        text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        return Ended(status, finish, text=text)
    assert last["type"] in ("response.completed", "response.incomplete", "response.failed")
    return of_response(status, last["response"])


async def ask(client: httpx.AsyncClient, api: str, stream: bool, text: str, limit: int | None = 400) -> Ended:
    body = body_of(api, stream, text, limit)
    async with client.stream("POST", f"/v1/{api}", json=body) as answer:
        if stream and answer.status_code == 200:
            return of_stream(api, 200, [line async for line in answer.aiter_lines() if line])
        await answer.aread()
        return of_whole(api, answer)


def run(server: Any, work: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            await work(client)

    asyncio.run(main())


@pytest.fixture(scope="module", params=["alone", "lanes"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Any]:
    fake = helpers["Fake"](tmp_path_factory.mktemp("ends") / "record", lanes=request.param == "lanes")
    with helpers["serving"](fake, limits=replace(helpers["QUICK"], silence_s=1.0), settle_s=0.2) as running:
        yield running


async def all_end(client: httpx.AsyncClient, text: str, check: Callable[[str, bool, Ended], None]) -> None:
    """Every API in turn; after each the server answers as ever."""
    for api, stream in EACH:
        check(api, stream, await ask(client, api, stream, text))
        assert (await ask(client, api, False, "say on")).text == "on"


def test_engine_killed(server: Any) -> None:
    def check(api: str, stream: bool, ended: Ended) -> None:
        assert ended.finish is None
        assert "killed by SIGKILL" in ended.error
        assert "restarted" in ended.error
        assert ended.status == (200 if stream else 503)

    run(server, lambda client: all_end(client, "die", check))


def test_engine_stopped_in_the_middle(server: Any) -> None:
    """SIGSTOP: the process is there and says nothing, as one that hangs in the kernel."""

    async def work(client: httpx.AsyncClient) -> None:
        asked = [asyncio.create_task(ask(client, api, stream, "slow 400")) for api, stream in EACH]
        async with asyncio.timeout(10):
            while not any(one.generated for one in server.engine.metrics.running):
                await asyncio.sleep(0.01)
        stopped = server.engine.pid
        os.kill(stopped, signal.SIGSTOP)
        when = asyncio.ALL_COMPLETED if server.fake.lanes else asyncio.FIRST_COMPLETED
        for task in (await asyncio.wait(asked, return_when=when))[0]:
            assert task.result().finish is None
            assert "stalled: it sent nothing for 1 s" in task.result().error
        for other in asked:
            other.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert (await ask(client, APIS[0], False, "say on")).text == "on"
        assert server.engine.pid != stopped
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)

    run(server, work)


def test_engine_refuses(server: Any) -> None:
    def full(api: str, stream: bool, ended: Ended) -> None:
        assert (ended.status, ended.code) == (503, "overloaded_error" if api == "messages" else "kv_pool_full")
        assert "all 512 cells" in ended.error

    def wrong(api: str, stream: bool, ended: Ended) -> None:
        assert ended.status == 400
        assert "too odd" in ended.error

    def grammar(api: str, stream: bool, ended: Ended) -> None:
        assert ended.status == 400
        assert "cannot be followed" in ended.error

    run(server, lambda client: all_end(client, "refuse KV pool full: the lanes hold all 512 cells", full))
    run(server, lambda client: all_end(client, "refuse bad request: too odd", wrong))
    run(server, lambda client: all_end(client, "refuse grammar: it cannot be followed any further", grammar))


def test_pool_full_in_the_middle(server: Any) -> None:
    def check(api: str, stream: bool, ended: Ended) -> None:
        assert (ended.status, ended.finish, ended.text) == (200, CUT[api], "abc")

    run(server, lambda client: all_end(client, "pool abc", check))


def test_prompt_over_the_context(server: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for api, stream in EACH:
            ended = await ask(client, api, stream, "x" * 600)
            assert "context of 512 tokens has room for at most 503" in ended.error
            # Agents take a failed response, not a status, for a conversation that has to become shorter.
            assert ended.status == (200 if (api, stream) == ("responses", True) else 400)

    run(server, work)


def test_context_full_in_the_middle(server: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for api, stream in EACH:
            ended = await ask(client, api, stream, "say " + "y" * 300, 100_000)
            assert (ended.status, ended.finish) == (200, CUT[api])
            assert 100 < len(ended.text) < 300
            assert set(ended.text) == {"y"}

    run(server, work)


def test_those_who_wait_live_through_a_restart(server: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        restarts = server.engine.restarts
        first = asyncio.create_task(ask(client, APIS[0], False, "die"))
        while not server.engine.running:
            await asyncio.sleep(0)
        later = [asyncio.create_task(ask(client, api, stream, "say after")) for api, stream in EACH]
        assert "killed by SIGKILL" in (await first).error
        for ended in await asyncio.gather(*later):
            # With lanes they may have been in flight beside it: then they are told.
            assert ended.text == "after" or (server.fake.lanes and "killed by SIGKILL" in ended.error)
        assert server.engine.restarts == restarts + 1

    run(server, work)


def test_end_of_the_server_ends_streams_with_a_reason(fake: Any, helpers: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        asked = [asyncio.create_task(ask(client, api, True, "slow 400")) for api in APIS]
        async with asyncio.timeout(10):
            while server.engine.running + server.engine.waiting < 3:
                await asyncio.sleep(0.01)
        server.call(server.server.end)
        for ended in await asyncio.gather(*asked):
            assert ended.finish is None
            assert "shutting down" in ended.error

    with helpers["serving"](fake) as server:
        run(server, work)
