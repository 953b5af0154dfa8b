"""A follow-up gives the same tokens whether its conversation stayed live or came back from where it was parked.

Two engines: the first asks A and its follow-up; the second asks B in between, so that A is parked and restored, and B
again at the end, so that A is parked once more. Exit code 0: the same; 2: something differs; 1: the engine broke the
protocol.
"""

import re

from engine_client import Engine
from engine_config import BrokenProtocol, Config, engine_arguments, run_script
from script_prompts import Checks, encode, first_turn, next_turn

PARKING = "--conversation-cache-mib 1024 --conversation-cache-slots 4 --conversation-cache-min-free-mib 256"
ENVIRONMENT = {"STRATA_IQ_MT_MIN": "1", "STRATA_SNAPSHOT_VERIFY": "1"}
LINE = "The keeper of the tower wrote down the wind and the weather of day {}, and then he slept."


def main() -> int:
    """Run the test; the exit code."""
    parser = engine_arguments(__doc__, max_new=120)
    parser.set_defaults(extra=PARKING)
    parser.add_argument("--repeat", type=int, default=60, help="lines of the long conversation (default: 60)")
    options = parser.parse_args()
    if options.repeat < 1 or options.max_new < 1:
        parser.error(f"--repeat {options.repeat} --max-new {options.max_new}: at least 1")
    config, checks = Config.from_options(options), Checks()
    tokenizer = config.read_tokenizer()
    text = "\n".join(LINE.format(number + 1) for number in range(options.repeat))
    a = encode(tokenizer, first_turn(f"{text}\n\nWhat did the keeper write down?"))
    b = encode(tokenizer, first_turn("Explain how a steam engine works, step by step."))

    def follow_up(reply: list[int]) -> list[int]:
        return [*a, *reply, *next_turn(tokenizer, reply, "And what did he do then?")]

    def start() -> Engine:
        return Engine(config, extra=options.extra, silence_s=options.timeout, env=ENVIRONMENT)

    with start() as engine:
        need = len(a) + 2 * options.max_new + 72
        if need > engine.context:
            raise BrokenProtocol(
                f"both turns may need {need} tokens, but the context is {engine.context}: use a smaller --repeat "
                f"(now {options.repeat}) or --max-new (now {options.max_new})"
            )
        first = engine.ask(options.max_new, a).tokens
        live = engine.ask(options.max_new, follow_up(first))
    with start() as engine:
        checks.same("A in both engines", first, engine.ask(options.max_new, a).tokens)
        other = engine.ask(options.max_new, b).tokens
        parked = engine.ask(options.max_new, follow_up(first))
        checks.same("B before and after", other[:8], engine.ask(8, b).tokens)
    print(f"the follow-up reused {live.reused or 0} tokens live, {parked.reused or 0} parked, of {live.prompt}")
    checks.same("the follow-up from where it was parked, and live", live.tokens, parked.tokens)
    restored = re.findall(r"restored ([0-9]+) tokens", engine.log)
    checks.true(bool(restored), f"the log says what was restored: {', '.join(restored) or 'nothing'} tokens")
    kept = re.findall(r"parked ([0-9]+) tokens.*reused_kv_bytes=([0-9]+)", engine.log)
    last = f"{kept[-1][0]} tokens, {kept[-1][1]} bytes of them not copied" if kept else "nothing"
    checks.true(bool(kept) and int(kept[-1][1]) > 0, f"the log's last parked conversation: {last}")
    return checks.code


if __name__ == "__main__":
    run_script(main)
