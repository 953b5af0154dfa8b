"""`strata serve` with the demo model and the real `openai` client: many conversations at once, each as it is alone."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from demo_server import demo_server

from strata.cli.defaults import demo_model
from strata.cli.model import read_card

SUBJECTS = ["the sky", "a river", "bread", "the moon", "a horse", "snow", "music", "a bridge", "tea", "the sea",
            "a clock", "rain", "gold", "a garden", "wool", "a mountain"]  # fmt: skip


@dataclass
class Server:
    url: str
    pid: int

    def engine_pid(self) -> int:
        found = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    def in_flight(self) -> int:
        return int(httpx.get(f"{self.url}/v1/status").json()["activity"]["in_flight"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with demo_server() as (url, pid):
        yield Server(url, pid)


def connect(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=120)


def options_of(number: int) -> dict[str, Any]:
    """Of four requests one is greedy, one drawn, one drawn with penalties, one greedy with a bias and penalties."""
    drawn: dict[str, Any] = {"temperature": 1.0, "seed": 100 + number}
    penalties = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
    greedy: dict[str, Any] = {"temperature": 0}
    return [greedy, drawn, drawn | penalties, greedy | penalties | {"logit_bias": {"32": -5}}][number % 4]


async def stream(client: openai.AsyncOpenAI, number: int, most: int, **more: Any) -> Any:
    question = f"Tell me about {SUBJECTS[number % len(SUBJECTS)]}, please. Number {number}." + " Be brief." * number
    return await client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": question}], max_tokens=most, stream=True,
        **options_of(number), **more,
    )  # fmt: skip


async def answer(client: openai.AsyncOpenAI, number: int, most: int = 60) -> tuple[str, str | None, int]:
    """The text, thinking too, the finish, and how many tokens."""
    text, finish, tokens = "", None, 0
    async for chunk in await stream(client, number, most):
        choice = chunk.choices[0]
        text += (getattr(choice.delta, "reasoning_content", None) or "") + (choice.delta.content or "")
        finish = choice.finish_reason or finish
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return text, finish, tokens


def test_sixteen_at_once_are_as_each_alone(server: Server) -> None:
    async def main() -> None:
        async with connect(server) as client:
            together = await asyncio.gather(*(answer(client, number) for number in range(16)))
            alone = [await answer(client, number) for number in range(16)]
        assert together == alone
        assert len({text for text, _, _ in together}) == 16
        assert all(tokens > 0 and finish in ("stop", "length") for _, finish, tokens in together)

    asyncio.run(main())


def test_early_closes_leave_the_others_alone(server: Server) -> None:
    async def main() -> None:
        async with connect(server) as client:

            async def leave(number: int) -> None:
                chunks = await stream(client, number, 1500)
                seen = 0
                async for _ in chunks:
                    seen += 1
                    if seen > 1 + number % 5:
                        break
                await chunks.close()

            leaving = [leave(number) for number in range(1, 16, 2)]
            staying = [answer(client, number) for number in range(0, 16, 2)]
            results = await asyncio.gather(*leaving, *staying)
            async with asyncio.timeout(5):
                while server.in_flight():
                    await asyncio.sleep(0.02)
            assert results[8:] == [await answer(client, number) for number in range(0, 16, 2)]

    asyncio.run(main())


def test_a_conversation_goes_on_from_what_is_kept(server: Server) -> None:
    async def main() -> None:
        async with connect(server) as client:
            first: list[Any] = [{"role": "user", "content": "Name three colours. " * 20}]
            said = await client.chat.completions.create(model="m", messages=first, temperature=0, max_tokens=30)
            text = said.choices[0].message.content
            turns = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "And one more."}]
            more = await client.chat.completions.create(model="m", messages=turns, temperature=0, max_tokens=5)
            usage = more.usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            cached = usage.prompt_tokens_details.cached_tokens
            assert cached is not None
            assert said.usage is not None
            # At least all of the first turn but the opening of the reply, which a later rendering may change.
            assert said.usage.prompt_tokens - 16 <= cached < usage.prompt_tokens

    asyncio.run(main())


def test_logprobs_of_the_engine(server: Server) -> None:
    """A greedy token is the likeliest: its log-probability is the first of `top_logprobs`, and they descend."""

    async def main() -> None:
        async with connect(server) as client:
            asked: Any = {
                "model": "m", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 12,
                "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
            }  # fmt: skip
            plain = await client.chat.completions.create(**asked)
            scored = await client.chat.completions.create(**asked, logprobs=True, top_logprobs=5)
            assert scored.choices[0].message.content == plain.choices[0].message.content
            logprobs = scored.choices[0].logprobs
            assert logprobs is not None
            assert logprobs.content
            for score in logprobs.content:
                tops = [top.logprob for top in score.top_logprobs]
                assert len(tops) == 5
                assert tops == sorted(tops, reverse=True)
                assert (score.token, score.logprob) == (score.top_logprobs[0].token, tops[0])
                assert sum(2.718281828 ** top for top in tops) <= 1.0001
            joined = bytes(byte for score in logprobs.content for byte in score.bytes or [])
            assert joined.decode("utf-8", "replace").startswith((scored.choices[0].message.content or "")[:-1])

    asyncio.run(main())


def test_killed_engine_ends_all_and_comes_back(server: Server) -> None:
    endless = {str(number): -100 for number in read_card(demo_model()).tokenizer.end_ids}

    async def main() -> None:
        async with connect(server) as client:
            before = await answer(client, 3)
            begun: set[int] = set()

            async def until_the_end(number: int) -> str:
                chunks = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"Count from {number}."}], stream=True,
                    logit_bias=endless, frequency_penalty=1, seed=number,
                )  # fmt: skip
                try:
                    async for chunk in chunks:
                        if chunk.choices[0].delta.content or chunk.choices[0].delta.model_extra:
                            begun.add(number)
                except openai.APIError as error:
                    return str(error)
                return "no error"

            flying = [asyncio.create_task(until_the_end(number)) for number in range(8)]
            async with asyncio.timeout(30):
                while len(begun) < 8 or server.in_flight() < 8:
                    await asyncio.sleep(0.005)
            started = time.monotonic()
            os.kill(server.engine_pid(), signal.SIGKILL)
            said = await asyncio.gather(*flying)
            assert all(re.search(r"killed by SIGKILL \(signal 9\) while writing", one) for one in said), said
            assert time.monotonic() - started < 5
            assert await answer(client, 3) == before

    asyncio.run(main())
    status = httpx.get(f"{server.url}/v1/status").json()
    assert (status["engine"]["restarts"], status["activity"]["in_flight"]) == (1, 0)
