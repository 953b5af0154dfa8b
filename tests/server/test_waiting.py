"""More requests than may wait: refused at once, in the form of each API, as its real client understands it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anthropic
import httpx
import openai
import pytest

USER: Any = [{"role": "user", "content": "say x"}]


async def chat(url: str, stream: bool) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        await client.chat.completions.create(model="m", messages=USER, stream=stream)


async def respond(url: str, stream: bool) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        await client.responses.create(model="m", input="say x", stream=stream)


async def message(url: str, stream: bool) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        await client.messages.create(model="m", messages=USER, max_tokens=100, stream=stream)


ASKS: list[tuple[Callable[[str, bool], Awaitable[None]], Any]] = [
    (chat, openai.RateLimitError), (respond, openai.RateLimitError), (message, anthropic.RateLimitError),
]  # fmt: skip


@pytest.mark.parametrize("parallel", [None, 2])
def test_one_more_than_may_wait(fake: Any, helpers: Any, parallel: int | None) -> None:
    if parallel is not None and not fake.lanes:
        pytest.skip("an engine without lanes serves one at a time in any case")
    # An engine with lanes and no number keeps them in a queue of its own, until it says that it has begun.
    queues_itself = fake.lanes and parallel is None
    fake.mode = "deaf" if queues_itself else "normal"
    running_first = 0 if queues_itself else parallel or 1

    async def main(server: Any) -> None:
        async with httpx.AsyncClient(timeout=20) as client:

            async def one(text: str) -> httpx.Response:
                body = {"messages": [{"role": "user", "content": text}]}
                return await client.post(f"{server.url}/v1/chat/completions", json=body)

            metrics = server.engine.metrics
            taken = [asyncio.create_task(one("slow 100")) for _ in range(running_first)]
            async with asyncio.timeout(10):
                while len(metrics.running) < running_first:
                    await asyncio.sleep(0.01)
                taken += [asyncio.create_task(one("say x")) for _ in range(3)]
                while len(metrics.waiting) < 3:
                    await asyncio.sleep(0.01)
            for ask, error in ASKS:
                for stream in (False, True):
                    with pytest.raises(error, match=r"3 requests are waiting already.*--max-waiting") as caught:
                        await ask(server.url, stream)
                    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (429, "5")
            if queues_itself:
                server.call(server.server.end)
                return
            assert [answer.status_code for answer in await asyncio.gather(*taken)] == [200] * len(taken)
            assert (await one("say x")).status_code == 200
            last = (await client.get(f"{server.url}/metrics")).json()["requests"]
            assert [row["error"] for row in last if row["status"] == 429] == ["too_many_waiting"] * 6

    limits = replace(helpers["QUICK"], max_waiting=3)
    with helpers["serving"](fake, limits=limits, parallel=parallel) as server:
        asyncio.run(main(server))


def test_those_who_wait_for_the_start_are_counted(fake: Any, helpers: Any) -> None:
    fake.mode = "never"

    async def main(server: Any) -> None:
        async with httpx.AsyncClient(timeout=20) as client:
            calls = [client.post(f"{server.url}/v1/chat/completions", json={"messages": USER}) for _ in range(9)]
            answers = await asyncio.gather(*calls)
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [429] * 5 + [503] * 4
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)

    limits = replace(helpers["QUICK"], ready_s=0.5, start_tries=1, max_waiting=4)
    with helpers["serving"](fake, limits=limits) as server:
        asyncio.run(main(server))
