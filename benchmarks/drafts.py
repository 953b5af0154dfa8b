"""What drafts gain: `python -m benchmarks.drafts [MODEL] [--lanes 1 4] [--temperatures 0 0.8] [--rounds N]`.

Serves the same conversations without drafts, with those of the MTP block, with those from history, and with both,
alone and several at once, by the scheduler that an engine uses. The sides take turns in every round, so ratios hold on
a shared machine; all of them have to give the same tokens. Prints a table, and JSON as the last line.
"""

import argparse
import json
import lzma
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.rounds import rotated
from strata import model as models
from strata.arithmetic.sampling import Sampling
from strata.cpu.sampling import sample
from strata.engine.lookup import NOTHING, Lookup
from strata.engine.scheduler import LOOKUP, Demand, Policy, Scheduler, Turn, Verdict, Window
from strata.text import Tokenizer
from strata.weights import open_checkpoint

_clock = time.perf_counter
ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "src" / "strata" / "data" / "strata-demo.gguf"
CHATS = ROOT / "tests" / "model" / "evaluation_mix_1.jsonl.xz"
TEXT = ROOT / "tests" / "oracles" / "heldout.txt"


@dataclass
class Conversation:
    """A prompt, how many tokens follow it at most, and whether an end token ends it."""

    prompt: list[int]
    answer: int
    ends: bool


