"""A long prompt read while two slots decode, a read that gives way, and turns continued from their slots.

Each must give the tokens that it gives alone. Exit code 0: all as it should be; 2: something differs; 1: the engine
broke the protocol.
"""

import argparse
import re
from dataclasses import dataclass

from engine_client import Engine, Request
from engine_config import Config, engine_arguments, run_script
from script_prompts import REPLY, Checks, encode, first_turn, long_text, next_turn

from strata.text import Tokenizer

SLOTS = 3
STOPPED_AFTER = 50
LOG_WORDS = ("gave back", "its turn checkpoint", "takes", "the prompt was read in", "gives way", "drafts accepted")


@dataclass(frozen=True)
class Alone:
    """The conversations, and what each gets alone: `a2` and `a3` are the next turns of `a`, `f` another path of it."""

    prompts: dict[str, list[int]]
    tokens: dict[str, list[int]]


def run_alone(engine: Engine, tokenizer: Tokenizer, options: argparse.Namespace) -> Alone:
    """Every prompt as a GEN, in the order that leaves A and B and then the long C and D replaced."""
    prompts: dict[str, list[int]] = {}
    tokens: dict[str, list[int]] = {}

    def ask(name: str, ids: list[int]) -> None:
        prompts[name] = ids
        tokens[name] = engine.ask(options.max_new, ids).tokens

    size = long_size(engine, options)
    ask("a", encode(tokenizer, first_turn("Tell me a long story about a lighthouse keeper and the sea.")))
    ask("a2", [*prompts["a"], *tokens["a"], *next_turn(tokenizer, tokens["a"], "And what happened the year after?")])
    ask("a3", [*prompts["a2"], *tokens["a2"], *next_turn(tokenizer, tokens["a2"], "Who told you that?")])
    opening = len(prompts["a"]) - len(encode(tokenizer, REPLY))
    other = "<|im_start|>assistant\nI do not know one.<|im_end|>\n" + first_turn("Then make one up, please.")
    ask("f", [*prompts["a"][:opening], *encode(tokenizer, other)])
    ask("b", encode(tokenizer, first_turn("Explain how a steam engine works, step by step.")))
    ask("c", encode(tokenizer, first_turn(f"{long_text(tokenizer, 'C', size)}\n\nWho carried bread?")))
    ask("d", encode(tokenizer, first_turn(f"{long_text(tokenizer, 'D', size)}\n\nWhat waited for the tide?")))
    ask("e", encode(tokenizer, first_turn("Count up from 1 to 100.")))
    print(f"alone: {', '.join(f'{n} {len(prompts[n])}+{len(tokens[n])}' for n in prompts)} tokens (prompt+written)")
    return Alone(prompts, tokens)


def long_size(engine: Engine, options: argparse.Namespace) -> int:
    """Tokens of the long texts: `--long`, or what the context leaves room for."""
    wanted: int = options.long
    room = engine.context - options.max_new - 8 - 64
    if wanted > room:
        print(f"the long prompts have {room} tokens instead of {wanted}: the context is {engine.context}")
    return wanted if wanted < room else room


