"""Chat templates against transformers' own rendering, and the sandbox's bounds."""

import time
from typing import Any

import pytest

from strata.errors import RequestError, WeightsError
from strata.text import ChatTemplate
from strata.text.template import CHATML

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Grüße 😀 <b>&</b>"},
    {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
    {"role": "user", "content": "More\nlines"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "ü <>&'", "parameters": {"b": 1, "a": [None]}}}]
TEMPLATES = {
    "chatml": CHATML,
    "qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
    {{- "\\n" }}{{- tool | tojson }}
    {%- endfor %}
    {{- tools | tojson(indent=2) }}<|im_end|>
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == "user" %}{% set ns.last = loop.revindex0 %}{% break %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.reasoning_content is string and loop.index0 > ns.last %}
    <think>{{ message.reasoning_content.strip('\\n') }}</think>
    {%- endif %}
    {%- generation %}<|im_start|>{{ message['role'] }}{{ '\\n' }}{{ message.content | trim }}<|im_end|>
    {%- endgeneration %}
    {%- if loop.index is divisibleby 2 and (loop.index % 2) == 0 %}{{ ' ' * 3 }}{% continue %}{% endif %}
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}, {"tools": TOOLS}])
def test_renders_as_transformers_does(name: str, options: dict[str, Any]) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    for add in (True, False):
        expected, _ = render_jinja_template(
            conversations=[MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=add, **options
        )
        assert ChatTemplate(TEMPLATES[name]).render(MESSAGES, add_generation_prompt=add, options=options) == expected[0]


def test_time_and_tokens_are_given_to_the_template() -> None:
    template = ChatTemplate("{{ bos_token }}{{ strftime_now('%Y') }}{{ eos_token }}", bos_token="<s>", eos_token="</s>")
    assert template.render([]) == f"<s>{time.strftime('%Y')}</s>"


def test_refusal_of_the_template_is_its_own_sentence() -> None:
    with pytest.raises(RequestError, match="refuses these messages: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(MESSAGES)
    with pytest.raises(RequestError, match="failed on these messages"):
        ChatTemplate("{{ messages[0].content + 1 }}").render(MESSAGES)
    with pytest.raises(WeightsError, match=r"m.gguf: the chat template is not valid at line 2"):
        ChatTemplate("\n{% if %}", name="m.gguf")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}{{ messages.__class__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ 'x' * 10000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' | format(1000000000, 1) }}",
        "{{ 'x' | center(10000000000) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'xxxxxxxxxx' }}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_hostile_templates_end_with_an_error(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.text.template.SECONDS", 0.5)
    started = time.monotonic()
    try:
        text = ChatTemplate(source).render(MESSAGES)
    except RequestError:
        text = ""
    assert "class" not in text
    assert "root:" not in text
    assert time.monotonic() - started < 5
