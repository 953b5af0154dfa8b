"""Which decoding lanes share the next window, and how many drafts each gets. Pure arithmetic over prices and chances.

What counts is the progress of a window in seconds of serving alone: a token of a lane is worth the time that the lane,
alone and with its best drafts, needs for one. A window in which that progress exceeds the window's own price is faster
than serving one lane after the other, and one lane alone has progress = price by definition: so the best window never
loses against taking turns, whatever rows cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.engine.acceptance import MTP
from strata.engine.chains import Chain
from strata.engine.costs import CostModel, Work

TURNS_GAIN = 1.01


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decoding lane: the tokens before its next row, its source of drafts, and the chance that d of them stand.

    Of d drafts asked for, `rows` are expected to be verified and `steps` of the MTP block to be computed, by depth.
    `alone` is its best number of drafts without company, `worth` the seconds a token takes it then.
    """

    lane: int
    held: int
    source: str | None
    chances: Sequence[float]
    rows: Sequence[float]
    steps: Sequence[float]
    alone: int
    worth: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """Lanes that decode and their drafts; the expected price, and the progress for it (1: that of serving alone).

    `shape` (how many lanes, how deep the MTP block may draft) is what a later window of as many lanes may start from.
    """

    drafts: dict[int, int]
    work: Work
    seconds: float
    speedup: float
    shape: tuple[int, int]


def candidate(lane: int, held: int, offers: Sequence[tuple[str, Chain]], costs: CostModel) -> Candidate:
    """The lane with the best of its `offers`, (source, drafts) each: the one that alone earns most tokens a second."""
    row = costs.drawn + costs.reach * held
    best = Candidate(lane, held, None, (), (), (), 0, costs.rows_seconds(1) + costs.lane + row)
    for source, chain in offers:
        step = costs.step + costs.drafted if source == MTP else 0.0
        tokens, steps = 1.0, 0.0
        rows: float = 1
        alone, worth = 0, best.worth
        for depth, chance in enumerate(chain.stand):
            tokens += chance
            rows += chain.rows[depth]
            steps += chain.steps[depth]
            price = costs.rows_seconds(rows) + costs.lane + rows * row + steps * step
            if price < worth * tokens:
                alone, worth = depth + 1, price / tokens
        # A lane that should not draft alone may still draft in company, where a row is cheaper.
        if alone or best.source is None:
            best = Candidate(lane, held, source, chain.stand, chain.rows, chain.steps, alone, worth)
    return best


def allocate(
    candidates: Sequence[Candidate],
    costs: CostModel,
    longest_s: float,
    most_rows: int,
    shape: tuple[int, int] | None = None,
) -> Allocation:
    """The next window of lanes in the order of their claim (longest waiting first), at least one.

    Groups are the first n, n/2, n/4, .. lanes; a smaller one has to earn more than a larger one by a margin. A window
    stays below `longest_s` and `most_rows` unless it has one lane and no draft. `shape` saves the search: that of an
    earlier window of as many lanes.
    """
    best = _alone(candidates[0], costs, longest_s, most_rows)
    size = len(candidates) if shape is None else shape[0]
    if size == 1:
        return best
    rows = sorted(
        (-one.worth * chance, depth, rank)
        for rank, one in enumerate(candidates[:size])
        for depth, chance in enumerate(one.chances, 1)
    )
    if shape is not None:
        return _in_company(candidates[:size], rows, shape[1], costs, longest_s, most_rows) or best
    deepest = max((len(one.chances) for one in candidates if one.source == MTP), default=0)
    shared: Allocation | None = None
    caps = range(deepest + 1)
    while size > 1:
        group = candidates[:size]
        found = [_in_company(group, rows, cap, costs, longest_s, most_rows) for cap in caps]
        top = max((f for f in found if f is not None), key=lambda f: f.speedup, default=None)
        if top is not None and (shared is None or top.speedup > shared.speedup * TURNS_GAIN):
            shared = top
            caps = range(max(0, top.work.steps - 1), min(deepest, top.work.steps + 1) + 1)
        size = (size + 1) // 2
    if shared is None or best.speedup > shared.speedup * TURNS_GAIN:
        return best
    return shared


