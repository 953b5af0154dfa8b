"""`strata serve`: the HTTP server and its engine."""

import argparse
import asyncio
import socket
from pathlib import Path

from strata import __version__, logs, settings
from strata.cli.model import ModelCard, card_for, set_up_logs, supervisor_for
from strata.errors import UsageError
from strata.server.app import create_app
from strata.server.generation import Generator
from strata.server.guard import Access
from strata.server.keys import read_key_file, split_keys
from strata.server.listen import DRAIN_S, HttpServer, bind
from strata.server.service import ModelFacts, Service

LOG = logs.get("server")
REPLY_S = DRAIN_S - 3


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    set_up_logs(options, "info")
    access = access_for(options)
    card = card_for(options)
    listener = bind(options.host, options.port)
    asyncio.run(_serve(options, access, card, listener))
    return 0


def access_for(options: argparse.Namespace) -> Access:
    """Who may use the server. Raises UsageError for what is unsafe or cannot be read."""
    access = Access(options.host, _keys(options), tuple(options.allowed_host), tuple(options.cors_origin))
    access.check()
    return access


def _keys(options: argparse.Namespace) -> tuple[str, ...]:
    """The keys of the options; those of the environment where no option says a word about keys."""
    text, file = options.api_key, options.api_key_file
    if text is None and file is None:
        text, file = settings.read("STRATA_API_KEY"), settings.read("STRATA_API_KEY_FILE")
    keys = split_keys(text or "")
    if options.api_key is not None and not keys:
        raise UsageError("--api-key holds no key; give one, or leave the option out.")
    return tuple(dict.fromkeys((*keys, *read_key_file(Path(file))))) if file else keys


async def _serve(options: argparse.Namespace, access: Access, card: ModelCard, listener: socket.socket) -> None:
    engine = supervisor_for(card.path, options, options.parallel, options.max_waiting)
    generator = Generator(engine, card.tokenizer, name=card.name)
    facts = ModelFacts(card.architecture, card.native_context, card.parameters, card.nbytes)
    app = create_app(Service(generator, engine, access, facts, tuple(options.alias)))

    def drain() -> None:
        if engine.running:
            LOG.warning(
                "ending: requests in progress (%d) have %d s to finish; Ctrl-C again ends them at once",
                engine.running, REPLY_S,
            )  # fmt: skip
        engine.begin_drain(stop_after_s=REPLY_S)

    server = HttpServer(app, listener, on_end=drain)
    serving = asyncio.create_task(server.run())
    starting = asyncio.create_task(engine.start())
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            context = starting.result()
            host, port = listener.getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            print(
                f"Strata {__version__} serves {card} at http://{address}:{port} with a context of {context} tokens",
                flush=True,
            )
            await serving
    finally:
        server.end()
        starting.cancel()
        await engine.close()
        await asyncio.gather(serving, starting, return_exceptions=True)
