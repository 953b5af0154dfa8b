"""One generated conversation, how it is asked and how an answer is judged."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..chat import generation_prompt, render


@dataclass
class Sample:
    """A conversation that ends with the assistant's answer.

    `expect` is judged by `rule`: "word" (appears as a whole word or phrase, any case), "any" (one of several phrases
    does), "contains" (appears anywhere), "exact" (the
    whole answer), "json" (parses to this value) or "call" (a tool call with this name and these arguments).
    """

    kind: str
    messages: list[dict[str, Any]]
    expect: Any
    rule: str = "word"
    tools: list[dict[str, Any]] | None = None
    thinking: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        last = {**self.messages[-1]}
        if self.thinking:
            last["reasoning_content"] = self.thinking
        return render([*self.messages[:-1], last], self.tools)

    def prompt(self) -> str:
        return render(self.messages[:-1], self.tools) + generation_prompt(bool(self.thinking))

    def key(self) -> str:
        """What decides whether the sample is held out: everything that the model is shown, but its long filler."""
        return self.extra.get("key") or self.prompt()

    def accepts(self, answer: str) -> bool:
        answer = answer.split("</think>")[-1].strip()
        if self.rule == "exact":
            return answer == self.expect
        if self.rule == "contains":
            return self.expect in answer
        if self.rule == "json":
            return _json(answer) == self.expect
        if self.rule == "call":
            return _call(answer) == self.expect
        phrases = self.expect if self.rule == "any" else [self.expect]
        return any(re.search(rf"(?<!\w){re.escape(str(p))}(?!\w)", answer, re.IGNORECASE) for p in phrases)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _call(text: str) -> Any:
    found = re.search(r"<tool_call>\n<function=(\w+)>\n(.*?)</function>\n</tool_call>", text, re.DOTALL)
    if not found:
        return None
    arguments = re.findall(r"<parameter=(\w+)>\n(.*?)\n</parameter>\n", found[2], re.DOTALL)
    return {"name": found[1], "arguments": dict(arguments)}


def chat(kind: str, question: str, answer: str, expect: Any, **rest: Any) -> Sample:
    """A conversation of one question and its answer."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Sample(kind, turns, expect, **rest)
