"""A small engine of docs/protocol.md for the scripts in tools/: a token is a hash of all tokens before it.

`--lie NAME` has it break one promise, which the scripts must notice. Plain Python, so that it starts at once.
"""

import queue
import sys
import threading
import time
from dataclasses import dataclass, field

CHUNK, WINDOW_S = 128, 0.002
FLAGS = {"--serve", "--batch-mtp", "--no-prefill-borrow"}


def options() -> dict[str, str]:
    words, found = iter(sys.argv[1:]), {}
    for word in words:
        found[word] = "" if word in FLAGS else next(words)
    return found


OPTIONS = options()
LIE = OPTIONS.get("--lie", "")
CONTEXT = int(OPTIONS.get("--max-context", "4096"))
SLOTS = int(OPTIONS.get("--batch", "0"))
PARKING = int(OPTIONS.get("--conversation-cache-mib", "0")) > 0
DRAFTS = "--batch-mtp" in OPTIONS


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def log(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def next_token(tokens: list[int], keys: tuple[str, ...]) -> int:
    history = hash(keys) % 2**32 if any("temperature" in key for key in keys) else 0
    for token in tokens:
        history = (history * 6364136223846793005 + token + 1442695040888963407) % 2**64
    return 300 + (history >> 33) % 9000


@dataclass
class Kept:
    """A conversation that may go on: the tokens it holds, and how many at the opening of its last turn."""

    tokens: list[int] = field(default_factory=list)
    turn: int = 0

    def held(self, prompt: list[int]) -> int:
        for count in (len(self.tokens), self.turn):
            if 0 < count < len(prompt) and prompt[:count] == self.tokens[:count]:
                return count
        return 0


@dataclass
class Order:
    slot: int | None
    limit: int
    keys: tuple[str, ...]
    prompt: list[int]
    made: list[int] = field(default_factory=list)
    stopped: bool = False
    yields_to: int | None = None

    def draw(self) -> int:
        token = next_token(self.prompt + self.made, self.keys)
        self.made.append(token)
        return token + (LIE == "token" and self.slot == 1 and len(self.made) == 5)

    @property
    def finish(self) -> str:
        if self.stopped:
            return "cancel"
        at_context = len(self.prompt) + len(self.made) > CONTEXT - (LIE == "short") + (LIE == "over")
        return "length" if len(self.made) >= self.limit or at_context else ""

    def kept(self) -> Kept:
        turn = max(at for at, token in enumerate(self.prompt) if token == self.prompt[0])
        return Kept((self.prompt + self.made)[:-1], turn)


class Engine:
    def __init__(self) -> None:
        self.lines: queue.Queue[str] = queue.Queue()
        self.control: Order | None = None
        self.decoding: dict[int, Order] = {}
        self.slots = [Kept() for _ in range(SLOTS)]
        self.live = Kept()
        self.parked: list[Kept] = []
        self.waiting: list[str] = []

    def listen(self) -> None:
        for line in sys.stdin:
            self.lines.put(line.strip())
        self.lines.put("QUIT")

    def poll(self) -> None:
        """Take in what has arrived; what starts a request waits."""
        while not self.lines.empty():
            word, *rest = (line := self.lines.get()).split()
            if word == "STOP" and self.control is not None:
                self.control.stopped = LIE != "deaf"
            elif word == "BSTOP" and int(rest[0]) in self.decoding:
                self.decoding[int(rest[0])].stopped = True
            elif word == "BYIELD" and self.control is not None:
                self.control.yields_to = int(rest[0]) if LIE != "noyield" else None
            elif word in ("GEN", "BGEN", "QUIT"):
                self.waiting.append(line)

    def window(self) -> None:
        """A token for each slot that decodes."""
        time.sleep(WINDOW_S)
        self.poll()
        for slot, order in list(self.decoding.items()):
            if order.stopped and len(order.made) > 1:
                self.end_slot(slot, order)
                continue
            say("BT", slot, order.draw())
            if order.finish:
                self.end_slot(slot, order)

    def end_slot(self, slot: int, order: Order) -> None:
        del self.decoding[slot]
        self.slots[slot] = order.kept()
        drafts = [3, 5] if DRAFTS else []
        say("BDONE", slot, len(order.made) + (LIE == "miscount"), order.finish, "1.0", *drafts)

    def find(self, order: Order) -> int:
        """Tokens that a kept conversation holds of the prompt; what is replaced is parked or gone."""
        idle = [kept for slot, kept in enumerate(self.slots) if slot not in self.decoding]
        best = max([self.live, *idle], key=lambda kept: kept.held(order.prompt))
        held = best.held(order.prompt)
        for kept in self.parked[:]:
            if kept.held(order.prompt) > held:
                held = kept.held(order.prompt)
                self.parked.remove(kept)
                if LIE != "nolog":
                    log(f"restored {held} tokens of a parked conversation")
                if LIE == "forget":
                    order.keys = ("temperature=1",)
        replaced = order.slot is None and self.live.tokens and not (best is self.live and best.held(order.prompt))
        if replaced and (PARKING or LIE == "keep"):
            self.parked.append(self.live)
            log(f"parked {len(self.live.tokens)} tokens, reused_kv_bytes={0 if LIE == 'copied' else 4096}")
        if LIE == "mixed" and held and order.slot is not None:
            order.keys = ("temperature=1",)
        return held

    def read(self, order: Order) -> bool:
        """Read a prompt in chunks; False if it gave way or was stopped."""
        reached = held = self.find(order)
        if held:
            say("RESUME", held)
            if LIE != "noreused":
                say("REUSED", held - (LIE == "less"))
        while reached < len(order.prompt):
            if order.yields_to is not None and len(order.prompt) - reached > CHUNK:
                self.slots[order.yields_to] = Kept(order.prompt[:reached])
                say("YIELDED", order.yields_to, reached)
                order.stopped = True
            if order.stopped:
                return False
            reached = min(len(order.prompt), reached + CHUNK)
            say("PP", reached, len(order.prompt), "1.0", "100.0")
            if LIE != "starve":
                self.window()
            else:
                time.sleep(WINDOW_S)
                self.poll()
        return True

    def done(self, order: Order) -> None:
        say("DONE", len(order.made), len(order.prompt), "1.0", "1.0", order.finish, 0, 0, 0)

    def serve(self, line: str) -> None:
        word, *rest = line.split()
        slot = int(rest.pop(0)) if word == "BGEN" else None
        order = Order(slot, int(rest[0]), tuple(rest[1:-1]), [int(token) for token in rest[-1].split(",")])
        if LIE == "err" and slot == 1:
            say("ERR KV pool full: the decoding lanes hold all 4096 cells")
            return
        if LIE == "hang" and slot == 1:
            time.sleep(60)
        self.control = order
        complete = self.read(order)
        if LIE == "early" and slot == 1:
            say("BT", slot, 5)
        if slot is None:
            while complete and not order.finish:
                say("T", order.draw())
                self.window()
            if complete:
                self.live = order.kept()
            self.done(order)
            if LIE == "late" and order.stopped:
                say("T", 7)
        else:
            self.admit(slot, order, complete)
        self.control = None

    def admit(self, slot: int, order: Order, complete: bool) -> None:
        if complete:
            say("T", order.draw())
        ends = order.finish if order.limit < 2 or not complete else ""
        say("DONE", len(order.made), len(order.prompt), "1.0", "1.0", ends or "length", 0, 0, 0)
        say("BADM", slot, 0 if ends else 1, *([9] if LIE == "badm" else []))
        if not ends:
            self.decoding[slot] = order
        elif complete:
            self.slots[slot] = order.kept()

    def run(self) -> int:
        threading.Thread(target=self.listen, daemon=True).start()
        say(f"INFO context={CONTEXT} batch_slots={SLOTS} slot_cache=1 engine=0")
        say("READY", CONTEXT, "stop")
        while True:
            if self.decoding:
                self.window()
            elif not self.waiting:
                time.sleep(0.0005)
                self.poll()
            if self.waiting:
                line = self.waiting.pop(0)
                if line == "QUIT" and not self.decoding:
                    break
                if line == "QUIT":
                    self.waiting.append(line)
                else:
                    self.serve(line)
        if DRAFTS:
            log(f"strata batch MTP: drafts accepted {0 if LIE == 'nodrafts' else 12} of 20")
        return 3 if LIE == "exit" else 0


if __name__ == "__main__":
    sys.exit(Engine().run())
