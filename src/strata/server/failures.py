"""How a request can fail on the engine's side; each error says what happened and carries a code for clients."""

from strata.errors import EngineError


class EngineUnavailable(EngineError):
    """The engine is not running (did not start, is shutting down) or too many requests wait for it."""

    code = "engine_unavailable"
    retry_after_s: int | None = 15


class TooManyWaiting(EngineError):
    """So many requests wait for the engine that no more are taken."""

    code = "too_many_waiting"
    retry_after_s: int | None = 5

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests are waiting already, and no more may (--max-waiting); try again later.")


class EngineDied(EngineError):
    """The engine process ended while it worked on the request."""

    code = "engine_died"
    retry_after_s: int | None = 5


class EngineStalled(EngineError):
    """The engine sent nothing for too long, or lines that cannot be read, and was killed."""

    code = "engine_stalled"
    retry_after_s: int | None = 5


class EngineRefused(EngineError):
    """The engine answered `ERR <reason>`: the request is refused, the engine goes on."""

    code = "engine_refused"

    def __init__(self, reason: str) -> None:
        wrong = reason.removeprefix("bad request: ")
        about_grammar = wrong.startswith("grammar: ")
        super().__init__(
            f"The grammar cannot be enforced: {wrong.removeprefix('grammar: ')}" if about_grammar
            else f"The engine refused the request: {reason}"
        )
        self.reason = reason
        full = reason.startswith("KV pool full")
        self.code = "kv_pool_full" if full else "engine_refused"
        self.retry_after_s: int | None = 10 if full else None

    @property
    def about_request(self) -> bool:
        """Whether the request itself is at fault (too long, bad values), so that sending it again cannot help."""
        # A grammar can turn out to have no text at all only when it is followed.
        return self.reason.startswith(("bad request", "grammar:")) or "exceeds the context" in self.reason
