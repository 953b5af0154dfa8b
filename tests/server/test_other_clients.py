"""Clients that people already have, against `strata serve` with the demo model; what they hear is what curl would."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from demo_server import demo_server

QUESTIONS = ["What is your name?", "Where is the sea?", "Say hello to Ann.", "What is 3 + 4?"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (url, _):
        yield url


def plain(url: str, text: str, *, thinking: bool) -> str:
    """The answer, asked for without any client."""
    fields = {"messages": [{"role": "user", "content": text}], "temperature": 0,
              "chat_template_kwargs": {"enable_thinking": thinking}}  # fmt: skip
    message = httpx.post(f"{url}/v1/chat/completions", json=fields, timeout=60).json()["choices"][0]["message"]
    assert bool(message.get("reasoning_content")) is thinking
    return str(message["content"])


def test_async_clients_of_both_kinds_at_once(url: str) -> None:
    """Streams of AsyncOpenAI, of its Responses API and of AsyncAnthropic, all in flight together."""
    body: Any = {"chat_template_kwargs": {"enable_thinking": False}}

    async def chat(client: openai.AsyncOpenAI, text: str) -> tuple[str, int]:
        said, tokens = "", 0
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}], temperature=0, stream=True, extra_body=body,
            stream_options={"include_usage": True},
        )  # fmt: skip
        async for chunk in stream:
            said += "".join(choice.delta.content or "" for choice in chunk.choices)
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        return said, tokens

    async def response(client: openai.AsyncOpenAI, text: str) -> tuple[str, int]:
        said = ""
        async with client.responses.stream(
            model="m", input=text, temperature=0, reasoning={"effort": "none"}, store=False
        ) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    said += event.delta
            final = await stream.get_final_response()
        assert final.output_text == said
        assert final.usage is not None
        return said, final.usage.output_tokens

    async def message(client: anthropic.AsyncAnthropic, text: str) -> tuple[str, int]:
        said = ""
        async with client.messages.stream(
            model="m", max_tokens=300, messages=[{"role": "user", "content": text}], extra_body={"temperature": 0}
        ) as stream:
            async for piece in stream.text_stream:
                said += piece
            final = await stream.get_final_message()
        return said, final.usage.output_tokens

    async def main() -> list[list[tuple[str, int]]]:
        ours = {"api_key": "any", "max_retries": 0, "timeout": 60}
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", **ours) as first,
            anthropic.AsyncAnthropic(base_url=url, **ours) as second,
        ):
            calls = [[chat(first, q), response(first, q), message(second, q)] for q in QUESTIONS]
            done = await asyncio.gather(*(one for three in calls for one in three))
            return [done[at : at + 3] for at in range(0, len(done), 3)]

    for question, three in zip(QUESTIONS, asyncio.run(main()), strict=True):
        wanted = plain(url, question, thinking=False)
        assert [said for said, _ in three] == [wanted] * 3
        assert len({tokens for _, tokens in three}) == 1


CITIES = ["Paris", "Rome", "Oslo"]
ABOUT = {"name": "get_weather", "description": "Get the weather of a city"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}},
          "required": ["city"]}  # fmt: skip


def test_async_tools_and_structured_output_at_once(url: str) -> None:
    """Streamed calls in the three APIs and answers held to a schema, all in flight together."""
    place = {"type": "object", "properties": {"city": {"enum": CITIES}}, "required": ["city"],
             "additionalProperties": False}  # fmt: skip

    async def chat(client: openai.AsyncOpenAI, city: str) -> Any:
        tools: Any = [{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}]
        name, arguments = "", ""
        async with client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": f"What is the weather in {city}?"}], temperature=0,
            tools=tools,
        ) as stream:  # fmt: skip
            async for event in stream:
                if event.type == "tool_calls.function.arguments.delta":
                    name, arguments = event.name, arguments + event.arguments_delta
            final = await stream.get_final_completion()
        assert final.choices[0].finish_reason == "tool_calls"
        return name, json.loads(arguments)

    async def response(client: openai.AsyncOpenAI, city: str) -> Any:
        tools: Any = [{"type": "function", **ABOUT, "parameters": SCHEMA}]
        async with client.responses.stream(
            model="m", input=f"What is the weather in {city}?", temperature=0, tools=tools, store=False
        ) as stream:
            arguments = "".join(
                [event.delta async for event in stream if event.type == "response.function_call_arguments.delta"]
            )
            final = await stream.get_final_response()
        call = next(item for item in final.output if item.type == "function_call")
        return call.name, json.loads(arguments)

    async def message(client: anthropic.AsyncAnthropic, city: str) -> Any:
        tools: Any = [{**ABOUT, "input_schema": SCHEMA}]
        async with client.messages.stream(
            model="m", max_tokens=200, messages=[{"role": "user", "content": f"What is the weather in {city}?"}],
            tools=tools, extra_body={"temperature": 0},
        ) as stream:  # fmt: skip
            partial = "".join([event.partial_json async for event in stream if event.type == "input_json"])
            final = await stream.get_final_message()
        assert final.stop_reason == "tool_use"
        return next(block.name for block in final.content if block.type == "tool_use"), json.loads(partial)

    async def structured(client: openai.AsyncOpenAI, city: str) -> Any:
        form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": place, "strict": True}}
        said = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"I live in {city}. Where do I live?"}], temperature=0,
            response_format=form,
        )  # fmt: skip
        return json.loads(said.choices[0].message.content or "")

    async def main() -> list[list[Any]]:
        ours = {"api_key": "any", "max_retries": 0, "timeout": 60}
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", **ours) as first,
            anthropic.AsyncAnthropic(base_url=url, **ours) as second,
        ):
            calls = [[chat(first, c), response(first, c), message(second, c), structured(first, c)] for c in CITIES]
            done = await asyncio.gather(*(one for four in calls for one in four))
            return [done[at : at + 4] for at in range(0, len(done), 4)]

    for city, (*called, held) in zip(CITIES, asyncio.run(main()), strict=True):
        assert called == [("get_weather", {"city": city})] * 3
        assert list(held) == ["city"]
        assert held["city"] in CITIES


def run_client(code: str, url: str) -> Any:
    """What a client prints as JSON. A process of its own: these libraries warn on import, and change global state."""
    environment = os.environ | {
        "URL": url, "TOOL": json.dumps({**ABOUT, "parameters": SCHEMA}), "PYTHONWARNINGS": "ignore",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LITELLM = """
