"""The engine process: `main` loads the model and serves lines until QUIT, the end of the input, or a signal.

Exit codes: 0 after QUIT, the end of the input, a signal or a client that went away; 1 after a FATAL line; 2 after a
wrong option. stdout belongs to the protocol: what a library prints there is sent to the log.
"""

import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Protocol

import strata
import strata.model
from strata import logs, settings
from strata.engine.channel import Disconnected, Inbox, Outbox
from strata.engine.loop import Engine, Limits
from strata.engine.options import USAGE, Options, parse
from strata.engine.protocol import Err, Fatal, Info, Ready
from strata.engine.watchdog import Watchdog
from strata.errors import StrataError, UsageError

log = logs.get("engine")
_PROGRESS_S = 2.0


class Progress(Protocol):
    def __call__(self, what: str, done: int, total: int, /) -> None: ...


class Load(Protocol):
    """`strata.model.load`, or what a test puts in its place."""

    def __call__(
        self, path: str, *, kv: str, context: int | None, threads: int, progress: Progress | None
    ) -> strata.model.Model: ...


def main(arguments: Sequence[str] | None = None, *, load: Load | None = None) -> int:
    """Run the engine with the words after `strata engine` (default: this process's); the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.setup()
    faulthandler.enable()
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(USAGE)
        return 0
    outbox = Outbox(_take_stdout())
    try:
        options = parse(arguments)
        _log_to(options.log)
        for note in options.notes:
            log.warning("%s", note)
        return _serve(options, load or strata.model.load, outbox)
    except UsageError as error:
        sys.stderr.write(f"strata engine: {error}\n")
        return error.exit_code
    except Disconnected as error:
        log.info("%s", error)
        return 0
    except KeyboardInterrupt:
        return 130
    except StrataError as error:
        log.error("%s", error)
        return _die(outbox, str(error))
    except Exception as error:
        reason = f"internal error: {error!r}"
        log.exception("%s", reason)
        return _die(outbox, reason)


def _serve(options: Options, load: Load, outbox: Outbox) -> int:
    limit = settings.read("STRATA_WATCHDOG_S")
    model = load(
        options.native, kv=options.kv, context=options.max_context, threads=options.threads, progress=_log_progress()
    )
    limits = _limits(options, model)
    watchdog = Watchdog(limit, lambda seconds, what: _stalled(engine, outbox, seconds, what))
    engine = Engine(model, limits, outbox, watch=watchdog.watch)
    inbox = Inbox()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: inbox.interrupt())
    inbox.read_from(0)
    watchdog.start()
    outbox(_info(options, limits))
    outbox(Ready(limits.context))
    log.info("ready: %s, context %d, kv %s", model.name, limits.context, options.kv)
    engine.run(inbox)
    return 0


def _limits(options: Options, model: strata.model.Model) -> Limits:
    turn = getattr(model, "turn_id", None) if options.turn_token is None else options.turn_token
    if turn is None and options.prompt_cache > 0:
        log.warning("%s names no token that opens a turn: no checkpoints there (--turn-token sets it)", model.name)
    return Limits(
        context=model.context_length,
        eos_ids=tuple(model.eos_ids) if options.eos_ids is None else options.eos_ids,
        turn_id=turn,
        chunk=options.chunk,
        largest_chunk=options.largest_chunk,
        checkpoints=options.prompt_cache,
        decode_share=settings.read("STRATA_BATCH_DECODE_SHARE"),
    )


def _info(options: Options, limits: Limits) -> Info:
    """What the seeds' servers look for, where there is a true value: nothing here is on a graphics card or drafted."""
    values: dict[str, int | str] = {"context": limits.context, "kv": options.kv, "kv_resident": 0}
    values |= {"expert_slots": 0, "expert_cache_mib": 0, "spec": 0, "mtp_max": 0, "lookup": 0, "cvec": 0}
    values |= {"conversation_cache_mib": 0, "conversation_cache_slots": 0, "tail_role_token": -1, "vram_elastic": 0}
    if options.batch:
        values |= {"batch_slots": 0, "slot_cache": 0}
    return Info(values | {"engine": strata.__version__})


def _take_stdout() -> int:
    """A private descriptor for the protocol; descriptor 1 becomes stderr, whoever writes to it."""
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def _log_to(path: str | None) -> None:
    if path is None:
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log {path} cannot be written: {error.strerror}.") from None
    root = logging.getLogger()
    handler.setFormatter(root.handlers[0].formatter)
    root.addHandler(handler)


def _log_progress() -> Progress:
    last = time.monotonic()

    def report(what: str, done: int, total: int, /) -> None:
        nonlocal last
        if done >= total or time.monotonic() - last >= _PROGRESS_S:
            last = time.monotonic()
            log.info("%s: %d of %d", what, done, total)

    return report


def _stalled(engine: Engine, outbox: Outbox, seconds: float, what: str) -> None:
    """Called by the watchdog's thread: the main one is stuck, so the process ends without it."""
    reason = f"no progress for {seconds:.1f} s in {what} (STRATA_WATCHDOG_S; a smaller --prefill makes windows shorter)"
    try:
        log.critical("stalled: %s", reason)
        faulthandler.dump_traceback(all_threads=True)
        if engine.order is not None:
            outbox(Err(reason))
        outbox(Fatal(reason))
    finally:
        os._exit(1)


def _die(outbox: Outbox, reason: str) -> int:
    try:
        outbox(Fatal(reason))
    except Disconnected:
        log.info("nobody reads the engine's output any more")
    return 1
