"""One request in flight: what the engine has said of it, and how long it may be silent about it."""

from collections.abc import AsyncGenerator, Callable

from strata.engine.protocol import Done, Gen, Progress, Report, Token
from strata.errors import EngineError
from strata.server.mailbox import Mailbox

CHUNK = 8192
"""Tokens of a prompt that an engine may read before it says how far it is."""


class Flight:
    """A request that was sent. Its lines arrive as the reports of a request alone, whatever form the engine speaks.

    `slowest_prompt`: tokens per second below which a prompt counts as not being read. `on_line` is told each line
    first; `on_end`, how the request finished, and the code of its error.
    """

    def __init__(
        self,
        command: Gen,
        lane: int,
        slowest_prompt: float,
        on_stop: Callable[[], None],
        on_line: Callable[[Report], None] = lambda report: None,
        on_end: Callable[[str, str | None], None] = lambda finish, error: None,
    ) -> None:
        self.lane = lane
        self.ended = False
        self._prompt = len(command.ids)
        self._tokens = 0
        self._on_stop = on_stop
        self._on_line = on_line
        self._on_end = on_end
        self._stopped = False
        self._enough = False
        self._read = True
        self._reading_s = min(self._prompt, CHUNK) / slowest_prompt
        self._last_ms = 0.0
        self._arrived: Mailbox[Report | EngineError] = Mailbox()

    @property
    def patience_s(self) -> float:
        """Seconds of silence allowed for reading the prompt: of the first chunk a guess, then thrice the last one's."""
        return 0.0 if self.ended else self._reading_s

    @property
    def doing(self) -> str:
        """What the engine does for this request, as the end of a sentence."""
        if not self._read:
            return "ending a request"
        if self._tokens:
            return f"writing this reply (after {self._tokens} tokens)"
        return f"reading this request's prompt of {self._prompt} tokens"

    def take(self, report: Report) -> None:
        """One more line of this request."""
        self._on_line(report)
        if isinstance(report, Progress):
            self._reading_s, self._last_ms = 3 * max(0.0, report.ms - self._last_ms) / 1000, report.ms
        elif isinstance(report, Token):
            self._tokens += 1
            self._reading_s = 0.0
        if isinstance(report, Done):
            self.ended = True
            self._on_end(self._finish(report), None)
        if self._read:
            self._arrived.put(report)

    def fail(self, error: EngineError) -> None:
        """The request ends with an error instead of a DONE."""
        self.ended = True
        self._on_end("error", getattr(error, "code", "engine_error"))
        if self._read:
            self._arrived.put(error)

    def stop(self, *, enough: bool = True) -> None:
        """Ask the engine to end the request at its next window; DONE follows in `reports`.

        `enough`: what there is makes a whole reply, as after a stop string; else it is cut off.
        """
        if not (self.ended or self._stopped):
            self._stopped, self._enough = True, enough
            self._on_stop()

    def abandon(self) -> None:
        """Nobody reads the reports any more: what is left of the request ends in the background."""
        self._read = False
        self.stop(enough=False)

    def _finish(self, done: Done) -> str:
        """How the request ended for its client."""
        return "stop" if done.finish == "cancel" and self._enough else done.finish

    async def reports(self) -> AsyncGenerator[Report, None]:
        """The engine's lines up to and with DONE. Raises EngineRefused, EngineDied or EngineStalled."""
        while True:
            report = await self._arrived.get()
            if isinstance(report, EngineError):
                raise report
            yield report
            if isinstance(report, Done):
                return
