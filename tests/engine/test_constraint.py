"""Grammars enforced by the real engine on the demo model; `json`, `jsonschema` and `re` judge what came out."""

import contextlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import jsonschema
import numpy as np
import pytest

from strata import model as models
from strata.cli.defaults import demo_model
from strata.engine.channel import Inbox
from strata.engine.constraint import Grammars
from strata.engine.loop import Engine, Limits
from strata.engine.opening import open_tokenizer
from strata.engine.protocol import Gen, LaneDone, LaneErr, SlotToken, parse_command
from strata.engine.scheduler import Policy
from strata.errors import RequestError
from strata.memory import Marking, Memory, MemoryLimits, Origin, Sizes
from strata.text.grammar import Grammar

TOKENIZER = open_tokenizer(demo_model())
MODEL = models.load(demo_model(), context=2048, threads=1)
PROMPT = "<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
THINKING = PROMPT.removesuffix("\n</think>\n\n")
SHARED = Grammars(lambda: TOKENIZER, MODEL.vocab_size, MODEL.eos_ids)
CLOSE = TOKENIZER.id_of("</think>")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "first_name": {"enum": ["Zoë", "名", "Max"]},
        "place": {"$ref": "#/$defs/place"},
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "open": {"type": "boolean"},
    },
    "required": ["first_name", "place", "numbers", "open"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 12}, "height": {"type": ["number", "null"]}},
            "required": ["name", "height"],
            "additionalProperties": False,
        }
    },
}
GRAMMARS = [
    Grammar("json_schema", json.dumps(SCHEMA)),
    Grammar("regex", r"[A-Z][a-z]{2,8} (is|was) \d{1,3} m\."),
    Grammar("choice", '["yes", "no/never", "é 😀"]'),
    Grammar("gbnf", 'root ::= item ("," item)? "."\nitem ::= "x" [0-9]+ | "long name"'),
    Grammar("lark", 'start: "a" /[0-9]{1,3}/ "z"'),
]


def fits(grammar: Grammar, text: str) -> bool:
    match grammar.kind:
        case "json_schema":
            jsonschema.validate(json.loads(text), SCHEMA)
            return True
        case "regex":
            return re.fullmatch(grammar.text, text) is not None
        case "choice":
            return text in json.loads(grammar.text)
        case "gbnf":
            return re.fullmatch(r"(x[0-9]+|long name)(,(x[0-9]+|long name))?\.", text) is not None
    return re.fullmatch(r"a[0-9]{1,3}z", text) is not None


def run(*requests: Gen, drafts: int = 0, lookup: int = 0) -> dict[int, Any]:
    """Tokens of every request by its place, or the reason of its refusal; all at once in one engine."""
    policy = Policy(mtp_depth=drafts, lookup_depth=lookup)
    memory = Memory(
        MemoryLimits(1 << 16, 4), Sizes(1 << 20, 1 << 20), Origin("demo", "bf16", "native"),
        lambda: MODEL.new_state(drafts > 0),
    )  # fmt: skip
    told: list[Any] = []
    limits = Limits(2048, tuple(MODEL.eos_ids), Marking(None, 0, 0), policy=policy)
    engine = Engine(MODEL, memory, limits, told.append, grammars=SHARED)
    inbox = Inbox()
    for line in ["LANES", *(with_lane(one, at).format() for at, one in enumerate(requests)), "QUIT"]:
        inbox.put(line)
    engine.run(inbox)
    result: dict[int, Any] = {at: [] for at in range(len(requests))}
    for report in told:
        if isinstance(report, SlotToken):
            result[report.slot].append(report.id)
        elif isinstance(report, LaneErr):
            result[report.slot] = report.reason
        elif isinstance(report, LaneDone):
            assert report.finish in ("stop", "length")
    return result


def with_lane(request: Gen, lane: int) -> Gen:
    values: Mapping[str, Any] = {name: getattr(request, name) for name in Gen.__dataclass_fields__}
    return Gen(**{**values, "slot": lane})


def ask(grammar: Grammar | None, seed: int = 0, most: int = 300, prompt: str = PROMPT, **more: Any) -> Gen:
    ids = tuple(TOKENIZER.encode(prompt, parse_special=True))
    return Gen(most, ids, temperature=float(seed > 0), top_k=0, seed=seed, grammar=grammar, **more)


