"""The description that the server publishes: complete, true of the answers, and what schemathesis makes of it."""

from collections.abc import Iterator
from typing import Any

import httpx
import hypothesis
import jsonschema
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis import checks as bundled
from schemathesis.specs.openapi import checks

from strata.server.app import create_app
from strata.server.generation import Generator
from strata.server.guard import Access
from strata.server.openapi import OPERATIONS, document, paths_of
from strata.server.page_routes import PREFIX, page_files
from strata.server.service import Service
from strata.server.supervisor import Supervisor

EXAMPLES = 10
"""Requests that schemathesis makes of each operation, right ones and wrong ones each."""
NOT_TRIED = {"/v1/embeddings"}  # its 501 is no fault
CHECKS = [
    bundled.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Any]:
    """A server with a model that says one thing to everything it does not know, and a large context."""
    fake = helpers["Fake"](tmp_path_factory.mktemp("api") / "record", lanes=True, context=100_000)
    with helpers["serving"](fake) as server:
        while httpx.get(f"{server.url}/health").status_code != 200:
            pass
        yield server


@pytest.fixture(scope="module")
def described(api: Any) -> Any:
    answer = httpx.get(f"{api.url}/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


@pytest.fixture(scope="module")
def schema(api: Any) -> Any:
    return schemathesis.openapi.from_url(f"{api.url}/openapi.json")


def test_every_route_is_described_and_nothing_else(helpers: Any, described: Any) -> None:
    engine = Supervisor(["none"])
    app = create_app(Service(Generator(engine, helpers["make_tokenizer"](), name="tiny"), engine))
    routes: Any = app.routes
    assert sorted(paths_of(routes)) == sorted(OPERATIONS)
    found = {(method.upper(), path) for path, item in described["paths"].items() for method in item}
    assert found == set(OPERATIONS)


def test_schemas_are_schemas_and_every_reference_leads_somewhere(described: Any) -> None:
    schemas = described["components"]["schemas"]
    used = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                used.add(value["$ref"].removeprefix("#/components/schemas/"))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(described)
    assert used == set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert len({op["operationId"] for item in described["paths"].values() for op in item.values()}) == len(OPERATIONS)


def test_a_key_is_described_where_one_is_needed() -> None:
    from starlette.routing import Route

    routes = [Route(path, lambda request: None) for path in ("/health", "/metrics", "/")]
    locked = document(routes, keys=True)["paths"]
    assert [locked[path]["get"]["security"] for path in ("/health", "/")] == [[], []]
    assert locked["/metrics"]["get"]["security"] == [{"bearer": []}, {"key": []}]
    assert "401" in locked["/metrics"]["get"]["responses"]
    assert "401" not in document(routes, keys=False)["paths"]["/metrics"]["get"]["responses"]


def test_description_needs_the_key_too(with_lanes: Any, helpers: Any) -> None:
    with helpers["serving"](with_lanes, access=Access(keys=("k",))) as server:
        assert httpx.get(f"{server.url}/openapi.json").status_code == 401
        assert "security" in httpx.get(f"{server.url}/openapi.json", headers={"x-api-key": "k"}).text


@pytest.mark.parametrize("name", ["ChatRequest", "CompletionRequest", "MessagesRequest", "ResponsesRequest"])
def test_ranges_of_numbers_are_those_that_are_kept(api: Any, described: Any, name: str) -> None:
    path, body = {
        "ChatRequest": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        "CompletionRequest": ("/v1/completions", {"prompt": "x"}),
        "MessagesRequest": ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        "ResponsesRequest": ("/v1/responses", {"input": "x"}),
    }[name]
    fields = described["components"]["schemas"][name]["properties"]
    assert sum(end in schema for schema in fields.values() for end in ("minimum", "maximum")) > 10
    with httpx.Client(base_url=api.url) as client:
        for field, schema in fields.items():
            for end, beyond in (("minimum", -1), ("maximum", 1)):
                if end not in schema:
                    continue
                more = {"logprobs": True} if field == "top_logprobs" and name == "ChatRequest" else {}
                for value, status in ((schema[end], 200), (schema[end] + beyond, 400)):
                    answer = client.post(path, json={**body, **more, field: value})
                    assert answer.status_code == status, (field, value, answer.text)


def test_answers_about_things_that_are_there_are_as_described(api: Any, schema: Any) -> None:
    """Paths of which schemathesis cannot guess a right one."""
    made = httpx.post(f"{api.url}/v1/responses", json={"input": "say x"}).json()["id"]
    for method, path, names in (
        ("GET", "/v1/models/{name}", ["tiny"]),
        ("GET", "/v1/responses/{number}", [made]),
        ("GET", "/v1/responses/{number}/input_items", [made]),
        ("DELETE", "/v1/responses/{number}", [made]),
        ("GET", "/page/{name}", [path.removeprefix(PREFIX) for path in page_files() if path != "/"]),
    ):
        assert names
        for name in names:
            case = schema[path][method].Case(path_parameters={path.partition("{")[2].partition("}")[0]: name})
            answer = case.call(timeout=20)
            assert answer.status_code == 200, (path, name)
            case.validate_response(answer, checks=CHECKS)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("operation", sorted(set(OPERATIONS)), ids=" ".join)
def test_schemathesis_finds_no_fault(api: Any, schema: Any, operation: tuple[str, str], mode: GenerationMode) -> None:
    method, path = operation
    if path in NOT_TRIED:
        pytest.skip("it answers 501 to everything")
    described = OPERATIONS[operation]
    if mode is GenerationMode.NEGATIVE and described.body is None and not described.query:
        pytest.skip("there is nothing to send that could be wrong")
    seen = set()

    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate],
    )  # fmt: skip
    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        if isinstance(case.body, dict):
            # Neither the length of replies nor their number is what is tried here.
            case.body.update({name: 2 for name in ("n", "best_of") if name in case.body})
            case.body["max_tokens"] = 2
        answer = case.call(timeout=20)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    attempt()
    assert seen
    if described.body is not None:
        assert (200 if mode is GenerationMode.POSITIVE else 400) in seen
    assert len(api.fake.pids()) == 1, "the engine ended on the way"
