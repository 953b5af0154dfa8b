"""The engine as a child process, for the scripts beside this file: starts it, speaks docs/protocol.md, keeps the books.

Every line that the engine says is checked against what was asked and said before, so that a script only has to compare
tokens. The scripts' exit codes: 0 all as it should be, 2 something differs, 1 the engine broke the protocol or ended.
"""

import contextlib
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from engine_config import BrokenProtocol, Config, environment_of, log_path

from strata.engine.protocol import FINISHES, parse_report
from strata.errors import EngineError

READY_S = 900.0
QUIT_S = 180.0


@dataclass(eq=False)
class Request:
    """One request and all that the engine said of it. `slot` is None for a GEN."""

    slot: int | None
    limit: int
    prompt: int
    tokens: list[int] = field(default_factory=list)
    reused: int | None = None
    """What the last REUSED line said; None without one."""
    resumed: int | None = None
    progress: list[tuple[int, int]] = field(default_factory=list)
    yielded: int | None = None
    done: list[str] | None = None
    """The fields of its DONE."""
    admitted: bool | None = None
    finish: str | None = None
    meanwhile: int = 0
    """Tokens that other slots got between this prompt's first PP and its first token."""
    started: float = field(default_factory=time.monotonic)
    ended: float = 0.0

    def __str__(self) -> str:
        return "GEN" if self.slot is None else f"slot {self.slot}"

    def end(self, finish: str) -> None:
        self.finish, self.ended = finish, time.monotonic()


@dataclass(frozen=True)
class Line:
    """One line of the engine."""

    word: str
    values: list[str]
    text: str

    def number(self, index: int) -> int:
        """A value that must be a whole number, 0 or more."""
        value = self.values[index] if index < len(self.values) else ""
        if not value.isdecimal():
            raise BrokenProtocol(f"value {index + 1} of {self.text!r} is not a whole number")
        return int(value)


