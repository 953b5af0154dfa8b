"""Both sides of a conversation on a terminal: lines read with history, replies written as they come."""

import contextlib
import sys
import time
from pathlib import Path

from rich.console import Console

from strata.text import Part, Piece

HISTORY_LINES = 1000
_BLOCK = '"""'
# A model can write any character: those that would steer the terminal are shown as their pictures.
_CONTROLS = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


class Input:
    """Messages from stdin. `history`: a file that keeps the lines of a terminal (None: none is kept)."""

    def __init__(self, history: Path | None = None) -> None:
        self.terminal = sys.stdin.isatty()
        self._history = history if self.terminal else None
        self._load()

    def message(self) -> str | None:
        """One message, of several lines if the user says so; None at the end of the input."""
        first = self._line("> ")
        if first is None:
            return None
        if first.startswith(_BLOCK):
            return self._block(first.removeprefix(_BLOCK))
        lines = [first]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            more = self._line("... ")
            if more is None:
                break
            lines.append(more)
        return "\n".join(lines)

    def save(self) -> None:
        """Write the history; a file that cannot be written is no reason to fail."""
        if self._history is None:
            return
        with contextlib.suppress(ImportError, OSError):
            import readline

            self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._history.touch(mode=0o600)
            readline.set_history_length(HISTORY_LINES)
            readline.write_history_file(self._history)

    def _block(self, first: str) -> str:
        lines: list[str] = []
        line: str | None = first
        while line is not None:
            if line.rstrip().endswith(_BLOCK):
                lines.append(line.rstrip().removesuffix(_BLOCK))
                break
            lines.append(line)
            line = self._line("... ")
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str | None:
        try:
            return input(prompt if self.terminal else "")
        except EOFError:
            return None

    def _load(self) -> None:
        if not self.terminal:
            return
        with contextlib.suppress(ImportError, OSError):
            import readline

            # Pasted text is taken as lines, as it was typed: a terminal's marks around it would become part of it.
            readline.parse_and_bind("set enable-bracketed-paste off")
            if self._history is not None:
                readline.read_history_file(self._history)


class Printer:
    """Writes one reply to stdout. On a terminal thinking is dimmed, or folded into one line; elsewhere it is left out.

    `answer`: what was said so far.
    """

    def __init__(self, *, fold: bool) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._terminal = self._console.is_terminal
        self._fold = fold
        self._began: float | None = None
        self._part: Part | None = None
        self.answer = ""

    def __call__(self, piece: Piece) -> None:
        """The next piece."""
        if piece.part is Part.ANSWER:
            self.answer += piece.text
        if not self._terminal:
            if piece.part is Part.ANSWER:
                print(piece.text, end="", flush=True)
            return
        if piece.part is not self._part:
            self._change(piece.part)
        if piece.part is Part.ANSWER or not self._fold:
            self._out(piece.text.translate(_CONTROLS), dim=piece.part is Part.REASONING)

    def close(self) -> None:
        """The reply is over."""
        if self._terminal and self._part is Part.REASONING and self._fold:
            self._folded()
        print(flush=True)

    def _change(self, part: Part) -> None:
        if part is Part.REASONING:
            self._began = time.monotonic()
            if self._fold:
                self._out("thinking ...", dim=True)
        elif self._part is Part.REASONING:
            if self._fold:
                self._folded()
            self._out("\n" if self._fold else "\n\n")
        self._part = part

    def _folded(self) -> None:
        seconds = time.monotonic() - (self._began or 0.0)
        self._out(f"\r(thought for {seconds:.1f} s)", dim=True)

    def _out(self, text: str, *, dim: bool = False) -> None:
        self._console.out(text, end="", style="dim" if dim else None, highlight=False)
        sys.stdout.flush()