@dataclass
class Totals:
    """What one side did in one round."""

    seconds: float = 0.0
    decode_s: float = 0.0  # windows without prompt rows
    decoded: int = 0  # tokens drawn in those
    windows: int = 0
    turns: int = 0
    planning_s: float = 0.0
    offered: list[int] = field(default_factory=list)  # by depth
    stood: list[int] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Tokens a second while nothing is read."""
        return self.decoded / self.decode_s if self.decode_s else 0.0

    def judge(self, drafts: int, accepted: int) -> None:
        """Count the drafts of a turn."""
        for counts, number in ((self.offered, drafts), (self.stood, accepted)):
            counts += [0] * (drafts - len(counts))
            for depth in range(number):
                counts[depth] += 1


class Running:
    """A conversation that is being served."""

    def __init__(self, model: models.Model, number: int, job: Conversation, policy: Policy) -> None:
        self.number, self.job, self.policy = number, job, policy
        self.state = model.new_state(policy.mtp_depth > 0)
        self.tokens = list(job.prompt)
        self.lookup = Lookup(self.tokens) if policy.lookup_depth else None

    def demand(self) -> Demand:
        """What it waits for."""
        held, known, prompt = self.state.length, len(self.tokens), len(self.job.prompt)
        if held < prompt:
            return Demand(self.number, held, known, known, True)
        found = self.lookup.draft(self.policy.lookup_depth) if self.lookup else NOTHING
        room = max(0, prompt + self.job.answer - known - 1)
        return Demand(self.number, held, known, known, False, room, self.policy.mtp_depth > 0, found)


class Side:
    """One way to serve: a policy, and the scheduler that learns from round to round."""

    def __init__(self, model: models.Model, policy: Policy, sampling: Sampling) -> None:
        self.model, self.policy, self.sampling = model, policy, sampling
        self.scheduler = Scheduler(policy)
        self._served = 0

    def serve(self, jobs: Sequence[Conversation], lanes: int) -> Totals:
        """All jobs, at most so many at once."""
        totals = Totals(texts=[[] for _ in jobs])
        waiting = list(range(len(jobs)))
        running: dict[int, tuple[int, Running]] = {}
        begun = _clock()
        while waiting or running:
            while waiting and len(running) < lanes:
                job = waiting.pop(0)
                self._served += 1
                running[self._served] = (job, Running(self.model, self._served, jobs[job], self.policy))
            start = _clock()
            done = self._step({number: lane for number, (_, lane) in running.items()}, totals, start)
            for number in done:
                job, lane = running.pop(number)
                totals.texts[job] = lane.tokens[len(lane.job.prompt) :]
                self.scheduler.leave(number)
        totals.seconds = _clock() - begun
        return totals

    def _step(self, lanes: dict[int, Running], totals: Totals, start: float) -> list[int]:
        demands = [lane.demand() for lane in lanes.values()]
        window = self.scheduler.window(demands)
        planned = _clock()
        drafts, window = self._drafts(window, lanes, {demand.lane: demand for demand in demands})
        segments = []
        for turn in window.turns:
            lane = lanes[turn.lane]
            held = lane.state.length
            new = [*lane.tokens[held : held + turn.count], *drafts.get(turn.lane, ())]
            segments.append(models.Segment(lane.state, new, turn.count - turn.draws, turn.drafts))
        logits = self.model.forward(segments)
        at, verdicts, drawn, done = 0, {}, 0, []
        for turn in window.turns:
            if not turn.draws:
                continue
            lane = lanes[turn.lane]
            accepted, ended = self._draw(lane, turn, logits[at : at + 1 + turn.drafts], drafts.get(turn.lane, ()))
            at += 1 + turn.drafts
            drawn += accepted + 1
            if turn.drafts:
                lane.state.accept(accepted)
                verdicts[turn.lane] = Verdict(accepted, accepted < turn.drafts and not ended)
                totals.judge(turn.drafts, accepted)
            if ended:
                done.append(turn.lane)
        computed = _clock()
        self.scheduler.measured(window, computed - planned, verdicts)
        end = _clock()
        totals.planning_s += end - start - (computed - planned)
        totals.windows += 1
        if not window.prompt_rows:
            totals.decode_s += end - start
            totals.decoded += drawn
            totals.turns += len(window.turns)
        return done

    def _drafts(
        self, window: Window, lanes: dict[int, Running], demands: dict[int, Demand]
    ) -> tuple[dict[int, list[int]], Window]:
        """The drafts of every turn, and the window with those of the MTP block that are worth it."""
        drafts: dict[int, list[int]] = {}
        block = [turn for turn in window.turns if turn.source not in (None, LOOKUP)]
        if block:
            states = [lanes[turn.lane].state for turn in block]
            last = [lanes[turn.lane].tokens[-1] for turn in block]
            least = [window.least.get(turn.lane, 0.0) for turn in block]
            tokens, chances = self.model.draft_chains(states, last, window.draft_depth, least)
            rows, said = tokens.tolist(), chances.tolist()
            made = {
                turn.lane: likely[: row.index(-1) if -1 in row else None]
                for turn, row, likely in zip(block, rows, said, strict=True)
            }
            window = self.scheduler.trimmed(window, made)
            drafts = {turn.lane: row for turn, row in zip(block, rows, strict=True)}
        for turn in window.turns:
            if turn.source == LOOKUP:
                drafts[turn.lane] = list(demands[turn.lane].found.tokens)
        return {turn.lane: drafts[turn.lane][: turn.drafts] for turn in window.turns if turn.drafts}, window

    def _draw(self, lane: Running, turn: Turn, logits: Any, drafts: Sequence[int]) -> tuple[int, bool]:
        """Draw the turn's tokens: how many drafts stood, and whether the conversation is over."""
        for at in range(1 + turn.drafts):
            token = sample(logits[at], self.sampling, choice=0, position=len(lane.tokens))
            lane.tokens.append(token)
            if lane.lookup is not None:
                lane.lookup.append(token)
            over = len(lane.tokens) >= len(lane.job.prompt) + lane.job.answer
            if over or (lane.job.ends and token in self.model.eos_ids):
                return at, True
            if at == turn.drafts or drafts[at] != token:
                return at, False
        raise AssertionError


def conversations(path: Path, tokens: int, count: int) -> dict[str, list[Conversation]]:
    """Chats and pieces of text for a model with a vocabulary of words, random tokens for a random one."""
    checkpoint = open_checkpoint(path)
    names = checkpoint.metadata["tokenizer.ggml.tokens"]
    if "<|im_start|>" not in names:
        draw = random.Random(1)
        prompts = [[draw.randrange(1, len(names) - 1) for _ in range(64)] for _ in range(count)]
        jobs = [Conversation(prompt, tokens, False) for prompt in prompts]
        return {"random": jobs}
    tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
    text = tokenizer.encode(TEXT.read_text(encoding="utf-8"), parse_special=True)
    pieces = [Conversation(text[at : at + 64], tokens, False) for at in range(0, 40 * count, 40)]
    tasks = [json.loads(line) for line in lzma.decompress(CHATS.read_bytes()).decode().splitlines()]
    tasks = [task for task in tasks if not task["kind"].startswith("recall")]
    random.Random(1).shuffle(tasks)
    encoded = [tokenizer.encode(task["prompt"], parse_special=True) for task in tasks[: 4 * count]]
    return {"chats": [Conversation(ids, tokens, True) for ids in encoded], "text": pieces}


