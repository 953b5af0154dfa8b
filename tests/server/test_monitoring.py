"""Metrics, slots, properties and the tokenizer's routes, read by independent parsers and compared with replies."""

import logging
import socket
import threading
import time
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text


def ask(running: Any, text: str) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=20)


def get(running: Any, path: str, **headers: str) -> Any:
    return httpx.get(running.url + path, headers=headers, timeout=10)


def test_records_are_what_the_answers_said(running: Any) -> None:
    answers = [ask(running, f"think {word}").json()["usage"] for word in ("one", "two and more")]
    refused = ask(running, "x" * 600)
    report = get(running, "/metrics").json()
    bad, second, first = report["requests"]
    for record, usage in ((first, answers[0]), (second, answers[1])):
        assert (record["status"], record["finish"], record["api"]) == (200, "stop", "chat_completions")
        assert record["prompt_tokens"] == usage["prompt_tokens"]
        assert record["output_tokens"] == usage["completion_tokens"]
        assert record["reused"] == usage["prompt_tokens_details"]["cached_tokens"] == 4
        assert (record["drafts_offered"], record["drafts_accepted"]) == (5, 3)
    assert (bad["status"], bad["output_tokens"], bad["finish"]) == (refused.status_code, 0, None) == (400, 0, None)
    assert report["totals"]["by_status"] == {"200": 2, "400": 1}
    assert report["totals"]["output_tokens"] == sum(usage["completion_tokens"] for usage in answers)
    assert report["live"]["state"] == "idle"
    assert report["live"]["kv_pool"] == {"cells": 512, "free": 256, "used": 256, "fill": 0.5}


def test_a_running_request_is_shown(running: Any) -> None:
    thread = threading.Thread(target=ask, args=(running, "slow 100"))
    thread.start()
    time.sleep(1)
    live = get(running, "/metrics").json()["live"]
    slots, now = get(running, "/slots").json(), get(running, "/status").json()
    assert (live["state"], live["running"], live["waiting"]) == ("generating", 1, 0)
    assert (live["slots"][0]["state"], live["slots"][0]["phase"]) == ("decoding", "answering")
    assert 20 < live["slots"][0]["tok_s"] < 60
    assert slots[0]["is_processing"]
    assert now["busy"]
    assert now["generated"] >= live["slots"][0]["generated"] > 0
    thread.join()
    assert get(running, "/status").json()["busy"] is False


@pytest.mark.parametrize(
    ("accept", "parse"), [("text/plain", plain_text), ("application/openmetrics-text", open_metrics)]
)
def test_prometheus_reads_it(running: Any, accept: str, parse: Any) -> None:
    usage = ask(running, "say hello").json()["usage"]
    answer = get(running, "/metrics", accept=accept)
    assert answer.headers["content-type"].startswith(accept)
    samples = {sample.name: sample for family in parse(answer.text) for sample in family.samples}
    assert samples["vllm:generation_tokens_total"].value == usage["completion_tokens"]
    assert samples["vllm:prompt_tokens_total"].value == usage["prompt_tokens"]
    assert samples["vllm:prefix_cache_hits_total"].value == 4
    assert samples["vllm:kv_cache_usage_perc"].value == 0.5
    assert samples["vllm:inter_token_latency_seconds_count"].value == usage["completion_tokens"] - 1
    assert samples["vllm:time_to_first_token_seconds_count"].value == 1
    assert samples["vllm:num_requests_running"].labels == {"model_name": "tiny"}


def test_tokenizer_routes_are_inverse(shared: Any) -> None:
    text = "Grüße <think>"
    tokens = httpx.post(f"{shared.url}/tokenize", json={"content": text}).json()["tokens"]
    assert tokens == [*"Grüße ".encode(), 259]
    assert httpx.post(f"{shared.url}/detokenize", json={"tokens": tokens}).json() == {"content": text}
    pieces = httpx.post(f"{shared.url}/tokenize", json={"content": "aü", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 188, "piece": [188]}]
    plain = httpx.post(f"{shared.url}/tokenize", json={"content": "<|im_end|>", "parse_special": False}).json()
    assert plain["tokens"] == list(b"<|im_end|>")
    for body in ({"tokens": [999]}, {"tokens": ["a"]}, {}, [1]):
        assert httpx.post(f"{shared.url}/detokenize", json=body).status_code == 400


def test_properties_have_llama_cpps_shape(shared: Any) -> None:
    ask(shared, "say x")
    props = get(shared, "/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["total_slots"] >= 1
    assert (props["model_alias"], props["eos_token"]) == ("tiny", "<|im_end|>")
    assert "<|im_start|>" in props["chat_template"]
    assert get(shared, "/metrics?requests=x").status_code == 400
    assert get(shared, "/version").json()["engine"] == "9.9.9"


def test_pipelined_requests_keep_their_own_status(with_lanes: Any, helpers: Any) -> None:
    with helpers["serving"](with_lanes) as server, socket.socket() as line:
        line.settimeout(5)
        line.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        for body in (b'{"messages": []}', b'{"messages": [{"role": "user", "content": "say x"}]}'):
            line.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-request-id: a%d\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), len(body), body)
            )
        deadline = time.monotonic() + 5
        while len(found := get(server, "/metrics").json()["requests"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert [(one["status"], one["generations"], one["id"]) for one in found] == [(200, 1, "a52"), (400, 0, "a16")]


def logged(caplog: pytest.LogCaptureFixture, count: int) -> list[list[str]]:
    """The first words of the lines of the access log: so many, which may come after their answers."""
    deadline = time.monotonic() + 5
    while True:
        lines = [record.message.split()[:3] for record in caplog.records if record.name == "strata.access"]
        if len(lines) >= count or time.monotonic() > deadline:
            return lines
        time.sleep(0.01)


def test_polls_are_not_in_the_log_of_requests(running: Any, caplog: pytest.LogCaptureFixture) -> None:
    polls = ("/health", "/status", "/v1/status", "/metrics", "/slots", "/props")
    while httpx.get(f"{running.url}/health").status_code == 503:
        pass
    with caplog.at_level(logging.INFO, "strata.access"):
        for path in polls:
            assert httpx.get(running.url + path).status_code == 200
        assert "strata.access" not in caplog.text
        httpx.get(f"{running.url}/metrics?history=much")
        httpx.get(f"{running.url}/v1/models")
        assert logged(caplog, 2) == [["GET", "/metrics", "400"], ["GET", "/v1/models", "200"]]
    with caplog.at_level(logging.DEBUG, "strata.access"):
        httpx.get(f"{running.url}/metrics")
        assert logged(caplog, 3)[2] == ["GET", "/metrics", "200"]
