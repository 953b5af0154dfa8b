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
from strata.engine import sizing
from strata.engine.channel import Disconnected, Inbox, Outbox
from strata.engine.constraint import Grammars
from strata.engine.loop import Engine, Limits
from strata.engine.opening import open_tokenizer
from strata.engine.options import USAGE, Options, parse
from strata.engine.protocol import Fatal, Info, Ready
from strata.engine.scheduler import Policy
from strata.engine.watchdog import Watchdog
from strata.errors import StrataError, UsageError
from strata.machine import available_memory
from strata.memory import Marking, Memory, Origin

log = logs.get("engine")
_PROGRESS_S = 2.0
_ASSUMED = 4 << 30


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
    limit, share = settings.read("STRATA_WATCHDOG_S"), settings.read("STRATA_BATCH_DECODE_SHARE")
    model = load(
        options.native, kv=options.kv, context=options.max_context, threads=options.threads, progress=_log_progress()
    )
    policy = sizing.policy(options, model.can_draft, share)
    sized = sizing.choose_memory(options, model.spec, model.context_length, _available())
    log.info("%s", sized.summary)
    for note in (*sized.notes, *sizing.draft_notes(options, model.can_draft)):
        log.warning("%s", note)
    drafts = policy.mtp_depth > 0
    origin = Origin(model.fingerprint, options.kv, model.computed_by, drafts=drafts)
    memory = Memory(sized.limits, sized.sizes, origin, lambda: model.new_state(drafts))
    watchdog = Watchdog(limit, lambda seconds, what: _stalled(engine, outbox, seconds, what))
    limits = _limits(options, model, sized, policy)
    grammars = Grammars(lambda: open_tokenizer(options.native), model.vocab_size, limits.eos_ids)
    engine = Engine(model, memory, limits, outbox, watch=watchdog.watch, grammars=grammars)
    inbox = Inbox()
    inbox.interrupt_on(signal.SIGINT, signal.SIGTERM)
    inbox.read_from(0)
    watchdog.start()
    outbox(Info(sizing.info(options, sized, policy, model.threads)))
    outbox(Ready(sized.context))
    log.info("ready: %s, context %d, kv %s", model.name, sized.context, options.kv)
    try:
        engine.run(inbox)
    finally:
        memory.close()
    return 0


def _available() -> int:
    """Bytes that may be taken; where nothing is known, a guess that suits small machines."""
    known = available_memory()
    if known is None:
        log.warning("the memory of this machine is unknown: 4 GiB are assumed to be free")
    return _ASSUMED if known is None else known


def _limits(options: Options, model: strata.model.Model, sized: sizing.Sizing, policy: Policy) -> Limits:
    turn = model.turn_id if options.turn_token is None else options.turn_token
    if turn is None and options.prompt_cache > 0:
        log.warning("%s names no token that opens a turn: no checkpoints there (--turn-token sets it)", model.name)
    return Limits(
        context=sized.context,
        eos_ids=tuple(model.eos_ids) if options.eos_ids is None else options.eos_ids,
        marking=Marking(turn, options.prompt_cache_every, options.prompt_cache_root),
        slots=options.batch,
        lanes=sized.max_lanes,
        checkpoints=options.prompt_cache,
        tell_pool=options.pool_tokens > 0,
        policy=policy,
    )


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
        engine.stalled(reason)
        outbox(Fatal(reason))
    finally:
        os._exit(1)


def _die(outbox: Outbox, reason: str) -> int:
    try:
        outbox(Fatal(reason))
    except Disconnected:
        log.info("nobody reads the engine's output any more")
    return 1
