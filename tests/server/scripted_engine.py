"""An engine that plays parts: it speaks the line protocol and answers by what the last user message says.

Run as `scripted_engine.py --record FILE --mode MODE [--lanes]`; ids 0 to 255 are bytes, 256 and up are conftest's
special tokens. With --lanes it offers the LANES form, in which all requests run at once, each in a thread.
"""

import argparse
import json
import os
import queue
import re
import signal
import sys
import threading
import time

END = 258
THOUGHT = 260
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--record", required=True)
ARGUMENTS.add_argument("--mode", default="normal")
ARGUMENTS.add_argument("--context", type=int, default=512)
ARGUMENTS.add_argument("--lanes", action="store_true")
OPTIONS = ARGUMENTS.parse_args()
WORK: "queue.Queue[Request | None]" = queue.Queue()
ALONE = -1
STOPS: dict[int, threading.Event] = {}
"""Of the requests in progress, by lane; the one on the control lines is ALONE."""
WRITING = threading.Lock()


def say(line: str) -> None:
    with WRITING:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def record(line: str) -> None:
    with open(OPTIONS.record, "a") as file:
        file.write(f"{line}\n")


class Request:
    """One request: its own lines, in the form that its command had."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.lane = int(words[1]) if words[0] == "BGEN" else ALONE
        first = 1 if self.lane == ALONE else 2
        self.limit, keys = int(words[first]), words[first + 1 : -1]
        self.keys = " ".join(keys)
        self.ids = [int(x) for x in words[-1].split(",")]
        self.text = bytes(number for number in self.ids if number < 256).decode("utf-8", "replace")
        self.tops = next((int(key.partition("=")[2]) for key in keys if key.startswith("logprobs=")), None)
        self.stop_ids = {int(x) for key in keys if key.startswith("stop_ids=") for x in key[9:].split(",")}
        self.stop = STOPS[self.lane] = threading.Event()

    def say(self, word: str, rest: str) -> None:
        say(f"{word} {rest}" if self.lane == ALONE else f"B{word} {self.lane} {rest}")

    def token(self, number: int) -> None:
        if self.tops is not None:
            likeliest = " ".join(f"{(number + rank) % 256}:-{rank}.25" for rank in range(self.tops))
            self.say("LP", f"-{number % 8}.5 {likeliest}".strip())
        self.say("T", str(number))

    def run(self) -> None:
        if "refuse" in self.text:
            self.error(re.search(r"refuse ([^\n]*)", self.text).group(1))  # type: ignore[union-attr]
            return
        if "nameless" in self.text:
            say("ERR expected: GEN <max_new> ...")
            return
        reused = min(4, len(self.ids) - 1)
        self.say("RESUME", str(reused))
        say("SOMETHING new that old clients skip")
        say("POOL 512 256 0 -")
        self.say("PP", f"{len(self.ids)} {len(self.ids)} 12.5 800.0")
        tokens, pause, finish = self.reply()
        sent = 0
        for token in tokens:
            time.sleep(pause)
            if self.stop.is_set():
                finish = "cancel"
                break
            if sent == self.limit:
                finish = "length"
                break
            self.token(token)
            sent += 1
            if token in self.stop_ids:
                finish = "stop"
                break
        del STOPS[self.lane]
        if self.lane == ALONE:
            count = len(self.ids)
            say(f"DONE {sent} {count} 12.5 40.0 {finish} 3 5 {reused} 0 0 0 0 0.0 {count - reused} 0")
        else:
            say(f"BDONE {self.lane} {sent} {finish} 40.0 3 5 {len(self.ids)} 12.5 {reused} {len(self.ids) - reused}")

    def error(self, reason: str) -> None:
        del STOPS[self.lane]
        self.say("ERR", reason)

    def reply(self) -> tuple[list[int], float, str]:
        """The tokens to send, the pause before each, the finish."""
        asked = self.text.rsplit("user\n", 1)[-1].partition("\n")[0]
        word, _, rest = asked.partition(" ")
        match word:
            case "say":
                return [*rest.encode(), END], 0.0, "stop"
            case "think":
                return [10, 259, *b"\nhm\n", 260, *b"\n\n", *rest.encode(), END], 0.0, "stop"
            case "write":
                return [*json.loads(rest).encode(), END], 0.0, "stop"
            case "muse":  # so many letters of thinking, and then its mark or the end of the turn
                if THOUGHT in self.ids:
                    return [*b"done", END], 0.0, "stop"
                count, last = rest.split()
                tail = [THOUGHT, *b"\n\ndone", END] if last == "close" else [END]
                return [*(b"abcdefghijklmnopqrstuvwxyz" * 9)[: int(count)], *tail], 0.0, "stop"
            case "keys":
                return [*self.keys.encode(), END], 0.0, "stop"
            case "prompt":
                return [*self.text.encode(), END], 0.0, "stop"
            case "slow":
                return [120] * int(rest) + [END], 0.02, "stop"
            case "repeat":
                return [121] * 400, 0.0, "stop"
            case "pool":
                return [*rest.encode()], 0.0, "pool"
            case "die":
                if rest == "loudly":
                    complain("12:34:56 WARNING strata.cpu: half full")
                complain("about to fall over")
                self.token(65)
                self.token(66)
                time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                self.token(65)
                time.sleep(3600)
            case "garbage":
                self.say("T", "pears")
                time.sleep(3600)
            case "fatal":
                say("FATAL no progress for 60 s")
                os._exit(1)
        return [*b"?", END], 0.0, "stop"


def listen() -> None:
    """Reads the commands as they come: a STOP has to find its request also when that has not begun yet."""
    lanes = False
    for line in sys.stdin:
        record(line.strip())
        word, _, lane = line.strip().partition(" ")
        if word == "LANES" and OPTIONS.lanes:
            lanes = True
        elif word == ("BGEN" if lanes else "GEN"):
            WORK.put(Request(line))
        elif word == ("BSTOP" if lanes else "STOP"):
            if (stop := STOPS.get(int(lane or ALONE))) is not None:
                stop.set()
        elif word == "QUIT":
            break
        else:
            say("ERR expected: GEN <max_new> ...")
    WORK.put(None)


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
    say("INFO context=512 kv=bf16 " + ("lanes=1 " if OPTIONS.lanes else "") + "engine=9.9.9")
    say(f"READY {OPTIONS.context} stop")
    threads = []
    while (request := WORK.get()) is not None:
        if OPTIONS.mode == "deaf":
            continue
        if request.lane == ALONE:
            request.run()
        else:
            threads.append(threading.Thread(target=request.run, daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join()
    record("quit")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
