"""The same prompts alone (GEN) and together in the slots (BGEN): the tokens of each must be the same.

Exit code 0: the same; 2: they differ; 1: the engine broke the protocol. With sampling (`--keys "temperature=0.7 ..."`)
a `seed=N` belongs to it, or every request draws by the clock.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from engine_client import Engine, Request
from engine_config import BrokenProtocol, Config, engine_arguments, run_script
from script_prompts import Checks, encode, first_turn, long_text, question

from strata.text import Tokenizer


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = engine_arguments(__doc__, max_new=64)
    parser.add_argument("--batch", type=int, default=4, help="slots of the engine (default: 4)")
    parser.add_argument("--n", type=int, default=4, help="prompts, one a slot (default: 4)")
    parser.add_argument("--skip-solo", action="store_true", help="only together: measures, compares nothing")
    parser.add_argument("--keys", default="", help="keys of every request, as `temperature=0.7 seed=5`")
    parser.add_argument("--dump", help="write all tokens into this JSON file")
    parser.add_argument("--long-tokens", type=int, default=0, help="put a text of about N tokens into each prompt")
    parser.add_argument("--mt-min", type=int, default=1, help="STRATA_IQ_MT_MIN, for engines that know it (default: 1)")
    parser.add_argument("--stagger-after", default="", metavar="A,B,...",
                        help="admit slots 1, 2, ... when slot 0 has so many tokens")
    parser.add_argument("--promote-after", type=int, default=0, metavar="K",
                        help="slot 0 starts alone (GEN), is stopped after K tokens and goes on in its slot")
    options = parser.parse_args()
    if not 1 <= options.n <= options.batch or options.max_new < 1:
        parser.error(f"--n {options.n} --batch {options.batch}: one to as many prompts as slots, and --max-new above 0")
    if not 0 <= options.promote_after < options.max_new:
        parser.error(f"--promote-after {options.promote_after} must be less than --max-new {options.max_new}")
    if not re.fullmatch(r"([0-9]+(,[0-9]+)*)?", options.stagger_after):
        parser.error(f"--stagger-after {options.stagger_after!r} must be numbers with commas between them")
    options.stagger = [int(word) for word in options.stagger_after.split(",") if word]
    return options


def make_prompts(tokenizer: Tokenizer, options: argparse.Namespace) -> list[list[int]]:
    """One prompt a slot."""
    prompts = []
    for index in range(options.n):
        text = question(index)
        if options.long_tokens:
            text = f"{long_text(tokenizer, str(index), options.long_tokens)}\n\n{text}"
        prompts.append(encode(tokenizer, first_turn(text)))
    return prompts


def together(engine: Engine, prompts: Sequence[Sequence[int]], options: argparse.Namespace) -> list[list[int]]:
    """All prompts in their slots, admitted while those before them decode; the tokens of each."""
    start = time.monotonic()
    head: list[int] = []
    requests: list[Request] = []
    for slot, prompt in enumerate(prompts):
        if slot == 0 and options.promote_after:
            head = promoted_head(engine, prompt, options)
        elif 0 < slot <= len(options.stagger):
            wait_for_first(engine, requests[0], len(head), options.stagger[slot - 1])
        given = head if slot == 0 else []
        requests.append(engine.admit(slot, options.max_new - len(given), [*prompt, *given], options.keys))
    admitted = time.monotonic()
    engine.finish(*requests)
    seconds = time.monotonic() - start
    count = sum(len(request.tokens) for request in requests) + len(head)
    print(f"together: {count} tokens of {len(requests)} requests in {seconds:.2f} s, {count / seconds:.1f} tokens/s "
          f"(all admitted after {admitted - start:.2f} s)")  # fmt: skip
    return [[*(head if request.slot == 0 else []), *request.tokens] for request in requests]


def promoted_head(engine: Engine, prompt: Sequence[int], options: argparse.Namespace) -> list[int]:
    """The tokens that the first prompt gets alone, before STOP ends it for its slot."""
    request = engine.ask(options.max_new, prompt, options.keys, stop_after=options.promote_after)
    if request.finish != "cancel" or len(request.tokens) >= options.max_new:
        raise BrokenProtocol(
            f"STOP was sent after {options.promote_after} tokens, but the request ended as {request.finish!r} with "
            f"{len(request.tokens)} of {options.max_new} (a larger --max-new leaves more time)"
        )
    print(f"promoted: slot 0 was alone for {len(request.tokens)} tokens")
    return request.tokens


def wait_for_first(engine: Engine, first: Request, head: int, count: int) -> None:
    """Until slot 0 has `count` tokens; it must still be decoding then, or nothing would be staggered."""
    while first.finish is None and len(first.tokens) + head < count:
        engine.take()
    if first.finish is not None:
        raise BrokenProtocol(
            f"slot 0 ended ({first.finish}) with {len(first.tokens) + head} tokens: --stagger-after {count} needs a "
            "smaller number or a larger --max-new"
        )


def alone(engine: Engine, prompts: Sequence[Sequence[int]], options: argparse.Namespace) -> list[list[int]]:
    """The tokens of each prompt by itself, one after the other."""
    requests = [engine.ask(options.max_new, prompt, options.keys) for prompt in prompts]
    count = sum(len(request.tokens) for request in requests)
    seconds = sum(request.ended - request.started for request in requests)
    print(f"alone:    {count} tokens of {len(requests)} requests in {seconds:.2f} s, {count / seconds:.1f} tokens/s")
    return [request.tokens for request in requests]


def main() -> int:
    """Run the test; the exit code."""
    options = arguments()
    config = Config.from_options(options)
    tokenizer = config.read_tokenizer()
    prompts = make_prompts(tokenizer, options)
    environment = {"STRATA_IQ_MT_MIN": str(options.mt_min), "STRATA_DECODE_TIMING": "1"}
    with Engine(
        config, batch=options.batch, extra=options.extra, silence_s=options.timeout, env=environment
    ) as engine:
        slots = engine.info.get("batch_slots", "0")
        if int(slots) < options.n:
            raise BrokenProtocol(f"the engine runs {slots} slots (batch_slots of its INFO line), not {options.n}")
        solo = [] if options.skip_solo else alone(engine, prompts, options)
        slot = together(engine, prompts, options)
    if options.dump:
        Path(options.dump).write_text(json.dumps({"prompts": prompts, "alone": solo, "together": slot}) + "\n")
    checks = Checks()
    for index, (expected, got) in enumerate(zip(solo, slot, strict=False)):
        checks.same(f"slot {index} and alone", expected, got)
    return checks.code


if __name__ == "__main__":
    run_script(main)
