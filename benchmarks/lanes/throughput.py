"""Cases about tokens a second: several conversations against one at a time, and one alone against an engine for one."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.lanes.client import Request
from benchmarks.lanes.figures import Figures, case, watched
from benchmarks.lanes.outcome import decoding_in_turn, one_by_one, together
from benchmarks.lanes.sides import LANES, NO_DRAFTS, ONE_LANE, PEER, Sides, peer_outcome
from benchmarks.rounds import Watch, rotated


class Together:
    """`count` conversations at once; the baseline serves the same ones after each other, with drafts or without."""

    def __init__(self, sides: Sides, count: int) -> None:
        self.name = f"{count} conversation{'s' if count > 1 else ''}"
        self._sides, self._count = sides, count
        self._figures = Figures()

    def measure(self, turn: int) -> None:
        """One round: every side on the same new prompts."""
        sides, new = self._sides, self._sides.sizes.new
        prompts = sides.conversations(self._count)
        names = [LANES, ONE_LANE, *([NO_DRAFTS] if sides.drafts else []), PEER]
        for name in rotated(names, turn):
            if name != PEER:
                engine, serve = sides.engine(name), together if name == LANES else one_by_one
                outcome, others = watched(engine, partial(serve, engine, prompts, new))
                self._figures.add_outcome(turn, name, outcome, others)
            elif (peer := sides.peer()) is not None:
                watch = Watch()
                outcome = peer_outcome(peer, prompts, new)
                self._figures.add_outcome(turn, name, outcome, watch.others(peer.cpu))

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """Total tokens a second and the median first token; the best one at a time is the baseline of both."""
        found = self._figures
        best = max((side for side in (ONE_LANE, NO_DRAFTS) if found.has(side)), key=lambda s: found.median(s, "total"))
        for metric, unit, name in (("total", "tokens/s", "total"), ("first", "s", "first token")):
            more: dict[str, Any] = {
                "baseline_is": f"one at a time, {'drafts off' if best == NO_DRAFTS else 'drafts on'}",
                "llamacpp": found.median(PEER, metric) if found.has(PEER) else None,
                "spread": [found.spread(side, metric) for side in (LANES, best)],
                "cold": [found.cold[side, metric] for side in (LANES, best)],
                "others": found.busiest,
            }
            if metric == "total":
                more["decoding"] = found.medians("decoding")
                more["totals"] = found.medians("total")
            else:
                more["last_first_token"] = found.medians("last")
            yield case(
                f"{model}, {self.name}, {name}", unit, found.median(LANES, metric), found.median(best, metric), **more
            )


class Alone:
    """One conversation at a time on an engine for many and on one that is limited to one lane, in turn."""

    name = "alone"
    REPEATS = 4

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._figures = Figures()

    def measure(self, turn: int) -> None:
        """One round: a few conversations, each on both."""
        sides = self._sides
        done: dict[str, list[Request]] = {LANES: [], ONE_LANE: []}
        others = []
        for repeat, prompt in enumerate(sides.conversations(self.REPEATS)):
            for name in rotated([LANES, ONE_LANE], turn + repeat):
                engine = sides.engine(name)
                request, busy = watched(engine, partial(engine.answer, prompt, sides.sizes.lone))
                done[name].append(request)
                others.append(busy)
        for name, requests in done.items():
            self._figures.add(
                turn,
                name,
                max(others),
                total=sum(r.generated for r in requests) / sum(r.seconds for r in requests),
                decoding=decoding_in_turn(requests),
                first=sum(r.first for r in requests) / len(requests),
            )

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """Tokens a second with the prompts; 0.97 or more is wanted."""
        found = self._figures
        yield case(
            f"{model}, alone against an engine for one",
            "tokens/s",
            found.median(LANES, "total"),
            found.median(ONE_LANE, "total"),
            baseline_is="--max-lanes 1",
            wanted=0.97,
            spread=[found.spread(side, "total") for side in (LANES, ONE_LANE)],
            decoding=found.medians("decoding"),
            first=found.medians("first"),
            others=found.busiest,
        )