POLICIES = {
    "off": (0, 0),
    "mtp": (1, 0),
    "lookup": (0, 1),
    "both": (1, 1),
}


def main() -> None:
    """Measure every case and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=DEMO)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--sides", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--texts", nargs="+")
    parser.add_argument("--depth", type=int, default=4, help="drafts of the MTP block a window, at most")
    parser.add_argument("--lookup", type=int, default=8, help="drafts from history a window, at most")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--count", type=int, default=8, help="texts a round, and four times as many chats")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time, where the machine does other work too")
    options = parser.parse_args()
    if options.cpu_time:
        global _clock
        _clock = time.process_time
    model = models.load(options.model, threads=options.threads)
    print(f"{describe()}; {options.model.name}, {model.threads} threads")
    sets = conversations(options.model, options.tokens, options.count)
    results = []
    for name in options.texts or sets:
        for temperature in options.temperatures:
            for lanes in options.lanes:
                case = {"text": name, "temperature": temperature, "lanes": lanes}
                results += [{**case, **row} for row in measure(model, sets[name], case, options)]
    print(json.dumps({"machine": describe(), "model": options.model.name, "results": results}))


def measure(
    model: models.Model, jobs: list[Conversation], case: dict[str, Any], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """One case on all sides; the first round only warms up and teaches."""
    sampling = Sampling(case["temperature"], 0.95 if case["temperature"] else 1.0, 0, 0.0, 7)
    sides = {
        name: Side(model, Policy(mtp_depth=mtp * options.depth, lookup_depth=lookup * options.lookup), sampling)
        for name, (mtp, lookup) in POLICIES.items()
        if name in options.sides
    }
    rounds: list[dict[str, Totals]] = []
    for number in range(options.rounds + 1):
        order = rotated(list(sides), number)
        one = {name: sides[name].serve(jobs, case["lanes"]) for name in order}
        first = next(iter(one.values()))
        for name, totals in one.items():
            if totals.texts != first.texts:
                raise SystemExit(f"{name}: the tokens are not those of the others")
        rounds.append(one)
    rows = []
    print(f"\n{case['text']}, temperature {case['temperature']:g}, {case['lanes']} at once")
    print("  side      tokens/s   gain   (with reading)  tokens/turn  plan us   stood/offered by depth")
    for name in sides:
        row = _row(name, rounds)
        rows.append(row)
        depths = " ".join(f"{s}/{o}" for s, o in zip(row["stood"], row["offered"], strict=True))
        print(
            f"  {name:8s} {row['tokens_s']:9.1f} {row['gain']:6.3f} {row['gain_all']:10.3f} "
            f"{row['tokens_a_turn']:15.3f} {row['planning_us']:9.1f}   {depths}",
            flush=True,
        )
    return rows


def _row(name: str, rounds: list[dict[str, Totals]]) -> dict[str, Any]:
    measured = rounds[1:]
    base = "off" if "off" in measured[0] else name
    last = measured[-1][name]
    return {
        "side": name,
        "tokens_s": statistics.median(r[name].speed for r in measured),
        "gain": statistics.median(r[name].speed / r[base].speed for r in measured),
        "gains": [r[name].speed / r[base].speed for r in rounds],
        "gain_all": statistics.median(r[base].seconds / r[name].seconds for r in measured),
        "tokens_a_turn": last.decoded / max(1, last.turns),
        "planning_us": statistics.median(1e6 * r[name].planning_s / r[name].windows for r in measured),
        "offered": last.offered,
        "stood": last.stood,
    }


if __name__ == "__main__":
    main()
