"""Slots with MTP drafts: the tokens of requests alone, limits kept to the token, prompts that reach the context.

Exit code 0: all as it should be, and drafts were accepted; 2: something differs; 1: the engine broke the protocol.
"""

import re
from collections.abc import Sequence

from engine_client import Engine
from engine_config import Config, engine_arguments, run_script
from script_prompts import Checks, encode, first_turn, long_text, question

SLOTS = 4
CONTEXT = 512
OPTIONS = (
    f"--batch-mtp --max-context {CONTEXT} --kv-resident 0 --eos-ids -1 --pcie-frac 0 --adapt-every 1000000 "
    "--no-prefill-borrow"
)


def in_slots(engine: Engine, prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
    """The tokens of prompts in slots 0, 1, ... together; `limits` are their max_new."""
    requests = [engine.admit(slot, limits[slot], prompt) for slot, prompt in enumerate(prompts)]
    engine.finish(*requests)
    return [request.tokens for request in requests]


def limits_hold(
    engine: Engine, prompts: Sequence[Sequence[int]], solo: Sequence[Sequence[int]], checks: Checks
) -> None:
    """max_new of 1, 2, 3 and 4: a window may draft beyond the limit, but nothing more comes out."""
    requests = [engine.admit(slot, slot + 1, prompt) for slot, prompt in enumerate(prompts)]
    engine.finish(*requests)
    for limit, request in enumerate(requests, 1):
        checks.same(f"max_new {limit} and alone", solo[limit - 1][:limit], request.tokens)
        admitted = limit > 1
        checks.true(
            request.admitted is admitted and request.finish == "length",
            f"max_new {limit}: BADM {int(bool(request.admitted))}, finish {request.finish}",
        )


def at_the_context(engine: Engine, prompts: Sequence[Sequence[int]], max_new: int, checks: Checks) -> None:
    """Prompts that leave a few positions: together as each in a slot alone, and to the last position."""
    apart = [in_slots(engine, [prompt], [max_new])[0] for prompt in prompts]
    requests = [engine.admit(slot, max_new, prompt) for slot, prompt in enumerate(prompts)]
    engine.finish(*requests)
    for prompt, expected, request in zip(prompts, apart, requests, strict=True):
        name = f"a prompt of {len(prompt)} in a context of {engine.context}"
        count = engine.context - len(prompt) + 1
        checks.true(
            len(request.tokens) == count and request.finish == "length",
            f"{name}: {len(request.tokens)} of {count} tokens, finish {request.finish}",
        )
        checks.same(f"{name}, beside others and in a slot alone", expected, request.tokens)


def main() -> int:
    """Run the test; the exit code."""
    parser = engine_arguments(__doc__, max_new=64)
    options = parser.parse_args()
    if not 4 <= options.max_new <= 256:
        parser.error(f"--max-new {options.max_new} must be from 4 to 256")
    config, checks = Config.from_options(options), Checks()
    tokenizer = config.read_tokenizer()
    prompts = [encode(tokenizer, first_turn(question(index))) for index in range(SLOTS)]
    filler = encode(tokenizer, first_turn(long_text(tokenizer, "M", 2 * CONTEXT)))
    long = [filler[: CONTEXT - 10 - index] for index in range(SLOTS)]
    with Engine(
        config, batch=SLOTS, extra=f"{options.extra} {OPTIONS}", silence_s=options.timeout,
        env={"STRATA_IQ_MT_MIN": "1"},
    ) as engine:  # fmt: skip
        checks.true(engine.context == CONTEXT, f"the context is {engine.context}")
        solo = [engine.ask(options.max_new, prompt).tokens for prompt in prompts]
        for slot, got in enumerate(in_slots(engine, prompts, [options.max_new] * SLOTS)):
            checks.same(f"slot {slot} and alone", solo[slot], got)
            checks.true(len(got) == options.max_new, f"slot {slot} wrote {len(got)} tokens, without end tokens")
        limits_hold(engine, prompts, solo, checks)
        at_the_context(engine, long, options.max_new, checks)
    counts = re.findall(r"strata batch MTP: drafts accepted ([0-9]+) of ([0-9]+)", engine.log)
    accepted, offered = (sum(int(pair[at]) for pair in counts) for at in (0, 1))
    checks.true(accepted > 0, f"the log has {len(counts)} lines of batch MTP: {accepted} of {offered} drafts accepted")
    return checks.code


if __name__ == "__main__":
    run_script(main)