def reads_beside(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """A and B decode while the long C is read."""
    a = engine.admit(0, max_new, alone.prompts["a"])
    b = engine.admit(1, max_new, alone.prompts["b"])
    c = engine.admit(2, max_new, alone.prompts["c"])
    windows, busy = len(c.progress), len(engine.slots) - 1
    if busy and windows > 2:
        checks.true(c.meanwhile > 0, f"the other slots got {c.meanwhile} tokens in the {windows} windows that read C")
    else:
        print(f"note: C was read in {windows} windows, {busy} other slots decoded to its end")
    engine.finish(a, b, c)
    for name, request in (("a", a), ("b", b), ("c", c)):
        checks.same(f"{name.upper()} in slot {request.slot} and alone", alone.tokens[name], request.tokens)


def reuses(checks: Checks, name: str, request: Request, least: int) -> None:
    """The request must say that it goes on from at least so many tokens."""
    said = "said no REUSED" if request.reused is None else f"reused {request.reused}"
    checks.true((request.reused or 0) >= least, f"{name} {said} of {request.prompt} prompt tokens, at least {least}")


def next_turn_in_slot(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """A's next turn goes on from slot 0, which holds A."""
    request = engine.admit(0, max_new, alone.prompts["a2"])
    engine.finish(request)
    checks.same("A's next turn in slot 0 and alone", alone.tokens["a2"], request.tokens)
    reuses(checks, "A's next turn", request, len(alone.prompts["a"]) + len(alone.tokens["a"]) - 1)


def gives_way(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """The read of D gives way to E, and goes on from where it was."""
    part = engine.admit(2, max_new, alone.prompts["d"], gives_way=True)
    reached = part.progress[0] if part.progress else (0, 0)
    if not part.progress or reached[0] == reached[1]:
        checks.true(
            False,
            f"D was read without a PP before its end (reused {part.reused or 0} of {part.prompt} tokens): no solo "
            "conversation may be kept that another replaced, and windows must be smaller than the prompt",
        )
    yielded = "no YIELDED" if part.yielded is None else f"YIELDED {part.yielded}"
    checks.true(part.yielded is not None, f"BYIELD after {reached[0]} of {reached[1]} tokens of D: {yielded}")
    finish = part.done[4] if part.done else "none"
    checks.true(finish == "cancel" and part.admitted is False, f"the read of D ended as {finish}, not admitted")
    engine.finish(part)
    e = engine.admit(1, max_new, alone.prompts["e"])
    d = engine.admit(2, max_new, alone.prompts["d"])
    engine.finish(d, e)
    checks.same("E in slot 1 and alone", alone.tokens["e"], e.tokens)
    checks.same("D, which gave way, and alone", alone.tokens["d"], d.tokens)
    if part.yielded:
        reuses(checks, "D", d, part.yielded)


def back_to_solo(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """A in slot 1 is stopped and goes on alone."""
    stop_after = min(STOPPED_AFTER, len(alone.tokens["a"]) // 2)
    request = engine.admit(1, max_new, alone.prompts["a"])
    while request.finish is None and len(request.tokens) < stop_after:
        engine.take()
    engine.send("BSTOP 1")
    engine.finish(request)
    checks.true(
        request.finish == "cancel", f"BSTOP after {stop_after} tokens: {request.finish} with {len(request.tokens)}"
    )
    rest = engine.ask(max_new - len(request.tokens), [*alone.prompts["a"], *request.tokens])
    checks.same("A from its slot back to solo, and alone", alone.tokens["a"], [*request.tokens, *rest.tokens])
    reuses(checks, "A's rest", rest, len(alone.prompts["a"]) + len(request.tokens) - 1)


def solo_from_slot(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """A's third turn as a GEN, from slot 0, which still holds the second."""
    request = engine.ask(max_new, alone.prompts["a3"])
    checks.same("A's third turn from slot 0, and alone", alone.tokens["a3"], request.tokens)
    reuses(checks, "A's third turn", request, len(alone.prompts["a2"]) + len(alone.tokens["a2"]) - 1)
    drafts = (request.done or [])[5:7]
    checks.true(len(drafts) == 2, f"its DONE says how many drafts were accepted and offered: {' of '.join(drafts)}")


def other_path(engine: Engine, alone: Alone, checks: Checks, max_new: int) -> None:
    """F shares A up to the reply's opening, where the checkpoint of the turn is."""
    request = engine.admit(2, max_new, alone.prompts["f"])
    engine.finish(request)
    checks.same("F from the checkpoint of A's turn, and alone", alone.tokens["f"], request.tokens)
    print(f"note: F reused {request.reused or 0} of {request.prompt} prompt tokens")


def main() -> int:
    """Run the test; the exit code."""
    parser = engine_arguments(__doc__, max_new=200)
    parser.add_argument("--long", type=int, default=5000, help="tokens of the long prompts (default: 5000)")
    options = parser.parse_args()
    if options.max_new < 8 or options.long < 100:
        parser.error(f"--max-new {options.max_new} --long {options.long}: at least 8 and 100")
    config, checks = Config.from_options(options), Checks()
    tokenizer = config.read_tokenizer()
    environment = {"STRATA_IQ_MT_MIN": "1"}
    with Engine(
        config, batch=SLOTS, extra=options.extra, silence_s=options.timeout, env=environment
    ) as engine:
        alone = run_alone(engine, tokenizer, options)
        for step in (reads_beside, next_turn_in_slot, gives_way, back_to_solo, solo_from_slot, other_path):
            step(engine, alone, checks, options.max_new)
    counts = {word: len(re.findall(re.escape(word), engine.log)) for word in LOG_WORDS}
    print("in the log: " + ", ".join(f"{word!r} {count} times" for word, count in counts.items()))
    return checks.code


if __name__ == "__main__":
    run_script(main)