import json, os
import litellm
litellm.telemetry = False
url = os.environ["URL"]
asked = {"messages": [{"role": "user", "content": "What is your name?"}], "temperature": 0, "api_key": "any"}
off = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
whole = litellm.completion(model="openai/strata-demo", api_base=url + "/v1", **asked, **off)
stream = litellm.completion(model="openai/strata-demo", api_base=url + "/v1", stream=True, **asked, **off)
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
message = litellm.completion(model="anthropic/strata-demo", api_base=url, max_tokens=300, **asked)
try:
    litellm.completion(model="openai/strata-demo", api_base=url + "/v1", **{**asked, "temperature": -1})
    refused = ""
except litellm.BadRequestError as error:
    refused = str(error)
tools = [{"type": "function", "function": json.loads(os.environ["TOOL"])}]
weather = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": tools,
           "temperature": 0, "api_key": "any", "max_tokens": 200}
calls = [
    litellm.completion(model="openai/strata-demo", api_base=url + "/v1", **weather).choices[0],
    litellm.stream_chunk_builder(list(
        litellm.completion(model="openai/strata-demo", api_base=url + "/v1", stream=True, **weather)
    )).choices[0],
    litellm.completion(model="anthropic/strata-demo", api_base=url, **weather).choices[0],
]
print(json.dumps({
    "whole": whole.choices[0].message.content, "tokens": whole.usage.completion_tokens, "streamed": streamed,
    "anthropic": message.choices[0].message.content, "refused": refused,
    "calls": [[c.finish_reason, f.name, json.loads(f.arguments)]
              for c in calls for f in [c.message.tool_calls[0].function]],
}))
"""

LANGCHAIN = """
import json, os
from langchain_openai import ChatOpenAI
model = ChatOpenAI(
    base_url=os.environ["URL"] + "/v1", api_key="any", model="strata-demo", temperature=0,
    extra_body={"chat_template_kwargs": {"enable_thinking": False}},
)
whole = model.invoke("What is your name?")
pieces = [chunk.content for chunk in model.stream("What is your name?")]
batch = [reply.content for reply in model.batch(["What is your name?", "Where is the sea?"])]
asked = [("human", "What is the weather in Paris?")]
called = model.bind_tools([{"type": "function", "function": json.loads(os.environ["TOOL"])}]).invoke(asked)
place = {"title": "place", "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
         "additionalProperties": False}
held = model.with_structured_output(place, method="json_schema").invoke("Where is the Colosseum?")
print(json.dumps({
    "whole": whole.content, "tokens": whole.usage_metadata["output_tokens"], "pieces": pieces, "batch": batch,
    "calls": [[call["name"], call["args"]] for call in called.tool_calls], "held": held,
}))
"""


@pytest.mark.slow  # the blocks of docs/clients.md run both libraries in every run of the tests
def test_litellm(url: str) -> None:
    """As a provider of OpenAI's API and of Anthropic's."""
    wanted = plain(url, "What is your name?", thinking=False)
    told = run_client(LITELLM, url)
    assert "temperature must be from 0 to 100, not -1.0." in told.pop("refused")
    assert told.pop("tokens") > 2
    assert told.pop("calls") == [["tool_calls", "get_weather", {"city": "Paris"}]] * 3
    assert told == {"whole": wanted, "streamed": wanted, "anthropic": wanted}


@pytest.mark.slow
def test_langchain(url: str) -> None:
    wanted = plain(url, "What is your name?", thinking=False)
    told = run_client(LANGCHAIN, url)
    assert told["whole"] == wanted
    assert "".join(told["pieces"]) == wanted
    assert len(told["pieces"]) > 2
    assert told["batch"] == [wanted, plain(url, "Where is the sea?", thinking=False)]
    assert told["tokens"] > 2
    assert told["calls"] == [["get_weather", {"city": "Paris"}]]
    assert told["held"]["city"] in ("Rome", "Oslo")
