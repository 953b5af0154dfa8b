"""`strata chat`: a conversation in the terminal, or through a pipe."""

import argparse
import sys
from typing import Any

from rich.console import Console

from strata.cli.model import Session, sampling, set_up_logs
from strata.errors import EngineError, RequestError
from strata.server.generation import Ask, Event
from strata.text import Part, Piece

HELP = "/think on|off  /reset  /exit; a line that ends with \\ goes on in the next"


class Conversation:
    """The messages so far and the switch for thinking; commands change them."""

    def __init__(self, system: str | None, thinking: bool | None) -> None:
        self._system = system
        self.thinking = thinking
        self.messages: list[dict[str, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def command(self, line: str) -> str | None:
        """Do what a `/command` says; what to tell the user, or None to end the conversation."""
        match line.split():
            case ["/exit" | "/quit"]:
                return None
            case ["/reset"]:
                self.reset()
                return "The conversation starts anew."
            case ["/think", "on" | "off" as value]:
                self.thinking = value == "on"
                return f"Thinking is {value}."
            case ["/help"]:
                return HELP
        return f"There is no such command; {HELP}"


class _Printer:
    """Writes a reply to stdout as it comes, thinking dimmed where that can be shown."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._part: Part | None = None
        self.answer = ""

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Piece):
            return
        if self._part is Part.REASONING and event.part is Part.ANSWER:
            self._console.out("\n")
        self._part = event.part
        style = "dim" if event.part is Part.REASONING else None
        self._console.out(event.text, end="", style=style, highlight=False)
        sys.stdout.flush()
        if event.part is Part.ANSWER:
            self.answer += event.text


def run(options: argparse.Namespace) -> int:
    """Talk until /exit, Ctrl-D or the end of the input. Ctrl-C stops a reply, or ends at the prompt."""
    set_up_logs(options, "warning")
    thinking = None if options.think is None else options.think == "on"
    talk = Conversation(options.system, thinking)
    with Session(options) as session:
        terminal = sys.stdin.isatty()
        if terminal:
            print(f"{session.card}, context {session.context} tokens. {HELP}")
        while (text := _read_message(terminal)) is not None:
            if text.startswith("/"):
                said = talk.command(text)
                if said is None:
                    break
                print(said)
            elif text.strip():
                _answer(session, talk, text, options)
    return 0


def _read_message(terminal: bool) -> str | None:
    """One message, several lines if they end with a backslash; None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = input(("... " if lines else "> ") if terminal else "")
        except EOFError:
            return "\n".join(lines) if lines else None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _answer(session: Session, talk: Conversation, text: str, options: argparse.Namespace) -> None:
    messages = [*talk.messages, {"role": "user", "content": text}]
    printer = _Printer()
    ask = Ask(
        messages=messages, sampling=sampling(options), max_tokens=options.max_tokens, thinking=talk.thinking
    )
    try:
        session.run(ask, printer)
    except KeyboardInterrupt:
        print("\n[stopped]", file=sys.stderr)
    except (RequestError, EngineError) as error:
        print(f"strata: {error}", file=sys.stderr)
        return
    print()
    talk.messages = [*messages, {"role": "assistant", "content": printer.answer}]
