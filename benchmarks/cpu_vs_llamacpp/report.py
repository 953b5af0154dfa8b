"""A table for people, and one JSON object for programs."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cpu_vs_llamacpp.cases import Case
from benchmarks.cpu_vs_llamacpp.measure import Results
from benchmarks.cpu_vs_llamacpp.traffic import Share, Traffic, share

OURS = "ours"


@dataclass(frozen=True)
class Measured:
    """One model's results with what is needed to judge them; limits in bytes and multiply-adds a second."""

    model: str
    results: Results
    traffic: Traffic
    distinct: dict[str, float]
    read: list[float]
    peak: list[float]
    memory: dict[str, dict[str, int]]

    def share(self, case: Case, speed: float) -> Share:
        """How near a speed comes to the machine's limits."""
        limits = statistics.median(self.read), statistics.median(self.peak)
        return share(case, speed, self.traffic, self.distinct, *limits)


def table(measured: Measured, sides: Sequence[str]) -> Iterator[str]:
    """Lines: a case a row, medians of the rounds in tokens a second with their spread, ratios, shares of the limits."""
    m = measured
    yield (
        f"{m.model}: {m.traffic.layers} layers, {m.traffic.experts} experts; a decoded token reads "
        f"{m.traffic.step_bytes(m.traffic.used) / 1e6:.0f} MB of weights; the machine reads "
        f"{statistics.median(m.read) / 1e9:.1f} GB/s and does {statistics.median(m.peak) / 1e9:.0f} G int8 MAC/s"
    )
    for side in sides:
        use = m.memory[side]
        own, mapped = (use[kind] / 2**30 for kind in ("anonymous", "files"))
        yield f"  {side}: resident {own:.2f} GiB of its own and {mapped:.2f} GiB of the file"
    ratios = "".join(f"{'/ ' + s:>10}" for s in sides if s != OURS) if OURS in sides else ""
    yield "  " + f"{'case':<18}" + "".join(f"{s:>17}" for s in sides) + ratios + "   read  int8  bound       others"
    for case, by_side in m.results.series.items():
        if by_side:
            yield "  " + _row(m, case, sides)
    for (side, name), (drafted, accepted) in m.results.drafts.items():
        if drafted:
            yield f"  {name}, {side}: {accepted} of {drafted} drafts accepted"
    for (side, name), why in m.results.refused.items():
        yield f"  {name}: not measured on {side}: {why}"


def _row(m: Measured, case: Case, sides: Sequence[str]) -> str:
    found = m.results.series[case]
    cells = [f"{found[s].median:>9.1f} ±{found[s].spread * 50:>3.0f} %" if s in found else f"{'-':>16}" for s in sides]
    line = f"{case.name:<18}" + "".join(f" {c}" for c in cells)
    if OURS in sides:
        for side in sides:
            if side != OURS:
                both = side in found and OURS in found
                line += f"{found[OURS].median / found[side].median:>9.2f}x" if both else f"{'-':>10}"
    if case.kind != "drafted":
        first = next(s for s in sides if s in found)
        part = m.share(case, found[first].median)
        line += f"  {part.bandwidth:>4.0%}  {part.compute:>4.0%}  {part.bound:<9}"
    else:
        line += " " * 23
    return line + f"{statistics.median(x for s in found.values() for x in s.others):>6.2f}"


def cases(measured: Measured, sides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One object a model, case and peer; `ours` and `ratio` are null where only peers were measured."""
    for case, by_side in measured.results.series.items():
        mine = by_side.get(OURS)
        for side in sides:
            if side == OURS or side not in by_side:
                continue
            peer = by_side[side]
            yield {
                "case": f"{measured.model}, {case.name}, against {side}",
                "ours": _rounded(mine.median) if mine else None,
                "peer": _rounded(peer.median),
                "ratio": _rounded(mine.median / peer.median) if mine else None,
                "spread": [_rounded(s.spread) if s else None for s in (mine, peer)],
                "others": [_rounded(statistics.median(s.others)) if s else None for s in (mine, peer)],
                **_shares(measured, case, mine.median if mine else None, peer.median),
            }
    yield from _best_drafts(measured, sides)


def _shares(measured: Measured, case: Case, mine: float | None, peer: float) -> dict[str, Any]:
    if case.kind == "drafted":
        return {}
    found = [measured.share(case, speed) if speed else None for speed in (mine, peer)]
    return {
        "step_bytes": round(next(f for f in found if f).step_bytes),
        "bandwidth": [_rounded(f.bandwidth) if f else None for f in found],
        "int8": [_rounded(f.compute) if f else None for f in found],
        "bound": [f.bound if f else None for f in found],
    }


def _best_drafts(measured: Measured, sides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each side with the number of drafts that suits it."""
    best: dict[str, float] = {}
    for case, by_side in measured.results.series.items():
        if case.kind == "drafted" and case.drafts:
            for side, series in by_side.items():
                best[side] = max(best.get(side, 0.0), series.median)
    for side in sides:
        if side != OURS and side in best and OURS in best:
            yield {
                "case": f"{measured.model}, text with drafts, best number of each, against {side}",
                "ours": _rounded(best[OURS]),
                "peer": _rounded(best[side]),
                "ratio": _rounded(best[OURS] / best[side]),
            }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
