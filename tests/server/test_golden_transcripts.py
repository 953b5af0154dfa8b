"""Streams of each API, byte for byte as they were when somebody last read them."""

from collections.abc import Iterator

import pytest
from demo_server import demo_server
from transcripts import GOLDEN, REQUESTS, golden, normalised, numbers, raw


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (url, _):
        yield url


@pytest.mark.parametrize("name", REQUESTS)
def test_a_stream_is_as_it_was(url: str, name: str) -> None:
    told = raw(url, name)
    assert numbers(told) == list(range(len(numbers(told))))
    assert normalised(told) == golden(name).read_bytes().decode()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(REQUESTS)


def test_only_what_changes_is_made_equal() -> None:
    waiting = ": keep-alive\n\n"
    event = 'data: {"id":"chatcmpl-0123456789ab","created":12,"predicted_ms":1.5,"n":3}\n\n'
    head = "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Type: text/event-stream\r\n\r\n"
    equal = 'data: {"id":"chatcmpl-ID","created":0,"predicted_ms":0,"n":3}\n\n'
    told = normalised(head + event + waiting + waiting + event + waiting)
    assert told == f"HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\n{equal}{waiting}{equal}{waiting}"
    assert numbers('{"sequence_number":0}{"sequence_number":12}') == [0, 12]
