"""An engine that plays parts: it speaks the line protocol and answers by what the last user message says.

Run as `scripted_engine.py --record FILE --mode MODE`; ids 0 to 255 are bytes, 256 and up are conftest's special tokens.
"""

import argparse
import os
import queue
import re
import signal
import sys
import threading
import time

END = 258
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--record", required=True)
ARGUMENTS.add_argument("--mode", default="normal")
ARGUMENTS.add_argument("--context", type=int, default=512)
OPTIONS = ARGUMENTS.parse_args()
LINES: "queue.Queue[str]" = queue.Queue()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def record(line: str) -> None:
    with open(OPTIONS.record, "a") as file:
        file.write(f"{line}\n")


def listen() -> None:
    for line in sys.stdin:
        record(line.strip())
        LINES.put(line.strip())
    LINES.put("QUIT")


def stopped() -> bool:
    try:
        return LINES.get_nowait() == "STOP"
    except queue.Empty:
        return False


def reply(ids: list[int], keys: str) -> tuple[list[int], float]:
    """The tokens to send and the pause before each."""
    text = bytes(number for number in ids if number < 256).decode("utf-8", "replace")
    asked = text.rsplit("user\n", 1)[-1].partition("\n")[0]
    word, _, rest = asked.partition(" ")
    match word:
        case "say":
            return [*rest.encode(), END], 0.0
        case "think":
            return [259, *b"\nhm\n", 260, *b"\n\n", *rest.encode(), END], 0.0
        case "keys":
            return [*keys.encode(), END], 0.0
        case "prompt":
            return [*text.encode(), END], 0.0
        case "slow":
            return [120] * int(rest) + [END], 0.02
        case "repeat":
            return [121] * 400, 0.0
        case "die":
            if rest == "loudly":
                complain("12:34:56 WARNING strata.cpu: half full")
            complain("about to fall over")
            say("T 65")
            say("T 66")
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            say("T 65")
            time.sleep(3600)
        case "garbage":
            say("T pears")
            time.sleep(3600)
        case "fatal":
            say("FATAL no progress for 60 s")
            sys.exit(1)
    return [*b"?", END], 0.0


def generate(line: str) -> None:
    words = line.split()
    limit, keys, ids = int(words[1]), " ".join(words[2:-1]), [int(x) for x in words[-1].split(",")]
    text = bytes(number for number in ids if number < 256).decode("utf-8", "replace")
    if "refuse" in text:
        say("ERR " + re.search(r"refuse ([^\n]*)", text).group(1))  # type: ignore[union-attr]
        return
    say("RESUME 4")
    say("REUSED 4")
    say("SOMETHING new that old clients skip")
    say(f"PP {len(ids)} {len(ids)} 12.5 800.0")
    tokens, pause = reply(ids, keys)
    sent, finish = 0, "stop"
    for token in tokens:
        time.sleep(pause)
        if stopped():
            finish = "cancel"
            break
        if sent == limit:
            finish = "length"
            break
        say(f"T {token}")
        sent += 1
    say(f"DONE {sent} {len(ids)} 12.5 40.0 {finish} 3 5 4 0 0 0 0 0.0 {len(ids) - 4} 0")


def main() -> int:
    record(f"start {os.getpid()}")
    match OPTIONS.mode:
        case "never":
            time.sleep(3600)
        case "crash":
            complain("a shard is on fire")
            return 3
        case "refuse":
            complain("strata: tiny.gguf: tensor output.weight is missing.")
            return 1
        case "fatal":
            say("FATAL tiny.gguf is truncated.")
            return 1
    threading.Thread(target=listen, daemon=True).start()
    say("INFO context=512 kv=bf16 engine=9.9.9")
    say(f"READY {OPTIONS.context} stop")
    while (line := LINES.get()) != "QUIT":
        if line.startswith("GEN"):
            generate(line)
        elif line != "STOP":
            say("ERR expected: GEN <max_new> ...")
    record("quit")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
