"""Structured output through `strata serve`, the demo model and the real `openai` client."""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from demo_server import demo_server

from strata.server.problem import FieldError
from strata.server.structured import grammar_of
from strata.text.grammar import Grammar


class Person(pydantic.BaseModel):
    name: Literal["Zoë", "Max"]
    age: int = pydantic.Field(ge=0, le=150)
    tags: list[Literal["a", "b"]] = pydantic.Field(max_length=3)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (found, _):
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=120) as one:
        yield one


def said(client: openai.OpenAI, seed: int = 1, **more: Any) -> str:
    reply = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "Tell me about the sea."}], max_tokens=400, seed=seed,
        extra_body={"enable_thinking": False, **more},
    )  # fmt: skip
    assert reply.choices[0].finish_reason == "stop"
    return reply.choices[0].message.content or ""


def test_the_clients_own_parse(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model="demo", messages=[{"role": "user", "content": "Who?"}], max_tokens=400, seed=5, response_format=Person,
        extra_body={"enable_thinking": False},
    )  # fmt: skip
    person = reply.choices[0].message.parsed
    assert person is not None
    assert 0 <= person.age <= 150


def test_vllms_and_llamacpps_fields(client: openai.OpenAI) -> None:
    schema = Person.model_json_schema()
    for fields in ({"guided_json": schema}, {"json_schema": schema}, {"structured_outputs": {"json": schema}}):
        Person.model_validate_json(said(client, **fields))
    assert re.fullmatch(r"[a-f]{3}\d", said(client, guided_regex=r"[a-f]{3}\d"))
    assert said(client, guided_choice=["red", "blue"]) in ("red", "blue")
    assert said(client, grammar='root ::= "yes" | "no"') in ("yes", "no")


def test_a_schema_that_cannot_be_enforced_is_a_400(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    body["guided_json"] = {"type": "array", "uniqueItems": True}
    for stream in (False, True):
        reply = httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": stream}, timeout=60)
        assert reply.status_code == 400
        assert reply.json()["error"]["message"].startswith("The grammar cannot be enforced: ")
        assert "uniqueItems" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}, "grammar": ""}, None),
        ({"response_format": {"type": "json_object"}}, Grammar("json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": 1}}}},
            Grammar("json_schema", '{"a": 1}'),
        ),
        ({"guided_grammar": "root ::= [0-9]"}, Grammar("gbnf", "root ::= [0-9]")),
        ({"guided_grammar": 'start: "a"'}, Grammar("lark", 'start: "a"')),
        ({"structured_outputs": {"json_object": True}}, Grammar("json_object")),
        ({"structured_outputs": {"choice": ["é"]}}, Grammar("choice", json.dumps(["é"], ensure_ascii=False))),
    ],
)  # fmt: skip
def test_what_the_fields_ask_for(fields: dict[str, Any], grammar: Grammar | None) -> None:
    assert grammar_of(fields) == grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"guided_json": "{"}, "guided_json"), ({"guided_json": '{"const": "\\ud800"}'}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_regex": 3}, "guided_regex"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"guided_regex": "a", "grammar": "root ::= [0-9]"}, "grammar"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(FieldError) as caught:
        grammar_of(fields)
    assert caught.value.param == param
