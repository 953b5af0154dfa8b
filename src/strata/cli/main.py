"""Reads the command line and calls the command; heavy modules are imported by the command that needs them."""

import argparse
import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from strata import __version__, logs
from strata.errors import StrataError, UsageError

COMMANDS = {
    "serve": "answer over HTTP, by the APIs of OpenAI and Anthropic, and on a page",
    "chat": "talk with a model in the terminal",
    "generate": "continue a text, or answer one message",
    "inspect": "say what a model file holds and what it lacks",
    "tokenizer": "write a model's tokenizer into a directory of plain files",
    "engine": "the engine process, which the other commands start",
}
_ELSEWHERE = {
    "-m": "--model", "-c": "--context", "--ctx-size": "--context", "--max-model-len": "--context", "-t": "--threads",
    "-np": "--parallel", "--max-num-seqs": "--parallel", "--served-model-name": "--alias", "-ctk": "--kv",
    "--cache-type-k": "--kv", "--kv-cache-dtype": "--kv", "-n": "--max-tokens", "--n-predict": "--max-tokens",
}  # fmt: skip
"""Options of llama.cpp and vLLM, and what they are called here."""


class _Parser(argparse.ArgumentParser):
    """argparse, whose complaints are errors like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]} (see {self.prog} --help).")


def _number(least: float, most: float, kind: type[int] | type[float] = float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if least <= value <= most:
                return value
        name, digits = ("whole number", "d") if kind is int else ("number", "g")
        raise argparse.ArgumentTypeError(f"{text!r} is not a {name} from {least:{digits}} to {most:{digits}}")

    return parse


def _whole(least: int, most: int) -> Callable[[str], float]:
    return _number(least, most, int)


def _engine_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("model and engine").add_argument
    add("--model", metavar="PATH", help="model file, GGUF (default: the demo model in the package)")
    add("--context", type=_whole(16, 2**24), metavar="N",
        help="longest conversation in tokens (default: the model's, or what memory holds)")
    add("--threads", type=_whole(0, 4096), default=0, metavar="N", help="CPU threads (default: every core)")
    add("--kv", choices=("bf16", "f16", "f32"), help="precision of stored keys and values (default: bf16)")
    add("--log-level", choices=logs.LEVELS, help="what is logged to stderr (default: info for serve, else warning)")


def _sampling_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("sampling").add_argument
    largest = 2**31 - 1
    add("--max-tokens", type=_whole(1, largest), metavar="N", help="longest reply (default: the context)")
    add("--temperature", type=_number(0, 100), metavar="F", help="0: always the likeliest token (default: 1)")
    add("--top-p", type=_number(0, 1), metavar="F", help="keep the likeliest tokens of this total (default: 0.95)")
    add("--top-k", type=_whole(0, largest), metavar="N", help="keep so many tokens, 0: all (default: 20)")
    add("--min-p", type=_number(0, 1), metavar="F", help="keep tokens of this share of the likeliest (default: 0)")
    add("--seed", type=_whole(0, 2**64 - 1), metavar="N", help="same seed, same text (default: from the clock)")


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command but `engine`, which has options of its own."""
    parser = _Parser(prog="strata", description="Local inference of large Mixture-of-Experts language models.")
    parser.add_argument("--version", action="version", version=f"strata {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)

    serve = commands.add_parser("serve", help=COMMANDS["serve"], description=COMMANDS["serve"])
    _engine_options(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1, this machine only)")
    serve.add_argument("--port", type=_whole(0, 65535), default=8080, help="port (default: 8080; 0: any free one)")
    serve.add_argument("--alias", action="append", default=[], metavar="NAME",
                       help="a further name under which the model is listed (again for more; any name is served)")
    serve.add_argument("--parallel", type=_whole(1, 4096), metavar="N",
                       help="requests given to the engine at once (default: as many as it has memory for)")
    serve.add_argument("--max-waiting", type=_whole(1, 2**20), metavar="N",
                       help="requests that may wait for the engine; more are answered with 429 (default: 1024)")
    serve.add_argument("--api-key", metavar="KEY[,KEY]", help="keys that clients must send (default: STRATA_API_KEY)")
    serve.add_argument("--api-key-file", metavar="PATH",
                       help="a file with one such key a line (default: STRATA_API_KEY_FILE)")
    serve.add_argument("--allowed-host", action="append", default=[], metavar="NAME",
                       help="a further host name under which this server may be reached without a key (again for more)")
    serve.add_argument("--cors-origin", action="append", default=[], metavar="ORIGIN",
                       help="let web pages of this origin use the server, as https://example.org; with a key also * "
                            "(again for more)")

    chat = commands.add_parser("chat", help=COMMANDS["chat"], description=COMMANDS["chat"])
    _engine_options(chat)
    _sampling_options(chat)
    chat.add_argument("--url", help="talk with the server at this address (default: with an engine of its own)")
    chat.add_argument("--api-key-file", metavar="FILE",
                      help="a file whose first line is the key for that server (default: STRATA_API_KEY)")
    chat.add_argument("--system", metavar="TEXT", help="system message")
    chat.add_argument("--think", choices=("on", "off"), help="thinking (default: as the model does by itself)")
    chat.add_argument("--fold", action="store_true", help="show thinking as one line")
    chat.add_argument("--no-history", action="store_true", help="neither read nor keep the lines that were typed")

    generate = commands.add_parser("generate", help=COMMANDS["generate"], description=COMMANDS["generate"])
    generate.add_argument("prompt", help="the text; - reads it from standard input")
    _engine_options(generate)
    _sampling_options(generate)
    generate.add_argument("--chat", action="store_true", help="send the text as a message, in the model's chat format")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")

    inspect = commands.add_parser("inspect", help=COMMANDS["inspect"], description=COMMANDS["inspect"])
    inspect.add_argument("file", help="model file or directory")
    tokenizer = commands.add_parser("tokenizer", help=COMMANDS["tokenizer"], description=COMMANDS["tokenizer"])
    tokenizer.add_argument("file", help="model file or directory")
    tokenizer.add_argument("directory", help="where the files are written; made if it is not there")
    commands.add_parser("engine", help=COMMANDS["engine"], add_help=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Errors meant for the user are one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except StrataError as error:
        sys.stdout.flush()
        print(f"strata: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`strata ... | head`): nothing is left to say, not even at exit.
        sys.stderr.close()
        return 141


def _run(words: list[str]) -> int:
    if words[:1] == ["engine"]:
        from strata.engine.process import main as engine_main

        return engine_main(words[1:])
    parser = build_parser()
    if not words:
        parser.print_help()
        return 2
    _check_command(words[0])
    options, unknown = parser.parse_known_args(words)
    if unknown:
        raise UsageError(_unrecognized(options, unknown))
    command = importlib.import_module(f"strata.cli.{options.command}")
    return int(command.run(options))


def _check_command(word: str) -> None:
    if word.startswith("-") or word in COMMANDS:
        return
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(COMMANDS)}."
    raise UsageError(f"There is no command {word!r}; {hint}")


def _unrecognized(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    """What is said of arguments that a command does not have, with the option that was probably meant."""
    known = [f"--{name.replace('_', '-')}" for name in vars(options)]
    word = unknown[0].partition("=")[0]
    if not word.startswith("-"):
        meant = "--model" if "--model" in known else None
    else:
        meant = _ELSEWHERE.get(word) or next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.7)), None)
    hint = f"; did you mean {meant}?" if meant in known else "."
    return f"Unrecognized arguments: {' '.join(unknown)}{hint} See strata {options.command} --help."
