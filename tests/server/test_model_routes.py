"""What is told of the model, to the real clients of both APIs, and what it cannot do."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

from strata.server.service import ModelFacts


@pytest.fixture
def running(shared: Any) -> Any:
    return shared


def test_models_of_both_apis(running: Any) -> None:
    assert httpx.get(f"{running.url}/models").json() == httpx.get(f"{running.url}/v1/models").json()
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="k") as client:
        model = client.models.retrieve("tiny")
        assert [one.id for one in client.models.list()] == [model.id] == ["tiny"]
    with anthropic.Anthropic(base_url=running.url, api_key="k") as client:
        found = client.models.retrieve("tiny")
        assert [one.id for one in client.models.list()] == [found.id] == ["tiny"]
    assert (found.type, found.display_name, int(found.created_at.timestamp())) == ("model", "tiny", model.created)
    assert httpx.get(f"{running.url}/v1/models/other/../tiny").status_code == 200  # httpx makes it /v1/models/tiny
    assert httpx.get(f"{running.url}/v1/models/%2e%2e/tiny").status_code == 404


def test_facts_of_the_file_are_told(fake: Any, helpers: Any) -> None:
    with helpers["serving"](fake, facts=ModelFacts("qwen4_exp", 262144, 1000, 4000)) as server:
        while httpx.get(f"{server.url}/health").status_code == 503:
            pass
        model = httpx.get(f"{server.url}/v1/models").json()["data"][0]
        context = httpx.get(f"{server.url}/v1/status").json()["context"]
    assert (model["architecture"], model["status"]) == ("qwen4_exp", {"value": "loaded"})
    assert model["meta"] == {"n_ctx": 512, "n_ctx_train": 262144, "n_vocab": 261, "n_params": 1000, "size": 4000}
    assert context == {"native": 262144, "max_positions": 512}


def test_model_is_listed_under_each_of_its_names(fake: Any, helpers: Any) -> None:
    with helpers["serving"](fake, aliases=("gpt-x", "team/large", "tiny", "gpt-x")) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            models = {model.id: model.model_extra for model in client.models.list()}
            assert list(models) == ["tiny", "gpt-x", "team/large"]
            assert client.models.retrieve("team/large").model_extra["alias_of"] == "tiny"
            with pytest.raises(openai.NotFoundError, match="no model 'other', but tiny, gpt-x, team/large"):
                client.models.retrieve("other")
        with anthropic.Anthropic(base_url=server.url, api_key="k") as client:
            page = client.models.list()
            assert ([model.id for model in page], page.first_id, page.last_id) == (list(models), "tiny", "team/large")
    assert models["tiny"]["aliases"] == ["gpt-x", "team/large"]
    assert [model["alias_of"] for model in models.values()] == [None, "tiny", "tiny"]


def test_embeddings_are_a_clear_no_that_is_not_tried_again(running: Any) -> None:
    asked = []
    hooks = {"request": [lambda request: asked.append(request.url.path)]}
    with openai.OpenAI(
        base_url=f"{running.url}/v1", api_key="k", http_client=httpx.Client(event_hooks=hooks)
    ) as client, pytest.raises(openai.InternalServerError, match="tiny writes text; it makes no embeddings") as caught:
        client.embeddings.create(model="tiny", input="x")
    error: Any = caught.value.body
    assert (caught.value.status_code, error["type"], error["code"]) == (501, "not_supported_error", "not_supported")
    assert asked == ["/v1/embeddings"]
