"""What a client is told about one request, in its form: the control lines, a slot, or a lane (docs/protocol.md)."""

from collections.abc import Callable
from dataclasses import replace

from strata import logs
from strata.engine.lane import Lane
from strata.engine.logprobs import LogProbs
from strata.engine.protocol import (
    Admitted,
    Done,
    Err,
    LaneDone,
    LaneErr,
    LaneProgress,
    LaneResume,
    LogProb,
    Progress,
    Report,
    Resume,
    Reused,
    SlotDone,
    SlotLogProb,
    SlotToken,
    Token,
    Yielded,
)

Emit = Callable[[Report], None]
log = logs.get("engine")


class Voice:
    """The control lines' form (GEN). Times are those of `clock`, in seconds; the lines have milliseconds."""

    def __init__(self, emit: Emit, clock: Callable[[], float], lane: Lane) -> None:
        self.lane = lane
        self._name: int | None = None  # of the slot or lane in whose lines tokens are told
        self._emit = emit
        self._clock = clock
        self._begun = clock()
        self._read: float | None = None

    def admitted(self) -> None:
        """The request has a lane."""
        if self.lane.reused:
            self._emit(Resume(self.lane.reused))
            self._emit(Reused(self.lane.reused))

    def progress(self) -> None:
        """A window read prompt tokens."""
        self._emit(Progress(self.lane.held, self.lane.prompt, *self._reading()))

    def token(self, token: int, chance: LogProbs | None = None) -> None:
        """A token was drawn."""
        if self._read is None:
            self._read = self._clock()
        if chance is not None:
            values = (chance.token, chance.top)
            self._emit(LogProb(*values) if self._name is None else SlotLogProb(self._name, *values))
        self._emit(Token(token) if self._name is None else SlotToken(self._name, token))

    @property
    def leaves_control(self) -> bool:
        """Whether the lane goes on, and the control lines will be free once `left_control` has said so."""
        return False

    def left_control(self) -> None:
        """Say it."""

    def gave_way(self, slot: int) -> None:
        """The read is kept for a slot; `done` follows."""
        self._emit(Yielded(slot, self.lane.held))

    def done(self) -> None:
        """The lane has its finish."""
        self._told()
        self._emit(self._done(str(self.lane.finish)))

    def failed(self, reason: str) -> None:
        """The request ends without an answer."""
        self._emit(Err(reason))

    def _reading(self) -> tuple[float, float]:
        seconds = self._clock() - self._begun
        return seconds * 1000, (self.lane.held - self.lane.reused) / seconds if seconds > 0 else 0.0

    @property
    def _times(self) -> tuple[float, float]:
        """Milliseconds of the prompt and of the tokens."""
        end = self._clock()
        read = end if self._read is None else self._read
        return (read - self._begun) * 1000, (end - read) * 1000

    @property
    def _prompt_read(self) -> int:
        return min(self.lane.held, self.lane.prompt) - self.lane.reused

    def _done(self, finish: str) -> Done:
        lane = self.lane
        return Done(
            lane.generated, lane.prompt, *self._times, finish, lane.stood, lane.offered, lane.reused,
            prompt_read=self._prompt_read,
        )  # fmt: skip

    def _told(self) -> None:
        lane, (prompt_ms, decode_ms) = self.lane, self._times
        log.info(
            "prompt %d (%d reused, %d read in %.0f ms), generated %d in %.0f ms, drafts %d of %d, %s",
            lane.prompt, lane.reused, self._prompt_read, prompt_ms, lane.generated, decode_ms, lane.stood, lane.offered,
            lane.finish,
        )  # fmt: skip


class SlotVoice(Voice):
    """The form of BGEN: read and begun on the control lines, then a slot's."""

    def __init__(self, emit: Emit, clock: Callable[[], float], lane: Lane, slot: int, drafts: bool) -> None:
        super().__init__(emit, clock, lane)
        self._slot = slot
        self._drafts = drafts

    @property
    def leaves_control(self) -> bool:
        return self._name is None

    def left_control(self) -> None:
        self._name = self._slot
        self._emit(self._done("length"))
        self._emit(Admitted(self._slot, True))

    def done(self) -> None:
        if self._name is None:
            super().done()
            self._emit(Admitted(self._slot, False))
            return
        self._told()
        self._end(str(self.lane.finish))

    def failed(self, reason: str) -> None:
        if self._name is not None:
            log.warning("slot %d ends here: %s", self._slot, reason)
            self._end("cancel")
        else:
            super().failed(reason)

    def _end(self, finish: str) -> None:
        lane = self.lane
        done = SlotDone(self._slot, lane.generated, finish, self._times[1])
        if self._drafts:
            done = replace(done, drafts_accepted=lane.stood, drafts_offered=lane.offered)
            log.info("strata batch MTP: drafts accepted %d of %d", lane.stood, lane.offered)
        self._emit(done)


class LaneVoice(Voice):
    """The form of LANES: every line names the lane."""

    def __init__(self, emit: Emit, clock: Callable[[], float], lane: Lane, name: int) -> None:
        super().__init__(emit, clock, lane)
        self._name = self._lane = name

    def admitted(self) -> None:
        self._emit(LaneResume(self._lane, self.lane.reused))

    def progress(self) -> None:
        self._emit(LaneProgress(self._lane, self.lane.held, self.lane.prompt, *self._reading()))

    def done(self) -> None:
        self._told()
        lane, (prompt_ms, decode_ms) = self.lane, self._times
        self._emit(
            LaneDone(
                self._lane, lane.generated, str(lane.finish), decode_ms, lane.stood, lane.offered, lane.prompt,
                prompt_ms, lane.reused, self._prompt_read,
            )
        )  # fmt: skip

    def failed(self, reason: str) -> None:
        self._emit(LaneErr(self._lane, reason))
