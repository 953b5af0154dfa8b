"""Which rows the next window computes: lanes' wishes in, turns out. Pure: no tensors, no clock of its own.

Because a row's result depends on its history alone, nothing decided here changes a token, only when it is computed.
Every window may hold next tokens with drafts (`allocation`) and chunks of several prompts (`reading`), within a time
that the measured prices (`costs`) and the measured acceptance of drafts (`acceptance`) predict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from strata.engine.acceptance import MTP, Acceptance, lookup_source
from strata.engine.allocation import Allocation, Candidate, allocate, candidate, varied
from strata.engine.chains import Chain, Chains, Trust
from strata.engine.company import Company
from strata.engine.costs import SHORT_EVERY, SHORT_KNOWN, SHORT_S, CostModel, Work
from strata.engine.lookup import NOTHING, Proposal
from strata.engine.reading import FIRST_CHUNK, GROWTH, LARGEST_CHUNK, SLOW_S, Passing, Reader, chunk_rows
from strata.engine.trimming import Offered, judge_chain, likely, trimmed_work, worthwhile

LOOKUP = "lookup"
DECODE_SHARE = 0.5
MOST_OWED_S = 2.0
LEARNING_WINDOWS = 16
TRIAL_EVERY = 8
TRIAL_SHARE = 0.005  # of the time served, lost at most by trying windows that are not expected to be the best
FIRST_TRIALS = 4
CAUTION = 0.8  # a chain is given up only well below the chance from which its drafts are worth their rows
PLAN_S_A_LANE = 0.03  # served between two searches, a lane: so that planning takes about one hundredth of the time


@dataclass(frozen=True, slots=True)
class Policy:
    """The bounds within which windows are made.

    `decode_share`: seconds of decoding that go with a second of reading while both wait (0: as few as possible).
    `mtp_depth` and `lookup_depth`: most drafts of a lane from either source (0: none); `least_chance`: no draft whose
    own chance to stand is below. `chunk`: prompt rows a window, None: from the prices, up to `largest_chunk`.
    """

    decode_share: float = DECODE_SHARE
    mtp_depth: int = 0
    lookup_depth: int = 0
    least_chance: float = 0.0
    chunk: int | None = None
    largest_chunk: int = LARGEST_CHUNK
    most_rows: int = LARGEST_CHUNK


@dataclass(frozen=True, slots=True)
class Demand:
    """What one lane waits for: `known` tokens are known of which `held` are computed, 0 <= held < known.

    `pause` is where a turn has to end at the latest (held < pause <= known): the state at that point is to be kept.
    A decoding lane knows one token more than it holds; `room` drafts may follow it (limits of tokens and of the
    context), from its MTP block if `mtp`, or those that were `found` in its own history.
    """

    lane: int
    held: int
    known: int
    pause: int
    reading: bool
    room: int = 0
    mtp: bool = False
    found: Proposal = NOTHING


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of one lane in a window: its next `count` known tokens, then `drafts` tokens from `source`.

    `draws`: the last known token is to give a new one (and every draft the one after it).
    """

    lane: int
    count: int
    draws: bool
    drafts: int = 0
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Turns in order of arrival, and what they are expected to cost: in all, and without the prompts' rows."""

    turns: tuple[Turn, ...] = ()
    work: Work = field(default_factory=lambda: Work(0, 0))
    seconds: float = 0.0
    decode_s: float = 0.0
    prompt_rows: int = 0
    matched: Mapping[int, int] = field(default_factory=dict)  # by decoding lane: the match that lookup found
    trial_s: float | None = None  # a trial: what the planned window would take for the same progress
    least: Mapping[int, float] = field(default_factory=dict)  # by lane: a chain that the block likes less may end
    offered: Mapping[int, Offered] = field(default_factory=dict)  # by lane, once `trimmed`

    @property
    def draft_depth(self) -> int:
        """How deep the MTP block has to draft, for the lanes whose turn has that source."""
        return self.work.steps


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of a lane's drafts `accepted` stood; `refused`: the next was compared and differed (else none was left, or the
    lane ended there)."""

    accepted: int
    refused: bool


class Scheduler:
    """Makes windows and learns from what they took. The same calls give the same windows."""

    def __init__(self, policy: Policy | None = None, costs: CostModel | None = None) -> None:
        self.policy = policy or Policy()
        self.costs = costs or CostModel()
        self.acceptance = Acceptance()
        self.chains = Chains()
        self.trust = Trust()
        self.company = Company()
        self._passing = Passing()
        self._turn: dict[int, int] = {}  # by decoding lane: the window of its last turn
        self._window = 0
        self._owed_s = 0.0  # decoding time that prompts still owe
        self._most_read = FIRST_CHUNK // GROWTH
        self._decode_next = False
        self._known: dict[int, tuple[tuple[int, int], Candidate]] = {}
        self._rate = 1.0  # seconds of worth that a second of decoding is planned to give
        self._shape: tuple[int, int] | None = None
        self._last: tuple[dict[int, Candidate], Allocation] | None = None
        self._lanes = 0
        self._since_s = 0.0
        self._served_s, self._trials_s, self._trial = 0.0, 0.0, 0

    def window(self, demands: Sequence[Demand]) -> Window:
        """The next window for all lanes that wait, in order of arrival; without turns only if there are none."""
        self._window += 1
        decoding = [demand for demand in demands if not demand.reading]
        reading = [demand for demand in demands if demand.reading]
        if not reading:
            self._owed_s = 0.0
        candidates = self._candidates(decoding)
        plan = self._plan(candidates) if candidates else None
        if plan is None:
            self._decode_next = False
        given: dict[int, int] = {}
        if reading and not (plan and (self._owed_s > 0 or self._decode_next)):
            plan, given = self._with_prompts(plan, reading)
        else:
            self._decode_next = False
            if plan and self._window % TRIAL_EVERY == 0 and (trial := self._tried(candidates, plan)):
                window = self._made(demands, candidates, trial, given)
                return replace(window, trial_s=trial.speedup * trial.seconds, least={})
        self._rate = plan.speedup if plan else 1.0
        return self._made(demands, candidates, plan, given)

    def trimmed(self, window: Window, said: Mapping[int, Sequence[float]]) -> Window:
        """The window without the drafts of the MTP block that are not worth their row.

        `said`: by lane, what the block says of the chance that its drafts stand up to there, as many as it made. A
        window that is not trimmed is computed as it was made: every draft that was asked for has to be there.
        """
        asked = {turn.lane: turn for turn in window.turns if turn.source == MTP}
        if not asked:
            return window
        work, drafts = window.work, sum([turn.drafts for turn in asked.values()])
        there: dict[int, Sequence[float]] = {}
        values: list[tuple[float, int]] = []
        for lane, turn in asked.items():
            own = there[lane] = likely(said.get(lane, ()), self.policy.least_chance)[: turn.drafts]
            worth = self._known[lane][1].worth
            values += [(worth * self.trust.chance(lane, chance), lane) for chance in own]
        if window.trial_s is None:
            held = max([self._known[lane][1].held for lane in asked])
            row_s = self.costs.drawn + self.costs.reach * held
            kept = worthwhile(values, work.rows - drafts, row_s, self._rate, self.costs)
        else:
            kept = [lane for _, lane in values]
        offered: dict[int, Offered] = {}
        turns: list[Turn] = []
        reach = 0
        for turn in window.turns:
            lane = turn.lane
            if lane in asked:
                number = kept.count(lane)
                ran = min(work.steps, len(said.get(lane, ())) + 1)
                offered[lane] = Offered(turn.drafts, ran, tuple(there[lane][:number]))
                reach += (turn.drafts - number) * self._known[lane][1].held
                if number < turn.drafts:
                    turn = Turn(lane, turn.count, turn.draws, number, MTP if number else None)
            turns.append(turn)
        work = trimmed_work(work, drafts - len(kept), reach, offered)
        seconds = self.costs.seconds(work)
        decode_s = max(0.0, window.decode_s + seconds - window.seconds)
        return Window(
            tuple(turns), work, seconds, decode_s, window.prompt_rows, window.matched, window.trial_s, window.least,
            offered,
        )

    def measured(
        self,
        window: Window,
        seconds: float,
        verdicts: Mapping[int, Verdict] | None = None,
        amounts: Mapping[str, float] | None = None,
    ) -> None:
        """The window took `seconds`, drafting and drawing included; what became of drafts; counted costs by name."""
        verdicts = verdicts or {}
        work = replace(window.work, amounts=amounts) if amounts else window.work
        self.costs.observe(work, seconds)
        if not window.prompt_rows:
            self._compare(window, seconds, verdicts)
        self._since_s += seconds
        self._served_s += seconds
        if window.trial_s is not None:
            self._trials_s += min(max(0.0, seconds - window.trial_s), 2 * window.seconds)
        self._most_read = max(self._most_read, window.prompt_rows)
        decode_part = min(1.0, window.decode_s / window.seconds) if window.seconds > 0 else 0.0
        owed = self._owed_s - seconds * decode_part
        if window.prompt_rows:
            owed += self.policy.decode_share * seconds * (1 - decode_part)
        self._owed_s = min(max(owed, 0.0), MOST_OWED_S)
        if window.decode_s and (seconds >= SHORT_S or self._window < SHORT_KNOWN or self._window % SHORT_EVERY == 0):
            self._judge(window, verdicts)

    def _compare(self, window: Window, seconds: float, verdicts: Mapping[int, Verdict]) -> None:
        """What the window's drafts, if it has any, earned in company."""
        found = {lookup_source(window.matched[turn.lane]) for turn in window.turns if turn.source == LOOKUP}
        tokens = len(window.turns) + sum([verdict.accepted for verdict in verdicts.values()])
        self.company.observe(self._lanes, found | {MTP} if window.work.steps else found, tokens, seconds)

    def _judge(self, window: Window, verdicts: Mapping[int, Verdict]) -> None:
        """Count what became of drafts, and let fade what was not tried."""
        tried: dict[str, int] = {}
        deepest = 0
        for turn in window.turns:
            if turn.lane not in self._turn:
                continue
            found = lookup_source(window.matched[turn.lane]) if turn.lane in window.matched else None
            source = found if turn.source == LOOKUP else turn.source
            verdict = verdicts.get(turn.lane)
            offered = window.offered.get(turn.lane)
            asked = offered.asked if offered is not None else turn.drafts if source == MTP else 0
            if asked:
                stood, refused = (verdict.accepted, verdict.refused) if verdict else (0, True)
                offered = offered or Offered(asked, asked, ())
                judge_chain(self.chains, self.trust, turn.lane, offered, turn.drafts, stood, refused)
            self.chains.fade(turn.lane, asked)
            deepest = max(deepest, asked)
            if found is None:
                continue
            if verdict is not None and source == found:
                self.acceptance.observe(turn.lane, found, verdict.accepted, verdict.refused)
            drafts = turn.drafts if found == source else 0
            tried[found] = max(tried.get(found, 0), drafts)
            self.acceptance.fade(turn.lane, found, drafts)
        self.chains.fade_all(deepest)
        for name, drafts in tried.items():
            self.acceptance.fade_all(name, drafts)

    def leave(self, lane: int) -> None:
        """The lane is done or gone; its number may come back as another lane."""
        self.acceptance.leave(lane)
        self.chains.leave(lane)
        self.trust.leave(lane)
        self._passing.leave(lane)
        self._turn.pop(lane, None)
        self._known.pop(lane, None)

    def _candidates(self, decoding: Sequence[Demand]) -> list[Candidate]:
        """Decoding lanes with their best drafts, longest without a turn first."""
        if (
            self._since_s >= PLAN_S_A_LANE * len(decoding)
            or len(decoding) != self._lanes
            or self.costs.windows < LEARNING_WINDOWS
        ):
            self._known.clear()
            self._last = None
            self._shape, self._lanes, self._since_s = None, len(decoding), 0.0
        policy = self.policy
        found = []
        for demand in decoding:
            if demand.lane not in self._turn:
                self._turn[demand.lane] = self._window - 1
                self._passing.leave(demand.lane)
            mtp = self.company.bound(self._lanes, MTP, min(policy.mtp_depth, demand.room)) if demand.mtp else 0
            lookup = min(policy.lookup_depth, demand.room, len(demand.found.tokens))
            lookup = self.company.bound(self._lanes, lookup_source(demand.found.matched), lookup)
            offer = (mtp, lookup * 1024 + demand.found.matched if lookup else 0)
            known = self._known.get(demand.lane)
            if known is None or known[0] != offer:
                known = self._known[demand.lane] = (offer, self._candidate(demand, mtp, lookup))
            found.append(known[1])
        if len(found) > 1:
            found.sort(key=lambda one: self._turn[one.lane])
        return found

    def _candidate(self, demand: Demand, mtp: int, lookup: int) -> Candidate:
        """A lane with the better of its two sources of drafts, at most so many of each."""
        least = self.policy.least_chance
        offers = []
        if mtp > 0:
            offers.append((MTP, self.chains.expected(demand.lane, mtp)))
        if lookup > 0:
            source = lookup_source(demand.found.matched)
            offers.append((source, Chain.whole(self.acceptance.chances(demand.lane, source, lookup, least))))
        return candidate(demand.lane, demand.held, offers, self.costs)

    def _plan(self, candidates: Sequence[Candidate]) -> Allocation:
        """The allocation; how many lanes share it is searched anew now and then only."""
        same = self._last
        unchanged = same is not None and len(same[0]) == len(candidates) == len(same[1].drafts)
        if same is not None and unchanged and all(same[0].get(one.lane) is one for one in candidates):
            return same[1]
        plan = allocate(candidates, self.costs, self._longest_s(), self.policy.most_rows, self._shape)
        self._shape = plan.shape
        self._last = {one.lane: one for one in candidates}, plan
        return plan

    def _tried(self, candidates: Sequence[Candidate], plan: Allocation) -> Allocation | None:
        """A window that is not the planned one, as long as trials have cost little so far."""
        self._trial += 1
        trial = varied(candidates, plan, self._trial, self.costs)
        if trial is None or trial.work.rows > self.policy.most_rows or trial.seconds > self._longest_s():
            return None
        loss = max(0.0, (1 - trial.speedup) * trial.seconds)
        allowed = TRIAL_SHARE * self._served_s + FIRST_TRIALS * plan.seconds
        return trial if self._trials_s + loss <= allowed else None

    def _longest_s(self) -> float:
        """How long a window of decoding lanes may take: SLOW_S, or two windows of one row where those are slower."""
        return max(SLOW_S, 2 * self.costs.seconds(Work(1, 1, 1)))

    def _with_prompts(
        self, plan: Allocation | None, reading: Sequence[Demand]
    ) -> tuple[Allocation | None, dict[int, int]]:
        """Prompt rows beside the plan; without it where sharing the window costs more than a window each."""
        costs, policy = self.costs, self.policy
        readers = [Reader(d.lane, d.pause - d.held, d.known - d.held) for d in reading]
        first = min(reading, key=lambda d: d.known - d.held)
        base = plan.work if plan else Work(0, 0)
        beside = plan.seconds if plan else 0.0

        def alone(rows: int) -> float:
            return costs.seconds(Work(rows, 1, 1, reach=rows * first.held))

        def price(rows: int) -> float:
            reach = base.reach + rows * first.held
            return costs.seconds(replace(base, rows=base.rows + rows, lanes=base.lanes + 1, reach=reach))

        limit = min(sum(reader.wanted for reader in readers), max(1, policy.most_rows - base.rows))
        rows = min(limit, policy.chunk or limit)
        if policy.chunk is None:
            limit = min(limit, policy.largest_chunk, GROWTH * self._most_read)
            rows = chunk_rows(limit, price, beside_s=beside, alone=alone, share=policy.decode_share)
        if plan and price(rows) > beside + alone(rows):
            plan, self._decode_next = None, True
        return plan, self._passing.share_out(readers, rows)

    def _made(
        self, demands: Sequence[Demand], candidates: Sequence[Candidate], plan: Allocation | None, given: dict[int, int]
    ) -> Window:
        """The window of a plan and prompt rows by lane, in order of arrival."""
        drafts = plan.drafts if plan else {}
        sources = {one.lane: one.source for one in candidates}
        work = plan.work if plan else Work(0, 0)
        turns: list[Turn] = []
        matched: dict[int, int] = {}
        drawn, reach = work.drawn, work.reach
        for demand in demands:
            if demand.reading and (count := given.get(demand.lane, 0)):
                draws = demand.held + count == demand.known
                turns.append(Turn(demand.lane, count, draws))
                drawn += draws
                reach += count * demand.held
            elif not demand.reading and demand.lane in drafts:
                self._turn[demand.lane] = self._window
                number, source = drafts[demand.lane], sources[demand.lane]
                if demand.found.tokens:
                    matched[demand.lane] = demand.found.matched
                named = None if not number else MTP if source == MTP else LOOKUP
                turns.append(Turn(demand.lane, demand.known - demand.held, True, number, named))
        rows = sum(given.values())
        work = replace(work, rows=work.rows + rows, lanes=work.lanes + len(given), drawn=drawn, reach=reach)
        decode_s = plan.seconds if plan else 0.0
        least = self._least(turns, work)
        return Window(tuple(turns), work, self.costs.seconds(work), decode_s, rows, matched, least=least)

    def _least(self, turns: Sequence[Turn], work: Work) -> dict[int, float]:
        """What the block has to say at least of a chain, by lane, for its drafts to be worth their rows."""
        if not work.steps:
            return {}
        row = self.costs.rows_seconds(work.rows) - self.costs.rows_seconds(work.rows - 1) + self.costs.drawn
        least = {}
        for turn in turns:
            if turn.source == MTP:
                chance = CAUTION * self._rate * row / self._known[turn.lane][1].worth
                least[turn.lane] = self.trust.said(turn.lane, chance)
        return least