class Engine:
    """An engine process. Leaving the `with` sends QUIT; an exit code other than 0 is a broken protocol.

    `control` is the request on the control lines (a GEN, or a BGEN until its BADM), `slots` are those that decode.
    """

    def __init__(
        self, config: Config, *, batch: int = 0, extra: str = "", silence_s: float = 240.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        command = [config.exe, "--serve", *config.args, *(["--batch", str(batch)] if batch else ())]
        self.command = [*command, *shlex.split(extra)]
        self.silence_s = silence_s
        self.info: dict[str, str] = {}
        self.context = 0
        self.control: Request | None = None
        self.slots: dict[int, Request] = {}
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._log = log_path().open("w", encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                self.command, cwd=config.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                text=True, encoding="utf-8", errors="replace", bufsize=1, env=environment_of(config, env or {}),
            )  # fmt: skip
        except OSError as error:
            self._log.close()
            raise BrokenProtocol(f"cannot start {config.exe}: {error.strerror}") from None
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self._wait_ready()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._kill()
            return
        self.close()

    @property
    def log(self) -> str:
        """What the engine has logged so far."""
        return log_path().read_text(encoding="utf-8", errors="replace")

    def send(self, line: str) -> None:
        """One line to the engine."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def close(self) -> None:
        """QUIT, and wait: the engine must say nothing more of any request, and end with exit code 0."""
        self.send("QUIT")
        try:
            code = self._process.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            raise BrokenProtocol(f"the engine did not end within {QUIT_S:g} s of QUIT") from None
        while (text := self._lines.get()) is not None:
            if text.split(" ")[0] in ("T", "BT", "DONE", "BADM", "BDONE", "ERR", "FATAL"):
                raise BrokenProtocol(f"after the last request had ended the engine said {text!r}")
        self._log.close()
        if code:
            raise BrokenProtocol(f"the engine ended with exit code {code}{self._log_end()}")

    # ------------------------------------------------------------------------------------------------ asking

    def ask(
        self, max_new: int, ids: Sequence[int], keys: str = "", *, stop_after: int | None = None
    ) -> Request:
        """A GEN to its DONE; with `stop_after`, STOP is sent as soon as so many tokens have come."""
        request = self._begin(None, max_new, ids, keys)
        while request.finish is None:
            self.take()
            if stop_after is not None and len(request.tokens) >= stop_after and request.finish is None:
                self.send("STOP")
                stop_after = None
        return request

    def admit(
        self, slot: int, max_new: int, ids: Sequence[int], keys: str = "", *, gives_way: bool = False
    ) -> Request:
        """A BGEN to its BADM; with `gives_way`, BYIELD is sent at the first progress that is not the end."""
        request = self._begin(slot, max_new, ids, keys)
        while request.admitted is None:
            self.take()
            if gives_way and request.progress and request.progress[-1][0] < request.progress[-1][1]:
                self.send(f"BYIELD {slot}")
                gives_way = False
        return request

    def finish(self, *requests: Request) -> None:
        """Until these requests have ended."""
        while any(request.finish is None for request in requests):
            self.take()

    def _begin(self, slot: int | None, max_new: int, ids: Sequence[int], keys: str) -> Request:
        words = ["GEN"] if slot is None else ["BGEN", str(slot)]
        self.control = Request(slot, max_new, len(ids))
        self.send(" ".join([*words, str(max_new), *keys.split(), ",".join(map(str, ids))]))
        return self.control

    # ------------------------------------------------------------------------------------------------ listening

    def take(self) -> Line:
        """The engine's next line of a known kind, entered in the books. Raises BrokenProtocol."""
        while True:
            text = self._next(self.silence_s)
            word, *values = text.split()
            line = Line(word, values, text)
            try:
                parse_report(text)
            except EngineError as error:
                raise BrokenProtocol(str(error)) from None
            if word in ("ERR", "FATAL"):
                raise BrokenProtocol(f"the engine said {text!r}{self._log_end()}")
            if word in _ON_CONTROL:
                if self.control is None:
                    raise BrokenProtocol(f"{text!r}, but no request is on the control lines")
                _ON_CONTROL[word](self, self.control, line)
                return line
            if word in _ON_SLOT:
                request = self.slots.get(line.number(0))
                if request is None:
                    raise BrokenProtocol(f"{text!r}, but slot {values[0]} is not decoding")
                _ON_SLOT[word](self, request, line)
                return line

    def _resumed(self, request: Request, line: Line) -> None:
        number = line.number(0)
        if request.progress or request.tokens:
            raise BrokenProtocol(f"{line.text!r} came after the read had begun")
        if line.word == "REUSED":
            request.reused = number
        else:
            request.resumed = number
        if None not in (request.reused, request.resumed) and request.reused != request.resumed:
            raise BrokenProtocol(f"RESUME {request.resumed} and REUSED {request.reused} of one request differ")
        if number >= request.prompt:
            raise BrokenProtocol(f"{line.text!r} of a prompt of {request.prompt} tokens: at least one has to be read")

    def _progress(self, request: Request, line: Line) -> None:
        reached, prompt = line.number(0), line.number(1)
        before = request.progress[-1][0] if request.progress else 0
        if request.tokens:
            raise BrokenProtocol(f"{line.text!r} after a token of {request}")
        if prompt != request.prompt or not before <= reached <= prompt:
            raise BrokenProtocol(f"{line.text!r} of a prompt of {request.prompt} tokens, {before} of them read before")
        request.progress.append((reached, prompt))

    def _token(self, request: Request, line: Line) -> None:
        if request.done is not None:
            raise BrokenProtocol(f"{line.text!r} after the DONE of {request}")
        request.tokens.append(line.number(0))
        most = request.limit if request.slot is None else 1
        if len(request.tokens) > most:
            raise BrokenProtocol(f"{line.text!r} is token {len(request.tokens)} of {request}, of at most {most}")

    def _yielded(self, request: Request, line: Line) -> None:
        if request.slot not in (None, line.number(0)) or request.done is not None:
            raise BrokenProtocol(f"{line.text!r}, but {request} was being read")
        request.yielded = line.number(1)

    def _done(self, request: Request, line: Line) -> None:
        if len(line.values) < 5 or line.values[4] not in FINISHES:
            raise BrokenProtocol(f"{line.text!r} has fewer than five values, or a finish that is not a finish")
        if request.done is not None or line.number(0) != len(request.tokens):
            raise BrokenProtocol(f"{line.text!r}, but {request} got {len(request.tokens)} tokens")
        finish = line.values[4]
        if finish == "length" and request.slot is None and len(request.tokens) != request.limit:
            raise BrokenProtocol(f"{line.text!r}: finish length after {len(request.tokens)} of {request.limit} tokens")
        if request.yielded is not None and finish != "cancel":
            raise BrokenProtocol(f"{line.text!r} after YIELDED must be a cancel")
        request.done = line.values
        if request.slot is None:
            request.end(finish)
            self.control = None

    def _admitted(self, request: Request, line: Line) -> None:
        if len(line.values) != 2 or line.values[1] not in ("0", "1") or line.number(0) != request.slot:
            raise BrokenProtocol(f"{line.text!r} is no answer to a BGEN of {request}")
        if request.done is None:
            raise BrokenProtocol(f"{line.text!r} before the DONE of {request}")
        request.admitted = line.values[1] == "1"
        if request.admitted and (len(request.tokens) != 1 or request.limit < 2 or request.done[4] != "length"):
            raise BrokenProtocol(f"{line.text!r} after 'DONE {' '.join(request.done)}': it cannot go on")
        self.control = None
        if request.admitted:
            self.slots[line.number(0)] = request
        else:
            request.end(request.done[4])

    def _slot_token(self, request: Request, line: Line) -> None:
        request.tokens.append(line.number(1))
        if len(request.tokens) > request.limit:
            raise BrokenProtocol(f"{line.text!r} is token {len(request.tokens)} of {request}, of {request.limit}")
        if self.control is not None and self.control.progress and not self.control.tokens:
            self.control.meanwhile += 1

    def _slot_done(self, request: Request, line: Line) -> None:
        if len(line.values) not in (4, 6) or line.values[2] not in FINISHES:
            raise BrokenProtocol(f"{line.text!r} has not four or six values, or a finish that is not a finish")
        if line.number(1) != len(request.tokens):
            raise BrokenProtocol(f"{line.text!r}, but {request} got {len(request.tokens)} tokens")
        at_context = request.prompt + len(request.tokens) > self.context
        if line.values[2] == "length" and len(request.tokens) != request.limit and not at_context:
            raise BrokenProtocol(f"{line.text!r}: finish length after {len(request.tokens)} of {request.limit} tokens")
        del self.slots[line.number(0)]
        request.end(line.values[2])

    # ------------------------------------------------------------------------------------------------ the process

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._lines.put(text.rstrip("\r\n"))
        self._lines.put(None)

    def _next(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while True:
            try:
                text = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                asked = f" ({self.control} is on the control lines)" if self.control else ""
                raise BrokenProtocol(f"no line from the engine for {seconds:g} s{asked}{self._log_end()}") from None
            if text is None:
                self._lines.put(None)
                raise self._ended()
            if text:
                return text

    def _wait_ready(self) -> None:
        while True:
            text = self._next(READY_S)
            if text.startswith("INFO "):
                self.info = dict(pair.split("=", 1) for pair in text.split()[1:] if "=" in pair)
            elif text.startswith("READY "):
                self.context = int(text.split()[1])
                return

    def _ended(self) -> BrokenProtocol:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        return BrokenProtocol(f"the engine ended by itself, exit code {self._process.poll()}{self._log_end()}")

    def _log_end(self) -> str:
        last = self.log.splitlines()[-20:]
        return "".join(f"\n  log: {line}" for line in last)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


_ON_CONTROL: Mapping[str, Callable[[Engine, Request, Line], None]] = {
    "RESUME": Engine._resumed, "REUSED": Engine._resumed, "PP": Engine._progress, "T": Engine._token,
    "YIELDED": Engine._yielded, "DONE": Engine._done, "BADM": Engine._admitted,
}  # fmt: skip
_ON_SLOT: Mapping[str, Callable[[Engine, Request, Line], None]] = {"BT": Engine._slot_token, "BDONE": Engine._slot_done}
