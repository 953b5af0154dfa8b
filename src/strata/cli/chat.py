"""`strata chat`: a conversation in the terminal, or through a pipe, with a running server or an engine of its own."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strata import settings
from strata.cli.talk import Conversation, Partner, Show, Turn
from strata.cli.terminal import Input, Printer
from strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    from strata.cli.model import Session

_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed")


def run(options: argparse.Namespace) -> int:
    """Talk until /quit, Ctrl-D or the end of the input. Ctrl-C stops a reply."""
    thinking = {"on": True, "off": False, None: None}[options.think]
    talk = Conversation(options.system, thinking, fold=options.fold)
    with _partner(options) as partner:
        history = None if options.no_history else settings.state_directory() / "chat_history"
        source = Input(history)
        try:
            if source.terminal:
                print(f"{partner.about}. /help lists the commands.")
            _converse(source, partner, talk)
        finally:
            source.save()
    return 0


def _converse(source: Input, partner: Partner, talk: Conversation) -> None:
    while True:
        try:
            text = source.message()
        except KeyboardInterrupt:
            if not source.terminal:
                raise
            print("\n(Ctrl-D or /quit ends the conversation)")
            continue
        if text is None:
            if source.terminal:
                print()
            return
        if text.startswith("/"):
            said = talk.command(text.rstrip())
            if said is None:
                return
            print(said)
        elif text.strip():
            _answer(partner, talk, text)


def _answer(partner: Partner, talk: Conversation, text: str) -> None:
    """One exchange; it is kept as far as it came, unless no word of an answer did."""
    printer = Printer(fold=talk.fold)
    note = ""
    try:
        finish = partner.reply(talk.turn(text), printer)
        if finish == "length":
            note = "[the reply came to its limit of tokens]"
    except KeyboardInterrupt:
        note = "[stopped]" if printer.answer else "[stopped before the answer; your message is not kept]"
    except StrataError as error:
        note = f"strata: {error}"
        if not printer.answer:
            print(note, file=sys.stderr)
            return
    printer.close()
    if note:
        print(note, file=sys.stderr)
    if printer.answer or not note:
        talk.add(text, printer.answer)


@contextlib.contextmanager
def _partner(options: argparse.Namespace) -> Iterator[Partner]:
    """The server that the options name, or an engine that lives as long as the conversation."""
    if options.url is not None:
        _refuse_engine_options(options)
        from strata.cli.remote import Remote

        given = {name: getattr(options, name) for name in _SAMPLING if getattr(options, name) is not None}
        yield Remote(options.url, _key(options.api_key_file), given)
        return
    if options.api_key_file is not None:
        raise UsageError("--api-key-file is for a running server; name it with --url.")
    from strata.cli.model import Session, set_up_logs

    set_up_logs(options, "warning")
    with Session(options) as session:
        yield _Own(session, options)


class _Own:
    """An engine that only this conversation uses."""

    def __init__(self, session: "Session", options: argparse.Namespace) -> None:
        self._session, self._options = session, options

    @property
    def about(self) -> str:
        """Model and context."""
        return f"{self._session.card}, context {self._session.context} tokens"

    def reply(self, turn: Turn, show: Show) -> str:
        """See `Partner`."""
        from strata.cli.model import sampling
        from strata.server.generation import Ask, End, Event
        from strata.text import Piece

        finish = ""

        def take(event: Event) -> None:
            nonlocal finish
            if isinstance(event, Piece):
                show(event)
            elif isinstance(event, End):
                finish = event.finish

        self._session.run(
            Ask(
                messages=turn.messages, sampling=sampling(self._options), max_tokens=self._options.max_tokens,
                thinking=turn.thinking,
            ),
            take,
        )  # fmt: skip
        return finish


def _refuse_engine_options(options: argparse.Namespace) -> None:
    given = [name for name in ("model", "context", "kv", "log_level") if getattr(options, name) is not None]
    given += ["threads"] if options.threads else []
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} is for an engine of one's own; leave it or --url out.")


def _key(file: str | None) -> str:
    """The key from a file's first line, or from the environment (the first of several)."""
    if file is None:
        return str(settings.read("STRATA_API_KEY")).partition(",")[0].strip()
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"--api-key-file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"--api-key-file {file} is not a text.") from None
    if not text:
        raise UsageError(f"--api-key-file {file} is empty.")
    return text.splitlines()[0].strip()
