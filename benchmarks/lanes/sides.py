"""What is measured: the engine with various options, and llama.cpp, each started when it is first needed."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.lanes.client import Engine
from benchmarks.lanes.outcome import Outcome
from benchmarks.lanes.prompts import Prompts
from benchmarks.rounds import Side

LANES, ONE_LANE, NO_DRAFTS, IN_A_ROW, PEER = "lanes", "one lane", "no drafts", "in a row", "llama.cpp"
ARGUMENTS = {
    LANES: (),
    ONE_LANE: ("--max-lanes", "1"),
    NO_DRAFTS: ("--spec", "0", "--lookup", "0"),
    IN_A_ROW: (),  # a process of its own, so that nothing else grows it
}


@dataclass(frozen=True)
class Sizes:
    """Tokens of everything: prompts have `least` to `most`, and `new` follow; the long prompt ends below the context.

    `lone`: tokens of a text of the cases about one conversation; `short` and `turn`: the request that comes behind a
    long one, and a follow-up turn; `row`: conversations one after another, `mark` of them before the first look.
    """

    new: int = 128
    least: int = 64
    most: int = 256
    lone: int = 256
    long: int = 4080
    short: int = 48
    turn: int = 64
    row: int = 1000
    mark: int = 100


DEMO = Sizes()
MID = Sizes(new=64, least=64, most=160, lone=128)
QUICK = Sizes(new=12, least=16, most=32, lone=24, long=600, short=12, turn=24, row=20, mark=4)


class Sides:
    """The processes of one model; `words`: it has a vocabulary of words, and an MTP block to draft with."""

    def __init__(self, path: Path, *, words: bool, sizes: Sizes, threads: int, most: int, peer: Path | None) -> None:
        self.prompts, self.sizes, self.drafts = Prompts(path, words), sizes, words
        self._path, self._threads, self._most, self._python = path, threads, most, peer
        self._engines: dict[str, Engine] = {}
        self._peer: Side | None = None

    def engine(self, name: str) -> Engine:
        """The running engine of this name."""
        if name not in self._engines:
            common = ["--native", str(self._path), "--threads", str(self._threads), "--eos-ids", "-1"]
            self._engines[name] = Engine(name, [*common, *ARGUMENTS[name]])
        return self._engines[name]

    def peer(self) -> Side | None:
        """llama.cpp with the model open, None where it is left out."""
        if self._peer is None and self._python is not None:
            self._peer = Side(PEER, "llamacpp", self._python)
            length = self.sizes.most + self.sizes.new + 8
            self._peer.ask(
                "open",
                model=str(self._path),
                threads=self._threads,
                context=512,
                conversations=self._most,
                length=-(-length // 256) * 256,
            )
        return self._peer

    def kept_drafts(self, prompts: list[list[int]], count: int, depth: int) -> list[int]:
        """How many of `depth` drafts stood in each step of greedy text after the prompts, by `strata.model` itself."""
        side = Side("drafts", "ours")
        try:
            side.ask("open", model=str(self._path), threads=self._threads, context=0, conversations=1, length=0)
            done = [side.ask("drafted", prompt=p, count=count, drafts=depth) for p in prompts]
        finally:
            side.stop()
        return [kept for each in done for kept in each["kept"]]

    def conversations(self, count: int) -> list[list[int]]:
        """New prompts."""
        return [self.prompts.conversation(self.sizes.least, self.sizes.most) for _ in range(count)]

    def close(self, name: str = "") -> None:
        """End the engine of this name, or all that runs."""
        for each in [name] if name else list(self._engines):
            self._engines.pop(each).close()
        if not name and self._peer is not None:
            self._peer.stop()
            self._peer = None


def peer_outcome(side: Side, prompts: list[list[int]], count: int) -> Outcome:
    """The peer on all conversations at once."""
    done = side.ask("converse", prompts=prompts, count=count)
    made = count * len(prompts)
    decoding = (made - len(prompts)) / done["decoding"] if count > 1 else None
    return Outcome(made / done["seconds"], decoding, tuple(done["first"]), generated=made)
