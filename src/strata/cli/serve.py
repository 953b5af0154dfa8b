"""`strata serve`: the HTTP server and its engine."""

import argparse
import asyncio
import socket

from strata import __version__, logs, settings
from strata.cli.model import ModelCard, card_for, set_up_logs, supervisor_for
from strata.server.app import create_app
from strata.server.generation import Generator
from strata.server.guard import Access, split_keys
from strata.server.listen import DRAIN_S, HttpServer, bind
from strata.server.service import Service

LOG = logs.get("server")
REPLY_S = DRAIN_S - 3


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    set_up_logs(options, "info")
    keys = split_keys(options.api_key if options.api_key is not None else settings.read("STRATA_API_KEY"))
    access = Access(options.host, keys, tuple(options.allowed_host))
    access.check()
    card = card_for(options)
    listener = bind(options.host, options.port)
    asyncio.run(_serve(options, access, card, listener))
    return 0


async def _serve(options: argparse.Namespace, access: Access, card: ModelCard, listener: socket.socket) -> None:
    engine = supervisor_for(card.path, options, options.parallel)
    generator = Generator(engine, card.tokenizer, name=card.name)
    app = create_app(Service(generator, engine, access))

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
