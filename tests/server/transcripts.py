"""What `curl` prints for streams of each API: the demo model, greedy, with all that changes from run to run made equal.

`python tests/server/transcripts.py --update` writes the files in `golden/` anew; the change is to be read like code.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


def _chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "stream": True, **fields}


def _messages(text: str, **fields: Any) -> dict[str, Any]:
    return _chat(text, max_tokens=200, **fields)


def _responses(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": text, "temperature": 0, "stream": True, **fields}


_WEATHER = {"name": "get_weather", "description": "Get the weather of a city"}
_CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}},
         "required": ["city"]}  # fmt: skip
# No two prompts begin alike, so none finds anything kept by another, whatever the order.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat_plain": (CHAT, _chat("Good morning, what is your name?")),
    "chat_usage": (CHAT, _chat("Tell me a word.", stream_options={"include_usage": True}, max_tokens=3)),
    "chat_thinking": (CHAT, _chat("What is 2 + 3?", chat_template_kwargs={"enable_thinking": True})),
    "chat_stop": (CHAT, _chat("Hello, who are you?", stop=[" am"], chat_template_kwargs={"enable_thinking": False})),
    "chat_logprobs": (CHAT, _chat("Hello!", logprobs=True, top_logprobs=2, max_tokens=4)),
    "chat_schema": (CHAT, _chat("Where do you live?", response_format={"type": "json_schema", "json_schema": {
        "name": "place", "schema": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}},
                                    "required": ["city"], "additionalProperties": False}}})),
    "chat_refused": (CHAT, _chat("Be hot.", temperature=-1)),
    "chat_tools": (CHAT, _chat("What is the weather in Paris?", tools=[{"type": "function", "function": {
        **_WEATHER, "parameters": _CITY}}])),
    "chat_choices": (CHAT, _chat("Say two words.", n=2, max_tokens=1)),
    "completions_echo": ("/v1/completions", {
        "model": "m", "prompt": "Once upon a time", "temperature": 0, "stream": True, "max_tokens": 4, "echo": True}),
    "messages_tools": (MESSAGES, _messages("How is the weather in Rome today?", tools=[
        {**_WEATHER, "input_schema": _CITY}])),
    "messages_plain": (MESSAGES, _messages("Dear model, what is your name?", system="You are brief.")),
    "messages_thinking": (MESSAGES, _messages("How much is 4 + 5?", thinking={"type": "adaptive"})),
    "messages_stop": (MESSAGES, _messages("And who are you?", stop_sequences=[" am"])),
    "messages_refused": (MESSAGES, _messages("Be hotter.", temperature=-1)),
    "responses_tools": (RESPONSES, _responses("Is it warm in Oslo?", store=False, tools=[
        {"type": "function", **_WEATHER, "parameters": _CITY}])),
    "responses_plain": (RESPONSES, _responses("Hi, what is your name?", instructions="You are brief.")),
    "responses_reasoning": (
        RESPONSES, _responses("Give me 6 + 7.", reasoning={"effort": "low", "summary": "auto"}, store=False),
    ),
    "responses_limit": (RESPONSES, _responses("My name is Ann. Who am I?", max_output_tokens=3, store=False)),
    "responses_too_long": (RESPONSES, _responses("word " * 3000)),
    "responses_refused": (RESPONSES, _responses("Be hottest.", temperature=-1)),
}  # fmt: skip

_HEADERS = ("content-type", "cache-control", "retry-after", "x-accel-buffering")
_RULES: tuple[tuple[str, str], ...] = (
    (r"\b(chatcmpl-|cmpl-|msg_|resp_|rs_|req_|fc_|call_|toolu_)[0-9a-zA-Z]{8,}", r"\1ID"),
    (r'"(created|created_at|completed_at)":[0-9.]+', r'"\1":0'),
    (r'"(\w+_ms|\w+_per_second|draft_n|draft_n_accepted)":[0-9.e+-]+', r'"\1":0'),
    (r'"sequence_number":[0-9]+', '"sequence_number":0'),
)
_REPEATED = re.compile(r"(?<=\n\n)((?:: keep-alive|event: (?:ping|response.in_progress)\ndata: [^\n]*)\n\n)(?:\1)+")


def raw(url: str, name: str) -> str:
    """Head and body as curl prints them."""
    path, fields = REQUESTS[name]
    command = ["curl", "--silent", "--show-error", "--include", "--no-buffer", "--max-time", "60", f"{url}{path}",
               "--header", "Content-Type: application/json", "--data-binary", "@-"]  # fmt: skip
    done = subprocess.run(command, input=json.dumps(fields).encode(), capture_output=True, check=True)
    return done.stdout.decode()


def normalised(text: str) -> str:
    """Ids, times, speeds and counts of drafts made equal, and headers that another version of the HTTP library changes.

    How often a client is told to wait depends on the machine, and with that the numbers of events.
    """
    head, _, body = text.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    kept = sorted(line.lower() for line in lines if line.lower().partition(":")[0] in _HEADERS)
    body = re.sub(r'"logprob":(-?[0-9.e+-]+)', lambda found: f'"logprob":{float(found[1]):.3f}', body)
    for pattern, replacement in _RULES:
        body = re.sub(pattern, replacement, body)
    return "\n".join([status, *kept, "", _REPEATED.sub(r"\1", body)])


def numbers(text: str) -> list[int]:
    """The numbers that the events of a stream have."""
    return [int(number) for number in re.findall(r'"sequence_number":([0-9]+)', text)]


def golden(name: str) -> Path:
    """The file of a transcript."""
    return GOLDEN / f"{name}.sse"


def main() -> int:
    """Write all transcripts anew."""
    from demo_server import demo_server

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", required=True, help="write the files in golden/ anew")
    parser.parse_args()
    GOLDEN.mkdir(exist_ok=True)
    with demo_server() as (url, _):
        for name in REQUESTS:
            golden(name).write_bytes(normalised(raw(url, name)).encode())
    for path in GOLDEN.glob("*.sse"):
        if path.stem not in REQUESTS:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