def text_of(tokens: list[int]) -> str:
    assert tokens[-1] in MODEL.eos_ids
    return TOKENIZER.decode(tokens[:-1])


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda one: one.kind)
def test_a_reply_is_what_its_grammar_says(grammar: Grammar) -> None:
    replies = run(*(ask(grammar, seed) for seed in range(6)))
    texts = [text_of(tokens) for tokens in replies.values()]
    assert all(fits(grammar, text) for text in texts), texts
    if grammar.kind == "json_schema":
        assert len(set(texts)) > 1, "the model still chooses"


def test_drafts_and_company_change_no_token() -> None:
    requests = [ask(grammar, seed) for seed in (0, 7) for grammar in (*GRAMMARS[:3], None)]
    alone = [run(one)[0] for one in requests]
    for drafts, lookup in ((0, 0), (3, 0), (0, 6), (3, 6)):
        assert list(run(*requests, drafts=drafts, lookup=lookup).values()) == alone


def test_a_mask_is_what_a_trial_of_every_token_says() -> None:
    pattern = r"(ab|cd){1,3}[0-9]{2}(the|then)?"
    constraint = Grammars(lambda: TOKENIZER, MODEL.vocab_size, MODEL.eos_ids).constraint(Grammar("regex", pattern))
    whole = {a + n + b for a in _heads() for n in (f"{i:02d}" for i in range(100)) for b in ("", "the", "then")}
    beginnings = {text[:end] for text in whole for end in range(len(text) + 1)}
    rng = np.random.default_rng(3)
    written = ""
    while True:
        allowed = constraint.allowed()
        expected = {
            n for n in range(TOKENIZER.size)
            if TOKENIZER.vocabulary.types[n] == 1 and written + TOKENIZER.decode([n]) in beginnings
        }  # fmt: skip
        if written in whole:
            expected |= set(MODEL.eos_ids)
        assert set(np.nonzero(allowed)[0].tolist()) >= expected - set(MODEL.eos_ids)
        ends = {int(n) for n in np.nonzero(allowed)[0]} - expected
        assert not ends
        assert {n for n in MODEL.eos_ids if allowed[n]} == (set(MODEL.eos_ids) if written in whole else set())
        choices = sorted(expected - set(MODEL.eos_ids))
        if not choices:
            return
        token = int(rng.choice(choices))
        constraint.advance(token)
        written += TOKENIZER.decode([token])


def _heads() -> list[str]:
    one = ["ab", "cd"]
    two = [a + b for a in one for b in one]
    return one + two + [a + b for a in two for b in one]


def test_the_grammar_begins_after_the_thinking() -> None:
    assert CLOSE is not None
    for seed in (0, 3):
        bias = ((CLOSE, 12.0),)
        (tokens,) = run(
            ask(GRAMMARS[0], seed, 900, THINKING, grammar_after=CLOSE, logit_bias=bias)
        ).values()
        at = tokens.index(CLOSE)
        assert not set(tokens[:at]) & set(MODEL.eos_ids)
        jsonschema.validate(json.loads(text_of(tokens[at + 1 :])), SCHEMA)


def test_a_reply_may_end_without_the_token_that_an_optional_grammar_waits_for() -> None:
    call = TOKENIZER.id_of("<tool_call>")
    assert call is not None
    grammar = Grammar("lark", 'start: "\\nx" </tool_call>')
    free, held, forced = run(
        ask(None), ask(grammar, grammar_after=call, grammar_optional=True),
        ask(grammar, grammar_after=call, grammar_optional=True, logit_bias=((call, 100.0),)),
    ).values()  # fmt: skip
    assert held == free
    assert text_of(forced) == "<tool_call>\nx</tool_call>"
    assert parse_command(ask(grammar, grammar_after=call, grammar_optional=True).format()).grammar_optional


