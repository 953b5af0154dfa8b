"""The OpenAI Responses form of requests (https://platform.openai.com/docs/api-reference/responses).

Fields that this server does not know are allowed. Those that would change the answer and are not implemented are
refused by name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.fields import Node, SamplingFields, decode, top_logprobs
from strata.server.generation import Ask
from strata.server.problem import FieldError
from strata.server.responses_tools import Offered, offered
from strata.server.sampling import Sampling
from strata.server.structured import schema_of
from strata.text.grammar import Grammar

SUMMARIES = ("auto", "concise", "detailed", "none")
ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
# What else clients may ask to include: parts of items that this server never makes.
_MOOT = ("web_search_call.action.sources", "web_search_call.results", "code_interpreter_call.outputs",
         "computer_call_output.output.image_url", "file_search_call.results",
         "message.input_image.image_url")  # fmt: skip


class ResponsesRequest(SamplingFields):
    """The implemented fields of POST /v1/responses."""

    input: str | list[dict[str, Any]] | None = None
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None
    top_logprobs: int | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def summarises(self) -> bool:
        """Whether the thinking is wanted as a summary: this server gives all of it there."""
        wanted = (self.reasoning or {}).get("summary") or (self.reasoning or {}).get("generate_summary")
        return wanted not in (None, "none")

    @property
    def carries_thinking(self) -> bool:
        """Whether the client carries the thinking to later turns as a text that it does not read."""
        return ENCRYPTED in (self.include or ())


def parse(body: bytes) -> ResponsesRequest:
    """A request from its JSON body. Raises FieldError."""
    request = decode(body, ResponsesRequest)
    for name in ("background", "conversation", "prompt"):
        if getattr(request, name):
            raise FieldError(
                f"{name} is not implemented by this server; leave it out.", name, "unsupported_parameter"
            )
    if request.input is None or request.input == []:
        raise FieldError("input must be a text or a list of at least one item.", "input")
    if request.truncation not in (None, "auto", "disabled"):
        raise FieldError(f"truncation must be auto or disabled, not {request.truncation!r}.", "truncation")
    for index, wanted in enumerate(request.include or ()):
        if wanted not in (ENCRYPTED, LOGPROBS, *_MOOT):
            raise FieldError(f"include[{index}]: {wanted!r} is unknown.", f"include[{index}]")
    if request.max_output_tokens is not None and request.max_output_tokens < 1:
        raise FieldError(
            f"max_output_tokens must be at least 1, not {request.max_output_tokens}.", "max_output_tokens"
        )
    return request


def tools_of(request: ResponsesRequest) -> Offered:
    """The tools that the model may call. Raises FieldError."""
    return offered(request.tools or (), request.tool_choice, parallel=request.parallel_tool_calls is not False)


def to_ask(
    request: ResponsesRequest, messages: Sequence[Mapping[str, Any]], tools: Offered, defaults: Sampling
) -> Ask:
    """The neutral form of a request whose conversation is `messages`, without its instructions. Raises FieldError."""
    instructions = [{"role": "system", "content": request.instructions}] if request.instructions else []
    return Ask(
        messages=[*instructions, *messages],
        sampling=request.sampling(defaults),
        max_tokens=request.max_output_tokens,
        effort=_effort(request),
        logprobs=_logprobs(request),
        tools=tools.tools,
        tool_choice=tools.choice,
        grammar=_grammar(request),
    )


def _effort(request: ResponsesRequest) -> str | None:
    if request.reasoning is None:
        return None
    node = Node(request.reasoning, "reasoning")
    for name in ("summary", "generate_summary"):
        if node.value.get(name) is not None:
            node.one_of(name, SUMMARIES)
    return node.text_or("effort", None)


def _logprobs(request: ResponsesRequest) -> int | None:
    top = top_logprobs(request.top_logprobs)
    return top if top or LOGPROBS in (request.include or ()) else None


def _grammar(request: ResponsesRequest) -> Grammar | None:
    node = Node(request.text or {}, "text")
    if node.value.get("verbosity") is not None:
        node.one_of("verbosity", ("low", "medium", "high"))
    if node.value.get("format") is None:
        return None
    form = node.node("format")
    kind = form.one_of("type", ("text", "json_object", "json_schema"))
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar("json_object")
    form.text("name")
    return schema_of(form)
