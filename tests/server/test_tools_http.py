"""Tools with the demo model, which was taught to call one, through the real clients of the three APIs."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from demo_server import demo_server

CITY = {"type": "string", "description": "Name of the city"}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
ABOUT = {"name": "get_weather", "description": "Get the weather of a city"}
TOOLS: Any = [{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (found, _):
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=60) as made:
        yield made


def ask(client: openai.OpenAI, messages: Any = QUESTION, **options: Any) -> Any:
    return client.chat.completions.create(
        model="any", messages=messages, tools=TOOLS, temperature=0, max_tokens=200, **options
    )


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_question_becomes_a_call_and_its_result_an_answer(
    client: openai.OpenAI, choice: Any, thinking: bool
) -> None:
    extra = {"enable_thinking": thinking}
    answer = ask(client, tool_choice=choice, extra_body=extra).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    assert bool(getattr(answer.message, "reasoning_content", None)) == thinking
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21, "sky": "sunny"}'}
    last = ask(client, [*QUESTION, answer.message, result], extra_body=extra)
    assert last.choices[0].finish_reason == "stop"
    assert thinking or last.choices[0].message.content == "In Paris it is 21 degrees and sunny."
    assert last.choices[0].message.content
    assert last.usage.prompt_tokens_details.cached_tokens > 100


def test_streamed_calls_are_the_whole_ones(client: openai.OpenAI) -> None:
    whole = ask(client).choices[0].message.tool_calls[0].function
    pieces = [call.function for chunk in ask(client, stream=True) for choice in chunk.choices
              for call in choice.delta.tool_calls or ()]  # fmt: skip
    assert pieces[0].name == whole.name
    assert "".join(piece.arguments for piece in pieces) == whole.arguments
    assert len(pieces) > 3


def test_a_question_about_nothing_of_the_tools_is_answered(client: openai.OpenAI) -> None:
    plain = ask(client, [{"role": "user", "content": "Hello"}], tool_choice="none").choices[0]
    assert plain.message.content
    assert plain.message.tool_calls is None


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}])
def test_strict_tools_get_arguments_of_their_schema(client: openai.OpenAI, choice: Any, thinking: bool) -> None:
    """A schema that the model was never taught; it would say the city as it was asked for."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Berlin", "Rome"]}, "days": {"type": "integer"}},
              "required": ["city", "days"], "additionalProperties": False}  # fmt: skip
    tools: Any = [{"type": "function", "function": {**ABOUT, "parameters": schema, "strict": True}}]
    answer = client.chat.completions.create(
        model="any", messages=QUESTION, tools=tools, temperature=0, max_tokens=200, tool_choice=choice,
        extra_body={"enable_thinking": thinking},
    ).choices[0]  # fmt: skip
    assert answer.finish_reason == "tool_calls"
    for call in answer.message.tool_calls:
        arguments = json.loads(call.function.arguments)
        assert arguments["city"] in ("Berlin", "Rome")
        assert isinstance(arguments["days"], int)
        assert len(arguments) == 2


def test_anthropic_tools(url: str) -> None:
    tools: Any = [{**ABOUT, "input_schema": SCHEMA}]
    options: dict[str, Any] = {"model": "any", "max_tokens": 200, "tools": tools, "extra_body": {"temperature": 0}}
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, timeout=60) as client:
        for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"}):
            message = client.messages.create(messages=QUESTION, tool_choice=choice, **options)
            (block,) = message.content
            assert (block.type, block.name, block.input) == ("tool_use", "get_weather", {"city": "Paris"})
            assert message.stop_reason == "tool_use"
        with client.messages.stream(messages=QUESTION, **options) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_message()
        assert "input_json" in kinds
        assert (final.content[0].name, final.content[0].input) == (block.name, block.input)
        result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "sunny"}]}
        turns = [*QUESTION, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        last = client.messages.create(messages=turns, **options)
        assert (last.content[0].type, last.stop_reason) == ("text", "end_turn")


def test_responses_tools(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", **ABOUT, "parameters": SCHEMA}]
    question = QUESTION[0]["content"]
    options: dict[str, Any] = {"model": "any", "temperature": 0, "tools": tools, "max_output_tokens": 200}
    first = client.responses.create(input=question, tool_choice="required", **options)
    (call,) = first.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    last = client.responses.create(input=[output], previous_response_id=first.id, **options)
    assert last.output_text
    with client.responses.stream(input=question, **options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds.count("response.function_call_arguments.done") == 1
    assert final.output[0].arguments == call.arguments