def test_a_cut_reply_is_the_beginning_of_the_whole() -> None:
    cut, whole = run(ask(GRAMMARS[0], 5, most=4), ask(GRAMMARS[0], 5)).values()
    assert cut == whole[:4]


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Grammar("json_schema", '{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (Grammar("json_schema", '{"type": "strin"}'), "strin"),
        (Grammar("json_schema", "{"), "Expecting"),
        (Grammar("json_schema", '"' + "x" * (300 << 10) + '"'), "262144 bytes"),
        (Grammar("regex", "("), "unclosed"),
        (Grammar("choice", "[]"), "choices"),
        (Grammar("gbnf", "root = 3"), "::="),
        (Grammar("lark", "start: <nothing>"), "special token"),
        (Grammar("lark", "start: x\nx: nothing"), 'unknown name: "nothing"'),
        (Grammar("json_schema", '{"$ref": "#"}'), "no text fits it"),
        (Grammar("gbnf", 'root ::= root "a"'), "no text fits it"),
        (Grammar("regex", "a{1000000000}"), "followed any further"),
        (Grammar("json_schema", json.dumps({"enum": [{"a": n} for n in range(4000)]})), "max is 2000"),
        (Grammar("lark", 'start: x "q"\nx[lazy]: /.*/'), "followed any further"),
    ],
)
def test_a_wrong_grammar_ends_its_request_only(grammar: Grammar, reason: str) -> None:
    refused, served = run(ask(grammar), ask(None, most=3)).values()
    assert refused.startswith("bad request: grammar: ")
    assert reason in refused
    assert "\n" not in refused
    assert " | " not in refused
    assert len(served) == 3


def test_a_bias_against_all_that_is_allowed_is_refused() -> None:
    ids = {n for n in range(TOKENIZER.size) if TOKENIZER.token_bytes(n)[:1] in (b"y", b"n")}
    ids |= {TOKENIZER.encode("é 😀")[0], *(n for n in range(TOKENIZER.size) if TOKENIZER.token_bytes(n)[:1] == b"\xc3")}
    (reason,) = run(ask(GRAMMARS[2], logit_bias=tuple((n, float("-inf")) for n in sorted(ids)))).values()
    assert "logit_bias" in reason


def test_a_huge_schema_is_compiled_or_refused_in_time() -> None:
    wide = {"type": "object", "properties": {f"key{n}": {"type": "string"} for n in range(4000)}}
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep, "b": deep}} if len(json.dumps(deep)) < 1 << 16 else deep
    grammars = Grammars(lambda: TOKENIZER, MODEL.vocab_size, MODEL.eos_ids)
    for schema in (wide, deep):
        begun = time.monotonic()
        with contextlib.suppress(RequestError):
            assert grammars.constraint(Grammar("json_schema", json.dumps(schema))).allowed().any()
        assert time.monotonic() - begun < 10


def test_a_refusal_is_remembered() -> None:
    heavy = Grammar("lark", f"start: /{'a?' * 4000}{'a' * 4000}/")
    grammars = Grammars(lambda: TOKENIZER, MODEL.vocab_size, MODEL.eos_ids)
    grammars.constraint(GRAMMARS[0])
    took, reasons = [], set()
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(RequestError, match="precomputation") as refused:
            grammars.constraint(heavy)
        took.append(time.monotonic() - begun)
        reasons.add(str(refused.value))
    assert took[1] < took[0] / 5
    assert len(reasons) == 1


def test_any_number_of_choices() -> None:
    choices = [f"w{number}" for number in range(16_000)]
    (said,) = run(ask(Grammar("choice", json.dumps(choices)), 3)).values()
    assert text_of(said) in choices


def test_a_long_text_that_has_to_come_is_found_once() -> None:
    grammars = Grammars(lambda: TOKENIZER, MODEL.vocab_size, MODEL.eos_ids)
    constraint = grammars.constraint(Grammar("choice", json.dumps(["xy" * 50_000])))
    assert TOKENIZER.decode(constraint.forced(3)).startswith("x")
    assert constraint.forced(3) == ()
    short = grammars.constraint(Grammar("choice", json.dumps(["xy" * 500])))
    assert short.forced(3) == short.forced(3) != ()


def test_the_line_carries_a_grammar() -> None:
    for grammar in (*GRAMMARS, Grammar("json_object")):
        request = ask(grammar, grammar_after=5)
        assert parse_command(request.format()) == request
    with pytest.raises(RequestError, match="is none of"):
        parse_command("GEN 3 grammar=yaml: 1")
    with pytest.raises(RequestError, match="base64url"):
        parse_command("GEN 3 grammar=regex:a*b 1")
