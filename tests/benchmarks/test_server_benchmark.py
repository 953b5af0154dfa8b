"""The benchmark of the HTTP server: its client against answers cut anywhere, its malformed requests, a quick run."""

import asyncio
import itertools
import json
import math
import subprocess
import sys

import pytest

from benchmarks.rounds import ROOT
from benchmarks.server.exchange import Answer, request, send
from benchmarks.server.killing import says_why
from benchmarks.server.mutations import VALID, malformed, valid

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DELTA = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
LAST = b'data: {"choices":[{"delta":{}}],"usage":{"completion_tokens":7}}\n\ndata: [DONE]\n\n'


def chunked(*parts):
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def answer(*pieces):
    return Answer(0.0, ended=9.0, pieces=[(float(index), piece) for index, piece in enumerate(pieces)])


@pytest.fixture(autouse=True)
def own_logs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_an_answer_reads_the_same_however_it_is_cut():
    whole = chunked(b": keep-alive\n\n", DELTA[:9], DELTA[9:], DELTA + LAST)
    for at in range(1, len(whole)):
        cut = answer(whole[:at], whole[at:])
        assert (cut.status, cut.whole, cut.tokens(), len(cut.events())) == (200, True, 7, 3)
        assert cut.body == b": keep-alive\n\n" + DELTA * 2 + LAST
        complete = at >= whole.index(DELTA[9:]) + len(DELTA[9:]) + 2
        assert cut.first_text() == (0.0 if complete else 1.0)


def test_what_is_missing_is_noticed():
    whole = chunked(DELTA, LAST)
    assert answer(whole).whole
    assert not answer(whole[:-1]).whole
    assert not answer(b"").whole
    plain = b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}"
    assert (answer(plain).status, answer(plain).whole, answer(plain).json()) == (503, True, {})
    assert not answer(plain[:-1]).whole
    assert not Answer(0.0, pieces=[(0.0, plain)], fault="ConnectionResetError").whole


def test_an_engine_that_was_killed_is_told_in_either_form():
    error = {"error": {"message": "The engine was killed by SIGKILL (signal 9) while ...", "code": "engine_died"}}
    body = json.dumps(error).encode()
    assert says_why(answer(b"HTTP/1.1 503 x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)))
    assert says_why(answer(chunked(DELTA, b"data: " + body + b"\n\n")))
    assert not says_why(answer(chunked(DELTA, b"data: " + body + b"\n\n")[:-3]))
    assert not says_why(answer(chunked(DELTA, LAST)))
    assert not says_why(answer(b"HTTP/1.1 503 x\r\nContent-Length: 2\r\n\r\n[]"))


def test_the_client_tells_faults_apart():
    async def main():
        silent = []

        async def serve(reader, writer):
            line = await reader.readline()
            if b"/whole" in line:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
                writer.close()
            elif b"/reset" in line:
                writer.transport.abort()
            else:
                silent.append(writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = [await send(port, request(path, b"{}"), patience_s=0.3) for path in ("/whole", "/reset", "/silent")]
        server.close()
        silent[0].close()
        await server.wait_closed()
        refused = await send(port, request("/", b"{}"))
        return [each.fault.partition(":")[0] for each in (*found, refused)], found[0]

    faults, first = asyncio.run(main())
    assert first.whole
    assert faults[0] == ""
    assert faults[1] in ("ConnectionResetError", "")  # reset, or closed without a word
    assert faults[2:] == ["silent for 0 s", "ConnectionRefusedError"]


def test_malformed_requests_are_the_same_for_a_seed_and_seldom_valid():
    paths = sorted(VALID)
    some = list(itertools.islice(malformed(paths, 3), 2000))
    assert some == list(itertools.islice(malformed(paths, 3), 2000))
    assert some != list(itertools.islice(malformed(paths, 4), 2000))
    untouched = {request(path, json.dumps(body).encode()) for path, body in valid()}
    assert sum(data in untouched for data in some) < 20
    assert all(any(path.encode() in data for data in some) for path in paths)
    assert len(set(some)) > 1500


def test_a_route_without_requests_of_its_own_gets_those_of_others():
    some = list(itertools.islice(malformed(["/v1/new"], 3), 200))
    assert sum(b"/v1/new" in data for data in some) > 150
    assert any(b"max_output_tokens" in data for data in some)
    assert any(b"with_pieces" in data for data in some)


@pytest.mark.slow
def test_a_quick_run_measures_everything():
    command = [sys.executable, "-m", "benchmarks.server", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    cases = {c["case"]: c for c in json.loads(done.stdout.splitlines()[-1])["cases"]}
    assert all(math.isfinite(c[key]) and c[key] >= 0 for c in cases.values() for key in ("value", "baseline", "ratio"))
    assert cases["20 clients at once, answered"]["value"] == 20
    assert cases["HTTP, 8 streams"]["server_us_a_token"] > 0
    assert cases["engine killed 2 times, clients told why"]["ratio"] == 1
    tried = cases["120 malformed requests, no fault of the server"]
    assert (tried["ratio"], tried["restarts"], tried["tracebacks"]) == (1, 0, 0)
    assert tried["answers"]["400"] > 50
