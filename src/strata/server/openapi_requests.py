"""What the description says of the fields of requests, beside the types of the classes that read them.

Requests allow further fields, as those classes do.
"""

from collections.abc import Mapping

from strata.server.anthropic import EFFORTS
from strata.server.fields import MOST_LOGPROBS
from strata.server.openai import MOST_CHOICES
from strata.server.openapi_parts import Schema, array, const, either, limited, shape, words

_LARGEST = 2**31 - 1
SAMPLING: Schema = {
    "temperature": limited("number", 0, 100, "0: always the likeliest token."),
    "top_p": limited("number", 0, 1, "Keep the likeliest tokens of this total."),
    "min_p": limited("number", 0, 1, "Keep tokens of this share of the likeliest."),
    "top_k": limited("integer", None, _LARGEST, "Keep so many tokens; 0 or less: all."),
    "seed": limited("integer", -(2**63), 2**64 - 1, "The same seed and prompt give the same text."),
    "presence_penalty": limited("number", -2, 2, "For tokens that were there."),
    "frequency_penalty": limited("number", -2, 2, "For tokens, as often as they were there."),
    "repetition_penalty": limited("number", 0.01, 100, "1: none."),
    "penalty_last_n": limited("integer", -1, _LARGEST, "Tokens that penalties look back at; -1: all."),
}
_JSON_SCHEMA: Schema = {"type": ["object", "boolean", "null"], "description": "A JSON schema that the reply obeys."}
_GRAMMARS: Schema = {
    "response_format": either(
        shape({"type": words("text", "json_object")}),
        shape({"type": const("json_schema"), "json_schema": shape({"name": "string", "schema": "object"})}), "null",
    ),
    "json_schema": _JSON_SCHEMA, "guided_json": _JSON_SCHEMA,
    "grammar": {"type": ["string", "null"], "description": "A grammar in llama.cpp's GBNF that the reply obeys."},
    "guided_regex": {"type": ["string", "null"], "description": "A regular expression that all of the reply matches."},
    "guided_choice": either(array("string", 1), "null"),
    "guided_grammar": {"type": ["string", "null"], "description": "A grammar in GBNF, or llguidance's Lark form."},
    "structured_outputs": {"type": ["object", "null"], "description": "One of the keys json, regex, choice, grammar."},
}  # fmt: skip
_WORD: Schema = {"type": "string", "minLength": 1}
_STOPS = either(_WORD, array(_WORD), "null")
_OPENAI: Schema = {
    **SAMPLING, "repeat_penalty": SAMPLING["repetition_penalty"], **_GRAMMARS, "stop": _STOPS,
    "n": limited("integer", 1, MOST_CHOICES, "How many replies."),
    "max_tokens": limited("integer", -1, None, "-1 or 0: what the context has room for."),
    "logit_bias": {
        "type": ["object", "null"], "propertyNames": {"pattern": "^[0-9]{1,10}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        "description": "Added to the logits of tokens, by their ids.",
    },
}  # fmt: skip
_TEXT_PART = shape({"type": words("text", "input_text", "output_text"), "text": "string"})
_CONTENT = either("string", array(_TEXT_PART))
_FUNCTION = shape({"name": "string", "arguments": "string"})
_CALL = shape({"id": "string", "function": _FUNCTION}, type=const("function"))
_CHAT_MESSAGES = array(either(
    shape({"role": words("system", "developer", "user"), "content": _CONTENT}),
    shape({"role": const("assistant")}, content=either(_CONTENT, "null"), reasoning_content="string?",
          tool_calls=either(array(_CALL), "null")),
    shape({"role": const("tool"), "content": _CONTENT, "tool_call_id": "string"}),
), 1)  # fmt: skip
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_CHAT_TOOL = shape({
    "type": const("function"), "function": shape({"name": _NAME}, description="string?", parameters="object?"),
})  # fmt: skip
_EFFORT = words("none", "off", "minimal", "disabled", "low", "medium", "high", "xhigh", "max")
_BUDGET = limited("integer", -1, None, "Tokens of thinking, at most; -1: no limit.")
_TOP_LOGPROBS = limited("integer", 0, MOST_LOGPROBS, "Of so many of the likeliest tokens.")
_TEXT_BLOCK = shape({"type": const("text"), "text": "string"})
_RESULT = either("string", array(_TEXT_BLOCK))
_RESULT_BLOCK = shape({"type": const("tool_result"), "tool_use_id": "string"}, content=_RESULT)
_REPLY_BLOCK = either(
    _TEXT_BLOCK, shape({"type": const("thinking"), "thinking": "string", "signature": "string"}),
    shape({"type": const("tool_use"), "id": "string", "name": "string", "input": "object"}),
)
_TURNS = array(either(
    shape({"role": const("user"), "content": either("string", array(either(_TEXT_BLOCK, _RESULT_BLOCK)))}),
    shape({"role": const("assistant"), "content": either("string", array(_REPLY_BLOCK))}),
    shape({"role": const("system"), "content": either("string", array(_TEXT_BLOCK))}),
), 1)  # fmt: skip
_ITEM = either(
    shape({"role": words("user", "assistant", "system", "developer"), "content": _CONTENT}, type=const("message")),
    shape({"type": const("reasoning")}, summary=array("object"), encrypted_content="string?"),
    shape({"type": const("function_call"), "call_id": "string", "name": "string", "arguments": "string"}),
    shape({"type": const("function_call_output"), "call_id": "string", "output": _CONTENT}),
    shape({"type": const("custom_tool_call"), "call_id": "string", "name": "string", "input": "string"}),
    shape({"type": const("custom_tool_call_output"), "call_id": "string", "output": _CONTENT}),
)
_NOT_IMPLEMENTED: Schema = {"type": "null", "description": "Not implemented."}

FIELDS: Mapping[str, Schema] = {
    "ChatRequest": {
        **_OPENAI, "messages": _CHAT_MESSAGES, "tools": either(array(_CHAT_TOOL), "null"),
        "tool_choice": either(words("auto", "none", "required"), "object", "null"), "top_logprobs": _TOP_LOGPROBS,
        "max_completion_tokens": _OPENAI["max_tokens"], "reasoning_effort": either(_EFFORT, "null"),
        "reasoning_budget_tokens": _BUDGET, "thinking_budget_tokens": _BUDGET, "thinking_budget": _BUDGET,
        "chat_template_kwargs": {"type": ["object", "null"], "description": "Names for the model's chat template."},
    },
    "CompletionRequest": {
        **_OPENAI, "logprobs": limited("integer", 0, 5),
        "best_of": {"type": ["integer", "null"], "description": "1, or as n."},
        "prompt": {
            **either("string", array("integer", 1), array("string", 1), array(array("integer", 1), 1)),
            "description": "Texts, or ids of tokens.",
        },
    },
    "MessagesRequest": {
        **SAMPLING, "stop_sequences": either(array(_WORD), "null"), "mcp_servers": _NOT_IMPLEMENTED,
        "max_tokens": limited("integer", 1, None, "Required where a reply is asked for."),
        "messages": {**_TURNS, "description": "The last is the user's."},
        "system": either("string", array(_TEXT_BLOCK), "null"),
        "thinking": either(
            shape({"type": words("disabled", "adaptive")}),
            shape({"type": const("enabled"), "budget_tokens": {"type": "integer", "minimum": 1}}), "null",
        ),
        "tools": either(array(shape({"name": _NAME, "input_schema": "object"}, description="string?")), "null"),
        "tool_choice": either(
            shape({"type": words("auto", "any", "none")}), shape({"type": const("tool"), "name": _NAME}), "null"
        ),
        "output_config": either(shape({}, effort=words(*EFFORTS)), "null"), "container": _NOT_IMPLEMENTED,
    },
    "ResponsesRequest": {
        **SAMPLING, "input": either("string", array(_ITEM, 1)), "top_logprobs": _TOP_LOGPROBS,
        "truncation": either(words("auto", "disabled"), "null"), "max_output_tokens": limited("integer", 1, None),
        "background": {"enum": [False, None]}, "conversation": _NOT_IMPLEMENTED, "prompt": _NOT_IMPLEMENTED,
        "include": either(array(words("reasoning.encrypted_content", "message.output_text.logprobs")), "null"),
        "reasoning": either(shape({}, effort=either(_EFFORT, "null")), "null"),
        "tools": either(array(either(
            shape({"type": const("function"), "name": _NAME}, description="string?", parameters="object?"),
            shape({"type": const("custom"), "name": _NAME}, description="string?"),
        )), "null"),
        "tool_choice": either(words("auto", "none", "required"), "object", "null"),
        "text": either(shape({}, format=shape({"type": words("text", "json_object")})), "null"),
    },
    "DetokenizeRequest": {"tokens": array({"type": "integer", "minimum": 0})},
}  # fmt: skip
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "CompletionRequest": ("prompt",), "MessagesRequest": ("messages",), "ResponsesRequest": ("input",),
}  # fmt: skip
"""Fields whose absence is found by other readers than the types."""