def varied(candidates: Sequence[Candidate], plan: Allocation, turn: int, costs: CostModel) -> Allocation | None:
    """Another window than the planned one, to learn prices that it alone never shows; None if it would be the same.

    In turn: no drafts, one more a lane, twice as many lanes, half as many, one lane without drafts. Its `speedup` is
    relative to the plan's: below 1 where it is expected to earn less.
    """
    size = len(plan.drafts)
    sizes = (size, size, min(2 * size, len(candidates)), max(1, size // 2), 1)
    more = (None, 1, 0, 0, None)
    kind = turn % len(sizes)
    usual = max(plan.drafts.values())
    lanes = []
    for one in candidates[: sizes[kind]]:
        change = more[kind]
        drafts = 0 if change is None else min(plan.drafts.get(one.lane, usual) + change, len(one.chances))
        lanes.append((one, drafts))
    drafts_by_lane = {one.lane: drafts for one, drafts in lanes}
    if drafts_by_lane == plan.drafts:
        return None
    work = _work(lanes)
    seconds = _expected(lanes, costs)
    value = sum(one.worth * (1.0 + sum(one.chances[:drafts])) for one, drafts in lanes)
    return Allocation(drafts_by_lane, work, seconds, value / seconds / plan.speedup, plan.shape)


def _alone(one: Candidate, costs: CostModel, longest_s: float, most_rows: int) -> Allocation:
    """One lane with its best drafts, fewer where the window would last too long."""
    for drafts in range(one.alone, -1, -1):
        work = _work([(one, drafts)])
        seconds = _expected([(one, drafts)], costs)
        if not drafts or (seconds <= longest_s and work.rows <= most_rows):
            break
    tokens = 1.0 + sum(one.chances[:drafts])
    speedup = one.worth * tokens / seconds if seconds > 0 else 1.0
    return Allocation({one.lane: drafts}, work, seconds, speedup, (1, one.alone))


def _in_company(
    group: Sequence[Candidate],
    rows: Sequence[tuple[float, int, int]],
    cap: int,
    costs: CostModel,
    longest_s: float,
    most_rows: int,
) -> Allocation | None:
    """All lanes of the group; drafts by falling value, down to where the window earns most. None: it lasts too long.

    Chances never grow with depth, so falling value takes a lane's drafts in order. `cap` bounds the MTP block's depth,
    since one more step of it is paid for every lane at once.
    """
    size = len(group)
    count: float = size
    value = sum([one.worth for one in group])
    price = paid = size * (costs.drawn + costs.lane) + costs.reach * sum([one.held for one in group])
    rows_seconds, step, drafted = costs.rows_seconds, costs.step, costs.drafted
    price += rows_seconds(count)
    if price > longest_s or size > most_rows:
        return None
    steps = taken = 0
    computed = 0.0  # rows of the MTP block
    drafters: list[Sequence[float]] = []
    best, best_price, best_taken = value / price, price, 0
    most = size
    order: list[tuple[int, int]] = []
    for negative, depth, rank in rows:
        if rank >= size:
            continue
        one = group[rank]
        if one.source == MTP:
            if depth > cap:
                continue
            if depth == 1:
                drafters.append(one.steps)
                computed += sum(one.steps[:steps])
            if depth > steps:
                steps = depth
                computed = sum([sum(ran[:steps]) for ran in drafters])
        share = one.rows[depth - 1]
        count += share
        most += 1
        paid += share * (costs.drawn + costs.reach * one.held)
        price = paid + rows_seconds(count) + steps * step + computed * drafted
        if price > longest_s or most > most_rows:
            break
        value -= negative
        taken += 1
        order.append((rank, depth))
        if value > best * price:
            best, best_price, best_taken = value / price, price, taken
    drafts = dict.fromkeys(range(size), 0)
    drafts.update(order[:best_taken])
    work = _work([(one, drafts[rank]) for rank, one in enumerate(group)])
    return Allocation({one.lane: drafts[rank] for rank, one in enumerate(group)}, work, best_price, best, (size, cap))


def _expected(lanes: Sequence[tuple[Candidate, int]], costs: CostModel) -> float:
    """The expected price of a window of these lanes, drafts asked for so many."""
    rows: float = 0
    paid = computed = 0.0
    depths = [drafts for one, drafts in lanes if one.source == MTP and drafts]
    steps = max(depths, default=0)
    for one, drafts in lanes:
        own = 1 + sum(one.rows[:drafts])
        rows += own
        paid += own * (costs.drawn + costs.reach * one.held)
        if one.source == MTP and drafts:
            computed += sum(one.steps[:steps])
    return costs.rows_seconds(rows) + costs.lane * len(lanes) + paid + costs.step * steps + costs.drafted * computed


def _work(lanes: Sequence[tuple[Candidate, int]]) -> Work:
    """What a window of these lanes and drafts does; one call of the MTP block drafts for all, as deep as any."""
    rows = len(lanes) + sum([drafts for _, drafts in lanes])
    depths = [drafts for one, drafts in lanes if one.source == MTP and drafts]
    steps = max(depths, default=0)
    reach = sum([one.held * (1 + drafts) for one, drafts in lanes])
    return Work(rows, len(lanes), drawn=rows, steps=steps, drafted=steps * len(depths), reach=reach)
