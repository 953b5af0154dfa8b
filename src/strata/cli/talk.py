"""What a conversation of `strata chat` is: its messages, its switches, the commands that change them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from strata.text import Piece

HELP = """\
/think on|off|auto  thinking before the answer; auto: as the model does by itself
/fold on|off        show thinking as one line, or dimmed as it comes
/system TEXT        the system message from now on; /system off: none; /system: show it
/reset              forget the conversation, but not the system message
/help               this list
/quit               end, as Ctrl-D does
A line that ends with \\ goes on in the next. A line \"\"\" begins a text of several lines, and another one ends it.
Ctrl-C stops a reply; what was said so far stays in the conversation."""

Show = Callable[[Piece], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked for: all messages so far with the user's last; `thinking` None: as the model does by itself."""

    messages: list[dict[str, Any]]
    thinking: bool | None


class Partner(Protocol):
    """Who answers: an engine of one's own or a server."""

    @property
    def about(self) -> str:
        """Who it is, as the first line of the conversation."""
        ...

    def reply(self, turn: Turn, show: Show) -> str:
        """Show a reply piece by piece: how it finished, as the OpenAI API says it. Raises StrataError.

        KeyboardInterrupt may come at any moment, and ends the work on the reply.
        """
        ...


class Conversation:
    """The messages so far and the switches; commands change them."""

    def __init__(self, system: str | None, thinking: bool | None, *, fold: bool = False) -> None:
        self.system = system or None
        self.thinking = thinking
        self.fold = fold
        self._turns: list[dict[str, Any]] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What a model is told: the system message, then the turns."""
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self._turns]

    def turn(self, text: str) -> Turn:
        """The user's next message, after all that was said."""
        return Turn([*self.messages, {"role": "user", "content": text}], self.thinking)

    def add(self, text: str, answer: str) -> None:
        """Keep an exchange."""
        self._turns += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]

    def command(self, line: str) -> str | None:
        """Do what a `/command` says; what to tell the user, or None to end the conversation."""
        word, _, rest = line.partition(" ")
        match word, rest.strip():
            case ("/quit" | "/exit"), "":
                return None
            case "/help", "":
                return HELP
            case "/reset", "":
                self._turns = []
                return "The conversation starts anew."
            case "/think", ("on" | "off" | "auto") as value:
                self.thinking = {"on": True, "off": False, "auto": None}[value]
                return "Thinking is as the model does by itself." if value == "auto" else f"Thinking is {value}."
            case "/fold", ("on" | "off") as value:
                self.fold = value == "on"
                return "Thinking is shown as one line." if self.fold else "Thinking is shown as it comes."
            case "/system", "":
                return f"The system message: {self.system}" if self.system else "There is no system message."
            case "/system", text:
                self.system = None if text == "off" else text
                return "The system message is changed." if self.system else "There is no system message any more."
            case ("/think" | "/fold") as known, value:
                choices = "on, off or auto" if known == "/think" else "on or off"
                return f"{known} takes {choices}, not {value!r}."
        return f"There is no such command as {line!r}; /help lists them. A message cannot begin with /."
