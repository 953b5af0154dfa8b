"""JSON schemas of what the server answers; answers may hold more than is named."""

from collections.abc import Mapping

from strata.server.openapi_parts import Schema, array, const, either, shape, words

_USAGE = shape({"prompt_tokens": "integer", "completion_tokens": "integer", "total_tokens": "integer"})
_REPLY_HEAD = {"id": "string", "created": "integer", "model": "string", "usage": _USAGE}
_FINISH: Schema = words("stop", "length", "tool_calls")
_MODEL = {"id": "string", "object": const("model"), "created": "integer", "owned_by": "string", "meta": "object"}
_LIST = {"object": const("list"), "has_more": "boolean"}

ANSWERS: Mapping[str, Schema] = {
    "Error": shape({
        "error": shape({"message": "string", "type": "string", "param": "string?", "code": "string?"}),
    }),
    "MessagesError": shape({
        "type": const("error"), "error": shape({"type": "string", "message": "string"}), "request_id": "string?",
    }),
    "ChatCompletion": shape({
        **_REPLY_HEAD, "object": const("chat.completion"),
        "choices": array(shape({
            "index": "integer", "finish_reason": _FINISH,
            "message": shape({"role": const("assistant"), "content": "string?"}),
        })),
    }, timings="object", truncated="boolean"),
    "Completion": shape({
        **_REPLY_HEAD, "object": const("text_completion"),
        "choices": array(shape({"index": "integer", "finish_reason": _FINISH, "text": "string"})),
    }, timings="object", truncated="boolean"),
    "Message": shape({
        "id": "string", "type": const("message"), "role": const("assistant"), "model": "string",
        "content": array(shape({"type": words("text", "thinking", "tool_use")})),
        "stop_reason": words("end_turn", "max_tokens", "stop_sequence", "tool_use"), "stop_sequence": "string?",
        "usage": shape({"input_tokens": "integer", "output_tokens": "integer", "cache_read_input_tokens": "integer"}),
    }),
    "InputTokens": shape({"input_tokens": "integer"}),
    "Response": shape({
        "id": "string", "object": const("response"), "created_at": "integer", "model": "string",
        "status": words("completed", "incomplete", "failed", "in_progress"), "output": array("object"),
        "error": "object?", "incomplete_details": "object?", "usage": "object?",
    }),
    "ResponseItems": shape({**_LIST, "data": array("object"), "first_id": "string", "last_id": "string"}),
    "Deleted": shape({"id": "string", "object": "string", "deleted": "boolean"}),
    "Model": shape(_MODEL, architecture="string?", status="object", aliases=array("string"), alias_of="string?"),
    "Models": shape({**_LIST, "data": array(shape(_MODEL))}),
    "Health": shape({
        "status": words("ok", "starting", "failed", "closed"), "service": const("strata"), "model": "string",
        "max_context": "integer?", "loaded": "boolean", "api_key": "boolean",
    }),
    "Status": shape({
        "service": const("strata"), "version": "string", "model": "string", "loaded": "boolean", "engine": "object",
        "uptime_s": "integer", "context": shape({"native": "integer?", "max_positions": "integer?"}),
        "concurrency": shape({"serving": "integer?", "requested": "integer?", "max_waiting": "integer"}),
        "structured_output": array("string"), "dialects": array("string"), "activity": "object",
        "last_timings": "object?", "vram": "object?", "machine": "object",
    }),
    "Now": shape({
        "busy": "boolean", "queued": "integer", "phase": "string?", "prompt_tokens": "integer", "generated": "integer",
        "elapsed_s": "number", "tokens_per_s": "number",
    }),
    "Slots": array(shape({"id": "integer", "n_ctx": "integer?", "is_processing": "boolean", "state": "string"})),
    "Props": shape({
        "default_generation_settings": "object", "total_slots": "integer", "model_alias": "string",
        "chat_template": "string",
    }),
    "Metrics": shape({
        "engine": "object", "live": shape({"state": "string", "running": "integer", "waiting": "integer",
                                             "slots": array("object"), "kv_pool": "object?"}),
        "requests": array("object"), "totals": "object", "conversation_cache": "object", "hardware": "object",
        "history": "object", "time": "number",
    }),
    "Version": shape({"version": "string", "engine": "string?"}),
    "Tokens": shape({"tokens": {"type": "array", "items": {"anyOf": [
        {"type": "integer"},
        shape({"id": "integer", "piece": either("string", array("integer"))}),
    ]}}}),
    "Text": shape({"content": "string"}),
    "Document": shape({"openapi": "string", "info": "object", "paths": "object"}),
}  # fmt: skip
