"""Random lives of an engine whose client knows nothing of lanes: control lines, slots, reads that give way, files."""

from dataclasses import replace
from pathlib import Path

from schedules import Asked, Schedule, World

from strata.engine.protocol import (
    NO_SLOT,
    Admitted,
    Done,
    Err,
    PoolState,
    Report,
    Restored,
    Resume,
    Saved,
    SessionError,
    SlotDone,
    SlotToken,
    Token,
    Yielded,
)


class SlotSchedule(Schedule):
    """Requests are sent whatever is in progress; the client has to find out from the lines whose each of them is."""

    hello = ()
    slots = 3

    def __init__(self, world: World, seed: int, directory: Path) -> None:
        super().__init__(world, seed, directory)
        self.counts |= dict.fromkeys(("admitted", "yielded", "saved", "restored", "no_slot"), 0)
        self._engine_limits = replace(self._engine_limits, slots=self.slots, tell_pool=True)
        self._sent: list[tuple[int | None, Asked | None]] = []  # on the control lines: slot and request, None for files
        self._slots: dict[int, Asked] = {}
        self._done: Done | None = None  # of an admission
        self._file = directory.with_suffix(".session")

    def _ask(self) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self._sent.append((None, None))
            self._inbox.put(f"{rng.choice(['SAVE', 'RESTORE'])} {self._file}")
        one = self._new()
        slot = None if rng.random() < 0.4 else rng.randrange(self.slots + 1)
        if slot is None:
            one.count = min(one.count, self.world.context - len(one.prompt) - 8)
        self._sent.append((slot, one))
        word = "GEN" if slot is None else f"BGEN {slot}"
        self._inbox.put(f"{word} {one.count} {one.keys} {','.join(map(str, one.prompt))}")

    def _wish(self) -> str:
        slot = self.rng.randrange(self.slots + 1)
        return self.rng.choice(["STOP", f"BSTOP {slot}", f"BYIELD {slot}", f"BYIELD {slot}"])

    def _report(self, report: Report) -> None:
        match report:
            case SlotToken(slot, token):
                self._slots[slot].tokens.append(token)
            case SlotDone():
                one = self._slots.pop(report.slot)
                self._ended(one, report.finish, report.generated, report.drafts_accepted or 0)
            case PoolState():
                self._pool = report
            case _:
                self._on_control(report, *self._sent[0])

    def _on_control(self, report: Report, slot: int | None, one: Asked | None) -> None:
        """A line of the control lines, for the oldest that was sent there."""
        if one is None:
            assert isinstance(report, Saved | Restored | SessionError), report
            self.counts["saved"] += isinstance(report, Saved)
            self.counts["restored"] += isinstance(report, Restored)
            self._sent.pop(0)
            return
        match report:
            case Token(token):
                one.tokens.append(token)
            case Resume(tokens):
                one.resumed = tokens
                self.counts["resumed"] += 1
            case Yielded():
                self.counts["yielded"] += 1
            case Done() if slot is None:
                self._ended(one, report.finish, report.generated, report.drafts_accepted)
                self._sent.pop(0)
            case Done():
                self._done = report
            case Admitted(name, goes_on):
                done, self._done = self._done, None
                assert (name, done is not None) == (slot, True), "no BADM without its DONE"
                assert done is not None
                self.counts["admitted"] += goes_on
                if goes_on:
                    assert name not in self._slots
                    assert (done.generated, done.finish) == (1, "length")
                    self._slots[name] = one
                else:
                    self._ended(one, done.finish, done.generated, done.drafts_accepted)
                self._sent.pop(0)
            case Err(reason):
                assert not one.tokens
                one.finish = "refused"
                if reason == NO_SLOT:
                    assert slot is not None
                    assert slot in self._slots or slot >= self.slots, "the slot was free"
                    self.counts["no_slot"] += 1
                else:
                    assert reason.startswith("KV pool full"), reason
                    self.counts["refused"] += 1
                self._sent.pop(0)

    def _ended(self, one: Asked, finish: str, generated: int, drafts: int) -> None:
        assert one.finish is None, "an end is told twice"
        assert generated == len(one.tokens)
        one.finish = finish
        self._count(one, drafts)
